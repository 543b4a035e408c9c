/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about layouts. */
#include "unit/arena/test_arena.h"

#include "arena/layout.h"

static void refuse(const fallow_region *regions, size_t count)
{
    fallow_layout *layout = (fallow_layout *)(void *)&count;
    assert_int_equal(fallow_layout_create(regions, count, &layout), FALLOW_INVALID_ARGUMENT);
    assert_null(layout);
}

static void refuse_one(fallow_region region)
{
    refuse(&region, 1);
}

TEST(a_bad_region_is_refused)
{
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    refuse_one((fallow_region){.name = NULL, .size_bytes = 1});
    refuse_one((fallow_region){.name = "", .size_bytes = 1});
    refuse_one((fallow_region){.name = name, .size_bytes = 1});
    refuse_one((fallow_region){.name = "x", .flags = FALLOW_REGION_PERSISTENT});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .align_bytes = 3});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .align_bytes = 4 * MIB});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .first_phase = 2, .last_phase = 1});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .element_bytes = 3});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .flags = 2});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .reserved_0 = 1});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .init = (fallow_init_class)99});
    refuse_one((fallow_region){.name = "x", .size_bytes = 6, .flags = FALLOW_REGION_PERSISTENT});
    refuse_one((fallow_region){.name = "x", .size_bytes = ((size_t)1 << 62) + 1});
    refuse_one((fallow_region){.name = "x", .size_bytes = 1, .last_phase = 65536});
    name[63] = '\0';
    fallow_region longest = {.name = name, .size_bytes = 1};
    destroy_layout(make_layout(&longest, 1));
}

TEST(a_bad_set_is_refused)
{
    fallow_region two[2] = {{.name = "x", .size_bytes = 1}, {.name = "x", .size_bytes = 2}};
    fallow_layout *layout = NULL;
    refuse(two, 2);
    refuse(two, 0);
    refuse(NULL, 1);
    refuse(two, 65536);
    two[1].name = "y";
    two[0].size_bytes = two[1].size_bytes = (size_t)1 << 62;
    refuse(two, 2);
    assert_int_equal(fallow_layout_create(two, 1, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_create_within(two, 1, 1, NULL), FALLOW_INVALID_ARGUMENT);
    two[0].size_bytes = two[1].size_bytes = 1;
    assert_ok(fallow_layout_create(two, 2, &layout));
    destroy_layout(layout);
    destroy_layout(NULL);
}

TEST(a_layout_tells_what_it_was_given)
{
    char name[] = "first";
    const fallow_region regions[] = {
        {.name = name, .size_bytes = 1000, .last_phase = 1},
        {.name = "second", .size_bytes = 500, .align_bytes = 4096, .element_bytes = 8},
        {.name = "kept", .size_bytes = 640, .align_bytes = 512, .flags = FALLOW_REGION_PERSISTENT},
        {.name = "also", .size_bytes = 40, .flags = FALLOW_REGION_PERSISTENT}};
    fallow_region region;
    size_t offset = 1;
    fallow_layout *layout = make_layout(regions, 4);
    memset(name, 'z', sizeof name); /* copied */
    assert_string_equal(fallow_layout_name(layout), "unnamed");
    memcpy(name, "step", sizeof "step");
    assert_ok(fallow_layout_set_name(layout, name));
    memset(name, 'z', sizeof name); /* copied */
    char longest[65] = {0};
    memset(longest, 'n', 64);
    const char *const refused[] = {NULL, "", longest};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fallow_layout_set_name(layout, refused[i]), FALLOW_INVALID_ARGUMENT);
    }
    assert_int_equal(fallow_layout_set_name(NULL, "step"), FALLOW_INVALID_ARGUMENT);
    assert_string_equal(fallow_layout_name(layout), "step");
    assert_null(fallow_layout_name(NULL));
    assert_int_equal(fallow_layout_region_count(layout), 4);
    assert_int_equal(fallow_layout_find(layout, "first"), 0);
    assert_int_equal(fallow_layout_find(layout, "also"), 3);
    assert_true(fallow_layout_find(layout, "none") == SIZE_MAX);
    assert_true(fallow_layout_find(layout, NULL) == SIZE_MAX);
    assert_true(fallow_layout_find(NULL, "first") == SIZE_MAX);
    assert_ok(fallow_layout_region(layout, 0, &region, NULL));
    assert_string_equal(region.name, "first");
    assert_int_equal(region.size_bytes, 1000);
    assert_int_equal(region.align_bytes, 256);
    assert_int_equal(region.element_bytes, 4);
    assert_ok(fallow_layout_region(layout, 1, &region, &offset));
    assert_int_equal(region.element_bytes, 8);
    assert_int_equal(offset % 4096, 0);
    assert_ok(fallow_layout_region(layout, 2, NULL, &offset));
    assert_int_equal(offset, 0);
    assert_int_equal(fallow_layout_region(layout, 4, &region, &offset), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_region(NULL, 0, &region, &offset), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_lower_bound(layout), 1500);
    assert_true(fallow_layout_bytes(layout) >= 1500 && fallow_layout_bytes(layout) <= 8192);
    assert_int_equal(fallow_layout_persistent_bytes(layout), 768 + 40);
    assert_int_equal(fallow_layout_bytes(NULL), 0);
    assert_int_equal(fallow_layout_lower_bound(NULL), 0);
    assert_int_equal(fallow_layout_persistent_bytes(NULL), 0);
    assert_int_equal(fallow_layout_region_count(NULL), 0);
    destroy_layout(layout);
}

TEST(regions_that_are_never_alive_together_share_bytes)
{
    fallow_region regions[] = {
        {.name = "a", .size_bytes = 64 * KIB},
        {.name = "b", .size_bytes = 64 * KIB, .first_phase = 1, .last_phase = 1},
        {.name = "c", .size_bytes = 64 * KIB, .first_phase = 65535, .last_phase = 65535}};
    fallow_layout *layout = make_layout(regions, 3);
    assert_int_equal(fallow_layout_bytes(layout), 64 * KIB);
    assert_int_equal(fallow_layout_lower_bound(layout), 64 * KIB);
    destroy_layout(layout);
    regions[1].first_phase = 0;
    layout = make_layout(regions, 3);
    assert_int_equal(fallow_layout_bytes(layout), 128 * KIB);
    destroy_layout(layout);
}

TEST(an_empty_region_has_an_address)
{
    const fallow_region regions[] = {{.name = "routed", .align_bytes = 1024},
                                     {.name = "shared", .size_bytes = 100}};
    for (size_t count = 1; count <= 2; count++) {
        size_t offset = 1;
        fallow_layout *layout = make_layout(regions, count);
        assert_ok(fallow_layout_region(layout, 0, NULL, &offset));
        assert_int_equal(offset, 0);
        assert_int_equal(fallow_layout_bytes(layout), count == 1 ? 1 : 100);
        assert_int_equal(fallow_layout_lower_bound(layout), count == 1 ? 0 : 100);
        destroy_layout(layout);
    }
}

/* With the most regions allowed, slots of the hash table collide, and the last index is the largest below the
 * value that marks an empty slot. */
TEST(every_region_is_found_by_its_name)
{
    const size_t count = 65535;
    fallow_region *regions = calloc(count, sizeof *regions);
    char(*names)[8] = calloc(count, sizeof *names);
    assert_true(regions != NULL && names != NULL);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "r%zu", i);
        regions[i] =
            (fallow_region){.name = names[i], .size_bytes = 4, .flags = FALLOW_REGION_PERSISTENT};
    }
    fallow_layout *layout = make_layout(regions, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(fallow_layout_find(layout, names[i]), i);
        names[i][0] = 's';
        assert_true(fallow_layout_find(layout, names[i]) == SIZE_MAX);
    }
    destroy_layout(layout);
    regions[count - 1].name = names[0];
    refuse(regions, count);
    free(names);
    free(regions);
}

TEST(a_layout_of_persistent_regions_only_has_no_scratch)
{
    fallow_region region = {
        .name = "kept", .size_bytes = 4096, .flags = FALLOW_REGION_PERSISTENT, .first_phase = 9};
    fallow_layout *layout = make_layout(&region, 1);
    assert_int_equal(fallow_layout_bytes(layout), 0);
    assert_int_equal(fallow_layout_lower_bound(layout), 0);
    assert_int_equal(fallow_layout_persistent_bytes(layout), 4096);
    destroy_layout(layout);
}

/* The same, looked at pair by pair: an own reckoning, not the library's. */
static void expect_placed(const fallow_layout *layout)
{
    size_t end = 0;
    for (size_t i = 0; i < fallow_layout_region_count(layout); i++) {
        fallow_region a, b;
        size_t at, other;
        assert_ok(fallow_layout_region(layout, i, &a, &at));
        if ((a.flags & FALLOW_REGION_PERSISTENT) != 0) {
            continue;
        }
        assert_int_equal(at % a.align_bytes, 0);
        end = at + a.size_bytes > end ? at + a.size_bytes : end;
        for (size_t j = 0; j < i; j++) {
            assert_ok(fallow_layout_region(layout, j, &b, &other));
            bool is_apart = a.last_phase < b.first_phase || b.last_phase < a.first_phase ||
                            at >= other + b.size_bytes || other >= at + a.size_bytes ||
                            (b.flags & FALLOW_REGION_PERSISTENT) != 0;
            assert_true(is_apart);
        }
    }
    assert_int_equal(end, fallow_layout_bytes(layout));
    assert_true(fallow_layout_lower_bound(layout) <= end);
}

TEST(random_layouts_never_overlap_what_is_alive_together)
{
    uint64_t random = flw_test_seed("random_layouts");
    char names[40][24];
    fallow_region regions[40];
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + flw_test_random(&random) % 40;
        for (size_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)(flw_test_random(&random) % 12);
            snprintf(names[i], sizeof names[i], "r%zu", i);
            regions[i] = (fallow_region){
                .name = names[i],
                .size_bytes = 8 * (1 + flw_test_random(&random) % 5000),
                .align_bytes = (size_t)1 << flw_test_random(&random) % 15,
                .first_phase = first,
                .last_phase = first + (uint32_t)(flw_test_random(&random) % 5),
                .flags = flw_test_random(&random) % 8 == 0 ? FALLOW_REGION_PERSISTENT : 0};
        }
        fallow_layout *layout = make_layout(regions, count);
        expect_placed(layout);
        assert_true(flw_layout_is_valid(layout));
        destroy_layout(layout);
    }
}

TEST(an_effort_never_makes_a_layout_larger)
{
    fallow_region regions[24];
    char names[24][24];
    for (size_t i = 0; i < 24; i++) {
        snprintf(names[i], sizeof names[i], "r%zu", i);
        regions[i] = (fallow_region){.name = names[i],
                                     .size_bytes = 256 * (1 + i * 7 % 13),
                                     .first_phase = (uint32_t)(i * 5 % 11),
                                     .last_phase = (uint32_t)(i * 5 % 11 + i % 4)};
    }
    fallow_layout *fast = make_layout(regions, 24), *slow = NULL;
    assert_ok(fallow_layout_create_within(regions, 24, 20000000, &slow));
    expect_placed(fast);
    expect_placed(slow);
    assert_true(fallow_layout_bytes(slow) <= fallow_layout_bytes(fast));
    destroy_layout(fast);
    destroy_layout(slow);
}

FLW_TEST_MAIN(NULL, NULL)
