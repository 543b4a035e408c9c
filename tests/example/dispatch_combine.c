/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of experts with dispatch and combine on the network's stream. The shared expert computes
 * during the dispatch, so the regions of both are alive in the same phase and share no bytes. A lease
 * begins on the compute stream and ends on the network's; the arena orders the next layer after that end.
 */
#include "example/engine.h"

#define LAYERS 12

enum { /* phases */
    ROUTE,
    DISPATCH, /* and the shared expert */
    GATE_UP,
    SILU,
    PROJECT,
    COMBINE
};

enum {
    HIDDEN,
    IDS,
    SHARED_UP,
    SHARED_OUT,
    RECEIVED,
    GATE_AND_UP,
    ACTIVATION,
    DOWN,
    REGIONS
};

#define ALIVE(from, to) .first_phase = (from), .last_phase = (to)
static const fallow_region regions[REGIONS] = {
    [HIDDEN] = {.name = "hidden", .size_bytes = 64 << 10, .flags = FALLOW_REGION_PERSISTENT},
    [IDS] = {.name = "ids", .size_bytes = 2 << 10, ALIVE(ROUTE, COMBINE)},
    [SHARED_UP] = {.name = "shared_up", .size_bytes = 128 << 10, ALIVE(DISPATCH, DISPATCH)},
    [SHARED_OUT] = {.name = "shared_out", .size_bytes = 64 << 10, ALIVE(DISPATCH, COMBINE)},
    [RECEIVED] = {.name = "received", .size_bytes = 512 << 10, ALIVE(DISPATCH, GATE_UP)},
    [GATE_AND_UP] = {.name = "gate_and_up", .size_bytes = 1 << 20, ALIVE(GATE_UP, SILU)},
    [ACTIVATION] = {.name = "activation", .size_bytes = 512 << 10, ALIVE(SILU, PROJECT)},
    [DOWN] = {.name = "down", .size_bytes = 512 << 10, ALIVE(PROJECT, COMBINE)}};

static void run_layer(fallow_arena *arena, const fallow_layout *layout)
{
    CUstream compute = engine.stream, network = engine.second;
    fallow_lease *lease;
    OK(fallow_lease_begin(arena, layout, compute, &lease));
    engine_launch(compute, layout, lease, READS(HIDDEN) | WRITES(IDS));
    engine_join(network, compute); /* dispatch, during the shared expert */
    engine_launch(network, layout, lease, READS(HIDDEN) | READS(IDS) | WRITES(RECEIVED));
    engine_launch(compute, layout, lease, READS(HIDDEN) | WRITES(SHARED_UP));
    engine_launch(compute, layout, lease, READS(SHARED_UP) | WRITES(SHARED_OUT));
    engine_join(compute, network); /* the experts of this rank */
    engine_launch(compute, layout, lease, READS(RECEIVED) | WRITES(GATE_AND_UP));
    engine_launch(compute, layout, lease, READS(GATE_AND_UP) | WRITES(ACTIVATION));
    engine_launch(compute, layout, lease, READS(ACTIVATION) | WRITES(DOWN));
    engine_join(network, compute); /* combine */
    engine_launch(network, layout, lease,
                  READS(DOWN) | READS(IDS) | READS(SHARED_OUT) | WRITES(HIDDEN));
    OK(fallow_lease_end(lease, network)); /* combine is the last use */
}

int main(void)
{
    fallow_layout *layout;
    fallow_arena *arena;
    fallow_lease *lease;
    engine_begin();
    OK(fallow_layout_create(regions, REGIONS, &layout));
    OK(fallow_arena_create(engine.pool, NULL, &arena));
    OK(fallow_lease_begin(arena, layout, engine.stream, &lease));
    engine_fill(engine.stream, fallow_lease_region_at(lease, HIDDEN), 1, 64 << 10);
    OK(fallow_lease_end(lease, engine.stream));
    uint32_t expected = 1;
    for (int layer = 0; layer < LAYERS; layer++) {
        run_layer(arena, layout);
        expected *= 4; /* combine adds experts (2), ids (1) and shared expert (1) */
    }
    OK(fallow_lease_begin(arena, layout, engine.second, &lease));
    EXPECT(engine_read(engine.second, fallow_lease_region_at(lease, HIDDEN)) == expected);
    OK(fallow_lease_end(lease, engine.second));
    fallow_arena_stats stats = {.struct_size = sizeof stats};
    OK(fallow_arena_get_stats(arena, &stats));
    EXPECT(stats.wait_count == LAYERS - 1); /* one device-side wait between two layers */
    EXPECT(stats.scratch_bytes < 2 << 20);  /* 2.7 MiB without sharing */
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    return engine_end();
}
