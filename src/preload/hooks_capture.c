/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of calls that begin and end the capture of a stream: no epoch is closed in
 * between.
 * Does not: allocate memory. */
#include "heap/order/epoch.h"
#include "preload/captures.h"
#include "preload/hooks.h"
#include "preload/live_contexts.h"
#include "preload/real.h"

/* Return the stream that NULL means in a _ptsz twin. */
static CUstream own(CUstream stream)
{
    return stream != NULL ? stream : CU_STREAM_PER_THREAD;
}

/* Run before a driver call that may begin a capture; after() undoes this if none began. */
static bool before(void)
{
    bool serves = flw_live_contexts_serve();
    if (serves) {
        flw_captured_begin();
    }
    return serves;
}

static CUresult after(bool serves, CUstream stream, CUresult result)
{
    return serves ? flw_captured_begun(stream, result) : result;
}

#define WRAP(symbol, base, since, parameters, arguments)                                   \
    CUresult flw_hook_##symbol parameters                                                  \
    {                                                                                      \
        bool serves = before();                                                            \
        return after(serves, flw_hook_stream(stream, #symbol), flw_real.symbol arguments); \
    }
FLW_HOOKS_BEGIN_CAPTURE(WRAP)
#undef WRAP

/* A failed end may or may not have ended the capture: query the stream. */
static CUresult end(CUstream stream, CUgraph *graph, CUstream named,
                    CUresult (*real)(CUstream stream, CUgraph *graph))
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = real(stream, graph);
    if (flw_live_contexts_serve() && flw_captures_are_open() &&
        (result == CUDA_SUCCESS ||
         (flw_real.driver.cuStreamIsCapturing(named, &status) == CUDA_SUCCESS &&
          status == CU_STREAM_CAPTURE_STATUS_NONE))) {
        flw_captured_over(flw_captured_name(named));
    }
    return result;
}

CUresult flw_hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, stream, flw_real.cuStreamEndCapture);
}

CUresult flw_hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, own(stream), flw_real.cuStreamEndCapture_ptsz);
}

/* The end of a stream also ends the capture. */
static CUresult destroy(CUstream stream, CUresult (*real)(CUstream stream))
{
    bool may_end = stream != NULL && flw_captures_are_open() && flw_live_contexts_serve();
    unsigned long long name = may_end ? flw_captured_name(stream) : 0;
    CUresult result = real(stream);
    if (may_end && result == CUDA_SUCCESS) {
        flw_captured_over(name);
    }
    return result;
}

CUresult flw_hook_cuStreamDestroy(CUstream stream)
{
    return destroy(stream, flw_real.cuStreamDestroy);
}

CUresult flw_hook_cuStreamDestroy_v2(CUstream stream)
{
    return destroy(stream, flw_real.cuStreamDestroy_v2);
}
