/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every public call of plugin.h beside another thread's capture (see test_beside_pool.c),
 * including the first call of a device. Default pools belong to the process. */
#include "unit/pool/test_beside.h"

#include "fallow/plugin.h"

static const fallow_mempool_id first_id = {1, 0}, second_id = {2, 0};

/* Allocate and free a tensor. */
static void try_tensor(struct bed *bed, int device, CUstream stream)
{
    void *tensor = NULL;
    DO(bed, tensor = fallow_torch_alloc(5 * MIB, device, stream));
    assert_non_null(tensor);
    DO(bed, fallow_torch_free(tensor, 5 * MIB, device, stream));
}

static CUstream make_stream_abroad(struct bed *bed)
{
    const struct flw_driver *cu = &bed->api.sim.cu;
    CUcontext abroad = NULL;
    CUstream stream = NULL;
    assert_int_equal(cu->cuDevicePrimaryCtxRetain(&abroad, 1), 0);
    assert_int_equal(cu->cuCtxSetCurrent(abroad), 0);
    assert_int_equal(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cu->cuCtxSetCurrent(bed->context), 0);
    return stream;
}

/* Begin without a pool, except on the first device, where the pool must have seen the stream. */
static void begin_plugin(struct bed *bed, enum flw_beside_place place)
{
    fallow_pool_config config;
    begin_bed(bed, place);
    if (place != FLW_BESIDE_KNOWN) {
        begin_capture(bed);
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    assert_int_equal(fallow_plugin_configure(&config), FALLOW_OK);
    fallow_torch_memory_fraction(0.5, 1);
    if (place == FLW_BESIDE_KNOWN) {
        fallow_torch_free(fallow_torch_alloc(1000, 0, bed->known), 1000, 0, bed->known);
        begin_capture(bed);
    }
    SURVIVES(bed, "fallow_plugin_configure");
}

static void use_tensors(struct bed *bed)
{
    void *tensor = NULL, *base = NULL;
    size_t bytes = 0;
    CUstream stream = bed->api.stream, abroad = make_stream_abroad(bed);
    fallow_pool *pool = NULL;
    try_tensor(bed, 1, abroad); /* the first of a second device */
    try_tensor(bed, 0, stream);
    WORKS(bed, fallow_plugin_pool(1, FALLOW_PLUGIN_STREAM, 0, &pool));
    DO(bed, tensor = fallow_torch_alloc(3000, 0, stream));
    DO(bed, base = fallow_torch_base_alloc(tensor, &bytes));
    assert_ptr_equal(base, tensor);
    DO(bed, fallow_torch_record_stream(tensor, bed->api.other));
    DO(bed, fallow_torch_free(tensor, 3000, 0, stream));
    DO(bed, fallow_torch_reset());
    DO(bed, assert_null(fallow_torch_alloc((ssize_t)1 << 40, 0, stream)));
    DO(bed, assert_null(fallow_rmm_alloc((ssize_t)1 << 40, 0, stream)));
}

/* CuPy and segments name no stream: captures in the context are announced. */
static void use_blocks_of_no_stream(struct bed *bed)
{
    void *block = NULL;
    if (is_near(bed)) {
        DO(bed, fallow_context_capture_begin());
    }
    for (unsigned i = 0; i < 300; i++) {
        DO(bed, block = fallow_cupy_malloc(NULL, 3000, 0));
        assert_non_null(block);
        DO(bed, fallow_cupy_free(NULL, block, 0));
    }
    DO(bed, block = fallow_torch_segment_alloc(3 * MIB, 0, bed->api.stream));
    assert_non_null(block);
    DO(bed, fallow_torch_segment_free(block, 3 * MIB, 0, bed->api.stream));
    DO(bed, fallow_torch_reset());
    if (is_near(bed)) {
        DO(bed, fallow_context_capture_end());
    }
}

static void use_graph_memory(struct bed *bed)
{
    void *inside = NULL;
    CUstream stream = bed->api.stream;
    bool is_unseen = bed->beside.place == FLW_BESIDE_STREAM; /* the release waits for the context */
    if (is_unseen) {
        DO(bed, fallow_context_capture_begin());
    }
    DO(bed, fallow_torch_begin_allocate_to_pool(0, first_id, NULL));
    api_begin_capturing(&bed->api, stream);
    DO(bed, inside = fallow_torch_alloc(3 * MIB, 0, stream));
    assert_non_null(inside);
    DO(bed, fallow_torch_free(inside, 3 * MIB, 0, stream));
    api_drop_captured(&bed->api, stream);
    DO(bed, fallow_torch_end_allocate_to_pool(0, first_id));
    DO(bed, fallow_torch_release_pool(0, first_id));
    DO(bed, fallow_torch_begin_allocate_to_pool(0, second_id, NULL));
    api_begin_capturing(&bed->api, stream);
    DO(bed, inside = fallow_torch_alloc(700, 0, stream));
    assert_non_null(inside);
    api_drop_captured(&bed->api, stream);
    DO(bed, fallow_torch_end_allocate_to_pool(0, second_id));
    DO(bed, fallow_torch_release_pool(0, second_id));
    DO(bed, fallow_torch_free(inside, 700, 0, stream));
    if (is_unseen) {
        DO(bed, fallow_context_capture_end());
    }
}

static void a_framework_goes_on(enum flw_beside_place place)
{
    struct bed bed;
    begin_plugin(&bed, place);
    use_tensors(&bed);
    use_blocks_of_no_stream(&bed);
    use_graph_memory(&bed);
    assert_true(flw_beside_end(&bed.beside));
    assert_int_equal(flw_sim_print_violations(&bed.api.sim), 0);
}

int main(void)
{
    static const struct group groups[] = {GROUP(a_framework_goes_on)};
    return run_groups(groups, 1);
}
