// SPDX-License-Identifier: Apache-2.0
//
// Owns: RMM's pool over cudaMalloc, compiled from the headers of the wheel.
#include "peer.hpp"

#include <mutex>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <unordered_map>

namespace
{
rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> &pool()
{
    static rmm::mr::cuda_memory_resource upstream;
    static rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> made(upstream, 0);
    return made;
}
std::mutex sizes_lock;
std::unordered_map<void *, std::size_t> sizes;
} // namespace

// RMM's callers pass a block's size when freeing; the loops do not have the size. Neither function is counted.
extern "C" __attribute__((noinline)) void peer_note(void *pointer, std::size_t bytes)
{
    std::lock_guard<std::mutex> guard(sizes_lock);
    sizes[pointer] = bytes;
}

extern "C" __attribute__((noinline)) std::size_t peer_size(void *pointer)
{
    std::lock_guard<std::mutex> guard(sizes_lock);
    return sizes.at(pointer);
}

void *peer_alloc(std::size_t bytes, cudaStream_t stream)
{
    void *pointer = pool().allocate(rmm::cuda_stream_view(stream), bytes);
    peer_note(pointer, bytes);
    return pointer;
}

void peer_free(void *pointer, cudaStream_t stream)
{
    pool().deallocate(rmm::cuda_stream_view(stream), pointer, peer_size(pointer));
}

// RMM has no such call: callers order the streams themselves.
void peer_record_use(void *, cudaStream_t)
{
}

std::size_t peer_peak_reserved()
{
    return pool().pool_size();
}
