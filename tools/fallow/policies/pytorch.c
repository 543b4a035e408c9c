/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies `pytorch`, the model of PyTorch's allocator, and `pytorch-expandable`, the same with expandable
 * segments. The settings have PyTorch's own names; garbage_collection_threshold is a share of the whole device.
 *
 * If the trace was recorded from PyTorch, the model starts from the recorded segments, gives each new segment the
 * recorded address if the recorded allocator allocated one of the same size at the same moment, and empties its cache
 * where the recorded program did; every address can then be compared with the recorded one. With other settings than
 * the standard ones the model starts from an empty heap and compares nothing.
 */
#include "policies/policy.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"
#include "policies/pytorch_model.h"

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
    struct flw_pytorch_model model;
    const struct flw_trace *trace;
    const struct flw_program *program;
    bool *are_late; /* by block: the recorded free took until later; NULL: none did */
    struct flw_pytorch_block **blocks; /* by number */
    bool compares;                     /* until the end of the first pass */
    size_t seed_count;                 /* initial blocks that are not requested yet */
    size_t next_segment; /* event index from which the next recorded segment is searched */
    struct flw_policy_statistics statistics;
};

/* ---- seeds ---- */

static bool is_standard(const struct flw_pytorch_settings *chosen)
{
    return memcmp(chosen, &flw_pytorch_standard, sizeof *chosen) == 0;
}

static bool can_be_seeded(const struct torch *torch)
{
    const struct flw_trace *trace = torch->trace;
    bool is_plain = is_standard(&torch->model.settings) && trace->has_addresses;
    for (size_t i = 0; i < trace->segment_count; i++) {
        is_plain = is_plain && !trace->segments[i].is_expandable;
    }
    return is_plain && trace->segment_count != 0;
}

/* Return the first initial block at or above an address; they are in address order. */
static size_t first_block_at(const struct flw_trace *trace, uint64_t address)
{
    return flw_count_below(trace->blocks, trace->initial_count, sizeof *trace->blocks, address);
}

/* Seed all recorded segments, or only check that they fit. */
static bool seed_segments(struct torch *torch, bool is_check)
{
    const struct flw_trace *trace = torch->trace;
    size_t block_count = 0;
    bool fits = true;
    for (size_t i = 0; fits && i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        size_t begin = first_block_at(trace, segment->address);
        size_t end = first_block_at(trace, segment->address + segment->size_bytes);
        struct flw_pytorch_seed seed = {
            .address = segment->address,
            .size_bytes = segment->size_bytes,
            .stream = flw_lanes_find(torch->model.lanes, segment->pool, segment->stream),
            .is_large = segment->is_large,
            .blocks = trace->blocks + begin,
            .block_count = end - begin};
        block_count += seed.block_count;
        fits = is_check ? seed.stream != UINT16_MAX && flw_pytorch_seed_fits(&torch->model, &seed)
                        : flw_pytorch_seed(&torch->model, &seed, torch->blocks + begin);
    }
    return fits && block_count == trace->initial_count;
}

/* Start from the recorded heap, or from an empty one if the recorded one does not add up. */
static void start_from_record(struct torch *torch)
{
    struct flw_pytorch_model *model = &torch->model;
    torch->statistics.is_seeded = seed_segments(torch, true) && seed_segments(torch, false);
    if (torch->statistics.is_seeded) {
        torch->seed_count = torch->trace->initial_count;
    } else {
        struct flw_pytorch_settings chosen = model->settings;
        flw_pytorch_finish(model);
        flw_pytorch_init(model, model->heap.device, model->lanes, &chosen);
    }
}

/* ---- comparison ---- */

/* Begin to compare with the record if the model starts as the recorded allocator did. */
static void start_comparison(struct torch *torch)
{
    struct flw_policy_statistics *statistics = &torch->statistics;
    const struct flw_trace *trace = torch->trace;
    bool is_cold = trace->initial_count == 0 && trace->segment_count == 0;
    torch->compares = is_standard(&torch->model.settings) && trace->has_addresses &&
                      trace->has_segments && (is_cold || statistics->is_seeded);
    torch->model.heap.orders_by_age = !torch->compares; /* older versions record too */
    if (torch->compares) {
        statistics->match_count = statistics->compare_count = 0;
        statistics->segment_count = statistics->recorded_segment_count = 0;
        statistics->has_same_segments = true;
    }
}

/* Return the size of the next recorded segment; 0 after the last. */
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

static void compare(struct torch *torch, const struct flw_pytorch_block *block, uint64_t address,
                    bool has_grown)
{
    struct flw_policy_statistics *statistics = &torch->statistics;
    statistics->compare_count++;
    statistics->match_count += block->address == address;
    if (has_grown) {
        statistics->segment_count++;
        statistics->has_same_segments &= next_recorded_bytes(torch) == block->segment->size_bytes;
    }
}

/* Find blocks with allocations between the recorded free and its completion. Returns NULL if there are none. */
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

/* ---- the policy ---- */

/* PyTorch reserves an eighth more addresses than the device has memory. */
static uint64_t address_room_bytes(const struct flw_device *device)
{
    return device->device_bytes + device->device_bytes / 8;
}

static void read_settings(const struct flw_policy_setup *setup, struct flw_pytorch_settings *out)
{
    const struct flw_policy *policy = setup->policy;
    uint64_t max_split_mib = flw_policy_value(policy, MAX_SPLIT_SIZE);
    uint64_t threshold = flw_policy_value(policy, COLLECTION_THRESHOLD);
    bool is_expandable = policy->variant != 0 || flw_policy_value(policy, EXPANDABLE_SEGMENTS) != 0;
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

static void finish(void *self)
{
    struct torch *torch = self;
    flw_pytorch_finish(&torch->model);
    flw_host_free(torch->blocks);
    flw_host_free(torch->are_late);
    flw_host_free(torch);
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct flw_pytorch_settings chosen;
    read_settings(setup, &chosen);
    if (chosen.address_room_bytes != 0 && !flw_pytorch_heap_can_expand(setup->device)) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: %s has no virtual memory management; leave expandable segments out",
                 setup->policy->name, setup->device->name);
        return NULL;
    }
    struct torch *torch = flw_host_alloc(1, sizeof *torch);
    torch->trace = setup->trace;
    torch->program = setup->program;
    torch->blocks = flw_host_alloc(setup->program->block_count, sizeof *torch->blocks);
    torch->are_late = find_late_frees(setup->trace);
    flw_policy_clear_statistics(&torch->statistics);
    torch->statistics.deferred_bytes = torch->statistics.steal_count = 0;
    flw_pytorch_init(&torch->model, setup->device, &setup->program->lanes, &chosen);
    if (can_be_seeded(torch)) {
        start_from_record(torch);
    }
    start_comparison(torch);
    return torch;
}

static bool torch_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct torch *torch = self;
    struct flw_pytorch_model *model = &torch->model;
    struct flw_pytorch_block *block = NULL;
    uint64_t grow_count = model->heap.grow_count;
    bool is_initial = op->block < torch->trace->initial_count;
    if (is_initial && torch->seed_count > 0) {
        torch->seed_count--;
        block = torch->blocks[op->block];
    } else {
        block = flw_pytorch_alloc(model, op->size_bytes,
                                  flw_lanes_get(model->lanes, op->block, op->stream));
        model->next_bytes = 0;
    }
    if (block == NULL) {
        return false;
    }
    if (torch->compares && !is_initial) {
        compare(torch, block, op->address, model->heap.grow_count != grow_count);
    }
    torch->blocks[op->block] = block;
    *out_address = flw_pytorch_device_address(block);
    return true;
}

/* Return the streams that use a block besides its own. */
static uint64_t users_of(const struct torch *torch, uint32_t block)
{
    return flw_program_users(torch->program, block, torch->trace->blocks[block].stream);
}

/* True if the recorded free took until later, and no use on another stream is the reason. */
static bool is_held(const struct torch *torch, uint32_t block)
{
    return torch->compares && torch->are_late != NULL && torch->are_late[block] &&
           users_of(torch, block) == 0;
}

static bool torch_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct torch *torch = self;
    struct flw_pytorch_block *block = torch->blocks[op->block];
    (void)address;
    uint64_t users = users_of(torch, op->block);
    if (users != 0) {
        torch->statistics.deferred_bytes += op->size_bytes;
        return flw_pytorch_free_after(&torch->model, block, users);
    }
    if (!is_held(torch, op->block)) {
        flw_pytorch_free(&torch->model, block);
    }
    return true;
}

static void torch_advance(void *self, const struct flw_op *op)
{
    struct torch *torch = self;
    if (op->kind == FLW_OP_SEGMENT_FREE) {
        flw_pytorch_release_cached(&torch->model);
    } else if (op->kind == FLW_OP_FREE_DONE && is_held(torch, op->block) &&
               torch->blocks[op->block] != NULL) {
        flw_pytorch_free(&torch->model, torch->blocks[op->block]);
    } else if (op->kind == FLW_OP_PASS) {
        torch->compares = false;
    } else if (op->kind == FLW_OP_SEGMENT && torch->compares) {
        torch->statistics.recorded_segment_count++;
        torch->model.next_address = op->address;
        torch->model.next_bytes = op->size_bytes;
    }
}

static uint64_t torch_block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct torch *torch = self;
    (void)address;
    return torch->blocks[op->block]->size_bytes;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct torch *torch = self;
    const struct flw_pytorch_heap *heap = &torch->model.heap;
    *out = torch->statistics;
    out->peak_reserved_bytes = heap->peak_reserved_bytes;
    out->grow_count = heap->grow_count;
    out->driver_call_count = heap->call_count;
    out->event_count = torch->model.event_count;
    out->wait_count = torch->model.wait_count;
    out->split_count = heap->cut_count;
    out->merge_count = heap->join_count;
    out->has_same_segments &= out->segment_count == out->recorded_segment_count;
}

/* Common to both policies. */
#define MODEL                                                                                 \
    .allocates = true, .keeps_pools_apart = true, .limits_by_device = true, .create = create, \
    .alloc = torch_alloc, .free = torch_free, .advance = torch_advance,                       \
    .block_bytes = torch_block_bytes, .get_statistics = get_statistics, .finish = finish,     \
    .settings = settings

const struct flw_policy flw_policy_pytorch = {.name = "pytorch",
                                              .summary = "PyTorch's allocator, as a model",
                                              .setting_count = SETTING_COUNT,
                                              MODEL};

const struct flw_policy flw_policy_pytorch_expandable = {
    .name = "pytorch-expandable",
    .summary = "the same with expandable segments",
    .is_supported = flw_pytorch_heap_can_expand,
    .variant = EXPANDABLE_SEGMENTS,
    .setting_count = EXPANDABLE_SEGMENTS, /* all but that one, which is on */
    MODEL};
#undef MODEL
