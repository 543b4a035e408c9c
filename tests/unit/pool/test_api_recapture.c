/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the reuse of memory of released captures by later ones, in a loop that synchronises and in random programs,
 * under the rule checker; the reuse of their events.
 */
#include "unit/pool/test_api.h"

#include "base/random.h"

#define GRAPHS  6
#define BLOCKS  24
#define STREAMS 3

struct block {
    void *ptr;
    size_t bytes;
    unsigned stream;
};

/* A graph and the capture, NULL if there is none. `blocks` of the world also holds blocks that the graph left
 * allocated. */
struct graph {
    fallow_capture *capture;
    CUgraphExec executable;
    unsigned stream;
};

struct world {
    struct api api;
    uint64_t random;
    fallow_economy economy;
    unsigned stream_count;
    bool announces_late; /* announce each capture after the begin */
    CUstream streams[STREAMS];
    struct graph graphs[GRAPHS];
    struct block blocks[BLOCKS];
    size_t block_count;
    uint64_t most_live_bytes;
};

static void world_begin(struct world *world, uint64_t seed, fallow_economy economy,
                        unsigned stream_count)
{
    flw_sim_config config = flw_sim_config_default(seed);
    config.check = 1;
    memset(world, 0, sizeof *world);
    api_begin(&world->api, &config);
    world->random = seed;
    world->economy = economy;
    world->stream_count = stream_count;
    for (unsigned i = 0; i < stream_count; i++) {
        assert_int_equal(
            world->api.sim.cu.cuStreamCreate(&world->streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    fallow_pool_config settings = api_config(&world->api);
    settings.economy = economy;
    assert_int_equal(fallow_pool_create(&settings, &world->api.pool), FALLOW_OK);
}

static uint64_t draw(struct world *world, uint64_t below)
{
    return flw_random_next(&world->random) % below;
}

/* Check the bound of the economy on reserved memory; memory of captures counts as in use. */
static void expect_bound(struct world *world)
{
    fallow_stats stats = api_stats(&world->api);
    uint64_t live = stats.live_bytes + stats.captured_bytes;
    world->most_live_bytes = live > world->most_live_bytes ? live : world->most_live_bytes;
    uint64_t peak = world->most_live_bytes;
    uint64_t most = world->economy == FALLOW_MEMORY_FIRST ? peak * 110 / 100 + 16 * MIB
                    : world->stream_count == 1            ? peak * 116 / 100 + 16 * MIB
                                                          : peak * 145 / 100 + 256 * MIB;
    if (world->economy != FALLOW_SPEED_FIRST && !world->announces_late) {
        assert_in_range(stats.reserved_bytes, 0, most);
    }
}

static void world_alloc(struct world *world, size_t bytes, unsigned stream)
{
    struct block *block = &world->blocks[world->block_count++];
    *block = (struct block){api_alloc(&world->api, bytes, world->streams[stream]), bytes, stream};
    api_use(&world->api, block->ptr, bytes, world->streams[stream]);
    expect_bound(world);
}

static void world_free(struct world *world, size_t i)
{
    struct block *block = &world->blocks[i];
    assert_int_equal(fallow_free(world->api.pool, block->ptr, world->streams[block->stream]),
                     FALLOW_OK);
    *block = world->blocks[--world->block_count];
}

static size_t draw_bytes(struct world *world)
{
    return (size_t)1 << (10 + draw(world, 15));
}

/* Capture a graph; some of the blocks outlive the capture. */
static void make_graph(struct world *world, struct graph *graph)
{
    struct api *api = &world->api;
    unsigned at = (unsigned)draw(world, world->stream_count);
    CUstream stream = world->streams[at];
    CUgraph captured = NULL;
    if (world->announces_late) {
        api_begin_capturing(api, stream);
    }
    assert_int_equal(fallow_capture_begin(api->pool, stream, &graph->capture), FALLOW_OK);
    if (!world->announces_late) {
        api_begin_capturing(api, stream);
    }
    size_t before = world->block_count;
    for (unsigned i = 0; i < 4 && world->block_count < BLOCKS; i++) {
        world_alloc(world, draw_bytes(world), at);
        while (world->block_count > before && draw(world, 2) == 0) {
            world_free(world, before);
        }
        if (world->stream_count > 1 && draw(world, 2) == 0 && world->block_count < BLOCKS) {
            world_alloc(world, draw_bytes(world), (at + 1) % world->stream_count);
            world_free(world, world->block_count - 1);
        }
    }
    while (world->block_count > before && draw(world, 4) != 0) {
        world_free(world, before);
    }
    captured = api_end_capturing(api, stream);
    assert_int_equal(fallow_capture_end(graph->capture), FALLOW_OK);
    assert_int_equal(api->sim.cu.cuGraphInstantiateWithFlags(&graph->executable, captured, 0), 0);
    assert_int_equal(api->sim.cu.cuGraphDestroy(captured), 0);
    graph->stream = at;
}

static void drop_graph(struct world *world, struct graph *graph)
{
    assert_int_equal(world->api.sim.cu.cuGraphExecDestroy(graph->executable), 0);
    assert_int_equal(fallow_capture_release(graph->capture), FALLOW_OK);
    graph->capture = NULL;
}

static void draw_step(struct world *world)
{
    struct graph *graph = &world->graphs[draw(world, GRAPHS)];
    uint64_t dice = draw(world, 10);
    if (dice < 4 && graph->capture == NULL) {
        make_graph(world, graph);
    } else if (dice < 4) {
        drop_graph(world, graph);
    } else if (dice < 6 && graph->capture != NULL) {
        assert_int_equal(
            world->api.sim.cu.cuGraphLaunch(graph->executable, world->streams[graph->stream]), 0);
    } else if (dice < 8 && world->block_count < BLOCKS) {
        world_alloc(world, draw_bytes(world), (unsigned)draw(world, world->stream_count));
    } else if (world->block_count > 0) {
        world_free(world, draw(world, world->block_count));
    } else {
        assert_int_equal(fallow_pool_poll(world->api.pool), FALLOW_OK);
    }
    expect_bound(world);
}

static void world_end(struct world *world)
{
    for (unsigned i = 0; i < GRAPHS; i++) {
        if (world->graphs[i].capture != NULL) {
            drop_graph(world, &world->graphs[i]);
        }
    }
    while (world->block_count > 0) {
        world_free(world, 0);
    }
    assert_int_equal(fallow_pool_validate(world->api.pool), FALLOW_OK);
    api_end(&world->api);
}

static void drawn_captures_hold_no_more_than_the_economy_lets(void **state)
{
    static struct world world;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        world_begin(&world, seed, (fallow_economy)(seed % 3), seed % 2 == 0 ? 1 : STREAMS);
        world.announces_late = seed % 8 == 7;
        for (unsigned i = 0; i < 200; i++) {
            draw_step(&world);
        }
        world_end(&world);
    }
}

/* Capture in rounds that each end with an idle device. `between`: the action between two rounds. */
static void synchronised_rounds(fallow_economy economy, unsigned between, bool has_survivor,
                                bool announces_late)
{
    static struct world world;
    struct api *api = &world.api;
    struct graph *graph = &world.graphs[0];
    world_begin(&world, 5, economy, 1);
    world.announces_late = announces_late;
    CUstream stream = world.streams[0];
    for (unsigned round = 0; round < 30; round++) {
        size_t old_count = world.block_count;
        CUgraph captured = NULL;
        if (announces_late) {
            api_begin_capturing(api, stream);
        }
        assert_int_equal(fallow_capture_begin(api->pool, stream, &graph->capture), FALLOW_OK);
        if (!announces_late) {
            api_begin_capturing(api, stream);
        }
        if (has_survivor) {
            world_alloc(&world, 8 * MIB, 0);
        }
        world_alloc(&world, 64 * MIB, 0);
        world_free(&world, world.block_count - 1);
        captured = api_end_capturing(api, stream);
        assert_int_equal(fallow_capture_end(graph->capture), FALLOW_OK);
        assert_int_equal(api->sim.cu.cuGraphInstantiateWithFlags(&graph->executable, captured, 0),
                         0);
        assert_int_equal(api->sim.cu.cuGraphDestroy(captured), 0);
        assert_int_equal(api->sim.cu.cuGraphLaunch(graph->executable, stream), 0);
        assert_int_equal(api->sim.cu.cuCtxSynchronize(), 0);
        drop_graph(&world, graph);
        while (has_survivor && old_count-- > 0) {
            world_free(&world, 0);
        }
        if (between == 1) {
            assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
        } else if (between > 1) {
            world_alloc(&world, between * MIB, 0);
            world_free(&world, world.block_count - 1);
        }
        assert_int_equal(api->sim.cu.cuCtxSynchronize(), 0);
        assert_in_range(api_stats(api).reserved_bytes, 0, 144 * MIB);
    }
    world_end(&world);
}

static void captures_reuse_what_released_ones_left(void **state)
{
    static const unsigned betweens[] = {0, 1, 2, 64};
    for (unsigned n = 0; n < 24; n++) {
        synchronised_rounds((fallow_economy)(n % 3), betweens[n / 3 % 4], n / 12 != 0, false);
    }
    for (unsigned n = 0; n < 6;
         n++) { /* memory that the stream freed since the last release cannot be reused */
        synchronised_rounds((fallow_economy)(n % 3), betweens[n / 3], false, true);
    }
}

/* Allocations and frees, which poll, do not occur: captures alone must reuse events. */
static void events_of_captures_serve_again(void **state)
{
    struct world world;
    struct api *api = &world.api;
    fallow_capture *capture = NULL;
    uint64_t made = 0;
    world_begin(&world, 1, FALLOW_BALANCED, 1);
    for (int i = 0; i < 300; i++) {
        made = i == 100 ? api->sim.call_count("cuEventCreate") : made;
        assert_int_equal(fallow_capture_begin(api->pool, world.streams[0], &capture), FALLOW_OK);
        api_begin_capturing(api, world.streams[0]);
        api_drop_captured(api, world.streams[0]);
        assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
        assert_int_equal(api->sim.cu.cuStreamSynchronize(world.streams[0]), 0);
        assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    }
    assert_int_equal(api->sim.call_count("cuEventCreate"), made);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_reuse_what_released_ones_left),
        cmocka_unit_test(events_of_captures_serve_again),
        cmocka_unit_test(drawn_captures_hold_no_more_than_the_economy_lets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
