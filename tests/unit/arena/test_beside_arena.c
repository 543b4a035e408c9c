/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every public call of arenas, leases, layouts, models and of publishing beside another thread's
 * capture (see test_beside_pool.c).
 */
#include "unit/pool/test_beside.h"

#include <stdlib.h>
#include <unistd.h>

#include "fallow/arena.h"
#include "fallow/layouts.h"
#include "fallow/model.h"
#include "fallow/publish.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "fallow/trace.h"

/* A persistent region of each kind, and scratch. */
static fallow_layout *make_layout(struct bed *bed)
{
    const fallow_region regions[] = {
        {.name = "counters", .size_bytes = 4096, .init = FALLOW_INIT_COUNTER},
        {.name = "scratch", .size_bytes = 3 * MIB, .last_phase = 1},
        {.name = "more", .size_bytes = 5000, .first_phase = 2, .last_phase = 2}};
    fallow_layout *layout = NULL, *other = NULL;
    WORKS(bed, fallow_layout_create(regions, 3, &layout));
    WORKS(bed, fallow_layout_create_within(regions, 3, 1000000, &other));
    DO(bed, fallow_layout_destroy(other));
    WORKS(bed, fallow_layout_set_name(layout, "steps"));
    DO(bed, assert_string_equal(fallow_layout_name(layout), "steps"));
    return layout;
}

static fallow_arena *make_arena(struct bed *bed, uint32_t checks)
{
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    fallow_arena_config_init(&config);
    config.name = "step";
    config.checks = checks;
    WORKS(bed, fallow_arena_create(bed->api.pool, &config, &arena));
    return arena;
}

static int do_nothing(void *context, const fallow_region *region, void *address,
                      fallow_stream stream)
{
    (void)context;
    (void)region;
    (void)address;
    (void)stream;
    return 1;
}

static void count(void *context, const fallow_arena_stats *stats)
{
    *(uint64_t *)context += stats->lease_count;
}

static fallow_lease *begin_lease(struct bed *bed, fallow_arena *arena, const fallow_layout *layout,
                                 CUstream stream)
{
    fallow_lease *lease = NULL;
    WORKS(bed, fallow_lease_begin(arena, layout, stream, &lease));
    WORKS(bed, fallow_lease_set_used(lease, 0, 0));
    return lease;
}

static void export_a_region(struct bed *bed, fallow_lease *lease, size_t index)
{
    const int64_t shape[] = {4, 8};
    struct DLManagedTensorVersioned *tensor = NULL;
    struct DLManagedTensor *older = NULL;
    WORKS(bed, fallow_lease_export(lease, index, shape, NULL, 2, 0, 32, 0, &tensor));
    DO(bed, older = fallow_export_unversioned(tensor));
    assert_non_null(older);
    /* dl_tensor of 48 bytes, manager_ctx, deleter */
    void (*deleter)(struct DLManagedTensor * self);
    memcpy(&deleter, (const char *)older + 56, sizeof deleter);
    DO(bed, deleter(older));
}

static void steps_lease_an_arena(enum flw_beside_place place)
{
    static const uint32_t checks[] = {0, FALLOW_ARENA_CHECK_POISON | FALLOW_ARENA_CHECK_RED_ZONES};
    struct bed bed;
    char text[256];
    fallow_arena_stats stats;
    begin_usual(&bed, place);
    fallow_layout *layout = make_layout(&bed);
    for (unsigned i = 0; i < sizeof checks / sizeof *checks; i++) {
        fallow_arena *arena = make_arena(&bed, checks[i]);
        WORKS(&bed, fallow_arena_on_wake(arena, do_nothing, NULL));
        WORKS(&bed, fallow_arenas_reserve(&arena, 1, layout, bed.api.other));
        for (unsigned round = 0; round < 4; round++) {
            CUstream stream = round % 2 == 0 ? bed.api.stream : bed.api.other;
            fallow_lease *lease = begin_lease(&bed, arena, layout, stream);
            DO(&bed, assert_non_null(fallow_lease_region(lease, "counters")));
            size_t index = fallow_layout_find(layout, "scratch");
            DO(&bed, assert_non_null(fallow_lease_region_at(lease, index)));
            export_a_region(&bed, lease, index);
            WORKS(&bed, fallow_lease_end(lease, stream));
        }
        WORKS(&bed, fallow_arena_lose_contents(arena));
        WORKS(&bed, fallow_lease_guard(arena, bed.api.stream));
        WORKS(&bed,
              fallow_lease_end(begin_lease(&bed, arena, layout, bed.api.stream), bed.api.stream));
        fallow_lease *lease = NULL;
        WORKS(&bed, fallow_lease_begin_within(arena, layout, bed.api.other, 1, &lease));
        WORKS(&bed, fallow_lease_end(lease, bed.api.other));
        fallow_arena_stats_init(&stats);
        WORKS(&bed, fallow_arena_get_stats(arena, &stats));
        uint64_t leases = 0;
        WORKS(&bed, fallow_pool_visit_arenas(bed.api.pool, count, &leases));
        assert_int_equal(leases, stats.lease_count);
        WORKS(&bed, fallow_arena_set_budget(arena, MIB));
        WORKS(&bed, fallow_arena_lock(arena));
        WORKS(&bed, fallow_arena_unlock(arena));
        WORKS(&bed, fallow_arena_trim(arena));
        DO(&bed, fallow_arena_last_error(arena, text, sizeof text));
        DO(&bed, fallow_arena_destroy(arena));
    }
    DO(&bed, fallow_layout_destroy(layout));
    end_bed(&bed);
}

/* The stream of the last lease may be captured by now, or be gone. */
static void an_arena_ends_after_its_streams(enum flw_beside_place place)
{
    struct bed bed;
    CUstream stream = NULL;
    begin_usual(&bed, place);
    fallow_layout *layout = make_layout(&bed);
    fallow_arena *arena = make_arena(&bed, 0);
    assert_int_equal(bed.api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    WORKS(&bed, fallow_lease_end(begin_lease(&bed, arena, layout, stream), stream));
    WORKS(&bed, fallow_stream_retire(bed.api.pool, stream));
    assert_int_equal(bed.api.sim.cu.cuStreamDestroy_v2(stream), 0);
    DO(&bed, fallow_arena_destroy(arena));
    DO(&bed, fallow_layout_destroy(layout));
    end_bed(&bed);
}

static void layouts_are_planned(enum flw_beside_place place)
{
    static const fallow_layout_function makers[] = {
        fallow_layout_fa3_graph,  fallow_layout_flashmla_decode, fallow_layout_mla_prefill,
        fallow_layout_moe_triton, fallow_layout_moe_contiguous,  fallow_layout_moe_masked};
    struct bed bed;
    fallow_step step;
    fallow_region region;
    begin_usual(&bed, place);
    const fallow_model *model = fallow_model_find("deepseek-v3");
    SURVIVES(&bed, "fallow_model_find");
    assert_non_null(model);
    DO(&bed, assert_non_null(fallow_model_preset(0)));
    DO(&bed, assert_non_null(fallow_path_at(0)));
    fallow_step_init(&step);
    step.batch = 4;
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        fallow_layout *layout = NULL;
        fallow_status status = makers[i](model, &step, &layout);
        SURVIVES(&bed, "a layout function");
        if (status == FALLOW_OK) {
            size_t offset = 0;
            DO(&bed, assert_true(fallow_layout_bytes(layout) >= fallow_layout_lower_bound(layout)));
            DO(&bed, (void)fallow_layout_persistent_bytes(layout));
            DO(&bed, assert_true(fallow_layout_region_count(layout) > 0));
            WORKS(&bed, fallow_layout_region(layout, 0, &region, &offset));
            DO(&bed, fallow_layout_destroy(layout));
        }
    }
    end_bed(&bed);
}

static void pools_are_published(enum flw_beside_place place)
{
    struct bed bed;
    fallow_publish_config config;
    char folder[] = "/tmp/fallow-beside-XXXXXX";
    assert_non_null(mkdtemp(folder));
    begin_usual(&bed, place);
    fallow_publish_config_init(&config);
    config.directory = folder;
    WORKS(&bed, fallow_publish_start(&config));
    DO(&bed, fallow_publish_stop());
    end_bed(&bed);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    static const struct group groups[] = {GROUP(steps_lease_an_arena),
                                          GROUP(an_arena_ends_after_its_streams),
                                          GROUP(layouts_are_planned), GROUP(pools_are_published)};
    return run_groups(groups, sizeof groups / sizeof *groups);
}
