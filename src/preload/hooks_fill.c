/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of memsets and kernel launches: they pass the call through, and tell the audit
 * where one is on; a fill on trial is given poison. The audit's place in the life of the process.
 * Does not: judge (audit/audit.h).
 */
#include <stdlib.h>
#include <string.h>

#include "preload/audit/audit.h"
#include "preload/hooks.h"
#include "preload/inside.h"
#include "preload/life.h"
#include "preload/real.h"
#include "preload/say.h"
#include "preload/settings.h"

#define CALLER() ((uintptr_t)__builtin_return_address(0))

/* ---- the part */

static void complain(const char *prefix, int error)
{
    flw_say("audit: cannot keep findings at '%.300s': %s; the program runs without an audit",
            prefix, strerror(error));
}

static void start(void)
{
    struct flw_audit_config config = {.prefix = flw_settings.audit_prefix,
                                      .trial_id = strtoull(flw_settings.trial_site, NULL, 16),
                                      .depth = (uint32_t)flw_settings.frame_count,
                                      .poison = (unsigned char)flw_settings.trial_byte,
                                      .complain = complain};
    if (flw_settings.audit_prefix[0] != '\0') {
        flw_audit_ask(&config);
    }
}

/* The page is the parent's; a child that may use the driver asks for one of its own. */
static void child(void)
{
    bool is_fresh = flw_audit_stop();
    if (is_fresh || flw_life_state() == FLW_LIFE_FRESH) {
        start();
    }
}

const struct flw_part flw_part_fill = {.start = start, .child = child};

/* ---- what the wrappers share */

struct watch {
    struct flw_audit_judgement judgement;
    unsigned value; /* what to fill with: the program's, or poison in every byte */
    bool is_on;
};

/* NULL means another stream to a _ptsz or _ptds twin. */
static CUstream name_stream(CUstream stream, bool is_twin)
{
    return stream == NULL && is_twin ? CU_STREAM_PER_THREAD : stream;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return flw_real_ready() &&
           flw_real.driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

struct rows {
    CUdeviceptr pointer;
    size_t pitch, width, height; /* in bytes, but for height */
    unsigned value;
};

static void begin_fill(struct watch *watch, const char *call, uintptr_t caller,
                       const struct rows *rows, CUstream stream)
{
    watch->is_on = flw_audit_is_on();
    watch->value = rows->value;
    if (!watch->is_on) {
        return;
    }
    bool is_empty = rows->width == 0 || rows->height == 0;
    struct flw_audit_fill fill = {.address = rows->pointer,
                                  .bytes = is_empty ? 0 : rows->width * rows->height,
                                  .span =
                                      is_empty ? 0 : rows->pitch * (rows->height - 1) + rows->width,
                                  .is_zero = rows->value == 0,
                                  .is_captured = is_captured(stream),
                                  .call = call,
                                  .caller = caller};
    flw_audit_judge_fill(&fill, &watch->judgement);
    if (watch->judgement.is_on_trial) {
        watch->value = flw_audit_poison() * 0x01010101u;
    }
}

static CUresult end_fill(const struct watch *watch, CUresult result)
{
    if (watch->is_on && result == CUDA_SUCCESS) {
        flw_audit_count(&watch->judgement, watch->judgement.is_on_trial);
    }
    return result;
}

/* ---- memsets of a row */

#define FILL(symbol, type, is_twin)                                                  \
    CUresult flw_hook_##symbol(CUdeviceptr pointer, type value, size_t count)        \
    {                                                                                \
        struct watch watch;                                                          \
        struct rows rows = {pointer, 0, count * sizeof value, 1, value};             \
        begin_fill(&watch, #symbol, CALLER(), &rows, name_stream(NULL, is_twin));    \
        return end_fill(&watch, flw_real.symbol(pointer, (type)watch.value, count)); \
    }

#define FILL_ASYNC(symbol, type, is_twin)                                                      \
    CUresult flw_hook_##symbol(CUdeviceptr pointer, type value, size_t count, CUstream stream) \
    {                                                                                          \
        struct watch watch;                                                                    \
        struct rows rows = {pointer, 0, count * sizeof value, 1, value};                       \
        begin_fill(&watch, #symbol, CALLER(), &rows, name_stream(stream, is_twin));            \
        return end_fill(&watch, flw_real.symbol(pointer, (type)watch.value, count, stream));   \
    }

FILL(cuMemsetD8_v2, unsigned char, false)
FILL(cuMemsetD8_v2_ptds, unsigned char, true)
FILL_ASYNC(cuMemsetD8Async, unsigned char, false)
FILL_ASYNC(cuMemsetD8Async_ptsz, unsigned char, true)
FILL(cuMemsetD16_v2, unsigned short, false)
FILL(cuMemsetD16_v2_ptds, unsigned short, true)
FILL_ASYNC(cuMemsetD16Async, unsigned short, false)
FILL_ASYNC(cuMemsetD16Async_ptsz, unsigned short, true)
FILL(cuMemsetD32_v2, unsigned, false)
FILL(cuMemsetD32_v2_ptds, unsigned, true)
FILL_ASYNC(cuMemsetD32Async, unsigned, false)
FILL_ASYNC(cuMemsetD32Async_ptsz, unsigned, true)

#undef FILL
#undef FILL_ASYNC

/* ---- memsets of rows */

#define FILL(symbol, type, is_twin)                                                         \
    CUresult flw_hook_##symbol(CUdeviceptr pointer, size_t pitch, type value, size_t width, \
                               size_t height)                                               \
    {                                                                                       \
        struct watch watch;                                                                 \
        struct rows rows = {pointer, pitch, width * sizeof value, height, value};           \
        begin_fill(&watch, #symbol, CALLER(), &rows, name_stream(NULL, is_twin));           \
        return end_fill(&watch,                                                             \
                        flw_real.symbol(pointer, pitch, (type)watch.value, width, height)); \
    }

#define FILL_ASYNC(symbol, type, is_twin)                                                       \
    CUresult flw_hook_##symbol(CUdeviceptr pointer, size_t pitch, type value, size_t width,     \
                               size_t height, CUstream stream)                                  \
    {                                                                                           \
        struct watch watch;                                                                     \
        struct rows rows = {pointer, pitch, width * sizeof value, height, value};               \
        begin_fill(&watch, #symbol, CALLER(), &rows, name_stream(stream, is_twin));             \
        return end_fill(                                                                        \
            &watch, flw_real.symbol(pointer, pitch, (type)watch.value, width, height, stream)); \
    }

FILL(cuMemsetD2D8_v2, unsigned char, false)
FILL(cuMemsetD2D8_v2_ptds, unsigned char, true)
FILL_ASYNC(cuMemsetD2D8Async, unsigned char, false)
FILL_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char, true)
FILL(cuMemsetD2D16_v2, unsigned short, false)
FILL(cuMemsetD2D16_v2_ptds, unsigned short, true)
FILL_ASYNC(cuMemsetD2D16Async, unsigned short, false)
FILL_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short, true)
FILL(cuMemsetD2D32_v2, unsigned, false)
FILL(cuMemsetD2D32_v2_ptds, unsigned, true)
FILL_ASYNC(cuMemsetD2D32Async, unsigned, false)
FILL_ASYNC(cuMemsetD2D32Async_ptsz, unsigned, true)

#undef FILL
#undef FILL_ASYNC

/* ---- launches: what they are given */

struct arguments {
    struct flw_parameter at[FLW_PARAMETERS_MAX];
    uint32_t count;
    bool is_read;
};

/* A launch takes a kernel of a library in the place of a function, too. */
static CUresult get_place(CUfunction function, bool is_kernel, size_t index, size_t *offset,
                          size_t *bytes)
{
    if (is_kernel) {
        return flw_real.cuKernelGetParamInfo != NULL
                   ? flw_real.cuKernelGetParamInfo((struct CUkern_st *)function, index, offset,
                                                   bytes)
                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    return flw_real.driver.cuFuncGetParamInfo != NULL
               ? flw_real.driver.cuFuncGetParamInfo(function, index, offset, bytes)
               : CUDA_ERROR_NOT_SUPPORTED;
}

static const char *get_name(CUfunction function)
{
    const char *name = NULL;
    if (flw_real.driver.cuFuncGetName != NULL &&
        flw_real.driver.cuFuncGetName(&name, function) == CUDA_SUCCESS) {
        return name;
    }
    if (flw_real.cuKernelGetName != NULL &&
        flw_real.cuKernelGetName(&name, (struct CUkern_st *)function) == CUDA_SUCCESS) {
        return name;
    }
    return NULL;
}

struct buffer {
    const unsigned char *at;
    size_t bytes;
};

/* extra: names and values, ended by CU_LAUNCH_PARAM_END. False: a name that is not known. */
static bool find_buffer(void **extra, struct buffer *out)
{
    enum {
        END = 0,
        POINTER = 1,
        SIZE = 2
    };
    for (; (uintptr_t)extra[0] != END; extra += 2) {
        if ((uintptr_t)extra[0] == POINTER) {
            out->at = extra[1];
        } else if ((uintptr_t)extra[0] == SIZE) {
            memcpy(&out->bytes, extra[1], sizeof out->bytes);
        } else {
            return false;
        }
    }
    return true;
}

/* One parameter, where the driver says that it has it. False: it cannot be read. */
static bool add_argument(struct arguments *arguments, void **parameters,
                         const struct buffer *buffer, size_t offset, size_t bytes)
{
    uint32_t index = arguments->count;
    const unsigned char *at = NULL;
    if (index == FLW_PARAMETERS_MAX) {
        return false;
    }
    if (parameters != NULL) {
        at = parameters[index];
    } else if (buffer->at != NULL && bytes <= buffer->bytes && offset <= buffer->bytes - bytes) {
        at = buffer->at + offset;
    }
    arguments->at[arguments->count++] = (struct flw_parameter){at, bytes};
    return at != NULL;
}

/* A driver before 12.4 says nothing of parameters: then a buffer is read as it lies, and pointers to
 * parameters, whose sizes are not known, are not. */
static void read_arguments(struct arguments *arguments, CUfunction function, void **parameters,
                           void **extra)
{
    struct buffer buffer = {NULL, 0};
    size_t offset = 0, bytes = 0;
    arguments->count = 0;
    arguments->is_read = parameters != NULL || extra == NULL || find_buffer(extra, &buffer);
    if (!arguments->is_read || !flw_real_ready()) {
        arguments->is_read = false;
        return;
    }
    CUresult result = get_place(function, false, 0, &offset, &bytes);
    bool is_kernel =
        result != CUDA_SUCCESS && get_place(function, true, 0, &offset, &bytes) == CUDA_SUCCESS;
    result = is_kernel ? CUDA_SUCCESS : result;
    while (result == CUDA_SUCCESS && arguments->is_read) {
        arguments->is_read = add_argument(arguments, parameters, &buffer, offset, bytes);
        result = get_place(function, is_kernel, arguments->count, &offset, &bytes);
    }
    if (result != CUDA_ERROR_INVALID_VALUE) { /* not the end of the list */
        bool is_flat = parameters == NULL && arguments->count == 0;
        arguments->is_read = is_flat && (extra == NULL || buffer.at != NULL);
        if (is_flat && buffer.at != NULL) {
            arguments->at[arguments->count++] = (struct flw_parameter){buffer.at, buffer.bytes};
        }
    }
}

struct launch {
    CUfunction function;
    void **parameters, **extra;
    CUstream stream;
    uintptr_t caller;
};

static void begin_launch(struct watch *watch, const struct launch *launch)
{
    struct arguments arguments;
    watch->is_on = flw_audit_is_on();
    if (!watch->is_on) {
        return;
    }
    struct flw_audit_launch seen = {.is_captured = is_captured(launch->stream)};
    if (!seen.is_captured) { /* nor is the driver asked: it might load a module, under capture */
        flw_inside_enter();
        read_arguments(&arguments, launch->function, launch->parameters, launch->extra);
        seen = (struct flw_audit_launch){.name = get_name(launch->function),
                                         .parameters = arguments.at,
                                         .parameter_count = arguments.count,
                                         .is_read = arguments.is_read,
                                         .caller = launch->caller};
        flw_inside_leave();
    }
    flw_audit_judge_launch(&seen, &watch->judgement);
}

/* A kernel's fill on trial runs, and poison is laid over it behind it on its stream: whatever else
 * hangs on the launch stays as it is. */
static CUresult end_launch(const struct watch *watch, const struct launch *launch, CUresult result)
{
    if (!watch->is_on || result != CUDA_SUCCESS) {
        return result;
    }
    const struct flw_audit_judgement *judgement = &watch->judgement;
    bool is_poisoned = judgement->is_on_trial && judgement->is_range_read &&
                       flw_real.cuMemsetD8Async(judgement->address, flw_audit_poison(),
                                                judgement->bytes, launch->stream) == CUDA_SUCCESS;
    flw_audit_count(judgement, is_poisoned);
    return result;
}

/* ---- launches: the wrappers */

#define LAUNCH(symbol, is_twin)                                                               \
    CUresult flw_hook_##symbol(CUfunction function, unsigned grid_x, unsigned grid_y,         \
                               unsigned grid_z, unsigned block_x, unsigned block_y,           \
                               unsigned block_z, unsigned shared_bytes, CUstream stream,      \
                               void **parameters, void **extra)                               \
    {                                                                                         \
        struct watch watch;                                                                   \
        struct launch launch = {function, parameters, extra, name_stream(stream, is_twin),    \
                                CALLER()};                                                    \
        begin_launch(&watch, &launch);                                                        \
        return end_launch(&watch, &launch,                                                    \
                          flw_real.symbol(function, grid_x, grid_y, grid_z, block_x, block_y, \
                                          block_z, shared_bytes, stream, parameters, extra)); \
    }

LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)
#undef LAUNCH

#define LAUNCH(symbol, is_twin)                                                               \
    CUresult flw_hook_##symbol(CUfunction function, unsigned grid_x, unsigned grid_y,         \
                               unsigned grid_z, unsigned block_x, unsigned block_y,           \
                               unsigned block_z, unsigned shared_bytes, CUstream stream,      \
                               void **parameters)                                             \
    {                                                                                         \
        struct watch watch;                                                                   \
        struct launch launch = {function, parameters, NULL, name_stream(stream, is_twin),     \
                                CALLER()};                                                    \
        begin_launch(&watch, &launch);                                                        \
        return end_launch(&watch, &launch,                                                    \
                          flw_real.symbol(function, grid_x, grid_y, grid_z, block_x, block_y, \
                                          block_z, shared_bytes, stream, parameters));        \
    }

LAUNCH(cuLaunchCooperativeKernel, false)
LAUNCH(cuLaunchCooperativeKernel_ptsz, true)
#undef LAUNCH

/* The members of CUlaunchConfig that the driver's interface has first, for builds without cuda.h. */
struct launch_head {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
};

static CUstream stream_of(const struct CUlaunchConfig_st *config)
{
    struct launch_head head = {.stream = NULL};
    if (config != NULL && flw_audit_is_on()) {
        memcpy(&head, config, sizeof head);
    }
    return head.stream;
}

#define LAUNCH(symbol, is_twin)                                                                   \
    CUresult flw_hook_##symbol(const struct CUlaunchConfig_st *config, CUfunction function,       \
                               void **parameters, void **extra)                                   \
    {                                                                                             \
        struct watch watch;                                                                       \
        struct launch launch = {function, parameters, extra,                                      \
                                name_stream(stream_of(config), is_twin), CALLER()};               \
        begin_launch(&watch, &launch);                                                            \
        return end_launch(&watch, &launch, flw_real.symbol(config, function, parameters, extra)); \
    }

LAUNCH(cuLaunchKernelEx, false)
LAUNCH(cuLaunchKernelEx_ptsz, true)
#undef LAUNCH
