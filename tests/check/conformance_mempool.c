/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about the driver's own stream-ordered pools.
 */
#define MODULE "mempool"
#include "conformance.h"

#define MIB (1u << 20)

static bool has_pools(struct bed *b)
{
    int has = 0;
    if (b->cu->cuMemAllocAsync == NULL ||
        b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, b->device) !=
            CUDA_SUCCESS ||
        has == 0) {
        b->skip = "the device has no memory pools";
    }
    return b->skip == NULL;
}

static CUmemoryPool make_pool(struct bed *b)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = {0};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = b->device;
    OK(b->cu->cuMemPoolCreate(&pool, &properties));
    return pool;
}

static cuuint64_t pool_value(struct bed *b, CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = ~0ull;
    OK(b->cu->cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

HEADER(an_async_allocation_is_usable_on_its_stream,
       "Basic stream ordering allows future work submitted into the same stream to use the "
       "allocation")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    CUstream stream = bed_stream(b);
    OK(b->cu->cuMemAllocAsync(&address, MIB, stream));
    OK(b->cu->cuMemsetD32Async(address, 21, MIB / 4, stream));
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(bed_peek(b, address + MIB - 4) == 21);
    OK(b->cu->cuMemFreeAsync(address, stream));
    OK(b->cu->cuStreamSynchronize(stream));
}

HEADER(plain_free_takes_async_memory,
       "This API will not perform any implict synchronization when the pointer was allocated "
       "with")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    OK(b->cu->cuMemAllocAsync(&address, MIB, NULL));
    OK(b->cu->cuStreamSynchronize(NULL));
    OK(b->cu->cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFree_v2(address));
}

/* The header names no source of the memory; NVIDIA's programming guide names cudaMalloc. */
HEADER(async_free_takes_plain_memory,
       "The allocation must not be accessed after stream execution reaches the free")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    OK(b->cu->cuMemAlloc_v2(&address, MIB));
    CUdeviceptr other = bed_alloc(b, MIB);
    CUstream stream = bed_stream(b);
    bed_gate_close(b, stream);
    OK(b->cu->cuMemsetD32Async(address, 21, MIB / 4, stream));
    OK(b->cu->cuMemcpyDtoDAsync_v2(other, address, MIB, stream));
    OK(b->cu->cuMemFreeAsync(address, stream));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream)); /* did not wait */
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(bed_peek(b, other + MIB - 4) == 21);
    REFUSED(b->cu->cuMemFree_v2(address));
}

RISKY(async_free_of_the_unknown_is_refused, "Inserts a free operation into hStream")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    OK(b->cu->cuMemAllocAsync(&address, MIB, NULL));
    REFUSED(b->cu->cuMemFreeAsync(address + 512, NULL));
    OK(b->cu->cuMemFreeAsync(address, NULL));
    REFUSED(b->cu->cuMemFreeAsync(address, NULL));
    REFUSED(b->cu->cuMemAllocAsync(NULL, MIB, NULL));
}

HEADER(a_device_has_a_current_pool,
       "Destroying the current mempool of a device sets the default mempool of that device "
       "as the current mempool for that device")
{
    CUmemoryPool by_default = NULL, current = NULL;
    NEED(has_pools(b));
    OK(b->cu->cuDeviceGetDefaultMemPool(&by_default, b->device));
    OK(b->cu->cuDeviceGetMemPool(&current, b->device));
    THAT(by_default != NULL && by_default == current);
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuDeviceSetMemPool(b->device, pool));
    OK(b->cu->cuDeviceGetMemPool(&current, b->device));
    THAT(current == pool);
    OK(b->cu->cuMemPoolDestroy(pool));
    OK(b->cu->cuDeviceGetMemPool(&current, b->device));
    THAT(current == by_default);
}

HEADER(the_default_pool_is_not_destroyed, "A device's default memory pool cannot be destroyed")
{
    CUmemoryPool pool = NULL;
    NEED(has_pools(b));
    OK(b->cu->cuDeviceGetDefaultMemPool(&pool, b->device));
    REFUSED(b->cu->cuMemPoolDestroy(pool));
}

HEADER(attributes_have_defaults_and_are_kept, "(default enabled)")
{
    int flag = -1;
    cuuint64_t threshold = 0;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    static const CUmemPool_attribute flags[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                                CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                                CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    for (size_t i = 0; i < 3; i++) {
        OK(b->cu->cuMemPoolGetAttribute(pool, flags[i], &flag));
        THAT(flag != 0);
        flag = 0;
        OK(b->cu->cuMemPoolSetAttribute(pool, flags[i], &flag));
        flag = -1;
        OK(b->cu->cuMemPoolGetAttribute(pool, flags[i], &flag));
        THAT(flag == 0);
    }
    threshold = 64 * MIB;
    OK(b->cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 64 * MIB);
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(used_bytes_are_counted, "It is illegal to set this attribute to a non-zero value")
{
    CUdeviceptr address = 0;
    cuuint64_t zero = 0, one = 1;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemAllocFromPoolAsync(&address, 4 * MIB, pool, NULL));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4 * MIB);
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    OK(b->cu->cuMemFreeAsync(address, NULL));
    OK(b->cu->cuStreamSynchronize(NULL));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 4 * MIB);
    REFUSED(b->cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    OK(b->cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(a_zero_threshold_releases_at_synchronize,
       "the allocator will try to release memory back to the OS on the next call to stream, "
       "event or context synchronize")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemAllocFromPoolAsync(&address, 4 * MIB, pool, NULL));
    OK(b->cu->cuMemFreeAsync(address, NULL));
    OK(b->cu->cuCtxSynchronize());
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(a_threshold_keeps_memory_until_trimmed,
       "Releases memory back to the OS until the pool contains fewer than")
{
    CUdeviceptr address = 0;
    cuuint64_t threshold = 1024ull * MIB;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(b->cu->cuMemAllocFromPoolAsync(&address, 4 * MIB, pool, NULL));
    OK(b->cu->cuMemFreeAsync(address, NULL));
    OK(b->cu->cuCtxSynchronize());
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    OK(b->cu->cuMemPoolTrimTo(pool, 0));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(trimming_spares_what_is_in_use,
       "The allocator cannot release OS allocations that back outstanding asynchronous "
       "allocations")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemAllocFromPoolAsync(&address, 4 * MIB, pool, NULL));
    OK(b->cu->cuMemsetD32Async(address, 5, 1, NULL));
    OK(b->cu->cuMemPoolTrimTo(pool, 0));
    OK(b->cu->cuStreamSynchronize(NULL));
    THAT(bed_peek(b, address) == 5);
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    OK(b->cu->cuMemFreeAsync(address, NULL));
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(pool_memory_outlives_a_destroyed_pool,
       "the resources associated with the pool will be released automatically once there are "
       "no more outstanding allocations")
{
    CUdeviceptr address = 0;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemAllocFromPoolAsync(&address, MIB, pool, NULL));
    OK(b->cu->cuMemPoolDestroy(pool));
    OK(b->cu->cuMemsetD32Async(address, 8, 1, NULL));
    OK(b->cu->cuStreamSynchronize(NULL));
    THAT(bed_peek(b, address) == 8);
    OK(b->cu->cuMemFreeAsync(address, NULL));
    OK(b->cu->cuCtxSynchronize());
}

HEADER(live_async_allocations_are_apart,
       "A pointer to the allocated memory is returned immediately in *dptr")
{
    CUdeviceptr address[8] = {0};
    CUstream stream[2] = {NULL, NULL};
    NEED(has_pools(b));
    OK(b->cu->cuStreamCreate(&stream[0], CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 8; i++) {
        OK(b->cu->cuMemAllocAsync(&address[i], 100000, stream[i % 2]));
        for (int k = 0; k < i; k++) {
            THAT(address[i] >= address[k] + 100000 || address[k] >= address[i] + 100000);
        }
    }
    for (int i = 0; i < 8; i++) {
        OK(b->cu->cuMemFreeAsync(address[i], stream[i % 2]));
    }
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuStreamDestroy_v2(stream[0]));
    OK(b->cu->cuStreamDestroy_v2(stream[1]));
}

HEADER(a_free_is_reused_on_its_own_stream,
       "Allow cuMemAllocAsync to use memory asynchronously freed in another stream as long "
       "as a stream ordering dependency")
{
    CUdeviceptr first = 0, second = 0;
    cuuint64_t threshold = 1024ull * MIB;
    NEED(has_pools(b));
    CUmemoryPool pool = make_pool(b);
    OK(b->cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(b->cu->cuMemAllocFromPoolAsync(&first, 32 * MIB, pool, NULL));
    cuuint64_t before = pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    OK(b->cu->cuMemFreeAsync(first, NULL));
    OK(b->cu->cuMemAllocFromPoolAsync(&second, 32 * MIB, pool, NULL));
    THAT(pool_value(b, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == before);
    OK(b->cu->cuMemFreeAsync(second, NULL));
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuMemPoolDestroy(pool));
}

HEADER(allocations_in_a_capture_belong_to_the_graph,
       "the allocation is owned by the graph instead of the memory pool")
{
    const struct flw_driver *cu = b->cu;
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    NEED(has_pools(b));
    CUstream stream = bed_stream(b);
    CUdeviceptr plain = bed_alloc(b, 4096);
    OK(cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu->cuMemAllocAsync(&address, MIB, stream));
    THAT(address != 0);
    OK(cu->cuMemsetD32Async(address, 31, 1, stream));
    OK(cu->cuMemcpyDtoDAsync_v2(plain, address, 4, stream));
    OK(cu->cuMemFreeAsync(address, stream));
    OK(cu->cuStreamEndCapture(stream, &graph));
    OK(cu->cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        bed_poke(b, plain, 0);
        OK(cu->cuGraphLaunch(executable, stream));
        OK(cu->cuStreamSynchronize(stream));
        THAT(bed_peek(b, plain) == 31);
    }
    OK(cu->cuGraphExecDestroy(executable));
    OK(cu->cuGraphDestroy(graph));
}

HEADER(a_free_in_a_capture_needs_a_graph_allocation,
       "must therefore be passed the address of a graph allocation")
{
    const struct flw_driver *cu = b->cu;
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    NEED(has_pools(b));
    CUstream stream = bed_stream(b);
    OK(cu->cuMemAllocAsync(&address, MIB, stream));
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(cu->cuMemFreeAsync(address, stream));
    cu->cuStreamEndCapture(stream, &graph);
    if (graph != NULL) {
        OK(cu->cuGraphDestroy(graph));
    }
    OK(cu->cuMemFreeAsync(address, stream));
    OK(cu->cuStreamSynchronize(stream));
}
