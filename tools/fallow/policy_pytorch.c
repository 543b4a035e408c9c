/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `pytorch`: the model of PyTorch's default allocator on a device. Segments come
 * from cuMemAlloc. A block that other streams used comes back when events recorded at its free are
 * done.
 *
 * Where the trace was recorded from PyTorch, the model starts from the recorded segments, gives
 * each segment that it takes the recorded address when the recorded allocator took one of the same
 * size at the same moment, and empties its cache where the recorded program did; every address can
 * then be compared with the recorded one.
 */
#include "policy.h"

#include <stdio.h>

#include "base/bits.h"
#include "trace/trace.h"

#include "pytorch_model.h"
#include "replay_device.h"
#include "tool_host.h"
#include "uses.h"

/* Sorts after every real address and equals none. */
#define UNRECORDED (1ull << 63)

/* A freed block that waits for one event. */
struct deferral {
    struct deferral *next;
    CUevent event;
    struct flw_pytorch_block *block;
    uint32_t number;
};

struct queue {
    struct deferral *first, *last;
};

struct torch {
    const struct flw_device *device;
    const struct flw_trace *trace;
    struct flw_pytorch_model *model;
    struct flw_pytorch_block **blocks; /* by number */
    size_t block_count;
    size_t stream_count;
    struct flw_uses uses;
    uint32_t *event_counts; /* by number: events that a freed block waits for */
    struct queue *queues;   /* a stream */
    bool has_deferrals;
    bool is_seeding, is_seeded;
    bool compares;     /* until the end of the first pass */
    bool has_compared; /* ever */
    size_t seed_count; /* initial blocks that have not been asked for yet */
    /* The recorded segment event that passed last, until the next allocation. */
    uint64_t segment_address, segment_bytes;
    size_t next_segment; /* event index from which the next recorded segment is looked for */
    bool has_same_segments;
    uint64_t segment_count, recorded_segment_count;
    uint64_t match_count, compare_count;
    uint64_t reserved_bytes, peak_reserved_bytes;
    uint64_t grow_count, call_count, event_count, wait_count;
};

/* --- segments ------------------------------------------------------------------------------------
 */

/* Size of the next recorded segment event; 0 past the last. */
static uint64_t next_recorded_bytes(struct torch *torch)
{
    const struct flw_trace *trace = torch->trace;
    while (torch->next_segment < trace->event_count) {
        const struct flw_trace_event *event = &trace->events[torch->next_segment++];
        if (event->op == FLW_TRACE_SEGMENT_ALLOC) {
            return event->size_bytes;
        }
    }
    return 0;
}

static bool segment_alloc(void *context, uint64_t size_bytes, struct flw_pytorch_place *out_place)
{
    struct torch *torch = context;
    CUdeviceptr pointer = 0;
    torch->call_count++;
    if (torch->device->driver.cuMemAlloc_v2(&pointer, size_bytes) != CUDA_SUCCESS) {
        return false;
    }
    out_place->device_address = pointer;
    out_place->address = pointer | UNRECORDED;
    torch->grow_count += !torch->is_seeding;
    torch->reserved_bytes += size_bytes;
    torch->peak_reserved_bytes = flw_max(torch->peak_reserved_bytes, torch->reserved_bytes);
    if (!torch->is_seeding && torch->compares) {
        torch->segment_count++;
        torch->has_same_segments &= next_recorded_bytes(torch) == size_bytes;
        if (torch->segment_bytes == size_bytes && torch->segment_address != 0) {
            out_place->address = torch->segment_address;
            torch->segment_address = 0;
        }
    }
    return true;
}

static void segment_free(void *context, uint64_t device_address, uint64_t size_bytes)
{
    struct torch *torch = context;
    torch->call_count++;
    torch->reserved_bytes -= size_bytes;
    torch->device->driver.cuMemFree_v2((CUdeviceptr)device_address);
}

static void torch_advance(void *self, const struct flw_op *op)
{
    struct torch *torch = self;
    if (op->kind == FLW_OP_SEGMENT_FREE) {
        flw_pytorch_release_cached(torch->model);
        return;
    }
    if (op->kind == FLW_OP_PASS) {
        torch->compares = false;
    }
    if (op->kind != FLW_OP_SEGMENT || !torch->compares) {
        return;
    }
    torch->recorded_segment_count++;
    torch->segment_address = op->address;
    torch->segment_bytes = op->size_bytes;
}

/* --- blocks that other streams used
 * --------------------------------------------------------------- */

static void complete(struct torch *torch, struct queue *queue)
{
    struct deferral *deferral = queue->first;
    queue->first = deferral->next;
    torch->device->driver.cuEventDestroy_v2(deferral->event);
    if (--torch->event_counts[deferral->number] == 0) {
        flw_pytorch_free(torch->model, deferral->block);
    }
    flw_host_free(deferral, 1, sizeof *deferral);
}

/* What the allocator does before every allocation: a stream's queue ends at its first pending
 * event. */
static void process_events(struct torch *torch)
{
    for (size_t i = 0; i < torch->stream_count; i++) {
        struct queue *queue = &torch->queues[i];
        while (queue->first != NULL &&
               torch->device->driver.cuEventQuery(queue->first->event) == CUDA_SUCCESS) {
            complete(torch, queue);
        }
    }
}

static void drain(void *context)
{
    struct torch *torch = context;
    for (size_t i = 0; torch->has_deferrals && i < torch->stream_count; i++) {
        struct queue *queue = &torch->queues[i];
        while (queue->first != NULL) {
            torch->wait_count++;
            torch->call_count++;
            torch->device->driver.cuEventSynchronize(queue->first->event);
            complete(torch, queue);
        }
    }
}

static bool defer(struct torch *torch, uint32_t number, uint16_t stream)
{
    const struct flw_driver *driver = &torch->device->driver;
    struct deferral *deferral = flw_host_alloc(1, sizeof *deferral);
    if (deferral == NULL ||
        driver->cuEventCreate(&deferral->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        flw_host_free(deferral, 1, sizeof *deferral);
        return false;
    }
    if (driver->cuEventRecord(deferral->event, torch->device->streams[stream]) != CUDA_SUCCESS) {
        driver->cuEventDestroy_v2(deferral->event);
        flw_host_free(deferral, 1, sizeof *deferral);
        return false;
    }
    torch->call_count += 2;
    torch->event_count++;
    deferral->block = torch->blocks[number];
    deferral->number = number;
    struct queue *queue = &torch->queues[stream];
    if (queue->first == NULL) {
        queue->first = deferral;
    } else {
        queue->last->next = deferral;
    }
    queue->last = deferral;
    torch->event_counts[number]++;
    torch->has_deferrals = true;
    return true;
}

/* --- seeds
 * ------------------------------------------------------------------------------------------ */

static bool can_be_seeded(const struct flw_trace *trace)
{
    if (!trace->has_addresses || trace->segment_count == 0) {
        return false;
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].is_expandable) {
            return false;
        }
    }
    return true;
}

/* First initial block at or above an address; they are in address order. */
static size_t first_block_at(const struct flw_trace *trace, uint64_t address)
{
    size_t low = 0;
    size_t high = trace->initial_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->blocks[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* `addresses` and `sizes` are the initial blocks', in order. */
static bool seed_segments(struct torch *torch, const uint64_t *addresses, const uint64_t *sizes)
{
    const struct flw_trace *trace = torch->trace;
    size_t seeded_count = 0;
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        size_t begin = first_block_at(trace, segment->address);
        size_t end = first_block_at(trace, segment->address + segment->size_bytes);
        struct flw_pytorch_seed seed = {.address = segment->address,
                                        .size_bytes = segment->size_bytes,
                                        .stream = segment->stream,
                                        .is_large = segment->is_large,
                                        .block_addresses = addresses + begin,
                                        .block_bytes = sizes + begin,
                                        .block_count = end - begin};
        if (!flw_pytorch_seed(torch->model, &seed, torch->blocks + begin)) {
            return false;
        }
        seeded_count += end - begin;
    }
    return seeded_count == trace->initial_count;
}

static bool make_model(struct torch *torch)
{
    struct flw_pytorch_source source = {
        .alloc = segment_alloc, .free = segment_free, .drain = drain, .context = torch};
    torch->model = flw_pytorch_create(&source);
    return torch->model != NULL;
}

/* A trace whose initial heap does not add up is replayed from an empty heap instead. */
static bool start_from_record(struct torch *torch)
{
    const struct flw_trace *trace = torch->trace;
    uint64_t *addresses = flw_host_alloc(trace->initial_count, sizeof *addresses);
    uint64_t *sizes = flw_host_alloc(trace->initial_count, sizeof *sizes);
    bool has_memory = addresses != NULL && sizes != NULL;
    for (size_t i = 0; has_memory && i < trace->initial_count; i++) {
        addresses[i] = trace->blocks[i].address;
        sizes[i] = trace->blocks[i].size_bytes;
    }
    torch->is_seeding = true;
    torch->is_seeded = has_memory && seed_segments(torch, addresses, sizes);
    torch->is_seeding = false;
    flw_host_free(addresses, trace->initial_count, sizeof *addresses);
    flw_host_free(sizes, trace->initial_count, sizeof *sizes);
    if (!torch->is_seeded) {
        flw_pytorch_destroy(torch->model);
        return make_model(torch);
    }
    return true;
}

/* --- the policy
 * ------------------------------------------------------------------------------------ */

/* No block may wait for an event any more. */
static void release(struct torch *torch)
{
    flw_pytorch_destroy(torch->model);
    flw_host_free(torch->blocks, torch->block_count, sizeof *torch->blocks);
    flw_host_free(torch->event_counts, torch->uses.count, sizeof *torch->event_counts);
    flw_host_free(torch->queues, torch->stream_count, sizeof *torch->queues);
    flw_uses_finish(&torch->uses);
    flw_host_free(torch, 1, sizeof *torch);
}

static void finish(void *self)
{
    drain(self);
    release(self);
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct torch *torch = flw_host_alloc(1, sizeof *torch);
    if (torch == NULL) {
        goto fail;
    }
    torch->device = setup->device;
    torch->trace = setup->trace;
    torch->block_count = setup->program->block_count;
    torch->stream_count = setup->program->stream_count;
    torch->has_same_segments = true;
    torch->blocks = flw_host_alloc(torch->block_count, sizeof *torch->blocks);
    torch->queues = flw_host_alloc(torch->stream_count, sizeof *torch->queues);
    if (torch->blocks == NULL || torch->queues == NULL ||
        !flw_uses_init(&torch->uses, setup->program) || !make_model(torch)) {
        goto fail;
    }
    torch->event_counts = flw_host_alloc(torch->uses.count, sizeof *torch->event_counts);
    bool is_cold = setup->trace->initial_count == 0 && setup->trace->segment_count == 0;
    if (torch->event_counts == NULL || (can_be_seeded(setup->trace) && !start_from_record(torch))) {
        goto fail;
    }
    torch->compares =
        setup->trace->has_addresses && setup->trace->has_segments && (is_cold || torch->is_seeded);
    torch->has_compared = torch->compares;
    torch->seed_count = torch->is_seeded ? setup->trace->initial_count : 0;
    return torch;
fail:
    snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy pytorch: out of host memory");
    if (torch != NULL) {
        release(torch);
    }
    return NULL;
}

static bool torch_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct torch *torch = self;
    struct flw_pytorch_block *block = NULL;
    bool is_initial = op->block < torch->trace->initial_count;
    if (is_initial && torch->seed_count > 0) {
        torch->seed_count--;
        block = torch->blocks[op->block];
    } else {
        if (torch->has_deferrals) {
            process_events(torch);
        }
        block = flw_pytorch_alloc(torch->model, op->size_bytes, op->stream);
        torch->segment_address = 0;
    }
    if (block == NULL) {
        return false;
    }
    if (torch->compares && !is_initial) {
        torch->compare_count++;
        torch->match_count += block->address == op->address;
    }
    torch->blocks[op->block] = block;
    *out_address = flw_pytorch_device_address(block);
    return true;
}

static bool torch_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct torch *torch = self;
    struct flw_pytorch_block *block = torch->blocks[op->block];
    (void)address;
    uint64_t mask = flw_uses_get(&torch->uses, op->block, torch->trace->blocks[op->block].stream);
    bool is_deferred = false;
    for (uint16_t i = 0; mask != 0 && i < torch->stream_count; i++) {
        if ((mask >> (i % 64) & 1) != 0) {
            if (!defer(torch, op->block, i)) {
                return false;
            }
            is_deferred = true;
        }
    }
    if (!is_deferred) {
        flw_pytorch_free(torch->model, block);
    }
    return true;
}

static bool torch_use(void *self, const struct flw_op *op, uint64_t address)
{
    struct torch *torch = self;
    (void)address;
    flw_uses_add(&torch->uses, op->block, op->stream);
    return true;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    struct torch *torch = self;
    out->peak_reserved_bytes = torch->peak_reserved_bytes;
    out->grow_count = torch->grow_count;
    out->driver_call_count = torch->call_count;
    out->event_count = torch->event_count;
    out->steal_count = 0;
    out->wait_count = torch->wait_count;
    out->is_seeded = torch->is_seeded;
    if (torch->has_compared) {
        out->segment_count = torch->segment_count;
        out->match_count = torch->match_count;
        out->compare_count = torch->compare_count;
        out->recorded_segment_count = torch->recorded_segment_count;
        out->has_same_segments =
            torch->has_same_segments && torch->segment_count == torch->recorded_segment_count;
    }
}

const struct flw_policy flw_policy_pytorch = {
    .name = "pytorch",
    .lends = true,
    .limits_by_device = true,
    .create = create,
    .alloc = torch_alloc,
    .free = torch_free,
    .use = torch_use,
    .advance = torch_advance,
    .get_statistics = get_statistics,
    .finish = finish,
};
