/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: handles of ended leases and destroyed arenas, which are refused, and layouts destroyed during a lease.
 * Does not: test tensors (test_arena_dlpack.c).
 */
#include "unit/arena/test_arena.h"

TEST(a_lease_that_has_ended_is_told_from_all_that_follow)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(4096);
    fallow_lease *stale = begin_lease(arena, layout, api.stream);
    end_lease(stale, api.stream);
    assert_int_equal(fallow_lease_end(stale, api.stream), FALLOW_INVALID_ARGUMENT);
    for (int i = 0; i < 20000; i++) {
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        assert_ptr_not_equal(lease, stale);
        if (i % 1000 == 0) {
            assert_int_equal(fallow_lease_end(stale, api.stream), FALLOW_INVALID_ARGUMENT);
            assert_null(fallow_lease_region_at(stale, 0));
            assert_null(fallow_lease_region(stale, "x"));
            assert_non_null(fallow_lease_region_at(lease, 0));
        }
        end_lease(lease, api.stream);
    }
    bed_end();
}

TEST(an_arena_destroyed_with_a_lease_open_goes_at_its_end)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    destroy_arena(arena);
    touch_lease(lease, layout, api.stream);
    assert_int_equal(api_stats(&api).live_count, 1);
    end_lease(lease, api.stream);
    assert_int_equal(api_stats(&api).live_count, 0);
    bed_end();
}

TEST(an_arena_outlived_by_its_handle_only_says_invalid_pool)
{
    fallow_lease *lease = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(4096);
    lease_once(arena, layout, api.stream);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    assert_int_equal(fallow_lease_begin(arena, layout, api.stream, &lease), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_INVALID_POOL);
    bed_end();
}

static void refuse_arena(fallow_arena *arena, const fallow_layout *layout)
{
    char text[8] = "unset";
    fallow_lease *lease = (fallow_lease *)(void *)text;
    fallow_arena_stats stats;
    fallow_arena_stats_init(&stats);
    assert_int_equal(fallow_lease_begin(arena, layout, api.stream, &lease),
                     FALLOW_INVALID_ARGUMENT);
    assert_null(lease);
    assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_lock(arena), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_unlock(arena), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_on_wake(arena, NULL, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_lose_contents(arena), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_get_stats(arena, &stats), FALLOW_INVALID_ARGUMENT);
    fallow_arena_last_error(arena, text, sizeof text);
    assert_string_equal(text, "");
    destroy_arena(arena);
}

TEST(handles_of_a_destroyed_arena_are_refused)
{
    bed_begin();
    fallow_arena *gone = make_arena(0), *leased = make_arena(0);
    fallow_layout *layout = make_plain_layout(4096);
    fallow_lease *ended = begin_lease(gone, layout, api.stream);
    end_lease(ended, api.stream);
    fallow_lease *open = begin_lease(leased, layout, api.stream);
    destroy_arena(gone);
    destroy_arena(leased);
    refuse_arena(gone, layout);
    refuse_arena(leased, layout);
    assert_non_null(fallow_lease_region_at(open, 0)); /* destroyed when the lease ends */
    end_lease(open, api.stream);
    for (int i = 0; i < 10000; i++) { /* new arenas reuse the places */
        fallow_arena *arena = make_arena(0);
        assert_ptr_not_equal(arena, gone);
        assert_ptr_not_equal(arena, leased);
        if (i % 1000 == 0) {
            fallow_lease *lease = begin_lease(arena, layout, api.stream);
            refuse_arena(gone, layout);
            assert_int_equal(fallow_lease_end(ended, api.stream), FALLOW_INVALID_ARGUMENT);
            assert_int_equal(fallow_lease_end(open, api.stream), FALLOW_INVALID_ARGUMENT);
            assert_null(fallow_lease_region_at(open, 0));
            assert_null(fallow_lease_region(ended, "x"));
            end_lease(lease, api.stream);
        }
        destroy_arena(arena);
    }
    assert_int_equal(api_stats(&api).live_count, 0);
    bed_end();
}

TEST(a_process_has_so_many_arenas_at_a_time)
{
    static fallow_arena *arenas[4096];
    fallow_arena *more;
    bed_begin();
    for (size_t i = 0; i < 4096; i++) {
        arenas[i] = make_arena(0);
    }
    assert_int_equal(fallow_arena_create(api.pool, NULL, &more), FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(more);
    destroy_arena(arenas[77]);
    arenas[77] = make_arena(0);
    for (size_t i = 0; i < 4096; i++) {
        destroy_arena(arenas[i]);
    }
    bed_end();
}

TEST(an_open_lease_holds_its_layout)
{
    char text[256];
    const int64_t rows[] = {1025};
    struct DLManagedTensorVersioned *tensor = NULL;
    const fallow_region regions[] = {{.name = "first", .size_bytes = 4096},
                                     {.name = "second", .size_bytes = 1024}};
    bed_begin();
    fallow_arena *arena = make_arena(0), *other = make_arena(0);
    for (int i = 0; i < 3; i++) {
        fallow_layout *layout = make_layout(regions, 2);
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        fallow_lease *second = begin_lease(other, layout, api.other);
        void *address = fallow_lease_region(lease, "second");
        touch_lease(lease, layout, api.stream);
        destroy_layout(layout);
        destroy_layout(make_layout(regions, 1)); /* would reuse freed memory */
        assert_non_null(address);
        assert_ptr_equal(fallow_lease_region(lease, "second"), address);
        assert_ptr_equal(fallow_lease_region_at(lease, 1), address);
        assert_null(fallow_lease_region_at(lease, 2));
        assert_int_equal(fallow_lease_export(lease, 1, rows, NULL, 1, 0, 8, 0, &tensor),
                         FALLOW_INVALID_ARGUMENT);
        fallow_arena_last_error(arena, text, sizeof text);
        assert_non_null(strstr(text, "exceeds region 'second' of 1024 bytes"));
        end_lease(lease, api.stream);
        assert_non_null(fallow_lease_region(second, "first"));
        end_lease(second, api.other);
    }
    bed_end();
}

#define OWNERS 3

/* A thread that creates and destroys arenas in the same places of the table as the other threads. */
struct owner {
    const fallow_layout *layout;
    fallow_arena *_Atomic *dead_arena; /* the arena destroyed last by any thread */
    fallow_lease *_Atomic *dead_lease;
    unsigned broken_count;
};

static void *own_arenas(void *context)
{
    struct owner *owner = context;
    unsigned broken = 0;
    for (int i = 0; i < 500; i++) {
        fallow_arena *arena = NULL, *dead = *owner->dead_arena;
        fallow_lease *lease = NULL, *ended = *owner->dead_lease, *none = NULL;
        broken += fallow_arena_create(api.pool, NULL, &arena) != FALLOW_OK;
        broken += fallow_lease_begin(arena, owner->layout, api.stream, &lease) != FALLOW_OK;
        broken +=
            fallow_lease_begin(dead, owner->layout, api.stream, &none) != FALLOW_INVALID_ARGUMENT;
        broken += fallow_arena_lock(dead) != FALLOW_INVALID_ARGUMENT;
        broken += fallow_lease_end(ended, api.stream) != FALLOW_INVALID_ARGUMENT;
        broken +=
            fallow_lease_region_at(ended, 0) != NULL || fallow_lease_region_at(lease, 0) == NULL;
        if (i % 2 == 0) {
            fallow_arena_destroy(arena); /* takes effect when the lease ends */
        }
        broken += fallow_lease_end(lease, api.stream) != FALLOW_OK;
        if (i % 2 == 1) {
            fallow_arena_destroy(arena);
        }
        *owner->dead_arena = arena;
        *owner->dead_lease = lease;
    }
    owner->broken_count = broken;
    return NULL;
}

TEST(dead_handles_are_refused_while_others_take_the_places)
{
    pthread_t threads[OWNERS];
    struct owner owners[OWNERS];
    fallow_arena *_Atomic dead_arena = NULL;
    fallow_lease *_Atomic dead_lease = NULL;
    bed_begin();
    fallow_layout *layout = make_plain_layout(4096);
    for (size_t i = 0; i < OWNERS; i++) {
        owners[i] = (struct owner){layout, &dead_arena, &dead_lease, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, own_arenas, &owners[i]), 0);
    }
    for (size_t i = 0; i < OWNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(owners[i].broken_count, 0);
    }
    assert_int_equal(api_stats(&api).live_count, 0);
    bed_end();
}

FLW_TEST_MAIN(NULL, NULL)
