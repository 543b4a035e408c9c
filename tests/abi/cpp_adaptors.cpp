/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.cpp_adaptors: cuda_mr.hpp and, with WITH_RMM, rmm.hpp, compiled with the headers of CUDA and RMM and run on the
 * simulated device.
 */
#ifdef WITH_RMM
#include <fallow/rmm.hpp>
#include <rmm/device_buffer.hpp>
#if __has_include(<rmm/mr/failure_callback_resource_adaptor.hpp>)
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#else
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#endif
#else
#include <fallow/cuda_mr.hpp>
#endif

#include <type_traits>

#include "cpp_bed.hpp"

static const cuda::stream_ref legacy{cudaStream_t{nullptr}},
    per_thread{reinterpret_cast<cudaStream_t>(2)};

// The names of CCCL 3.1, of any resource.
template <class Resource>
void *allocate(Resource &resource, cuda::stream_ref stream, std::size_t size)
{
#if CCCL_VERSION < 3001000
    return resource.allocate_async(size, 256, stream);
#else
    return resource.allocate(stream, size, 256);
#endif
}

template <class Resource>
void deallocate(Resource &resource, cuda::stream_ref stream, void *block, std::size_t size)
{
#if CCCL_VERSION < 3001000
    resource.deallocate_async(block, size, 256, stream);
#else
    resource.deallocate(stream, block, size, 256);
#endif
}

static void test_cuda_mr()
{
    fallow::pool pool = make_pool(), other = make_pool();
    fallow::memory_resource resource(pool.get());
    EXPECT(resource == fallow::memory_resource(pool.get()) &&
           resource != fallow::memory_resource(other.get()));
#if CCCL_VERSION < 3001000
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> any = resource;
    void *block = any.allocate(4096, 1024);
    EXPECT(reinterpret_cast<std::size_t>(block) % 1024 == 0 && live_count(pool) == 1);
    any.deallocate(block, 4096, 1024);
#else
    cuda::mr::resource_ref<cuda::mr::device_accessible> any = resource;
    void *block = any.allocate_sync(4096, 1024);
    EXPECT(reinterpret_cast<std::size_t>(block) % 1024 == 0 && live_count(pool) == 1);
    any.deallocate_sync(block, 4096, 1024);
#endif
    EXPECT(live_count(pool) == 0);
    block = allocate(any, legacy, 8192);
    deallocate(any, per_thread, block, 8192);
    void *again = allocate(any, per_thread, 8192);
    EXPECT(again == block); // freed on the stream of the call
    deallocate(any, per_thread, again, 8192);
    try {
        allocate(any, legacy, 2 * limit);
        EXPECT(false); // an allocation above the limit
    } catch (const fallow::bad_alloc &failure) {
        EXPECT(failure.status == FALLOW_OUT_OF_MEMORY);
    }
    EXPECT(live_count(pool) == 0);
}

#ifdef WITH_RMM
static void test_rmm()
{
    fallow::pool pool = make_pool();
    fallow::rmm_resource resource(pool.get()), same(pool.get());
    EXPECT(resource == same);
    {
        rmm::device_buffer buffer(1000, legacy, rmm::device_async_resource_ref(resource));
        EXPECT(buffer.data() != nullptr && live_count(pool) == 1);
    }
    EXPECT(live_count(pool) == 0);

    // RMM calls the function when memory runs out, and tries again if a block was freed.
    fallow::buffer held(pool.get(), limit / 2, nullptr);
    auto free_held = [](std::size_t, void *argument) {
        auto &block = *static_cast<fallow::buffer *>(argument);
        bool is_held = static_cast<bool>(block);
        block.reset();
        return is_held;
    };
#ifdef FALLOW_HAS_RMM_BASE
    rmm::mr::failure_callback_resource_adaptor<rmm::mr::device_memory_resource> adaptor(
        &resource, free_held, &held);
#else
    rmm::mr::failure_callback_resource_adaptor<> adaptor(resource, free_held, &held);
#endif
    void *block = allocate(adaptor, legacy, limit * 3 / 4);
    EXPECT(!held && live_count(pool) == 1);
    deallocate(adaptor, legacy, block, limit * 3 / 4);
    try {
        allocate(adaptor, legacy, 2 * limit);
        EXPECT(false); // an allocation above the limit
    } catch (const rmm::out_of_memory &) {
    }
    pool.reset();
    try {
        allocate(adaptor, legacy, 4096);
        EXPECT(false); // an allocation after the pool's end
    } catch (const rmm::bad_alloc &failure) {
        EXPECT(dynamic_cast<const rmm::out_of_memory *>(&failure) == nullptr);
    }
}
#endif

int main()
{
    test_cuda_mr();
    std::printf("CCCL %d.%d.%d", CCCL_VERSION / 1000000, CCCL_VERSION / 1000 % 1000,
                CCCL_VERSION % 1000);
#ifdef WITH_RMM
    test_rmm();
    std::printf(", RMM %d.%02d", RMM_VERSION_MAJOR, RMM_VERSION_MINOR);
#endif
    std::puts("");
}
