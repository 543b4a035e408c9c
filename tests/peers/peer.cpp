// SPDX-License-Identifier: Apache-2.0
#include "peer.hpp"

#include "fallow/simcuda.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unistd.h>

extern "C" void flw_sim_reset(const flw_sim_config *config);
extern "C" void flw_sim_get_ledger(int device, flw_sim_ledger *out);

namespace
{

// A bench without a device has addresses for streams: the first is the default stream, each other one
// becomes a stream at the first use.
cudaStream_t find_stream(const void *name)
{
    static std::mutex lock;
    static std::map<const void *, cudaStream_t> streams;
    std::lock_guard<std::mutex> guard(lock);
    auto [at, is_new] = streams.emplace(name, nullptr);
    if (is_new && streams.size() > 1 &&
        cudaStreamCreateWithPriority(&at->second, cudaStreamNonBlocking, 0) != cudaSuccess) {
        throw std::runtime_error("no stream");
    }
    return at->second;
}

inline cudaStream_t to_stream(const void *name)
{
    thread_local const void *last_name;
    thread_local cudaStream_t last;
    if (name != last_name) {
        last = find_stream(name);
        last_name = name;
    }
    return last;
}

// Start a simulated device that completes work at once, and a thread: glibc and libstdc++ omit atomic
// instructions in a process of one thread, and no process with a CUDA driver has one.
__attribute__((constructor)) void prepare()
{
    flw_sim_config world = {};
    world.struct_size = sizeof world;
    world.schedule = FLW_SIM_CLOCK;
    const char *bytes = std::getenv("PEER_DEVICE_BYTES");
    world.device_bytes = bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : 0;
    flw_sim_reset(&world);
    std::thread([] { pause(); }).detach();
}

// Return 1 if the operation throws; the first failure is printed.
template <typename Operation> int attempt(Operation operation)
{
    static std::once_flag is_told;
    try {
        operation();
        return 0;
    } catch (const std::exception &error) {
        std::call_once(is_told, [&] { std::fprintf(stderr, "peer: %s\n", error.what()); });
        return 1;
    }
}

} // namespace

extern "C" {
int fallow_null_alloc(void *, std::size_t bytes, const void *stream, void **out)
{
    return attempt([&] { *out = peer_alloc(bytes, to_stream(stream)); });
}

int fallow_null_free(void *, void *pointer, const void *stream)
{
    return pointer == nullptr ? 0 : attempt([&] { peer_free(pointer, to_stream(stream)); });
}

int fallow_null_free_sized(void *pool, void *pointer, std::size_t, const void *stream)
{
    return fallow_null_free(pool, pointer, stream);
}

int fallow_null_record_use(void *, void *pointer, const void *stream)
{
    return attempt([&] { peer_record_use(pointer, to_stream(stream)); });
}

int fallow_null_poll(void *)
{
    return 0;
}

// Make streams, in the order in which a trace numbers them: PyTorch releases memory in the order of its streams.
void peer_make_streams(int count)
{
    for (int i = 0; i < count; i++) {
        (void)find_stream(reinterpret_cast<const void *>(static_cast<std::uintptr_t>(i + 1)));
    }
}

// Return the most bytes that the driver gave, also to requests that then failed.
std::size_t peer_peak_given()
{
    flw_sim_ledger ledger = {};
    ledger.struct_size = sizeof ledger;
    flw_sim_get_ledger(0, &ledger);
    return ledger.peak_given_bytes;
}
}
