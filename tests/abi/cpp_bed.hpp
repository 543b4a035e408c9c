/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of abi.cpp and abi.cpp_adaptors share; include it behind the headers of Fallow.
 */
#include <cstdio>
#include <cstdlib>

#define EXPECT(condition)                                                    \
    if (!(condition)) {                                                      \
        std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
        std::exit(1);                                                        \
    }

static constexpr std::size_t limit = std::size_t{64} << 20;

static uint64_t live_count(const fallow::pool &pool)
{
    fallow::stats stats;
    fallow::check(fallow_pool_get_stats(pool.get(), &stats));
    return stats.live_count;
}

static fallow::pool make_pool()
{
    fallow::pool_config config;
    config.driver = "sim";
    config.limit_bytes = limit;
    return fallow::pool(config);
}
