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

TEST(what_libraries_ask_of_segments_is_answered_as_natively)
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

TEST(what_libraries_ask_of_handles_is_answered)
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

TEST(a_handle_says_what_it_was_made_with)
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
