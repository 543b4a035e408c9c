/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about graphs: effects and order of a launch, and destruction. */
#define MODULE "graph"
#include "conformance.h"

struct field {
    CUstream stream, other;
    CUdeviceptr address;
    CUgraph graph;
    CUgraphExec executable;
};

/* A graph of two nodes: word 0 := value, then word 1 := word 0. */
static bool plough(struct bed *b, struct field *f, uint32_t value)
{
    const struct flw_driver *cu = b->cu;
    *f = (struct field){0};
    if (!bed_has(b, cu->cuGraphInstantiateWithFlags != NULL && cu->cuGraphLaunch != NULL)) {
        return false;
    }
    f->stream = bed_stream(b);
    f->other = bed_stream(b);
    f->address = bed_alloc(b, 4096);
    OK(cu->cuMemsetD8_v2(f->address, 0, 4096));
    OK(cu->cuCtxSynchronize());
    OK(cu->cuStreamBeginCapture_v2(f->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu->cuMemsetD32Async(f->address, value, 1, f->stream));
    OK(cu->cuMemcpyDtoDAsync_v2(f->address + 4, f->address, 4, f->stream));
    OK(cu->cuStreamEndCapture(f->stream, &f->graph));
    return OK(cu->cuGraphInstantiateWithFlags(&f->executable, f->graph, 0));
}

static void leave(struct bed *b, struct field *f)
{
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuGraphExecDestroy(f->executable));
    OK(b->cu->cuGraphDestroy(f->graph));
}

HEADER(a_launch_does_the_captured_work, "Executes hGraphExec in hStream")
{
    struct field f;
    NEED(plough(b, &f, 11));
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address) == 0); /* instantiating runs nothing */
    OK(b->cu->cuGraphLaunch(f.executable, f.stream));
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address) == 11 && bed_peek(b, f.address + 4) == 11);
    leave(b, &f);
}

HEADER(a_launch_is_behind_earlier_work,
       "Each launch is ordered behind both any previous work in hStream and any previous "
       "launches of hGraphExec")
{
    struct field f;
    NEED(plough(b, &f, 12));
    bed_gate_close(b, f.stream);
    OK(b->cu->cuMemsetD32Async(f.address, 1, 2, f.stream));
    OK(b->cu->cuGraphLaunch(f.executable, f.stream));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(f.stream));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address + 4) == 12);
    leave(b, &f);
}

HEADER(launches_of_one_executable_are_ordered,
       "Only one instance of hGraphExec may be executing at a time")
{
    struct field f;
    NEED(plough(b, &f, 13));
    bed_gate_close(b, f.stream);
    OK(b->cu->cuGraphLaunch(f.executable, f.stream));
    OK(b->cu->cuGraphLaunch(f.executable, f.other));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(f.other)); /* behind the first launch */
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(f.other));
    THAT(bed_peek(b, f.address + 4) == 13);
    leave(b, &f);
}

HEADER(an_executable_in_flight_is_destroyed_later,
       "If the executable graph is in-flight, it will not be terminated, but rather freed "
       "asynchronously on completion")
{
    struct field f;
    NEED(plough(b, &f, 14));
    bed_gate_close(b, f.stream);
    OK(b->cu->cuGraphLaunch(f.executable, f.stream));
    OK(b->cu->cuGraphExecDestroy(f.executable));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address + 4) == 14);
    OK(b->cu->cuGraphInstantiateWithFlags(&f.executable, f.graph, 0));
    leave(b, &f);
}

HEADER(an_executable_outlives_its_graph, "Instantiates hGraph as an executable graph")
{
    struct field f;
    CUgraph second = NULL;
    NEED(plough(b, &f, 15));
    OK(b->cu->cuGraphDestroy(f.graph));
    OK(b->cu->cuGraphLaunch(f.executable, f.stream));
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address) == 15);
    OK(b->cu->cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(b->cu->cuStreamEndCapture(f.stream, &second));
    f.graph = second;
    leave(b, &f);
}

HEADER(a_graph_launched_inside_a_capture_is_captured,
       "all operations pushed into the stream will not be executed")
{
    struct field f;
    CUgraph outer = NULL;
    CUgraphExec outer_executable = NULL;
    NEED(plough(b, &f, 16));
    OK(b->cu->cuStreamBeginCapture_v2(f.other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(b->cu->cuGraphLaunch(f.executable, f.other));
    OK(b->cu->cuStreamEndCapture(f.other, &outer));
    THAT(bed_peek(b, f.address) == 0);
    OK(b->cu->cuGraphInstantiateWithFlags(&outer_executable, outer, 0));
    OK(b->cu->cuGraphLaunch(outer_executable, f.other));
    OK(b->cu->cuStreamSynchronize(f.other));
    THAT(bed_peek(b, f.address + 4) == 16);
    OK(b->cu->cuGraphExecDestroy(outer_executable));
    OK(b->cu->cuGraphDestroy(outer));
    leave(b, &f);
}

HEADER(forked_branches_both_run, "returning the captured graph via phGraph")
{
    const struct flw_driver *cu = b->cu;
    struct field f;
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    NEED(plough(b, &f, 17));
    OK(cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cu->cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu->cuEventRecord(event, f.stream));
    OK(cu->cuStreamWaitEvent(f.other, event, 0));
    OK(cu->cuMemsetD32Async(f.address + 512, 1, 1, f.stream));
    OK(cu->cuMemsetD32Async(f.address + 1024, 2, 1, f.other));
    OK(cu->cuEventRecord(event, f.other));
    OK(cu->cuStreamWaitEvent(f.stream, event, 0));
    OK(cu->cuMemcpyDtoDAsync_v2(f.address + 2048, f.address + 1024, 4, f.stream));
    OK(cu->cuStreamEndCapture(f.stream, &graph));
    OK(cu->cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cu->cuGraphLaunch(executable, f.stream));
    OK(cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address + 512) == 1 && bed_peek(b, f.address + 2048) == 2);
    OK(cu->cuGraphExecDestroy(executable));
    OK(cu->cuGraphDestroy(graph));
    OK(cu->cuEventDestroy_v2(event));
    leave(b, &f);
}
