// SPDX-License-Identifier: Apache-2.0
//
// Owns: PyTorch's caching allocator, from libc10_cuda.so of the wheel.
#include "peer.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>

// Exported, and in no header: libtorch_cuda.so, which is not loaded, sets this at its start.
namespace c10::cuda::_internal
{
void setHasPrimaryContext(bool (*)(DeviceIndex));
}

namespace
{
c10::cuda::CUDACachingAllocator::CUDAAllocator &allocator()
{
    static auto *made = [] {
        auto *one = c10::cuda::CUDACachingAllocator::get();
        one->init(1);
        c10::cuda::detail::init_p2p_access_cache(1);
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        return one;
    }();
    return *made;
}
} // namespace

void *peer_alloc(std::size_t bytes, cudaStream_t stream)
{
    return allocator().raw_alloc_with_stream(bytes, stream);
}

void peer_free(void *pointer, cudaStream_t)
{
    allocator().raw_delete(pointer);
}

void peer_record_use(void *pointer, cudaStream_t stream)
{
    c10::DataPtr borrowed(pointer, pointer, allocator().raw_deleter(),
                          c10::Device(c10::DeviceType::CUDA, 0));
    allocator().recordStream(borrowed, c10::cuda::getStreamFromExternal(stream, 0));
    borrowed.release_context();
}

// Begin and end the use of a private pool, as a capture does.
extern "C" void peer_begin_pool(unsigned long long number)
{
    allocator().beginAllocateToPool(0, {number, 0}, [](cudaStream_t) { return true; });
}

extern "C" void peer_end_pool(unsigned long long number)
{
    allocator().endAllocateToPool(0, {number, 0});
}

std::size_t peer_peak_reserved()
{
    return static_cast<std::size_t>(allocator().getDeviceStats(0).reserved_bytes[0].peak);
}
