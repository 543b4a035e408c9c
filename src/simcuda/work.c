/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running an operation: touching, filling, copying, running a kernel's twin or a graph; and
 * copying operations so that they can wait. Does not: decide when (schedule.c). */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/launch.h"
#include "simcuda/shadow.h"

void flw_work_copy(struct flw_work *work, const struct flw_work *from)
{
    *work = *from;
    work->waits = NULL; /* the operation keeps its own */
    work->wait_count = 0;
    work->waits_clock = NULL;
    work->ranges = NULL;
    if (from->range_count > 0) {
        work->ranges = flw_host_get(from->range_count * sizeof *work->ranges);
        memcpy(work->ranges, from->ranges, from->range_count * sizeof *work->ranges);
    }
    if (from->staged != NULL) {
        work->staged = flw_host_get(from->bytes);
        memcpy(work->staged, from->staged, from->bytes);
        work->host_from = work->staged;
    }
    if (from->kind == FLW_WORK_LAUNCH) {
        flw_kernel_copy_parameters(work);
    }
    if (from->program != NULL) {
        flw_program_retain(from->program);
    }
}

void flw_work_finish(struct flw_work *work)
{
    free(work->ranges);
    free(work->staged);
    free(work->callback);
    if (work->kind == FLW_WORK_LAUNCH) {
        free(work->parameters);
    }
    if (work->program != NULL) {
        flw_program_release(work->program);
    }
}

static void copy_to_host(const struct flw_work *work)
{
    if (flw_storage_read(work->host_to, work->from, work->bytes) && flw_check_is_on()) {
        uint64_t offset = flw_shadow_search(work->from, work->bytes, FLW_SHADOW_UNWRITTEN);
        if (offset < work->bytes) {
            char name[160];
            flw_check_describe(work->from + offset, name, sizeof name);
            flw_check_violation(
                "unwritten: %s reads a byte that was never written, offset %llu of %llu, "
                "address %#llx%s",
                work->name, (unsigned long long)offset, (unsigned long long)work->bytes,
                (unsigned long long)(work->from + offset), name);
        }
    }
}

static void move_bytes(const struct flw_work *work, uint64_t sequence)
{
    if (!flw_world.config.backed) {
        return;
    }
    if (work->kind == FLW_WORK_MEMSET) {
        flw_storage_fill(work->to, work->bytes, work->value, work->value_bytes,
                         flw_shadow_mark(sequence));
    } else if (work->host_from != NULL) {
        flw_storage_write(work->to, work->host_from, work->bytes, flw_shadow_mark(sequence));
    } else if (work->host_to != NULL) {
        copy_to_host(work);
    } else {
        /* Unwritten bytes may be copied; the copy is then as unwritten as the source. */
        flw_storage_copy(work->to, work->from, work->bytes);
        flw_shadow_copy(work->to, work->from, work->bytes);
    }
}

/* Check the shadow, and record a touch as writes of a kernel. */
static void feed_shadow(const struct flw_work *work, uint64_t sequence)
{
    for (size_t i = 0; i < work->range_count; i++) {
        const struct flw_sim_range *range = &work->ranges[i];
        uint64_t offset = flw_shadow_search(range->address, range->bytes, FLW_SHADOW_RED);
        if (offset < range->bytes && (range->flags & FLW_RANGE_OWNERSHIP) == 0) {
            char name[160];
            flw_check_describe(range->address + offset, name, sizeof name);
            flw_check_violation("red zone: %s %s a forbidden byte, offset %llu of %llu, address "
                                "%#llx%s",
                                work->name, range->is_write ? "writes" : "reads",
                                (unsigned long long)offset, (unsigned long long)range->bytes,
                                (unsigned long long)(range->address + offset), name);
        }
        if (work->kind == FLW_WORK_TOUCH && range->is_write) {
            bool is_live = (range->flags & FLW_RANGE_OWNERSHIP) != 0;
            flw_shadow_set(range->address, range->bytes,
                           is_live ? FLW_SHADOW_UNWRITTEN : flw_shadow_mark(sequence));
        }
    }
}

CUresult flw_work_do(struct flw_stream *stream, struct flw_work *work, uint64_t sequence,
                     const struct flw_order_clock *clock)
{
    CUresult result = CUDA_SUCCESS;
    if (flw_check_is_on()) {
        for (size_t i = 0; i < work->range_count; i++) {
            CUresult one = flw_check_access(stream, work->name, sequence, clock, &work->ranges[i]);
            result = one != CUDA_SUCCESS ? one : result;
        }
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flw_check_is_on() && flw_world.config.backed) {
        feed_shadow(work, sequence);
    }
    switch (work->kind) {
    case FLW_WORK_MEMSET:
    case FLW_WORK_COPY:
        move_bytes(work, sequence);
        return CUDA_SUCCESS;
    case FLW_WORK_LAUNCH:
        return flw_kernel_run(stream, work, sequence, clock);
    case FLW_WORK_GRAPH:
        return flw_program_do(work->program, stream, sequence, clock);
    default:
        return CUDA_SUCCESS;
    }
}
