/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of what begins and ends the capture of a stream. Each passes its call through.
 * Does not: lend memory.
 */
#include "preload/hooks.h"
#include "preload/real.h"

CUresult flw_hook_cuStreamBeginCapture(CUstream stream)
{
    return flw_real.cuStreamBeginCapture(stream);
}

CUresult flw_hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
    return flw_real.cuStreamBeginCapture_ptsz(stream);
}

CUresult flw_hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return flw_real.cuStreamBeginCapture_v2(stream, mode);
}

CUresult flw_hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return flw_real.cuStreamBeginCapture_v2_ptsz(stream, mode);
}

CUresult flw_hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                              const CUgraphNode *dependencies,
                                              const struct CUgraphEdgeData_st *edges,
                                              size_t dependency_count, CUstreamCaptureMode mode)
{
    return flw_real.cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges,
                                                dependency_count, mode);
}

CUresult flw_hook_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                   const CUgraphNode *dependencies,
                                                   const struct CUgraphEdgeData_st *edges,
                                                   size_t dependency_count,
                                                   CUstreamCaptureMode mode)
{
    return flw_real.cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges,
                                                     dependency_count, mode);
}

CUresult flw_hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return flw_real.cuStreamEndCapture(stream, graph);
}

CUresult flw_hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return flw_real.cuStreamEndCapture_ptsz(stream, graph);
}

CUresult flw_hook_cuStreamDestroy(CUstream stream)
{
    return flw_real.cuStreamDestroy(stream);
}

CUresult flw_hook_cuStreamDestroy_v2(CUstream stream)
{
    return flw_real.cuStreamDestroy_v2(stream);
}
