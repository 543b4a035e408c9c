/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: captured work as a program (nodes and their dependencies), graphs, executables, launches.
 * Does not: capture (capture.c).
 *
 * A launch is one operation of the stream; inside it the nodes run in a random order that their
 * dependencies permit. With the checker, two nodes that access the same bytes without a path
 * between them are a violation when the second is captured: every launch would be a race. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/storage.h"

struct node {
    struct flw_work work;
    uint32_t *parents;
    uint32_t parent_count;
    uint64_t *before; /* bit i: node i precedes this one */
};

struct flw_program {
    uint64_t reference_count;
    struct node *nodes;
    uint32_t count, capacity;
    uint64_t *memory; /* pool blocks that captured allocations own */
    uint32_t memory_count;
};

struct graph {
    CUgraph handle;
    struct flw_program *program;
};

struct executable {
    CUgraphExec handle;
    struct flw_program *program;
    bool was_launched;
    struct flw_position last; /* an executable never runs twice at the same time */
    struct flw_order_clock last_clock;
};

struct flw_program *flw_program_make(void)
{
    struct flw_program *program = flw_host_get(sizeof *program);
    program->reference_count = 1;
    return program;
}

void flw_program_retain(struct flw_program *program)
{
    program->reference_count++;
}

void flw_program_release(struct flw_program *program)
{
    if (--program->reference_count > 0) {
        return;
    }
    for (uint32_t i = 0; i < program->count; i++) {
        flw_work_finish(&program->nodes[i].work);
        free(program->nodes[i].parents);
        free(program->nodes[i].before);
    }
    for (uint32_t i = 0; i < program->memory_count; i++) {
        flw_pool_free_of_graph(program->memory[i]);
    }
    free(program->memory);
    free(program->nodes);
    free(program);
}

void flw_program_own_memory(struct flw_program *program, uint64_t address)
{
    program->memory =
        flw_host_resize(program->memory, (program->memory_count + 1) * sizeof *program->memory);
    program->memory[program->memory_count++] = address;
}

bool flw_program_owns_memory(const struct flw_program *program, uint64_t address)
{
    for (uint32_t i = 0; i < program->memory_count; i++) {
        if (program->memory[i] == address) {
            return true;
        }
    }
    return false;
}

static bool has_before(const struct node *node, uint32_t index)
{
    return (node->before[index / 64] >> (index % 64)) & 1;
}

static void note_before(struct flw_program *program, struct node *node, uint32_t index)
{
    node->before = flw_host_get((index / 64 + 1) * sizeof *node->before);
    for (uint32_t p = 0; p < node->parent_count; p++) {
        uint32_t parent = node->parents[p];
        for (uint32_t w = 0; w <= parent / 64; w++) {
            node->before[w] |= program->nodes[parent].before[w];
        }
        node->before[parent / 64] |= 1ull << (parent % 64);
    }
}

bool flw_program_is_before(const struct flw_program *program, uint32_t index, const uint32_t *tips,
                           uint32_t tip_count)
{
    for (uint32_t i = 0; i < tip_count; i++) {
        if (tips[i] == index || (tips[i] > index && has_before(&program->nodes[tips[i]], index))) {
            return true;
        }
    }
    return false;
}

static bool collide(const struct flw_work *a, const struct flw_work *b)
{
    for (size_t i = 0; i < a->range_count; i++) {
        for (size_t k = 0; k < b->range_count; k++) {
            const struct flw_sim_range *x = &a->ranges[i];
            const struct flw_sim_range *y = &b->ranges[k];
            if ((x->is_write || y->is_write) && x->address < y->address + y->bytes &&
                y->address < x->address + x->bytes) {
                return true;
            }
        }
    }
    return false;
}

static void check_races(const struct flw_program *program, uint32_t index)
{
    const struct node *node = &program->nodes[index];
    for (uint32_t i = 0; i < index; i++) {
        const struct node *other = &program->nodes[i];
        if (!has_before(node, i) && collide(&node->work, &other->work)) {
            flw_check_violation("graph race: node %u (%s) and node %u (%s) of one graph touch the "
                                "same bytes near %#llx and nothing orders them",
                                index, node->work.name, i, other->work.name,
                                (unsigned long long)node->work.ranges[0].address);
        }
    }
}

uint32_t flw_program_add(struct flw_program *program, const struct flw_work *work,
                         const uint32_t *tips, uint32_t tip_count)
{
    FLW_HOST_FIT(program->nodes, program->count, program->capacity);
    uint32_t index = program->count++;
    struct node *node = &program->nodes[index];
    *node = (struct node){.parent_count = tip_count};
    flw_work_copy(&node->work, work);
    node->parents = flw_host_get(tip_count * sizeof *node->parents);
    if (tip_count > 0) {
        memcpy(node->parents, tips, tip_count * sizeof *node->parents);
    }
    note_before(program, node, index);
    if (flw_check_is_on()) {
        check_races(program, index);
    }
    return index;
}

bool flw_program_touches(const struct flw_program *program, uint64_t begin, uint64_t end)
{
    for (uint32_t i = 0; i < program->count; i++) {
        const struct flw_work *work = &program->nodes[i].work;
        for (size_t k = 0; k < work->range_count; k++) {
            const struct flw_sim_range *range = &work->ranges[k];
            if (range->address < end && begin < range->address + range->bytes) {
                return true;
            }
        }
        if (work->program != NULL && flw_program_touches(work->program, begin, end)) {
            return true;
        }
    }
    return false;
}

static bool is_ready(const struct flw_program *program, const bool *done, uint32_t index)
{
    const struct node *node = &program->nodes[index];
    for (uint32_t p = 0; p < node->parent_count; p++) {
        if (!done[node->parents[p]]) {
            return false;
        }
    }
    return !done[index];
}

static CUresult do_node(struct node *node, struct flw_stream *stream, uint64_t sequence,
                        const struct flw_order_clock *clock)
{
    if (node->work.kind == FLW_WORK_HOST) {
        flw_order_run_host_function(flw_thread_get(), node->work.function, node->work.argument);
        return CUDA_SUCCESS;
    }
    return flw_work_do(stream, &node->work, sequence, clock);
}

/* Nodes are numbered in an order that respects dependencies; a random window is shuffled. */
CUresult flw_program_do(struct flw_program *program, struct flw_stream *stream, uint64_t sequence,
                        const struct flw_order_clock *clock)
{
    CUresult result = CUDA_SUCCESS;
    bool *done = flw_host_get(program->count * sizeof *done);
    uint32_t first = 0;
    flw_program_retain(program);
    while (first < program->count && result == CUDA_SUCCESS) {
        uint32_t window = program->count - first < 16 ? program->count - first : 16;
        uint32_t start = (uint32_t)(flw_world_random() % window);
        uint32_t chosen = first; /* the first unfinished one can always run */
        for (uint32_t i = 0; i < window; i++) {
            uint32_t index = first + (start + i) % window;
            if (is_ready(program, done, index)) {
                chosen = index;
                break;
            }
        }
        result = do_node(&program->nodes[chosen], stream, sequence, clock);
        done[chosen] = true;
        while (first < program->count && done[first]) {
            first++;
        }
    }
    flw_program_release(program);
    free(done);
    return result;
}

CUgraph flw_graph_adopt(struct flw_program *program)
{
    struct graph *graph = flw_host_get(sizeof *graph);
    flw_program_retain(program);
    graph->program = program;
    graph->handle = (CUgraph)(uintptr_t)flw_table_add(&flw_world.graph_table, graph);
    return graph->handle;
}

void flw_graph_end(CUgraph handle)
{
    struct graph *graph = flw_table_find(&flw_world.graph_table, (uintptr_t)handle);
    flw_table_remove(&flw_world.graph_table, (uintptr_t)handle);
    flw_program_release(graph->program);
    free(graph);
}

static void end_executable(struct executable *executable)
{
    flw_table_remove(&flw_world.executable_table, (uintptr_t)executable->handle);
    flw_clock_finish(&executable->last_clock);
    flw_program_release(executable->program);
    free(executable);
}

void flw_graph_finish_all(void)
{
    struct flw_table *graphs = &flw_world.graph_table;
    for (uint32_t i = 0; i < graphs->count; i++) {
        if (graphs->object[i] != NULL) {
            flw_graph_end(((struct graph *)graphs->object[i])->handle);
        }
    }
    struct flw_table *executables = &flw_world.executable_table;
    for (uint32_t i = 0; i < executables->count; i++) {
        if (executables->object[i] != NULL) {
            end_executable(executables->object[i]);
        }
    }
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                             unsigned long long flags)
{
    FLW_CALL(cuGraphInstantiateWithFlags, FLW_CALL_CONTEXT);
    struct graph *graph = flw_table_find(&flw_world.graph_table, (uintptr_t)handle);
    FLW_REFUSE_IF(out == NULL || graph == NULL || flags > 15, CUDA_ERROR_INVALID_VALUE);
    struct executable *executable = flw_host_get(sizeof *executable);
    flw_program_retain(graph->program);
    executable->program = graph->program;
    executable->handle =
        (CUgraphExec)(uintptr_t)flw_table_add(&flw_world.executable_table, executable);
    *out = executable->handle;
    return CUDA_SUCCESS;
}

static CUresult launch(struct executable *executable, struct flw_stream *stream)
{
    struct flw_work work = {
        .kind = FLW_WORK_GRAPH, .name = "graph", .program = executable->program};
    if (executable->was_launched) {
        work.waits = &executable->last;
        work.wait_count = 1;
        work.waits_clock = &executable->last_clock;
    }
    bool is_captured = stream->capture != NULL;
    struct flw_position position;
    CUresult result = flw_order_submit(stream, &work, &position);
    if (result == CUDA_SUCCESS && !is_captured) {
        executable->was_launched = true;
        executable->last = position;
        flw_clock_copy(&executable->last_clock, &stream->clock);
    }
    return result;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    FLW_CALL_ON_STREAM(cuGraphLaunch, FLW_CALL_CONTEXT, stream_handle);
    struct executable *executable = flw_table_find(&flw_world.executable_table, (uintptr_t)handle);
    FLW_REFUSE_IF(executable == NULL, CUDA_ERROR_INVALID_VALUE);
    return launch(executable, call.stream);
}

/* A launch needs no preparation. */
CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    FLW_CALL_ON_STREAM(cuGraphLaunch, FLW_CALL_CONTEXT, stream_handle);
    return flw_table_find(&flw_world.executable_table, (uintptr_t)handle) == NULL
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    FLW_REFUSE_IF(parameters == NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuGraphInstantiateWithFlags(out, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult CUDAAPI cuGraphCreate(CUgraph *out, unsigned flags)
{
    FLW_CALL(cuGraphDestroy, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(out == NULL || flags != 0, CUDA_ERROR_INVALID_VALUE);
    struct flw_program *program = flw_program_make();
    *out = flw_graph_adopt(program);
    flw_program_release(program);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
    FLW_CALL(cuGraphExecDestroy, FLW_CALL_PLAIN);
    struct executable *executable = flw_table_find(&flw_world.executable_table, (uintptr_t)handle);
    FLW_REFUSE_IF(executable == NULL, CUDA_ERROR_INVALID_VALUE);
    end_executable(executable);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
    FLW_CALL(cuGraphDestroy, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(flw_table_find(&flw_world.graph_table, (uintptr_t)handle) == NULL,
                  CUDA_ERROR_INVALID_VALUE);
    flw_graph_end(handle);
    return CUDA_SUCCESS;
}
