/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the queries of libraries that register, export or keep memory, for a block's address, with
 * both page sources.
 *
 * NCCL      cuMemGetAddressRange for the range to register; cuMemRetainAllocationHandle and the export of the
 *           handle between processes; with legacy IPC, cuIpcGetMemHandle instead.
 * UCX,      cuPointerGetAttributes (kind, managed, device, context, legacy IPC, handle types), the address
 * NIXL      range, then a dma-buf of it for the adapter; they cache registrations by range.
 * gdrcopy   the pages of a range, through a kernel module, which accepts memory of cuMemAlloc and handles
 *           made with gpuDirectRDMACapable. */
#include "unit/pool/test_api.h"

#include <unistd.h>

#include "fallow/share.h"
#include "fallow/sleep.h"

#define ONE_HANDLE ((size_t)1 << 30) /* automatic mode: from here on a block is all of one handle */

static void begin(struct api *api, fallow_page_source source)
{
    api_begin(api, NULL);
    fallow_pool_config config = api_config(api);
    config.page_source = source;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

typedef CUresult (*range_handle_function)(void *, CUdeviceptr, size_t, CUmemRangeHandleType,
                                          unsigned long long);
typedef CUresult (*attributes_function)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
typedef CUresult (*ipc_function)(CUipcMemHandle *, CUdeviceptr);

struct answers {
    CUdeviceptr base; /* of the address range */
    size_t bytes;
    unsigned kind;
    int device;
    bool is_managed, has_legacy_ipc, has_rdma;
    cuuint64_t handle_types;
    bool gives_ipc_handle, gives_dma_buf, gives_descriptor;
};

static void find_entry(struct api *api, const char *name, void *function)
{
    void *entry = flw_driver_entry(&api->sim.cu, name);
    assert_non_null(entry);
    memcpy(function, &entry, sizeof entry);
}

/* Export the whole allocation by descriptor, as NCCL and UCX do for a neighbour. */
static bool exports_descriptor(struct api *api, void *ptr)
{
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;
    const struct flw_driver *cu = &api->sim.cu;
    if (cu->cuMemRetainAllocationHandle(&handle, ptr) != CUDA_SUCCESS) {
        return false;
    }
    bool is_given = cu->cuMemExportToShareableHandle(
                        &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    assert_int_equal(cu->cuMemRelease(handle), CUDA_SUCCESS);
    if (is_given) {
        assert_int_equal(close(file), 0);
    }
    return is_given;
}

static struct answers ask_as_libraries_do(struct api *api, void *ptr, size_t bytes)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    struct answers answers = {.device = -1};
    CUcontext context = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_CONTEXT,
                                    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE};
    void *to[] = {&answers.kind,           &answers.is_managed,   &answers.device,  &context,
                  &answers.has_legacy_ipc, &answers.handle_types, &answers.has_rdma};
    range_handle_function get_range_handle;
    attributes_function get_attributes;
    ipc_function get_ipc_handle;
    CUipcMemHandle ipc;
    int file = -1;
    find_entry(api, "cuMemGetHandleForAddressRange", &get_range_handle);
    find_entry(api, "cuPointerGetAttributes", &get_attributes);
    find_entry(api, "cuIpcGetMemHandle", &get_ipc_handle);
    assert_int_equal(api->sim.cu.cuMemGetAddressRange_v2(&answers.base, &answers.bytes, at),
                     CUDA_SUCCESS);
    assert_int_equal(get_attributes(sizeof wanted / sizeof *wanted, wanted, to, at), CUDA_SUCCESS);
    answers.gives_ipc_handle = get_ipc_handle(&ipc, at) == CUDA_SUCCESS;
    CUdeviceptr page = at & ~4095ull, end = (at + bytes + 4095) & ~4095ull; /* widened as in UCX */
    answers.gives_dma_buf =
        get_range_handle(&file, page, end - page, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
        CUDA_SUCCESS;
    if (answers.gives_dma_buf) {
        assert_int_equal(close(file), 0);
    }
    answers.gives_descriptor = exports_descriptor(api, ptr);
    return answers;
}

/* Check the results common to both sources. */
static void expect_usual(const struct answers *answers, const void *ptr)
{
    assert_int_equal(answers->kind, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(answers->device, 0);
    assert_false(answers->is_managed);
    assert_true(answers->has_rdma);
    assert_true(answers->gives_dma_buf);
    assert_true(answers->base <= (CUdeviceptr)(uintptr_t)ptr);
    assert_true((CUdeviceptr)(uintptr_t)ptr < answers->base + answers->bytes);
}

static void what_libraries_ask_of_segments_is_answered_as_natively(void **state)
{
    struct api api;
    begin(&api, FALLOW_PAGES_SEGMENTS);
    assert_int_equal(api_stats(&api).page_source, FALLOW_PAGES_SEGMENTS);
    assert_int_equal(api_stats(&api).uses_vmm, 0);
    static const size_t sizes[] = {5000, 3 * MIB, 200 * MIB + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *ptr = api_alloc(&api, sizes[i], api.stream);
        struct answers answers = ask_as_libraries_do(&api, ptr, sizes[i]);
        expect_usual(&answers, ptr);
        assert_true((CUdeviceptr)(uintptr_t)ptr + sizes[i] <= answers.base + answers.bytes);
        assert_true(answers.has_legacy_ipc && answers.gives_ipc_handle);
        assert_true(answers.handle_types == 0 && !answers.gives_descriptor);
        assert_true(sizes[i] < MIB || answers.base == (CUdeviceptr)(uintptr_t)ptr);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    }
    api_end(&api);
}

/* Allocate random sizes, some aligned, with random lifetimes: a large block always fills the segment. */
static void a_large_segment_is_never_split(void **state)
{
    struct api api;
    void *blocks[24] = {NULL};
    const size_t large = 4 * MIB;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.page_source = FALLOW_PAGES_SEGMENTS;
    config.one_handle_bytes = large;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    uint64_t random = 26;
    for (unsigned i = 0; i < 3000; i++) {
        void **block = &blocks[flw_test_random(&random) % 24];
        if (*block != NULL) {
            assert_int_equal(fallow_free(api.pool, *block, api.stream), FALLOW_OK);
            *block = NULL;
            continue;
        }
        fallow_request request;
        fallow_request_init(&request);
        request.size_bytes = (MIB >> 5) << (flw_test_random(&random) % 12); /* to 128 MiB */
        request.size_bytes += flw_test_random(&random) % request.size_bytes;
        request.align_bytes = flw_test_random(&random) % 8 == 0 ? 2 * MIB : 0;
        assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, block), FALLOW_OK);
        CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)*block;
        size_t bytes = 0, most = request.size_bytes + request.size_bytes / 8 + MIB / 16;
        assert_int_equal(api.sim.cu.cuMemGetAddressRange_v2(&base, &bytes, at), CUDA_SUCCESS);
        assert_true(at >= base && at + request.size_bytes <= base + bytes);
        assert_true(request.align_bytes == 0 || at % request.align_bytes == 0);
        if (request.size_bytes >= large && request.align_bytes == 0) {
            assert_int_equal(base, at);
            assert_true(bytes <= most);
        }
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void a_freed_segment_of_four_gib_serves_no_block_of_one(void **state)
{
    struct api api;
    begin(&api, FALLOW_PAGES_SEGMENTS);
    void *ptr = api_alloc(&api, 4 * ONE_HANDLE, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    void *part = api_alloc(&api, ONE_HANDLE, api.stream);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    assert_int_equal(
        api.sim.cu.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)part),
        CUDA_SUCCESS);
    assert_int_equal(base, (CUdeviceptr)(uintptr_t)part);
    assert_int_equal(bytes, ONE_HANDLE);
    assert_int_equal(fallow_free(api.pool, part, api.stream), FALLOW_OK);
    api_end(&api);
}

static void what_libraries_ask_of_handles_is_answered(void **state)
{
    struct api api;
    begin(&api, FALLOW_PAGES_AUTOMATIC);
    static const size_t sizes[] = {5000, 3 * MIB, 40 * MIB + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *ptr = api_alloc(&api, sizes[i], api.stream);
        struct answers answers = ask_as_libraries_do(&api, ptr, sizes[i]);
        expect_usual(&answers, ptr);
        /* vLLM, UCX and NCCL query this first; an exporter has descriptors instead. */
        assert_true(!answers.has_legacy_ipc && !answers.gives_ipc_handle);
        assert_true(answers.handle_types ==
                    (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC));
        assert_true(answers.gives_descriptor);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    }
    api_end(&api);
}

static void a_handle_says_what_it_was_made_with(void **state)
{
    struct api api;
    for (unsigned refused = 0; refused < 2; refused++) {
        CUmemAllocationProp properties = {0};
        CUmemGenericAllocationHandle handle = 0;
        api_begin(&api, NULL);
        if (refused == 1) { /* with registration, once */
            assert_int_equal((api.sim.fail)("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED, 0), 1);
        }
        api.pool = api_create(&api);
        void *ptr = api_alloc(&api, 3 * MIB, api.stream);
        assert_int_equal(api.sim.cu.cuMemRetainAllocationHandle(&handle, ptr), CUDA_SUCCESS);
        assert_int_equal(api.sim.cu.cuMemGetAllocationPropertiesFromHandle(&properties, handle),
                         CUDA_SUCCESS);
        assert_int_equal(api.sim.cu.cuMemRelease(handle), CUDA_SUCCESS);
        assert_int_equal(properties.allocFlags.gpuDirectRDMACapable, refused == 0);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        api_end(&api);
    }
}

/* ---- one handle */

static bool lies_in_one_handle(struct api *api, const void *ptr, size_t bytes)
{
    CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)ptr;
    size_t range = 0;
    assert_int_equal(api->sim.cu.cuMemGetAddressRange_v2(&base, &range, at), CUDA_SUCCESS);
    return at >= base && at + bytes <= base + range;
}

/* True if the block is all of one handle. */
static bool has_its_handle(struct api *api, const void *ptr, size_t bytes)
{
    CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)ptr;
    size_t range = 0;
    assert_int_equal(api->sim.cu.cuMemGetAddressRange_v2(&base, &range, at), CUDA_SUCCESS);
    return at == base && bytes <= range && range - bytes < 2 * MIB;
}

static void begin_with(struct api *api, size_t one_handle_bytes, size_t limit_bytes)
{
    flw_sim_config world = flw_sim_config_default(3);
    world.schedule = FLW_SIM_CLOCK; /* all work is complete at once */
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.one_handle_bytes = one_handle_bytes;
    config.limit_bytes = limit_bytes;
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void give(struct api *api, void *ptr)
{
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
}

static uint64_t creates(struct api *api)
{
    return api->sim.call_count("cuMemCreate");
}

/* Libraries see each block whole, and the handle is reused at once. */
static void large_blocks_are_seen_whole_in_automatic_mode(void **state)
{
    struct api api;
    static const size_t sizes[] = {ONE_HANDLE, ONE_HANDLE + 5, 3 * ONE_HANDLE + 7 * MIB};
    begin_with(&api, 0, 0);
    void *small = api_alloc(&api, 300 * MIB, api.stream); /* for which there is room already */
    give(&api, api_alloc(&api, 700 * MIB, api.stream));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *ptr = api_alloc(&api, sizes[i], api.stream);
        struct answers answers = ask_as_libraries_do(&api, ptr, sizes[i]);
        expect_usual(&answers, ptr);
        assert_true(has_its_handle(&api, ptr, sizes[i]) && answers.gives_descriptor);
        give(&api, ptr);
        uint64_t before = creates(&api);
        assert_ptr_equal(api_alloc(&api, sizes[i], api.stream), ptr);
        assert_true(creates(&api) == before);
        give(&api, ptr);
        assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    }
    give(&api, small);
    api_end(&api);
    begin_with(&api, FALLOW_ONE_HANDLE_NONE, 0);
    void *ptr = api_alloc(&api, 2 * ONE_HANDLE, api.stream);
    assert_false(lies_in_one_handle(&api, ptr, 2 * ONE_HANDLE)); /* else the test proves nothing */
    give(&api, ptr);
    api_end(&api);
}

/* Smaller requests get new memory: no small block is ever cut from a large block's handle. */
static void a_large_handle_serves_nothing_else(void **state)
{
    struct api api;
    void *smalls[32];
    begin_with(&api, 64 * MIB, 0);
    void *large = api_alloc(&api, 640 * MIB, api.stream);
    assert_true(has_its_handle(&api, large, 640 * MIB));
    give(&api, large);
    for (unsigned i = 0; i < 32; i++) {
        smalls[i] = api_alloc(&api, 16 * MIB, api.stream);
    }
    /* The memory was released for them: the pool may hold 1.15 of the peak and 16 MiB, not both. */
    assert_true(api_stats(&api).reserved_bytes <= 752 * MIB);
    for (unsigned i = 0; i < 32; i += 2) { /* half, in pieces too small for a large block */
        give(&api, smalls[i]);
    }
    large = api_alloc(&api, 200 * MIB, api.stream);
    assert_true(has_its_handle(&api, large, 200 * MIB));
    assert_true(api_stats(&api).reserved_bytes <= 752 * MIB);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    give(&api, large);
    for (unsigned i = 1; i < 32; i += 2) {
        give(&api, smalls[i]);
    }
    api_end(&api);
}

/* Allocate one GiB and another block alternately, within a peak with room for one of them. */
static void take_turns(struct api *api, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        give(api, api_alloc(api, ONE_HANDLE, api->stream));
        give(api, api_alloc(api, 900 * MIB, api->stream));
    }
}

static void where_large_blocks_come_and_go_only_larger_ones_have_a_handle(void **state)
{
    struct api api;
    begin_with(&api, 0, 0);
    take_turns(&api, 8);
    assert_non_null(strstr(api.log, "from 2048 MiB on"));
    void *ptr = api_alloc(&api, ONE_HANDLE, api.stream);
    assert_false(lies_in_one_handle(&api, ptr, ONE_HANDLE));
    void *larger = api_alloc(&api, 2 * ONE_HANDLE, api.stream);
    assert_true(has_its_handle(&api, larger, 2 * ONE_HANDLE));
    give(&api, ptr);
    give(&api, larger);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    ptr = api_alloc(&api, ONE_HANDLE, api.stream); /* a trim resets it */
    assert_true(has_its_handle(&api, ptr, ONE_HANDLE));
    give(&api, ptr);
    api_end(&api);
    begin_with(&api, ONE_HANDLE, 0); /* a size that is named stays */
    take_turns(&api, 8);
    ptr = api_alloc(&api, ONE_HANDLE, api.stream);
    assert_true(has_its_handle(&api, ptr, ONE_HANDLE));
    give(&api, ptr);
    api_end(&api);
}

/* An existing handle still serves the size. */
static void a_large_handle_outlives_the_size_from_which_they_are_made(void **state)
{
    struct api api;
    fallow_request request;
    void *again = NULL;
    fallow_request_init(&request);
    request.size_bytes = ONE_HANDLE;
    request.flags = FALLOW_REQUEST_NO_GROW;
    begin_with(&api, 0, 0);
    void *kept = api_alloc(&api, ONE_HANDLE, api.stream);
    assert_true(has_its_handle(&api, kept, ONE_HANDLE));
    take_turns(&api, 8);
    assert_non_null(strstr(api.log, "from 2048 MiB on"));
    void *divided = api_alloc(&api, ONE_HANDLE, api.stream);
    assert_false(lies_in_one_handle(&api, divided, ONE_HANDLE));
    give(&api, kept);
    uint64_t before = creates(&api);
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &again), FALLOW_OK);
    assert_ptr_equal(again, kept);
    assert_true(creates(&api) == before);
    give(&api, again);
    give(&api, divided);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* A growth requests memory three times, with fewer requirements each time; the fourth time with
 * small handles, unless the program set a size. */
static void without_memory_for_a_large_handle_small_ones_serve(void **state)
{
    struct api api;
    for (unsigned is_named = 0; is_named < 2; is_named++) {
        void *ptr = NULL;
        begin_with(&api, is_named ? ONE_HANDLE : 0, 0);
        for (uint64_t n = 1; n <= 3; n++) {
            assert_int_equal((api.sim.fail)("cuMemCreate", n, CUDA_ERROR_OUT_OF_MEMORY, 0), 1);
        }
        assert_int_equal(fallow_alloc(api.pool, ONE_HANDLE, api.stream, &ptr), FALLOW_OK);
        assert_int_equal(has_its_handle(&api, ptr, ONE_HANDLE), is_named);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        give(&api, ptr);
        api_end(&api);
    }
}

/* Sleep, export, another stream, a retired one, a capture: with blocks that are all of a handle. */
static void expect_whole(struct api *api, const void *ptr)
{
    assert_true(has_its_handle(api, ptr, 70 * MIB));
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
}

static void large_blocks_sleep_and_are_exported(void **state)
{
    struct api api;
    begin_with(&api, 64 * MIB, 0);
    void *kept = api_alloc(&api, 70 * MIB, api.stream);
    give(&api, api_alloc(&api, 90 * MIB, api.stream));
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_OK);
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    expect_whole(&api, kept);
    fallow_share share;
    fallow_share_init(&share);
    assert_int_equal(fallow_export(api.pool, kept, FALLOW_HANDLE_FD, &share), FALLOW_OK);
    assert_true(share.handle_bytes == 70 * MIB);
    assert_int_equal(close(share.descriptor), 0);
    give(&api, kept);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).exported_bytes, 0); /* released: never allocated again */
    api_end(&api);
}

static void large_blocks_change_hands(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    begin_with(&api, 64 * MIB, 0);
    void *ptr = api_alloc(&api, 70 * MIB, api.stream);
    give(&api, ptr);
    assert_ptr_equal(api_alloc(&api, 70 * MIB, api.other), ptr); /* stolen, or complete */
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    void *captured = api_alloc(&api, 70 * MIB, api.stream);
    expect_whole(&api, captured);
    give(&api, captured);
    assert_ptr_equal(api_alloc(&api, 70 * MIB, api.stream), captured);
    give(&api, captured);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    expect_whole(&api, api_alloc(&api, 70 * MIB, api.stream));
    api_end(&api);
}

#define BLOCKS 24

/* Allocate and free blocks of up to 400 MiB; return how many of those from `least` bytes on are
 * not in one handle. */
static unsigned churn(struct api *api, size_t least)
{
    void *ptrs[BLOCKS] = {0};
    uint64_t seed = 99;
    unsigned divided = 0;
    for (unsigned n = 0; n < 600; n++) {
        unsigned i = (unsigned)(flw_test_random(&seed) % BLOCKS);
        size_t bytes =
            ((size_t)1 << (16 + flw_test_random(&seed) % 13)) + flw_test_random(&seed) % MIB;
        if (ptrs[i] != NULL) {
            assert_int_equal(fallow_free(api->pool, ptrs[i], api->stream), FALLOW_OK);
            ptrs[i] = NULL;
        } else if (fallow_alloc(api->pool, bytes, api->stream, &ptrs[i]) == FALLOW_OK) {
            divided += bytes >= least && !lies_in_one_handle(api, ptrs[i], bytes);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_int_equal(fallow_free(api->pool, ptrs[i], api->stream), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
    return divided;
}

static void from_one_handle_bytes_on_a_block_lies_in_one_handle(void **state)
{
    struct api api;
    static const size_t limits[] = {0, (size_t)1 << 30};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        begin_with(&api, 2 * MIB, limits[i]);
        assert_int_equal(churn(&api, 2 * MIB), 0);
        api_end(&api);
        begin_with(&api, FALLOW_ONE_HANDLE_NONE, limits[i]);
        assert_true(churn(&api, 2 * MIB) > 0); /* else the test proves nothing */
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_libraries_ask_of_segments_is_answered_as_natively),
        cmocka_unit_test(a_large_segment_is_never_split),
        cmocka_unit_test(a_freed_segment_of_four_gib_serves_no_block_of_one),
        cmocka_unit_test(what_libraries_ask_of_handles_is_answered),
        cmocka_unit_test(a_handle_says_what_it_was_made_with),
        cmocka_unit_test(from_one_handle_bytes_on_a_block_lies_in_one_handle),
        cmocka_unit_test(large_blocks_are_seen_whole_in_automatic_mode),
        cmocka_unit_test(a_large_handle_serves_nothing_else),
        cmocka_unit_test(where_large_blocks_come_and_go_only_larger_ones_have_a_handle),
        cmocka_unit_test(a_large_handle_outlives_the_size_from_which_they_are_made),
        cmocka_unit_test(without_memory_for_a_large_handle_small_ones_serve),
        cmocka_unit_test(large_blocks_sleep_and_are_exported),
        cmocka_unit_test(large_blocks_change_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
