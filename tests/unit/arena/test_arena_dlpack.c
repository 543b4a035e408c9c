/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about exports, through a second copy of DLPack's structures
 * from the specification. */
#include "unit/arena/test_arena.h"

struct version {
    uint32_t major, minor;
};

struct tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

struct managed {
    struct version version;
    void *manager_ctx;
    void (*deleter)(struct managed *self);
    uint64_t flags;
    struct tensor tensor;
};

struct shape {
    const int64_t *shape, *strides;
    int dimensions;
    uint8_t code, bits;
    uint64_t offset;
};

static fallow_status export_region(fallow_lease *lease, size_t index, struct shape shape,
                                   struct managed **out)
{
    struct DLManagedTensorVersioned *tensor = (struct DLManagedTensorVersioned *)(void *)out;
    fallow_status status =
        fallow_lease_export(lease, index, shape.shape, shape.strides, shape.dimensions, shape.code,
                            shape.bits, shape.offset, &tensor);
    *out = (struct managed *)(void *)tensor;
    return status;
}

TEST(a_region_is_a_tensor)
{
    const int64_t shape[] = {4, 0, 5}, rows[] = {3, 7};
    struct managed *tensor = NULL, *view = NULL, *scalar = NULL, *empty = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(1024);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    assert_ok(export_region(lease, 0, (struct shape){rows, NULL, 2, 4, 16, 0}, &tensor));
    assert_int_equal(tensor->version.major, 1);
    assert_int_equal(tensor->flags, 0);
    assert_ptr_equal(tensor->tensor.data, fallow_lease_region_at(lease, 0));
    assert_int_equal(tensor->tensor.device_type, 2);
    assert_int_equal(tensor->tensor.device_id, 0);
    assert_int_equal(tensor->tensor.ndim, 2);
    assert_int_equal(tensor->tensor.code, 4);
    assert_int_equal(tensor->tensor.bits, 16);
    assert_int_equal(tensor->tensor.lanes, 1);
    assert_int_equal(tensor->tensor.shape[0], 3);
    assert_int_equal(tensor->tensor.shape[1], 7);
    assert_int_equal(tensor->tensor.strides[0], 7);
    assert_int_equal(tensor->tensor.strides[1], 1);
    assert_int_equal(tensor->tensor.byte_offset, 0);
    const int64_t steps[] = {10, 2};
    assert_ok(export_region(lease, 0, (struct shape){rows, steps, 2, 0, 64, 512},
                            &view)); /* 8 x (2 x 10 + 6 x 2 + 1) = 264 bytes */
    assert_int_equal(view->tensor.strides[0], 10);
    assert_ptr_equal(view->tensor.data, (char *)tensor->tensor.data + 512);
    assert_int_equal(view->tensor.byte_offset, 0); /* ignored by PyTorch up to 2.9 */
    assert_ok(export_region(lease, 0, (struct shape){NULL, NULL, 0, 2, 32, 1020}, &scalar));
    assert_ok(export_region(lease, 0, (struct shape){shape, NULL, 3, 2, 32, 1024}, &empty));
    assert_int_equal(tensor->version.minor, 0);
    struct managed *pairs = NULL;
    assert_ok(export_region(lease, 0, (struct shape){rows, NULL, 2, 17, 4, 1003}, &pairs));
    assert_int_equal(pairs->version.minor, 1);
    assert_int_equal(pairs->tensor.bits, 4);
    assert_int_equal(pairs->tensor.lanes, 2);
    pairs->deleter(pairs);
    end_lease(lease, api.stream);
    tensor->deleter(tensor);
    view->deleter(view);
    scalar->deleter(scalar);
    empty->deleter(empty);
    bed_end();
}

/* The structure before 1.0, from the specification. */
struct unversioned {
    struct tensor tensor;
    void *manager_ctx;
    void (*deleter)(struct unversioned *self);
};

TEST(older_consumers_get_the_older_form)
{
    const int64_t rows[] = {3, 7};
    struct managed *tensor = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(1024);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    assert_ok(export_region(lease, 0, (struct shape){rows, NULL, 2, 2, 32, 64}, &tensor));
    struct unversioned *older = (struct unversioned *)(void *)fallow_export_unversioned(
        (struct DLManagedTensorVersioned *)(void *)tensor);
    assert_non_null(older);
    assert_ptr_equal(older->tensor.data, (char *)fallow_lease_region_at(lease, 0) + 64);
    assert_int_equal(older->tensor.ndim, 2);
    assert_int_equal(older->tensor.bits, 32);
    assert_int_equal(older->tensor.shape[1], 7);
    assert_int_equal(older->tensor.strides[0], 7);
    assert_int_equal(older->tensor.byte_offset, 0);
    end_lease(lease, api.stream);
    older->deleter(older);
    assert_null(fallow_export_unversioned(NULL));
    bed_end();
}

static void refuse_export(fallow_arena *arena, fallow_lease *lease, struct shape shape,
                          const char *part)
{
    char text[256];
    struct managed *tensor;
    assert_int_equal(export_region(lease, 0, shape, &tensor), FALLOW_INVALID_ARGUMENT);
    assert_null(tensor);
    if (part != NULL) {
        fallow_arena_last_error(arena, text, sizeof text);
        if (strstr(text, part) == NULL) {
            fail_msg("'%s' does not say '%s'", text, part);
        }
    }
}

TEST(a_tensor_stays_in_its_region)
{
    const int64_t rows[] = {16, 16}, more[] = {17, 16}, huge[] = {INT64_MAX, INT64_MAX},
                  negative[] = {-1, 4}, backwards[] = {16, -1}, wide[] = {17, 1},
                  far[] = {INT64_MAX, 1}, many[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct managed *tensor;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(1024);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    assert_ok(export_region(lease, 0, (struct shape){rows, NULL, 2, 0, 32, 0}, &tensor));
    tensor->deleter(tensor);
    assert_int_equal(arena_stats(arena).is_leased, 1);
    refuse_export(arena, lease, (struct shape){more, NULL, 2, 0, 32, 0},
                  "a tensor of 1088 bytes at offset 0 exceeds region 'x' of 1024 bytes");
    refuse_export(arena, lease, (struct shape){rows, NULL, 2, 0, 32, 4},
                  "a tensor of 1024 bytes at offset 4 exceeds region 'x' of 1024 bytes");
    refuse_export(arena, lease, (struct shape){rows, NULL, 2, 0, 64, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){rows, wide, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){rows, far, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){huge, NULL, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){huge, rows, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){negative, NULL, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){rows, backwards, 2, 0, 32, 0}, "exceeds region");
    refuse_export(arena, lease, (struct shape){many, NULL, 1, 0, 32, UINT64_MAX - 3},
                  "exceeds region");
    refuse_export(arena, lease, (struct shape){many, NULL, 1, 0, 64, 12},
                  "a tensor at 12 of region 'x' is not aligned to its elements of 8 bytes");
    refuse_export(arena, lease, (struct shape){many, NULL, 9, 0, 32, 0}, NULL);
    refuse_export(arena, lease, (struct shape){many, NULL, -1, 0, 32, 0}, NULL);
    refuse_export(arena, lease, (struct shape){NULL, NULL, 1, 0, 32, 0}, NULL);
    refuse_export(arena, lease, (struct shape){rows, NULL, 2, 0, 4, 0}, NULL);
    refuse_export(arena, lease, (struct shape){rows, NULL, 2, 17, 4, 769}, "exceeds region");
    refuse_export(arena, lease, (struct shape){rows, NULL, 2, 0, 0, 0}, NULL);
    assert_int_equal(export_region(lease, 1, (struct shape){rows, NULL, 2, 0, 32, 0}, &tensor),
                     FALLOW_INVALID_ARGUMENT);
    assert_int_equal(export_region(NULL, 0, (struct shape){rows, NULL, 2, 0, 32, 0}, &tensor),
                     FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_export(lease, 0, rows, NULL, 2, 0, 32, 0, NULL),
                     FALLOW_INVALID_ARGUMENT);
    end_lease(lease, api.stream);
    assert_int_equal(arena_stats(arena).is_leased, 0);
    assert_int_equal(export_region(lease, 0, (struct shape){rows, NULL, 2, 0, 32, 0}, &tensor),
                     FALLOW_INVALID_ARGUMENT);
    bed_end();
}

static struct managed *export_rows(fallow_lease *lease)
{
    const int64_t rows[] = {16};
    struct managed *tensor = NULL;
    assert_ok(export_region(lease, 0, (struct shape){rows, NULL, 1, 0, 32, 0}, &tensor));
    return tensor;
}

/* A program may keep tensors in variables and delete them in any order after the lease. */
TEST(tensors_hold_nothing_open)
{
    struct managed *tensors[6];
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(1024);
    for (int i = 0; i < 5; i++) {
        CUstream stream = i % 2 == 0 ? api.stream : api.other;
        fallow_lease *lease = begin_lease(arena, layout, stream);
        tensors[i] = export_rows(lease);
        assert_ptr_equal(tensors[i]->tensor.data, tensors[0]->tensor.data);
        touch_lease(lease, layout, stream);
        end_lease(lease, stream);
        assert_int_equal(arena_stats(arena).is_leased, 0);
        assert_int_equal(fallow_lease_end(lease, stream), FALLOW_INVALID_ARGUMENT);
        assert_null(fallow_lease_region_at(lease, 0));
    }
    tensors[1]->deleter(tensors[1]);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    tensors[5] = export_rows(lease);
    destroy_arena(arena); /* takes effect when the lease ends */
    tensors[2]->deleter(tensors[2]);
    end_lease(lease, api.stream);
    assert_int_equal(api_stats(&api).live_count, 0);
    tensors[3]->deleter(tensors[3]);
    bed_end(); /* destroys the pool */
    tensors[0]->deleter(tensors[0]);
    tensors[4]->deleter(tensors[4]);
    tensors[5]->deleter(tensors[5]);
}

FLW_TEST_MAIN(NULL, NULL)
