/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory of a device, the contents if the world has contents, the entry in the ledger.
 * Does not: map it.
 *
 * Contents are the host's own pages. A handle that is exported is then moved into a memfd, at the
 * same address, so that another process sees the same bytes; without contents the memfd is empty
 * and costs no memory. New memory is filled with seeded garbage, never zeros. */
#include <stdlib.h>
#include <string.h>
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

/* ---- contents */

#define STEP_BYTES  65536ull
#define STEP_STORED 1ull
#define STEP_FILLED 2ull

/* One step of the last value that a reader found. */
static unsigned char uniform[STEP_BYTES];
static uint32_t uniform_value;

/* A file of its own, or one that another process maps, is not sparse. */
bool flw_bytes_make(struct flw_bytes *bytes, uint64_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) {
        return false;
    }
    *bytes = (struct flw_bytes){.at = at, .bytes = size};
    if (flw_world_is_mild(FLW_SIM_MILD_GARBAGE)) {
        madvise(at, size, MADV_NOHUGEPAGE); /* one written byte would use 2 MiB */
        bytes->step = flw_host_get((size / STEP_BYTES + 1) * sizeof *bytes->step);
    }
    return true;
}

void flw_bytes_end(struct flw_bytes *bytes)
{
    if (bytes->at != NULL) {
        munmap(bytes->at, bytes->bytes);
    }
    free(bytes->step);
    *bytes = (struct flw_bytes){0};
}

static void repeat(unsigned char *at, uint64_t size, uint32_t value, unsigned value_bytes)
{
    if (value_bytes == 1) {
        memset(at, (int)(value & 0xff), size);
        return;
    }
    for (uint64_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(value >> (i % value_bytes * 8));
    }
}

unsigned char *flw_bytes_write(struct flw_bytes *bytes, uint64_t offset, uint64_t size)
{
    for (uint64_t i = offset / STEP_BYTES; bytes->step != NULL && i * STEP_BYTES < offset + size;
         i++) {
        uint64_t state = bytes->step[i], begin = i * STEP_BYTES;
        if (state >= STEP_FILLED) {
            repeat(bytes->at + begin, flw_min(STEP_BYTES, bytes->bytes - begin),
                   (uint32_t)(state >> 32), 4);
        }
        bytes->step[i] = STEP_STORED;
    }
    return bytes->at + offset;
}

const unsigned char *flw_bytes_read(const struct flw_bytes *bytes, uint64_t offset, uint64_t *size)
{
    if (bytes->step == NULL) {
        return bytes->at + offset;
    }
    uint64_t first = offset / STEP_BYTES, next = first + 1, state = bytes->step[first];
    while (next * STEP_BYTES < offset + *size && state == STEP_STORED &&
           bytes->step[next] == STEP_STORED) {
        next++;
    }
    *size = flw_min(*size, next * STEP_BYTES - offset);
    if (state == STEP_STORED) {
        return bytes->at + offset;
    }
    if ((uint32_t)(state >> 32) != uniform_value) {
        uniform_value = (uint32_t)(state >> 32);
        repeat(uniform, sizeof uniform, uniform_value, 4);
    }
    return uniform + offset % STEP_BYTES;
}

bool flw_bytes_is_uniform(const unsigned char *read)
{
    return read >= uniform && read < uniform + sizeof uniform;
}

void flw_bytes_fill(struct flw_bytes *bytes, uint64_t offset, uint64_t size, uint32_t value,
                    unsigned value_bytes)
{
    uint64_t first = flw_align_up(offset, STEP_BYTES) / STEP_BYTES,
             end = (offset + size) / STEP_BYTES;
    uint32_t whole = value_bytes == 1   ? (value & 0xff) * 0x01010101u
                     : value_bytes == 2 ? (value & 0xffff) * 0x00010001u
                                        : value;
    if (bytes->step == NULL || first >= end) {
        repeat(flw_bytes_write(bytes, offset, size), size, value, value_bytes);
        return;
    }
    uint64_t begin = first * STEP_BYTES, rest = offset + size - end * STEP_BYTES;
    if (offset < begin) {
        repeat(flw_bytes_write(bytes, offset, begin - offset), begin - offset, value, value_bytes);
    }
    if (rest > 0) {
        repeat(flw_bytes_write(bytes, end * STEP_BYTES, rest), rest, value, value_bytes);
    }
    madvise(bytes->at + begin, (end - first) * STEP_BYTES, MADV_DONTNEED);
    for (uint64_t i = first; i < end; i++) {
        bytes->step[i] = whole == 0 ? 0 : (uint64_t)whole << 32 | STEP_FILLED;
    }
}

void flw_bytes_put(struct flw_bytes *bytes, uint64_t offset, const unsigned char *read,
                   uint64_t size)
{
    if (read == uniform) { /* the begin of a step of one value */
        flw_bytes_fill(bytes, offset, size, uniform_value, 4);
    } else {
        memmove(flw_bytes_write(bytes, offset, size), read, size);
    }
}

static bool make_content(struct flw_physical *physical)
{
    return flw_bytes_make(&physical->content, physical->bytes) &&
           (!flw_check_is_on() || flw_bytes_make(&physical->shadow, physical->bytes));
}

/* Copy the present bytes into the file, except zeros that were never written. */
static bool fill_file(struct flw_physical *physical)
{
    struct flw_bytes *content = &physical->content;
    for (uint64_t at = 0; at < physical->bytes;) {
        uint64_t size = physical->bytes - at;
        const unsigned char *read = flw_bytes_read(content, at, &size);
        ssize_t written = flw_bytes_is_uniform(read) && uniform_value == 0
                              ? (ssize_t)size
                              : pwrite(physical->file, read, size, (off_t)at);
        if (written <= 0) {
            return false;
        }
        at += (uint64_t)written;
    }
    if (mmap(content->at, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             physical->file, 0) == MAP_FAILED) {
        return false;
    }
    free(content->step);
    content->step = NULL;
    return true;
}

bool flw_physical_open(struct flw_physical *physical)
{
    if (physical->file >= 0) {
        return true;
    }
    physical->file = flw_sealed_file_make("simcuda-handle", physical->bytes);
    if (physical->file >= 0 && (physical->content.at == NULL || fill_file(physical))) {
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
    if (physical->content.at != NULL) {
        fill_with_garbage(physical->content.at, bytes);
    }
    return physical;
}

void flw_physical_free(struct flw_physical *physical)
{
    flw_ledger_take_back(physical->device, physical->ledger_bytes);
    flw_bytes_end(&physical->content);
    flw_bytes_end(&physical->shadow);
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
