// SPDX-License-Identifier: Apache-2.0
//
// Calls the functions of fallow/plugin.h as PyTorch does: addresses turned into std::function of PyTorch's
// types, an id as std::pair by value, a filter as std::function by value. Checks the received
// values and the exceptions of failed allocations. WITH_C10: the program is linked with a libc10 (c10_look_alike.h).
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include "fallow/plugin.h"
#ifdef WITH_C10
#include "c10_look_alike.h"
#endif

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

// ---- failed allocations

using alloc_function = std::function<void *(size_t, int, stream)>;

#ifdef WITH_C10
using memory_exception = c10::OutOfMemoryError;
using other_exception = c10::Error;
static int living()
{
    return c10::Error::living;
}
#else
using memory_exception = std::bad_alloc;
using other_exception = std::bad_alloc;
static int living()
{
    return 0;
}
#endif

// Count destructor calls, to check that unwinding destroys the objects between throw and catch.
struct counter {
    int *count;
    ~counter()
    {
        ++*count;
    }
};

// Return the message of the Exception that an impossible allocation throws.
template <typename Exception>
static std::string thrown_by(const alloc_function &alloc, size_t size, int device)
{
    int unwound = 0;
    try {
        counter passed{&unwound};
        void *ptr = alloc(size, device, nullptr);
        return "returned " + std::to_string(reinterpret_cast<uintptr_t>(ptr));
    } catch (const Exception &error) {
        bool is_exact = typeid(error) == typeid(Exception) && unwound == 1;
        return is_exact ? error.what() : std::string("another type: ") + typeid(error).name();
    }
}

static bool has(const std::string &text, const char *part)
{
#ifdef WITH_C10
    return text.find(part) != std::string::npos;
#else
    (void)part;
    return text == "std::bad_alloc";
#endif
}

static int throw_and_go_on(const alloc_function &alloc)
{
    int wrong = 0;
    const size_t too_much = size_t(2) << 30;
    std::string text = thrown_by<memory_exception>(alloc, too_much, 0);
    wrong += check(has(text, "CUDA out of memory. fallow: no 2147483648 bytes on device 0: "),
                   text.c_str());
    text = thrown_by<other_exception>(alloc, 100, 99);
    wrong += check(has(text, "fallow: no 100 bytes: device 99 has no pool: "), text.c_str());
    wrong += check(living() == 0, "exceptions are destroyed");
    wrong += check(alloc(0, 0, nullptr) == nullptr, "size 0");
    wrong += check(fallow_rmm_alloc(ssize_t(too_much), 0, nullptr) == nullptr,
                   "RMM's function throws nothing");
    wrong += check(fallow_torch_segment_alloc(ssize_t(too_much), 0, nullptr) == nullptr,
                   "nor does the segments'");
    wrong += check(fallow_cupy_malloc(nullptr, too_much, 0) == nullptr, "nor CuPy's");
    std::vector<std::thread> threads;
    std::atomic<int> thrown{0};
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int n = 0; n < 50; n++) {
                try {
                    alloc(too_much, 0, nullptr);
                } catch (const memory_exception &) {
                    thrown++;
                }
                fallow_torch_free(alloc(5000, 0, nullptr), 5000, 0,
                                  nullptr); // no lock is still held
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    wrong += check(thrown == 200 && living() == 0, "several threads");
    return wrong;
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
    wrong +=
        check(base(static_cast<char *>(ptr) + 10, &bytes) == ptr && bytes >= 5000, "base_alloc");
    free(ptr, 5000, 0, nullptr);
    free(second, 5000, 0, nullptr);
    fallow_stats stats;
    fallow_stats_init(&stats);
    wrong +=
        check(fallow_pool_get_stats(pool, &stats) == FALLOW_OK && stats.live_count == 0, "free");
    fallow_oom_report report;
    fallow_oom_report_init(&report);
    wrong += throw_and_go_on(alloc);
    wrong += check(fallow_pool_get_oom_report(pool, &report) == FALLOW_OK &&
                       report.limit_bytes == uint64_t(80) << 30 >> 6,
                   "the memory fraction");
    std::printf("%d of PyTorch's calls arrive wrong; the filter was called %d times\n", wrong,
                calls);
    return wrong;
}
