/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * A pool as a memory resource of libcu++ (cuda::mr), for CCCL 2.3 and later. RMM from 26.06 on takes it too (rmm.hpp).
 *
 *     fallow::memory_resource resource(pool.get());
 *     cuda::mr::resource_ref<cuda::mr::device_accessible> any = resource;
 *
 * Before CCCL 3.1 the concepts and functions have other names (cuda::mr::async_resource, allocate_async) and need the
 * macro below: include this header before those of CUDA, or define the macro for the whole program.
 *
 * OWNERSHIP  A resource is a copyable reference to a pool. After the end of the pool, allocations throw and
 *            deallocations do nothing.
 * ORDER      As in fallow.h. Memory of allocate_sync may be used by every stream at once. At deallocate_sync, work on
 *            all streams that the block was allocated or used on must be complete, as libcu++ demands.
 * ERRORS     Allocation throws as fallow.hpp describes. Alignments up to 2 MiB. Pools with debug checks refuse
 *            allocate_sync (FALLOW_NOT_SUPPORTED).
 * COST       allocate and deallocate: that of fallow_alloc and fallow_free. The _sync calls are never hits.
 */
#ifndef FALLOW_CUDA_MR_HPP
#define FALLOW_CUDA_MR_HPP

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#ifdef _CUDA_MEMORY_RESOURCE
#define FALLOW_CUDA_MR_IS_LATE
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // for CCCL before 3.1
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if defined(FALLOW_CUDA_MR_IS_LATE) && CCCL_VERSION < 3001000
#error "include fallow/cuda_mr.hpp before <cuda/memory_resource>, or define the macro"
#endif

#include "fallow/fallow.hpp"

namespace fallow
{

/** A resource of cuda::mr. `Check` throws if its argument is not FALLOW_OK. */
template <void (*Check)(fallow_status)> class basic_memory_resource
{
  public:
    explicit basic_memory_resource(fallow_pool *pool) noexcept : pool_(pool)
    {
    }
    void *allocate(cuda::stream_ref stream, std::size_t size_bytes, std::size_t align_bytes = 256)
    {
        void *block = nullptr;
        Check(fallow_alloc_aligned(pool_, size_bytes, align_bytes, stream.get(), &block));
        return block;
    }
    void deallocate(cuda::stream_ref stream, void *block, std::size_t, std::size_t = 256) noexcept
    {
        fallow_free(pool_, block, stream.get());
    }
    void *allocate_sync(std::size_t size_bytes, std::size_t align_bytes = 256)
    {
        void *block = nullptr;
        request every;
        every.size_bytes = size_bytes;
        every.align_bytes = align_bytes;
        every.flags = FALLOW_REQUEST_EVERY_STREAM;
        Check(fallow_alloc_request(pool_, &every, nullptr, &block));
        return block;
    }
    void deallocate_sync(void *block, std::size_t, std::size_t = 256) noexcept
    {
        fallow_free_complete(pool_, block);
    }
    bool operator==(const basic_memory_resource &other) const noexcept
    {
        return pool_ == other.pool_;
    }
    bool operator!=(const basic_memory_resource &other) const noexcept
    {
        return pool_ != other.pool_;
    }
    friend constexpr void get_property(const basic_memory_resource &,
                                       cuda::mr::device_accessible) noexcept
    {
    }
#if CCCL_VERSION < 3001000
    void *allocate(std::size_t size_bytes, std::size_t align_bytes)
    {
        return allocate_sync(size_bytes, align_bytes);
    }
    void deallocate(void *block, std::size_t size_bytes, std::size_t align_bytes) noexcept
    {
        deallocate_sync(block, size_bytes, align_bytes);
    }
    void *allocate_async(std::size_t size_bytes, std::size_t align_bytes, cuda::stream_ref stream)
    {
        return allocate(stream, size_bytes, align_bytes);
    }
    void deallocate_async(void *block, std::size_t size_bytes, std::size_t align_bytes,
                          cuda::stream_ref stream) noexcept
    {
        deallocate(stream, block, size_bytes, align_bytes);
    }
#endif

  private:
    fallow_pool *pool_;
};
using memory_resource = basic_memory_resource<check>;

#if CCCL_VERSION < 3001000
static_assert(cuda::mr::async_resource_with<memory_resource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);
#endif

} // namespace fallow

#endif
