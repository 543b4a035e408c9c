/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies `pytorch`, the model of PyTorch's allocator on a device, and
 * `pytorch-expandable`, the same with expandable segments. Segments come from cuMemAlloc, or in
 * granules from cuMemCreate. A block that other streams used comes back when events recorded at its
 * free are done. The settings have PyTorch's own names; the share of memory that
 * garbage_collection_threshold is of is the whole device.
 *
 * Where the trace was recorded from PyTorch, the model starts from the recorded segments, gives
 * each segment that it takes the recorded address when the recorded allocator took one of the same
 * size at the same moment, and empties its cache where the recorded program did; every address can
 * then be compared with the recorded one. With other settings than the standard ones it starts from
 * an empty heap and compares nothing.
 */
#include "policies/policy.h"

#include <stdio.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/replay_device.h"
#include "common/tool_host.h"
#include "policies/deferrals.h"
#include "policies/pytorch_model.h"
#include "policies/pytorch_ranges.h"
#include "policies/uses.h"

/* Sorts after every real address and equals none. */
#define UNRECORDED (1ull << 63)

enum {
    MAX_SPLIT_SIZE,
    COLLECTION_THRESHOLD,
    ROUNDUP_DIVISIONS,
    EXPANDABLE_SEGMENTS,
    SETTING_COUNT
};

static const struct flw_policy_setting settings[SETTING_COUNT] = {
    [MAX_SPLIT_SIZE] = {.name = "max_split_size_mb",
                        .kind = FLW_SETTING_COUNT,
                        .least = 21, /* PyTorch's own bound: above a large segment */
                        .most = 1ull << 30,
                        .standard = 1ull << 30},
    [COLLECTION_THRESHOLD] = {.name = "garbage_collection_threshold",
                              .kind = FLW_SETTING_SHARE,
                              .standard = FLW_SETTING_ONE},
    [ROUNDUP_DIVISIONS] = {.name = "roundup_power2_divisions",
                           .kind = FLW_SETTING_POWER,
                           .least = 1,
                           .most = 64,
                           .standard = 1},
    [EXPANDABLE_SEGMENTS] = {.name = "expandable_segments", .kind = FLW_SETTING_FLAG},
};

struct torch {
    struct flw_uses uses; /* first, for flw_uses_announce */
    const struct flw_device *device;
    struct flw_pytorch_ranges ranges;
    struct flw_pytorch_settings settings;
    const struct flw_trace *trace;
    bool *are_late; /* by block: its recorded free took until later; NULL: none did */
    const struct flw_lanes *lanes; /* the program's */
    struct flw_pytorch_model *model;
    struct flw_segheap_block **blocks; /* by number */
    size_t stream_count;
    struct flw_deferrals deferrals;
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
    uint64_t grow_count, call_count;
};

/* ---- segments ---- */

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

static bool segment_alloc(void *context, uint64_t size_bytes, struct flw_segheap_place *out_place)
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

/* ---- expandable segments ---- */

static bool reserve(void *context, uint64_t size_bytes, uint64_t granule_bytes,
                    struct flw_segheap_place *out_place)
{
    struct torch *torch = context;
    if (!flw_pytorch_ranges_reserve(&torch->ranges, size_bytes, granule_bytes,
                                    &out_place->device_address)) {
        return false;
    }
    out_place->address = out_place->device_address;
    return true;
}

static void unreserve(void *context, uint64_t device_address)
{
    struct torch *torch = context;
    flw_pytorch_ranges_unreserve(&torch->ranges, device_address);
}

static bool map(void *context, const struct flw_pytorch_range *range)
{
    struct torch *torch = context;
    if (!flw_pytorch_ranges_map(&torch->ranges, range)) {
        return false;
    }
    torch->grow_count++;
    torch->reserved_bytes += range->size_bytes;
    torch->peak_reserved_bytes = flw_max(torch->peak_reserved_bytes, torch->reserved_bytes);
    return true;
}

static void unmap(void *context, const struct flw_pytorch_range *range)
{
    struct torch *torch = context;
    struct flw_pytorch_range on_stream = *range;
    on_stream.stream = flw_lanes_stream(torch->lanes, range->stream);
    torch->reserved_bytes -= range->size_bytes;
    flw_pytorch_ranges_unmap(&torch->ranges, &on_stream);
}

/* ---- blocks that other streams used ---- */

static void take_back(void *context, void *block)
{
    struct torch *torch = context;
    flw_pytorch_free(torch->model, block);
}

static void drain(void *context)
{
    struct torch *torch = context;
    flw_deferrals_drain(&torch->deferrals);
}

/* ---- seeds ---- */

static bool is_standard(const struct flw_pytorch_settings *a)
{
    const struct flw_pytorch_settings *b = &flw_pytorch_standard;
    return a->max_split_bytes == b->max_split_bytes &&
           a->roundup_divisions == b->roundup_divisions && a->collect_bytes == b->collect_bytes &&
           a->address_room_bytes == b->address_room_bytes;
}

static bool can_be_seeded(const struct torch *torch)
{
    const struct flw_trace *trace = torch->trace;
    if (!is_standard(&torch->settings) || !trace->has_addresses || trace->segment_count == 0) {
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

/* Of the i-th initial segment; *out_first is the number of its first block. */
static struct flw_pytorch_seed seed_at(const struct torch *torch, size_t i, size_t *out_first)
{
    const struct flw_trace *trace = torch->trace;
    const struct flw_trace_segment *segment = &trace->segments[i];
    size_t begin = first_block_at(trace, segment->address);
    size_t end = first_block_at(trace, segment->address + segment->size_bytes);
    *out_first = begin;
    return (struct flw_pytorch_seed){
        .address = segment->address,
        .size_bytes = segment->size_bytes,
        .stream = flw_lanes_find(torch->lanes, segment->pool, segment->stream),
        .is_large = segment->is_large,
        .blocks = trace->blocks + begin,
        .block_count = end - begin};
}

/* Nothing is taken before all of it is known to fit. */
static bool seed_segments(struct torch *torch)
{
    const struct flw_trace *trace = torch->trace;
    size_t seeded_count = 0;
    size_t first = 0;
    for (size_t i = 0; i < trace->segment_count; i++) {
        struct flw_pytorch_seed seed = seed_at(torch, i, &first);
        if (seed.stream == UINT16_MAX || !flw_pytorch_seed_fits(torch->model, &seed)) {
            return false;
        }
        seeded_count += seed.block_count;
    }
    for (size_t i = 0; seeded_count == trace->initial_count && i < trace->segment_count; i++) {
        struct flw_pytorch_seed seed = seed_at(torch, i, &first);
        if (!flw_pytorch_seed(torch->model, &seed, torch->blocks + first)) {
            return false;
        }
    }
    return seeded_count == trace->initial_count;
}

static void make_model(struct torch *torch)
{
    struct flw_pytorch_source source = {.alloc = segment_alloc,
                                        .free = segment_free,
                                        .reserve = reserve,
                                        .map = map,
                                        .unmap = unmap,
                                        .unreserve = unreserve,
                                        .drain = drain,
                                        .context = torch};
    torch->model = flw_pytorch_create(&source, &torch->settings);
}

/* A trace whose initial heap does not add up is replayed from an empty heap instead. */
static void start_from_record(struct torch *torch)
{
    torch->is_seeding = true;
    torch->is_seeded = seed_segments(torch);
    torch->is_seeding = false;
    if (!torch->is_seeded) {
        flw_pytorch_destroy(torch->model);
        make_model(torch);
    }
}

/* ---- the policy ---- */

static void finish(void *self)
{
    struct torch *torch = self;
    drain(torch);
    flw_pytorch_destroy(torch->model);
    flw_host_free(torch->blocks);
    flw_deferrals_finish(&torch->deferrals);
    flw_host_free(torch->are_late);
    flw_uses_finish(&torch->uses);
    flw_host_free(torch);
}

/* PyTorch takes an eighth more addresses than the device has memory. */
static uint64_t address_room_bytes(const struct flw_device *device)
{
    return device->device_bytes + device->device_bytes / 8;
}

static void read_settings(const struct flw_policy_setup *setup, struct flw_pytorch_settings *out)
{
    const struct flw_policy *policy = setup->policy;
    uint64_t max_split_mib = flw_policy_value(policy, MAX_SPLIT_SIZE);
    uint64_t threshold = flw_policy_value(policy, COLLECTION_THRESHOLD);
    bool is_expandable = policy->setting_count <= EXPANDABLE_SEGMENTS ||
                         flw_policy_value(policy, EXPANDABLE_SEGMENTS) != 0;
    *out = flw_pytorch_standard;
    out->roundup_divisions = flw_policy_value(policy, ROUNDUP_DIVISIONS);
    if (max_split_mib != settings[MAX_SPLIT_SIZE].standard) {
        out->max_split_bytes = max_split_mib * FLW_MIB;
    }
    if (threshold != FLW_SETTING_ONE) {
        double share = (double)threshold / (double)FLW_SETTING_ONE;
        out->collect_bytes = (uint64_t)(share * (double)setup->device->device_bytes);
    }
    out->address_room_bytes = is_expandable ? address_room_bytes(setup->device) : 0;
}

/* Of blocks between whose recorded free and its end allocations passed; NULL: there are none. */
static bool *find_late_frees(const struct flw_trace *trace)
{
    uint64_t *alloc_counts = flw_host_alloc(trace->block_count, sizeof *alloc_counts);
    bool *are_late = flw_host_alloc(trace->block_count, sizeof *are_late), is_any_late = false;
    uint64_t alloc_count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            alloc_count++;
        } else if (event->op == FLW_TRACE_FREE) {
            alloc_counts[event->block] = alloc_count;
        } else if (event->op == FLW_TRACE_FREE_DONE && alloc_counts[event->block] != alloc_count) {
            are_late[event->block] = is_any_late = true;
        }
    }
    flw_host_free(alloc_counts);
    if (!is_any_late) {
        flw_host_free(are_late);
    }
    return is_any_late ? are_late : NULL;
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct torch *torch = flw_host_alloc(1, sizeof *torch);
    torch->device = setup->device;
    torch->ranges.device = setup->device;
    read_settings(setup, &torch->settings);
    if (torch->settings.address_room_bytes != 0 &&
        !flw_pytorch_ranges_are_supported(setup->device)) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: %s has no virtual memory management; leave expandable segments out",
                 setup->policy->name, setup->device->name);
        flw_host_free(torch);
        return NULL;
    }
    torch->trace = setup->trace;
    torch->lanes = &setup->program->lanes;
    torch->stream_count = setup->program->stream_count;
    torch->has_same_segments = true;
    torch->blocks = flw_host_alloc(setup->program->block_count, sizeof *torch->blocks);
    torch->deferrals =
        (struct flw_deferrals){.device = setup->device, .done = take_back, .context = torch};
    flw_uses_init(&torch->uses, setup->program);
    flw_deferrals_init(&torch->deferrals, setup->program);
    torch->are_late = find_late_frees(setup->trace);
    torch->settings.first_private = (uint16_t)torch->stream_count;
    make_model(torch);
    bool is_cold = setup->trace->initial_count == 0 && setup->trace->segment_count == 0;
    if (can_be_seeded(torch)) {
        start_from_record(torch);
    }
    torch->compares = is_standard(&torch->settings) && setup->trace->has_addresses &&
                      setup->trace->has_segments && (is_cold || torch->is_seeded);
    torch->has_compared = torch->compares;
    torch->seed_count = torch->is_seeded ? setup->trace->initial_count : 0;
    return torch;
}

static bool torch_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct torch *torch = self;
    struct flw_segheap_block *block = NULL;
    bool is_initial = op->block < torch->trace->initial_count;
    if (is_initial && torch->seed_count > 0) {
        torch->seed_count--;
        block = torch->blocks[op->block];
    } else {
        flw_deferrals_poll(&torch->deferrals);
        block = flw_pytorch_alloc(torch->model, op->size_bytes,
                                  flw_lanes_get(torch->lanes, op->block, op->stream));
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
    *out_address = flw_segheap_device_address(block);
    return true;
}

/* The recorded free took until later, and no use on another stream says why. */
static bool is_held(const struct torch *torch, uint32_t block)
{
    return torch->compares && torch->are_late != NULL && torch->are_late[block] &&
           flw_uses_get(&torch->uses, block, torch->trace->blocks[block].stream) == 0;
}

static bool torch_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct torch *torch = self;
    struct flw_segheap_block *block = torch->blocks[op->block];
    (void)address;
    uint64_t mask = flw_uses_get(&torch->uses, op->block, torch->trace->blocks[op->block].stream);
    if (mask != 0) {
        return flw_deferrals_put(&torch->deferrals, block, op->size_bytes, mask);
    }
    if (!is_held(torch, op->block)) {
        flw_pytorch_free(torch->model, block);
    }
    return true;
}

static void torch_advance(void *self, const struct flw_op *op)
{
    struct torch *torch = self;
    if (op->kind == FLW_OP_SEGMENT_FREE) {
        flw_pytorch_release_cached(torch->model);
        return;
    }
    if (op->kind == FLW_OP_FREE_DONE && is_held(torch, op->block) &&
        torch->blocks[op->block] != NULL) {
        flw_pytorch_free(torch->model, torch->blocks[op->block]);
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

static uint64_t torch_block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct torch *torch = self;
    (void)address;
    return torch->blocks[op->block]->size_bytes;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    struct torch *torch = self;
    out->peak_reserved_bytes = torch->peak_reserved_bytes;
    out->grow_count = torch->grow_count;
    out->driver_call_count =
        torch->call_count + torch->ranges.call_count + torch->deferrals.call_count;
    out->event_count = torch->deferrals.event_count;
    out->steal_count = 0;
    out->wait_count = torch->deferrals.wait_count;
    out->deferred_bytes = torch->deferrals.deferred_bytes;
    flw_pytorch_count(torch->model, &out->split_count, &out->merge_count);
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

/* What the two have in common. */
#define MODEL                                                                                     \
    .allocates = true, .keeps_pools_apart = true, .limits_by_device = true, .create = create,     \
    .alloc = torch_alloc, .free = torch_free, .use = flw_uses_announce, .advance = torch_advance, \
    .block_bytes = torch_block_bytes, .get_statistics = get_statistics, .finish = finish,         \
    .settings = settings

const struct flw_policy flw_policy_pytorch = {.name = "pytorch",
                                              .summary = "PyTorch's allocator, as a model",
                                              .setting_count = SETTING_COUNT,
                                              MODEL};

const struct flw_policy flw_policy_pytorch_expandable = {
    .name = "pytorch-expandable",
    .summary = "the same with expandable segments",
    .is_supported = flw_pytorch_ranges_are_supported,
    .setting_count = EXPANDABLE_SEGMENTS, /* all but that one, which is on */
    MODEL};
#undef MODEL
