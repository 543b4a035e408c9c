/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: vmm_probe's questions about time: the life of a handle, many handles at once and singly, a device
 * that is filled.
 */
#include "vmm_probe.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS        9
#define BEHIND_ROUNDS 3 /* each call may wait BEHIND_MS */
#define MOST_WAITS    8 /* stop after so many calls that wait for the work */
#define FILL_BYTES    ((size_t)140000000000)
#define FILL_LEFT     (2048 * MIB) /* of the device's memory, for the driver */

/* Time one handle's life; false if a call failed. Releases everything. */
static bool live_once(struct probe *probe, CUdeviceptr address, struct row rows[5])
{
    CUmemGenericAllocationHandle handle = 0;
    size_t bytes = rows[0].bytes;
    if (!TIMED(probe, &rows[0], cuMemCreate(&handle, bytes, &probe->properties, 0))) {
        return false;
    }
    bool good = TIMED(probe, &rows[1], cuMemMap(address, bytes, 0, handle, 0));
    if (good) {
        good = TIMED(probe, &rows[2], cuMemSetAccess(address, bytes, &probe->access, 1));
        good &= TIMED(probe, &rows[3], cuMemUnmap(address, bytes));
    }
    return TIMED(probe, &rows[4], cuMemRelease(handle)) && good;
}

void ask_life(struct probe *probe)
{
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                        "cuMemRelease"};
    static const size_t sizes[] = {2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    static struct row rows[5];
    struct bed *bed = &probe->bed;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr address = 0;
        for (int k = 0; k < 5; k++) {
            rows[k] = (struct row){.call = calls[k], .bytes = sizes[i], .count = 1};
        }
        if (!probe_reserve(probe, &address, sizes[i])) {
            return;
        }
        int rounds = probe->is_behind ? BEHIND_ROUNDS : ROUNDS;
        while (rounds-- > 0 && live_once(probe, address, rows)) {
        }
        for (int k = 0; k < 5; k++) {
            probe_print(probe, &rows[k]);
        }
        probe_rest(probe);
        (void)bed->cu->cuMemAddressFree(address, sizes[i]); /* refused while it is mapped */
    }
}

/* `count` handles of 2 MiB: all in one call, then each by itself. */
static void ask_many(struct probe *probe, const char *call, unsigned count, bool is_access)
{
    static struct row at_once, singly;
    struct bed *bed = &probe->bed;
    const size_t bytes = 2 * MIB;
    at_once = (struct row){.call = call, .bytes = bytes * count, .count = count};
    singly = (struct row){.call = call, .bytes = bytes, .count = 1};
    for (int round = 0; round < 2; round++) {
        struct stretch *stretch = probe_map(probe, bytes, count, !is_access);
        if (stretch == NULL) {
            return;
        }
        CUdeviceptr address = stretch->address;
        if (is_access && round == 0) {
            TIMED(probe, &at_once, cuMemSetAccess(address, bytes * count, &probe->access, 1));
        } else if (round == 0) {
            TIMED(probe, &at_once, cuMemUnmap(address, bytes * count));
        }
        for (unsigned i = 0; i < count && round == 1; i++) {
            CUdeviceptr place = address + i * bytes;
            bool is_enough = singly.has_waited && i >= MOST_WAITS;
            if (is_access && !is_enough) {
                TIMED(probe, &singly, cuMemSetAccess(place, bytes, &probe->access, 1));
            } else if (!is_access && !is_enough) {
                TIMED(probe, &singly, cuMemUnmap(place, bytes));
            } else if (!is_access) {
                (void)bed->cu->cuMemUnmap(place, bytes);
            }
        }
        probe_rest(probe);
        probe_unmap(probe, stretch, is_access || at_once.result != CUDA_SUCCESS);
        probe_print(probe, round == 0 ? &at_once : &singly);
        if (at_once.result != CUDA_SUCCESS || singly.result != CUDA_SUCCESS) {
            return;
        }
    }
}

void ask_unmap(struct probe *probe)
{
    ask_many(probe, "cuMemUnmap", 100, false);
}

void ask_access(struct probe *probe)
{
    ask_many(probe, "cuMemSetAccess", 1000, true);
}

/* ---- a device that is filled ---- */

void ask_fill(struct probe *probe)
{
    static struct row create, map, access, unmap, release;
    struct bed *bed = &probe->bed;
    const size_t bytes = 64 * MIB;
    size_t free_bytes = 0, total = 0;
    CUdeviceptr address = 0;
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    size_t wanted = free_bytes > FILL_LEFT ? free_bytes - FILL_LEFT : 0;
    wanted = wanted < FILL_BYTES ? wanted : FILL_BYTES;
    unsigned count = (unsigned)(wanted / bytes), made = 0;
    CUmemGenericAllocationHandle *handles = calloc(count + 1, sizeof *handles);
    if (count == 0 || handles == NULL) {
        probe_say(probe, "cuMemGetInfo", free_bytes, CUDA_SUCCESS, ",\"note\":\"no room to fill\"");
        free(handles);
        return;
    }
    create = (struct row){.call = "cuMemCreate", .bytes = bytes, .count = 1};
    map = (struct row){.call = "cuMemMap", .bytes = bytes, .count = 1};
    access = (struct row){.call = "cuMemSetAccess", .bytes = bytes * count, .count = count};
    unmap = (struct row){.call = "cuMemUnmap", .bytes = bytes * count, .count = count};
    release = (struct row){.call = "cuMemRelease", .bytes = bytes, .count = 1};
    if (!probe_reserve(probe, &address, bytes * count)) {
        free(handles);
        return;
    }
    while (made < count &&
           TIMED(probe, &create, cuMemCreate(&handles[made], bytes, &probe->properties, 0))) {
        if (!TIMED(probe, &map, cuMemMap(address + made * bytes, bytes, 0, handles[made], 0))) {
            (void)bed->cu->cuMemRelease(handles[made]);
            break;
        }
        made++;
    }
    probe_print(probe, &create);
    probe_print(probe, &map);
    if (made > 0) {
        access.bytes = unmap.bytes = bytes * made;
        access.count = unmap.count = made;
        if (TIMED(probe, &access, cuMemSetAccess(address, bytes * made, &probe->access, 1))) {
            MUST(cuMemsetD32Async(address + bytes * made - MIB, 7, MIB / 4, probe->stream));
            probe_rest(probe);
        }
        TIMED(probe, &unmap, cuMemUnmap(address, bytes * made));
    }
    for (unsigned i = 0; i < made; i++) {
        TIMED(probe, &release, cuMemRelease(handles[i]));
    }
    probe_print(probe, &access);
    probe_print(probe, &unmap);
    probe_print(probe, &release);
    (void)bed->cu->cuMemAddressFree(address, bytes * count);
    free(handles);
}
