/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory of a device, the contents if the world has contents, the entry in the ledger.
 * Does not: map it.
 *
 * Contents are the host's own pages. A handle that is exported is then moved into a memfd, at the
 * same address, so that another process sees the same bytes; without contents the memfd is empty
 * and costs no memory. New memory is filled with seeded garbage, never zeros. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/sealed_file.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/shadow.h"
#include "simcuda/storage.h"

CUresult flw_ledger_give(struct flw_device *device, uint64_t bytes)
{
    flw_memory_collect();
    FLW_REFUSE_IF(bytes > flw_world.config.device_bytes - device->given_bytes,
                  CUDA_ERROR_OUT_OF_MEMORY);
    device->given_bytes += bytes;
    device->total_given_bytes += bytes;
    device->peak_given_bytes = flw_max(device->peak_given_bytes, device->given_bytes);
    return CUDA_SUCCESS;
}

void flw_ledger_take_back(struct flw_device *device, uint64_t bytes)
{
    device->given_bytes -= bytes;
}

static void fill_with_garbage(unsigned char *content, uint64_t bytes)
{
    if (flw_world_is_mild(FLW_SIM_MILD_GARBAGE)) {
        return;
    }
    uint64_t x = flw_world_random() | 1;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __builtin_memcpy(content + i, &x, 8);
    }
}

static bool make_content(struct flw_physical *physical)
{
    void *content =
        mmap(NULL, physical->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (content == MAP_FAILED) {
        return false;
    }
    physical->content = content;
    return !flw_check_is_on() || flw_shadow_make(physical);
}

/* Copy the present bytes into the file. */
static bool fill_file(const struct flw_physical *physical)
{
    for (uint64_t at = 0; at < physical->bytes;) {
        ssize_t written =
            pwrite(physical->file, physical->content + at, physical->bytes - at, (off_t)at);
        if (written <= 0) {
            return false;
        }
        at += (uint64_t)written;
    }
    return mmap(physical->content, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                physical->file, 0) != MAP_FAILED;
}

bool flw_physical_open(struct flw_physical *physical)
{
    if (physical->file >= 0) {
        return true;
    }
    physical->file = flw_sealed_file_make("simcuda-handle", physical->bytes);
    if (physical->file >= 0 && (physical->content == NULL || fill_file(physical))) {
        return true;
    }
    if (physical->file >= 0) {
        close(physical->file);
    }
    physical->file = -1;
    return false;
}

struct flw_physical *flw_physical_make(struct flw_device *device, uint64_t bytes, CUresult *error)
{
    *error = flw_ledger_give(device, bytes);
    if (*error != CUDA_SUCCESS) {
        return NULL;
    }
    struct flw_physical *physical = flw_host_get(sizeof *physical);
    physical->device = device;
    physical->bytes = bytes;
    physical->ledger_bytes = bytes;
    physical->file = -1;
    physical->id = ++flw_world.next_id;
    physical->next = flw_world.physicals;
    if (physical->next != NULL) {
        physical->next->previous = physical;
    }
    flw_world.physicals = physical;
    if (flw_world.config.backed && !make_content(physical)) {
        flw_physical_free(physical);
        *error = CUDA_ERROR_OUT_OF_MEMORY; /* the host's */
        return NULL;
    }
    if (physical->content != NULL) {
        fill_with_garbage(physical->content, bytes);
    }
    return physical;
}

void flw_physical_free(struct flw_physical *physical)
{
    flw_ledger_take_back(physical->device, physical->ledger_bytes);
    if (physical->content != NULL) {
        munmap(physical->content, physical->bytes);
    }
    flw_shadow_end(physical);
    if (physical->file >= 0) {
        close(physical->file);
    }
    if (physical->previous != NULL) {
        physical->previous->next = physical->next;
    } else {
        flw_world.physicals = physical->next;
    }
    if (physical->next != NULL) {
        physical->next->previous = physical->previous;
    }
    free(physical);
}

void flw_physical_drop_if_unused(struct flw_physical *physical)
{
    if (physical->handle_count == 0 && physical->mapping_count == 0) {
        flw_physical_free(physical);
    }
}
