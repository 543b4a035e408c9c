/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about persistent regions: address, contents, first values,
 * wake. */
#include "unit/arena/test_arena.h"

#include "fallow/sleep.h"

#define COUNT 20000 /* elements: more than one upload */

static const fallow_region kept_regions[] = {
    {.name = "x", .size_bytes = 64 * KIB},
    KEPT_REGION("arange4", COUNT * 4, .init = FALLOW_INIT_ONCE, .init_value = 5, .init_step = 3),
    KEPT_REGION("arange8", COUNT * 8, .init = FALLOW_INIT_ONCE, .init_value = (int64_t)1 << 40,
                .init_step = -1, .element_bytes = 8),
    KEPT_REGION("bytes", 999, .init = FALLOW_INIT_ONCE, .init_value = 7, .element_bytes = 1,
                .init_step = 1),
    KEPT_REGION("sentinel", 400, .init = FALLOW_INIT_SENTINEL, .init_value = -1),
    KEPT_REGION("tail", 400, .init = FALLOW_INIT_VALID_TAIL, .init_value = 0x01020304),
    KEPT_REGION("counter", 4096, .init = FALLOW_INIT_COUNTER, .init_value = 9),
    KEPT_REGION("leading", 64, .init = FALLOW_INIT_LEADING_ZERO, .init_value = 9,
                .element_bytes = 2),
    KEPT_REGION("zero", 64, .init = FALLOW_INIT_ZERO, .init_step = 1),
};
#define KEPT (sizeof kept_regions / sizeof *kept_regions)

static int64_t element_of(const unsigned char *bytes, size_t each, size_t i)
{
    int64_t value = 0;
    memcpy(&value, bytes + i * each, each);
    int shift = (int)(64 - 8 * each);
    return (int64_t)((uint64_t)value << shift) >> shift;
}

/* Return the expected value of an element by the class, computed independently. */
static int64_t expected_of(const fallow_region *region, size_t each, size_t i)
{
    bool is_zero = region->init == FALLOW_INIT_COUNTER || region->init == FALLOW_INIT_ZERO ||
                   region->init == FALLOW_INIT_LEADING_ZERO;
    int64_t value = is_zero ? 0 : region->init_value + (int64_t)i * region->init_step;
    int shift = (int)(64 - 8 * each);
    return (int64_t)((uint64_t)value << shift) >> shift;
}

static void expect_values(const fallow_lease *lease, CUstream stream)
{
    unsigned char *bytes = malloc(COUNT * 8);
    assert_non_null(bytes);
    for (size_t k = 1; k < KEPT; k++) {
        const fallow_region *region = &kept_regions[k];
        size_t each = region->element_bytes == 0 ? 4 : region->element_bytes;
        read_bytes(bytes, fallow_lease_region(lease, region->name), region->size_bytes, stream);
        for (size_t i = 0; i < region->size_bytes / each; i++) {
            int64_t found = element_of(bytes, each, i), wanted = expected_of(region, each, i);
            if (found != wanted) {
                fail_msg("%s[%zu] is %lld, not %lld", region->name, i, (long long)found,
                         (long long)wanted);
            }
        }
    }
    free(bytes);
}

TEST(each_class_holds_its_values_at_first_and_after_a_loss)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(kept_regions, KEPT);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    void *addresses[KEPT];
    expect_values(lease, api.stream);
    for (size_t i = 0; i < KEPT; i++) {
        addresses[i] = fallow_lease_region_at(lease, i);
    }
    for (size_t i = 1; i < KEPT; i++) {
        fill_bytes(addresses[i], 0x5a, kept_regions[i].size_bytes, api.stream);
    }
    end_lease(lease, api.stream);
    assert_int_equal(arena_stats(arena).init_count, KEPT - 1);
    assert_ok(fallow_arena_lose_contents(arena));
    lease = begin_lease(arena, layout, api.other);
    expect_values(lease, api.other);
    for (size_t i = 0; i < KEPT; i++) {
        assert_ptr_equal(fallow_lease_region_at(lease, i), addresses[i]);
    }
    end_lease(lease, api.other);
    assert_int_equal(arena_stats(arena).init_count, 2 * (KEPT - 1));
    bed_end();
}

TEST(address_and_contents_outlast_leases_layouts_and_streams)
{
    const fallow_region other_regions[] = {
        {.name = "huge", .size_bytes = 7 * MIB},
        KEPT_REGION("dirty", 1000, .init = FALLOW_INIT_DIRTY),
        KEPT_REGION("counter", 2000, .init = FALLOW_INIT_COUNTER, .init_value = 9)};
    unsigned char bytes[1000];
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *first = make_layout(kept_regions, KEPT), *second = make_layout(other_regions, 3),
                  *none = make_plain_layout(9 * MIB);
    fallow_lease *lease = begin_lease(arena, second, api.stream);
    void *dirty = fallow_lease_region(lease, "dirty");
    fill_bytes(dirty, 0x33, 1000, api.stream);
    void *counter = fallow_lease_region(lease, "counter");
    end_lease(lease, api.stream);
    lease = begin_lease(arena, first, api.other); /* a larger counter moves once */
    assert_ptr_not_equal(fallow_lease_region(lease, "counter"), counter);
    counter = fallow_lease_region(lease, "counter");
    expect_values(lease, api.other);
    end_lease(lease, api.other);
    lease_once(arena, none, api.stream);
    uint64_t inits = arena_stats(arena).init_count;
    for (int i = 0; i < 6; i++) {
        CUstream stream = i % 2 == 0 ? api.other : api.stream;
        lease = begin_lease(arena, second, stream);
        assert_ptr_equal(fallow_lease_region(lease, "dirty"), dirty);
        assert_ptr_equal(fallow_lease_region(lease, "counter"), counter);
        fill_bytes(fallow_lease_region(lease, "huge"), i, 7 * MIB, stream);
        read_bytes(bytes, dirty, sizeof bytes, stream);
        for (size_t k = 0; k < sizeof bytes; k++) {
            assert_int_equal(bytes[k], 0x33);
        }
        end_lease(lease, stream);
        lease = begin_lease(arena, first, stream);
        assert_ptr_equal(fallow_lease_region(lease, "counter"), counter);
        end_lease(lease, stream);
    }
    assert_int_equal(arena_stats(arena).init_count, inits);
    bed_end();
}

TEST(a_smaller_layout_after_a_loss_leaves_nothing_without_values)
{
    fallow_region region = KEPT_REGION("table", 8000, .init = FALLOW_INIT_ONCE, .init_step = 1);
    int32_t values[2000];
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *large = make_layout(&region, 1);
    region.size_bytes = 800;
    fallow_layout *small = make_layout(&region, 1);
    fallow_lease *lease = begin_lease(arena, large, api.stream);
    fill_bytes(fallow_lease_region_at(lease, 0), 0xee, 8000, api.stream);
    end_lease(lease, api.stream);
    assert_ok(fallow_arena_lose_contents(arena));
    lease_once(arena, small, api.stream);
    lease = begin_lease(arena, large, api.stream);
    read_bytes(values, fallow_lease_region_at(lease, 0), sizeof values, api.stream);
    for (int32_t i = 0; i < 2000; i++) {
        assert_int_equal(values[i], i);
    }
    end_lease(lease, api.stream);
    bed_end();
}

static void expect_table(const fallow_lease *lease, bool is_written)
{
    int32_t values[2000];
    read_bytes(values, fallow_lease_region_at(lease, 0), sizeof values, api.stream);
    for (int32_t i = 0; i < 2000; i++) {
        assert_int_equal(values[i], is_written ? (int32_t)0xeeeeeeee : i);
    }
}

/* Initialised again if the sleep dropped the region, else unchanged. */
TEST(a_sleep_of_the_pool_is_noticed)
{
    const fallow_region region =
        KEPT_REGION("table", 8000, .init = FALLOW_INIT_ONCE, .init_step = 1);
    const uint32_t tag = 4;
    fallow_sleep_request request;
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    bed_begin();
    fallow_arena_config_init(&config);
    config.tag = tag;
    assert_ok(fallow_arena_create(api.pool, &config, &arena));
    fallow_layout *layout = make_layout(&region, 1);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    request.saved_tags = &tag;
    for (unsigned i = 0; i < 6; i++) {
        bool is_saved = i % 3 != 2; /* twice saved without a look between, then dropped */
        for (unsigned turn = 0; turn < 2; turn++) { /* the second one is a steady begin */
            fallow_lease *lease = begin_lease(arena, layout, api.stream);
            expect_table(lease, false);
            fill_bytes(fallow_lease_region_at(lease, 0), 0xee, 8000, api.stream);
            end_lease(lease, api.stream);
            lease = begin_lease(arena, layout, api.stream);
            expect_table(lease, true);
            end_lease(lease, api.stream);
            assert_ok(fallow_arena_lose_contents(arena));
        }
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        void *address = fallow_lease_region_at(lease, 0);
        fill_bytes(address, 0xee, 8000, api.stream);
        end_lease(lease, api.stream);
        for (unsigned turn = 0; turn < 2; turn++) {
            request.saved_tag_count = is_saved || (i == 2 && turn == 1);
            assert_ok(fallow_pool_sleep(api.pool, &request));
            refuse_lease(arena, layout, api.stream, FALLOW_ASLEEP, "asleep");
            assert_ok(fallow_pool_wake(api.pool));
            if (!is_saved) { /* has contents, but not the class's */
                fill_bytes(address, 0x11, 8000, api.stream);
            }
        }
        lease = begin_lease(arena, layout, api.stream);
        expect_table(lease, is_saved);
        end_lease(lease, api.stream);
        assert_ok(fallow_arena_lose_contents(arena));
    }
    bed_end();
}

struct waker {
    int count, answer;
    size_t bytes;
};

static int wake(void *context, const fallow_region *region, void *address, fallow_stream stream)
{
    struct waker *waker = context;
    waker->count++;
    waker->bytes = region->size_bytes;
    if (waker->answer == 0) {
        fill_bytes(address, 0x44, region->size_bytes, stream);
    }
    return waker->answer;
}

TEST(the_wake_callback_does_it_or_leaves_it_to_the_arena)
{
    fallow_region region =
        KEPT_REGION("table", 256, .init = FALLOW_INIT_ONCE, .init_value = 0x11111111);
    unsigned char byte;
    bed_begin();
    struct waker waker = {0};
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(&region, 1);
    assert_ok(fallow_arena_on_wake(arena, wake, &waker));
    for (int i = 0; i < 3; i++) {
        waker.answer = i % 2;
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        read_bytes(&byte, fallow_lease_region_at(lease, 0), 1, api.stream);
        assert_int_equal(byte, waker.answer == 0 ? 0x44 : 0x11);
        assert_int_equal(waker.count, i + 1);
        assert_int_equal(waker.bytes, 256);
        end_lease(lease, api.stream);
        lease_once(arena, layout, api.stream);
        assert_int_equal(waker.count, i + 1);
        assert_ok(fallow_arena_lose_contents(arena));
    }
    bed_end();
}

TEST(layouts_that_disagree_about_values_are_refused)
{
    fallow_region region = KEPT_REGION("table", 256, .init = FALLOW_INIT_ONCE, .init_value = 1);
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(&region, 1);
    region.init_value = 2;
    fallow_layout *other = make_layout(&region, 1);
    lease_once(arena, layout, api.stream);
    refuse_lease(arena, other, api.stream, FALLOW_INVALID_ARGUMENT,
                 "persistent region 'table' has other initial values in another layout");
    lease_once(arena, layout, api.stream);
    bed_end();
}

TEST(a_locked_arena_takes_no_new_persistent_region)
{
    fallow_region region = KEPT_REGION("table", 256, .init = FALLOW_INIT_DIRTY);
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(&region, 1);
    region.size_bytes = 512;
    fallow_layout *larger = make_layout(&region, 1);
    region.name = "new";
    fallow_layout *other = make_layout(&region, 1);
    lease_once(arena, layout, api.stream);
    assert_ok(fallow_arena_lock(arena));
    refuse_lease(arena, larger, api.stream, FALLOW_OVER_BUDGET,
                 "layout 'unnamed' needs 512 bytes, 512 of them persistent (largest region "
                 "'table', 512 bytes), and the budget is 256:");
    refuse_lease(arena, other, api.stream, FALLOW_OVER_BUDGET,
                 "needs 768 bytes, 768 of them persistent (largest region 'new', 512 bytes)");
    assert_ok(fallow_arena_trim(arena));
    assert_int_equal(arena_stats(arena).persistent_bytes, 0);
    lease_once(arena, layout, api.stream);
    assert_int_equal(arena_stats(arena).persistent_bytes, 256);
    assert_ok(fallow_arena_unlock(arena));
    lease_once(arena, larger, api.stream);
    lease_once(arena, other, api.stream);
    assert_int_equal(arena_stats(arena).persistent_bytes, 1024);
    bed_end();
}

TEST(hundreds_of_layouts_find_their_regions)
{
    fallow_region regions[3] = {
        {.name = "x", .size_bytes = 4096},
        KEPT_REGION("kept", 256, .align_bytes = 4096, .init = FALLOW_INIT_COUNTER),
        {.name = "y", .size_bytes = 64}};
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layouts[100];
    void *kept = NULL;
    for (int i = 0; i < 100; i++) {
        regions[0].size_bytes = (size_t)(100 * (i + 1));
        layouts[i] = make_layout(regions, 3);
    }
    for (int i = 0; i < 300; i++) {
        fallow_lease *lease = begin_lease(arena, layouts[i * 37 % 100], api.stream);
        kept = kept == NULL ? fallow_lease_region(lease, "kept") : kept;
        assert_ptr_equal(fallow_lease_region_at(lease, 1), kept);
        assert_int_equal((uintptr_t)kept % 4096, 0);
        end_lease(lease, api.stream);
    }
    bed_end();
}

FLW_TEST_MAIN(NULL, NULL)
