/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the modelled host cost of calls: three profiles of assumed figures, added up.
 * Does not: sleep, or move the device's clock. Every figure is a model's, none a GPU's. */
#include "base/bits.h"
#include "simcuda/world.h"

struct cost {
    enum flw_entry entry;
    uint32_t fixed_ns[3];    /* typical, fast, dear */
    uint32_t per_page_ns[3]; /* and per 2 MiB */
};

/* Cost of calls that are not listed. */
#define DEFAULT_NS 100

static const struct cost costs[] = {
    {FLW_ENTRY_cuEventRecord, {1000, 250, 20000}, {0}},
    {FLW_ENTRY_cuCtxRecordEvent, {2000, 500, 40000}, {0}},
    {FLW_ENTRY_cuEventQuery, {500, 200, 1000}, {0}},
    {FLW_ENTRY_cuStreamQuery, {500, 200, 1000}, {0}},
    {FLW_ENTRY_cuEventCreate, {500, 150, 2500}, {0}},
    {FLW_ENTRY_cuEventDestroy_v2, {500, 150, 2500}, {0}},
    {FLW_ENTRY_cuStreamWaitEvent, {1000, 250, 20000}, {0}},
    {FLW_ENTRY_cuMemAlloc_v2, {60000, 8000, 150000}, {3000, 500, 30000}},
    {FLW_ENTRY_cuMemFree_v2, {60000, 5000, 150000}, {0}},
    {FLW_ENTRY_cuMemHostAlloc, {60000, 8000, 150000}, {60000, 20000, 120000}},
    {FLW_ENTRY_cuMemFreeHost, {60000, 5000, 150000}, {0}},
    {FLW_ENTRY_cuMemHostRegister_v2, {60000, 8000, 150000}, {60000, 20000, 120000}},
    {FLW_ENTRY_cuMemHostUnregister, {60000, 5000, 150000}, {0}},
    {FLW_ENTRY_cuMemAllocAsync, {900, 500, 1700}, {0}},
    {FLW_ENTRY_cuMemAllocFromPoolAsync, {900, 500, 1700}, {0}},
    {FLW_ENTRY_cuMemFreeAsync, {700, 400, 1200}, {0}},
    {FLW_ENTRY_cuMemPoolTrimTo, {1000, 1000, 1000}, {60000, 10000, 250000}},
    {FLW_ENTRY_cuMemAddressReserve, {10000, 2000, 19000}, {0}},
    {FLW_ENTRY_cuMemAddressFree, {10000, 2000, 19000}, {0}},
    /* Figures are for a handle of 2 MiB; larger handles cost more by the page, but less than in
     * proportion (GMLake, table 1: handles of 128 MiB make the same memory 13 times cheaper). */
    {FLW_ENTRY_cuMemCreate, {100000, 29000, 193000}, {8000, 2300, 15000}},
    {FLW_ENTRY_cuMemMap, {2000, 2000, 4000}, {0}},
    {FLW_ENTRY_cuMemSetAccess, {38000, 38000, 54000}, {3000, 3000, 4000}},
    {FLW_ENTRY_cuMemUnmap, {30000, 34000, 39000}, {2000, 2000, 3000}},
    {FLW_ENTRY_cuMemRelease, {23000, 23000, 40000}, {0}},
    {FLW_ENTRY_cuMemsetD8Async, {3000, 2000, 10000}, {0}},
    {FLW_ENTRY_cuMemsetD32Async, {3000, 2000, 10000}, {0}},
    {FLW_ENTRY_cuMemsetD8_v2, {3000, 2000, 10000}, {0}},
    {FLW_ENTRY_cuLaunchKernel, {3000, 2000, 10000}, {0}},
    {FLW_ENTRY_cuGraphLaunch, {4000, 2500, 8000}, {0}},
    {FLW_ENTRY_cuMemGetInfo_v2, {7000, 6000, 12000}, {0}},
};

static const struct cost *find(enum flw_entry entry)
{
    static const struct cost *index[FLW_ENTRY_COUNT]; /* under the world's lock */
    static bool is_filled;
    if (!is_filled) {
        for (unsigned i = 0; i < sizeof costs / sizeof costs[0]; i++) {
            index[costs[i].entry] = &costs[i];
        }
        is_filled = true;
    }
    return index[entry];
}

void flw_latency_add(enum flw_entry entry)
{
    const struct cost *cost = find(entry);
    unsigned profile = (unsigned)flw_world.config.profile % 3;
    flw_world.modelled_host_ns += cost != NULL ? cost->fixed_ns[profile] : DEFAULT_NS;
}

void flw_latency_add_bytes(enum flw_entry entry, uint64_t bytes)
{
    const struct cost *cost = find(entry);
    if (cost != NULL) {
        unsigned profile = (unsigned)flw_world.config.profile % 3;
        flw_world.modelled_host_ns += cost->per_page_ns[profile] * flw_div_up(bytes, 2 * FLW_MIB);
    }
}
