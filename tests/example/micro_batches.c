/* SPDX-License-Identifier: Apache-2.0
 *
 * Two micro-batches on two streams: one computes while the other waits for the network. Each micro-batch has
 * an arena of its own, a lane. Attention and experts lease it in turn.
 */
#include "example/engine.h"

#define HIDDEN_BYTES (256 << 10)

enum { /* regions of both layouts */
    HIDDEN,
    QKV,
    GATE_AND_UP = QKV,
    CONTEXT,
    ACTIVATION = CONTEXT,
    REGIONS
};

/* "hidden" keeps the address and contents across leases of both layouts. */
static const fallow_region regions_of_attention[REGIONS] = {
    [HIDDEN] = {.name = "hidden", .size_bytes = HIDDEN_BYTES, .flags = FALLOW_REGION_PERSISTENT},
    [QKV] = {.name = "qkv", .size_bytes = 384 << 10},
    [CONTEXT] = {.name = "context", .size_bytes = 256 << 10}};
static const fallow_region regions_of_experts[REGIONS] = {
    [HIDDEN] = {.name = "hidden", .size_bytes = HIDDEN_BYTES, .flags = FALLOW_REGION_PERSISTENT},
    [GATE_AND_UP] = {.name = "gate_and_up", .size_bytes = 1 << 20},
    [ACTIVATION] = {.name = "activation", .size_bytes = 512 << 10}};

static struct lane {
    fallow_arena *arena;
    CUstream stream;
} lanes[2];
static fallow_layout *attention, *experts;

/* Run the three kernels of attention or of experts. */
static void run(const struct lane *lane, const fallow_layout *layout)
{
    fallow_lease *lease;
    OK(fallow_lease_begin(lane->arena, layout, lane->stream, &lease));
    engine_launch(lane->stream, layout, lease, READS(HIDDEN) | WRITES(QKV));
    engine_launch(lane->stream, layout, lease, READS(QKV) | WRITES(CONTEXT));
    engine_launch(lane->stream, layout, lease, READS(CONTEXT) | WRITES(HIDDEN));
    OK(fallow_lease_end(lease, lane->stream));
}

/* Run the first kernel of a step. */
static void embed(const struct lane *lane, uint32_t token)
{
    fallow_lease *lease;
    OK(fallow_lease_begin(lane->arena, attention, lane->stream, &lease));
    engine_fill(lane->stream, fallow_lease_region_at(lease, HIDDEN), token, HIDDEN_BYTES);
    OK(fallow_lease_end(lease, lane->stream));
}

static uint32_t sample(const struct lane *lane)
{
    fallow_lease *lease;
    OK(fallow_lease_begin(lane->arena, attention, lane->stream, &lease));
    uint32_t token = engine_read(lane->stream, fallow_lease_region_at(lease, HIDDEN));
    OK(fallow_lease_end(lease, lane->stream));
    return token;
}

static void create_lanes(void)
{
    OK(fallow_layout_create(regions_of_attention, REGIONS, &attention));
    OK(fallow_layout_create(regions_of_experts, REGIONS, &experts));
    lanes[0].stream = engine.stream, lanes[1].stream = engine.second;
    OK(fallow_arena_create(engine.pool, NULL, &lanes[0].arena));
    OK(fallow_arena_create(engine.pool, NULL, &lanes[1].arena));
    fallow_arena *const both[] = {lanes[0].arena, lanes[1].arena};
    OK(fallow_arenas_reserve(both, 2, attention, engine.stream)); /* both lanes or none */
    OK(fallow_arenas_reserve(both, 2, experts, engine.stream));
    OK(fallow_arena_lock(lanes[0].arena));
    OK(fallow_arena_lock(lanes[1].arena));
}

int main(void)
{
    engine_begin();
    create_lanes();
    for (uint32_t step = 0; step < 3; step++) {
        embed(&lanes[0], 2 * step);
        embed(&lanes[1], 2 * step + 1);
        uint64_t calls = engine.sim.call_count(NULL);
        for (int layer = 0; layer < 61; layer++) {
            run(&lanes[0], attention);
            run(&lanes[1], attention);
            run(&lanes[0], experts);
            run(&lanes[1], experts);
        }
        EXPECT(engine.sim.call_count(NULL) == calls + 61 * 12); /* no call for leases */
        EXPECT(sample(&lanes[0]) == 2 * step);
        EXPECT(sample(&lanes[1]) == 2 * step + 1);
    }
    fallow_arena_destroy(lanes[0].arena);
    fallow_arena_destroy(lanes[1].arena);
    fallow_layout_destroy(attention);
    fallow_layout_destroy(experts);
    return engine_end();
}
