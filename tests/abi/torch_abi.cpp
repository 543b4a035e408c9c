// SPDX-License-Identifier: Apache-2.0
//
// Calls the functions of fallow/plugin.h as PyTorch does: addresses turned into std::function of PyTorch's
// types, an id as std::pair by value, a filter as std::function by value. What arrives is looked at.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <utility>

#include "fallow/plugin.h"

using stream = fallow_stream;
using mempool_id = std::pair<unsigned long long, unsigned long long>;

// An address, as Python hands it over.
template <typename F> static std::function<F> from_address(uintptr_t address)
{
    return reinterpret_cast<F *>(address);
}
#define ADDRESS(name) reinterpret_cast<uintptr_t>(&name)

static int check(bool is_right, const char *what)
{
    if (!is_right) {
        std::fprintf(stderr, "wrong: %s\n", what);
    }
    return is_right ? 0 : 1;
}

int main()
{
    auto alloc = from_address<void *(size_t, int, stream)>(ADDRESS(fallow_torch_alloc));
    auto free = from_address<void(void *, size_t, int, stream)>(ADDRESS(fallow_torch_free));
    auto base = from_address<void *(void *, size_t *)>(ADDRESS(fallow_torch_base_alloc));
    auto fraction = from_address<void(double, int)>(ADDRESS(fallow_torch_memory_fraction));
    auto begin = from_address<void(int, mempool_id, std::function<bool(stream)>)>(
        ADDRESS(fallow_torch_begin_allocate_to_pool));
    auto end = from_address<void(int, mempool_id)>(ADDRESS(fallow_torch_end_allocate_to_pool));
    auto release = from_address<void(int, mempool_id)>(ADDRESS(fallow_torch_release_pool));
    int wrong = 0, calls = 0;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    wrong += check(fallow_plugin_configure(&config) == FALLOW_OK, "configure");
    fraction(1.0 / 64, 0);

    const mempool_id id{0, 0x123456789abcull};
    auto filter = [&calls, id](stream) { return calls++ < 0 || id.second != 0; }; // holds something
    begin(0, id, filter);
    void *ptr = alloc(5000, 0, nullptr);
    fallow_pool *pool = nullptr;
    fallow_block block;
    fallow_block_init(&block);
    wrong += check(ptr != nullptr, "alloc");
    wrong += check(fallow_plugin_pool(0, FALLOW_PLUGIN_STREAM, 0, &pool) == FALLOW_OK, "a pool");
    wrong += check(fallow_block_info(pool, ptr, &block) == FALLOW_OK, "a block");
    wrong += check(block.requested_bytes == 5000, "the size");
    wrong += check(block.tag == 0x56789abcu, "the second word of the id");
    end(0, id);
    release(0, id);
    const mempool_id other{0x42, 0};
    begin(0, other, filter);
    void *second = alloc(5000, 0, nullptr);
    wrong += check(fallow_block_info(pool, second, &block) == FALLOW_OK && block.tag == 0x42,
                   "the first word of the id");
    end(0, other);
    release(0, other);
    size_t bytes = 0;
    wrong += check(base(static_cast<char *>(ptr) + 10, &bytes) == ptr && bytes >= 5000, "base_alloc");
    free(ptr, 5000, 0, nullptr);
    free(second, 5000, 0, nullptr);
    fallow_stats stats;
    fallow_stats_init(&stats);
    wrong += check(fallow_pool_get_stats(pool, &stats) == FALLOW_OK && stats.live_count == 0, "free");
    fallow_oom_report report;
    fallow_oom_report_init(&report);
    wrong += check(alloc(size_t(2) << 30, 0, nullptr) == nullptr, "the limit");
    wrong += check(fallow_pool_get_oom_report(pool, &report) == FALLOW_OK &&
                       report.limit_bytes == uint64_t(80) << 30 >> 6,
                   "the memory fraction");
    std::printf("%d of PyTorch's calls arrive wrong; the filter was called %d times\n", wrong, calls);
    return wrong;
}
