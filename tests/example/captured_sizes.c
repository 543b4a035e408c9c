/* SPDX-License-Identifier: Apache-2.0
 *
 * One arena for the graphs of 20 batch sizes and for eager steps between replays. The largest batch is
 * reserved first, since no arena grows inside a capture. For prefills the arena grows in place, within a
 * budget, so the addresses in the graphs stay valid.
 */
#include "example/engine.h"

enum { /* regions */
    IDS,
    GATE_AND_UP,
    ACTIVATION,
    OUT,
    REGIONS
};

enum {
    PREFILL = 1024, /* tokens */
    GRAPHS = 20
};
static const uint32_t batches[GRAPHS] = {1,  2,  4,  8,   16,  24,  32,  40,  48,  56,
                                         64, 80, 96, 112, 128, 160, 192, 224, 240, 256};

static fallow_arena *arena;

static fallow_layout *create_layout(size_t tokens)
{
    fallow_layout *layout;
    const fallow_region regions[REGIONS] = {
        [IDS] = {.name = "ids", .size_bytes = tokens * 32, .first_phase = 0, .last_phase = 1},
        [GATE_AND_UP] = {.name = "gate_and_up",
                         .size_bytes = tokens * 3072,
                         .first_phase = 1,
                         .last_phase = 2},
        [ACTIVATION] = {.name = "activation",
                        .size_bytes = tokens * 1536,
                        .first_phase = 2,
                        .last_phase = 2},
        [OUT] = {.name = "out", .size_bytes = PREFILL * 4096, .flags = FALLOW_REGION_PERSISTENT}};
    OK(fallow_layout_create(regions, REGIONS, &layout));
    return layout;
}

/* Run a step, inside a capture or outside. Returns the address of "out", which is the same in all layouts.
 * The first word is `tokens` until the next step. */
static const void *run_step(const fallow_layout *layout, CUstream stream, uint32_t tokens)
{
    fallow_lease *lease;
    OK(fallow_lease_begin(arena, layout, stream, &lease));
    engine_fill(stream, fallow_lease_region_at(lease, IDS), tokens, tokens * 32);
    engine_launch(stream, layout, lease, READS(IDS) | WRITES(GATE_AND_UP));
    engine_launch(stream, layout, lease, READS(GATE_AND_UP) | WRITES(ACTIVATION));
    engine_launch(stream, layout, lease, READS(ACTIVATION) | WRITES(OUT));
    const void *out = fallow_lease_region_at(lease, OUT);
    OK(fallow_lease_end(lease, stream));
    return out;
}

static struct graph {
    fallow_layout *layout;
    fallow_capture *capture; /* the addresses in the graph are valid until the release */
    CUgraphExec executable;
    const void *out;
} graphs[GRAPHS];

static void capture(struct graph *graph, CUstream stream, uint32_t tokens)
{
    CUgraph captured;
    graph->layout = create_layout(tokens);
    OK(fallow_capture_begin(engine.pool, stream, &graph->capture));
    OK(engine.sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    graph->out = run_step(graph->layout, stream, tokens);
    OK(engine.sim.cu.cuStreamEndCapture(stream, &captured));
    OK(fallow_capture_end(graph->capture));
    OK(engine.sim.cu.cuGraphInstantiateWithFlags(&graph->executable, captured, 0));
    OK(engine.sim.cu.cuGraphDestroy(captured));
}

/* Launch a graph. The guard orders the launch after earlier steps and launches, and before later ones. */
static void replay(const struct graph *graph, CUstream stream)
{
    OK(fallow_lease_guard(arena, stream));
    OK(engine.sim.cu.cuGraphLaunch(graph->executable, stream));
}

static void release(struct graph *graph)
{
    OK(engine.sim.cu.cuGraphExecDestroy(graph->executable));
    OK(fallow_capture_release(graph->capture));
    fallow_layout_destroy(graph->layout);
}

int main(void)
{
    engine_begin();
    CUstream decode = engine.stream, prefill = engine.second;
    fallow_layout *largest_batch = create_layout(256), *largest = create_layout(PREFILL);
    OK(fallow_arena_create(engine.pool, NULL, &arena));
    OK(fallow_arenas_reserve(&arena, 1, largest_batch, decode));
    OK(fallow_arena_set_budget(arena, 10 << 20)); /* refuses leases that need more */
    for (int i = 0; i < GRAPHS; i++) {
        capture(&graphs[i], decode, batches[i]);
    }
    for (int step = 0; step < 3 * GRAPHS; step++) {
        int i = step * 7 % GRAPHS;
        replay(&graphs[i], decode);
        if (step % 5 == 0) {
            EXPECT(engine_read(decode, graphs[i].out) == batches[i]);
        } else if (step % 3 == 0) {
            const void *out = run_step(largest, prefill, PREFILL);
            EXPECT(step % 2 == 0 || engine_read(prefill, out) == PREFILL);
        }
    }
    fallow_arena_stats stats = {.struct_size = sizeof stats};
    OK(fallow_arena_get_stats(arena, &stats));
    EXPECT(stats.is_pinned && stats.grow_count == 2 && stats.generation == 1);
    EXPECT(stats.scratch_bytes == fallow_layout_bytes(largest));
    for (int i = 0; i < GRAPHS; i++) {
        release(&graphs[i]);
    }
    fallow_arena_destroy(arena);
    fallow_layout_destroy(largest_batch);
    fallow_layout_destroy(largest);
    return engine_end();
}
