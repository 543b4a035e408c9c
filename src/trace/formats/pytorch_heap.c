/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading keys of a snapshot, counting the walk's steps, and the heap at the end (segments and their blocks),
 * across versions.
 * Does not: choose a device (pytorch.c), or find the heap at the beginning (history.c).
 */
#include "trace/formats/pytorch_import.h"

/* ---- fields ---- */

bool flw_pytorch_fail_at(struct flw_pytorch_import *import, struct flw_pickle_value container,
                         const char *what)
{
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, container), "%s", what);
}

bool flw_pytorch_fail_memory(struct flw_pytorch_import *import)
{
    return flw_input_fail(import->input, 0, "no memory to hold the trace");
}

bool flw_pytorch_count_step(struct flw_pytorch_import *import)
{
    if (import->steps_left == 0) {
        return flw_input_fail(import->input, 0,
                              "its lists hold more items than the file has bytes");
    }
    import->steps_left--;
    return true;
}

bool flw_pytorch_check_items(struct flw_pytorch_import *import, struct flw_pickle_value list,
                             const char *what)
{
    return !flw_harvest_has_left_out(import->kept, list) || flw_pytorch_fail_at(import, list, what);
}

bool flw_pytorch_get_number(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            enum word word, uint64_t *out)
{
    struct flw_pickle_value value = flw_pytorch_get(import, dict, word);
    *out = value.bits;
    if (value.kind == FLW_PICKLE_UNSIGNED) {
        return true;
    }
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, dict), "\"%s\" is %s",
                          words[word],
                          value.kind == FLW_PICKLE_ABSENT     ? "missing"
                          : value.kind == FLW_PICKLE_NEGATIVE ? "negative"
                                                              : "not a number");
}

bool flw_pytorch_get_number_or(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                               enum word word, uint64_t otherwise, uint64_t *out)
{
    if (flw_pytorch_get(import, dict, word).kind == FLW_PICKLE_ABSENT) {
        *out = otherwise;
        return true;
    }
    return flw_pytorch_get_number(import, dict, word, out);
}

bool flw_pytorch_get_stream(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            uint16_t *out)
{
    uint64_t handle;
    if (!flw_pytorch_get_number_or(import, dict, WORD_STREAM, 0, &handle)) {
        return false;
    }
    return flw_build_add_stream(&import->build, handle, out) ||
           flw_pytorch_fail_at(import, dict,
                               "more than 65535 streams, or the host is out of memory");
}

uint32_t flw_pytorch_get_pool(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                              enum word word)
{
    struct flw_pickle_value pool = flw_pytorch_get(import, dict, word);
    return pool.kind == FLW_PICKLE_PAIR ? (uint32_t)pool.bits + 1 : 0;
}

uint32_t flw_pytorch_get_stack(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    return flw_harvest_stack(import->kept, flw_pytorch_get(import, dict, WORD_FRAMES));
}

bool flw_pytorch_get_device(struct flw_pytorch_import *import, struct flw_pickle_value segment,
                            uint64_t *out)
{
    if (!flw_pytorch_get_number_or(import, segment, WORD_DEVICE, 0, out)) {
        return false;
    }
    return *out < FLW_PYTORCH_DEVICES ||
           flw_pytorch_fail_at(import, segment, "\"device\" is not a device number");
}

/* ---- the heap ---- */

/* Get the requested size: from the history in older versions, from the block in newer ones, else the block's size. */
static bool get_requested(struct flw_pytorch_import *import, struct flw_pickle_value block,
                          uint64_t *out)
{
    uint64_t size_bytes;
    struct flw_pickle_value history = flw_pytorch_get(import, block, WORD_HISTORY);
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, history);
    struct flw_pickle_value latest;
    if (!flw_pytorch_get_number(import, block, WORD_SIZE, &size_bytes)) {
        return false;
    }
    if (flw_harvest_next(import->kept, &cursor, &latest)) {
        return flw_pytorch_get_number_or(import, latest, WORD_REAL_SIZE, size_bytes, out);
    }
    return flw_pytorch_get_number_or(import, block, WORD_REQUESTED_SIZE, size_bytes, out);
}

/* Get the stack of the allocation: from the history in older versions, from the block in newer ones. */
static uint32_t get_stack(struct flw_pytorch_import *import, struct flw_pickle_value block)
{
    struct flw_pickle_value history = flw_pytorch_get(import, block, WORD_HISTORY);
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, history);
    struct flw_pickle_value latest;
    return flw_harvest_next(import->kept, &cursor, &latest) ? flw_pytorch_get_stack(import, latest)
                                                            : flw_pytorch_get_stack(import, block);
}

/* Read a block. *address: address of a block without a recorded one; then the address of the next block. */
static bool read_block(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                       const struct flw_trace_segment *segment, uint64_t *address)
{
    struct flw_trace_block block = {.stream = segment->stream};
    struct flw_pickle_value state = flw_pytorch_get(import, dict, WORD_STATE);
    uint64_t size_bytes;
    if (!flw_pytorch_get_number_or(import, dict, WORD_ADDRESS, *address, &block.address) ||
        !flw_pytorch_get_number(import, dict, WORD_SIZE, &size_bytes)) {
        return false;
    }
    if (__builtin_add_overflow(block.address, size_bytes, address)) {
        return flw_pytorch_fail_at(import, dict, "a block's address and size go beyond 64 bits");
    }
    if (state.kind != FLW_PICKLE_WORD || state.bits < WORD_ACTIVE_ALLOCATED ||
        state.bits > WORD_INACTIVE) {
        return flw_pytorch_fail_at(import, dict, "a block without a known state");
    }
    if (state.bits == WORD_INACTIVE) {
        return true;
    }
    struct flw_history_block last = {.pool = segment->pool,
                                     .stack = get_stack(import, dict),
                                     .waits = state.bits != WORD_ACTIVE_ALLOCATED};
    if (!get_requested(import, dict, &block.size_bytes)) {
        return false;
    }
    last.block = block;
    return flw_history_add_block(&import->history, &last) || flw_pytorch_fail_memory(import);
}

static bool read_segment(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    struct flw_trace_segment segment = {0};
    struct flw_pickle_value type = flw_pytorch_get(import, dict, WORD_SEGMENT_TYPE);
    struct flw_pickle_value expandable = flw_pytorch_get(import, dict, WORD_IS_EXPANDABLE);
    struct flw_pickle_value blocks = flw_pytorch_get(import, dict, WORD_BLOCKS);
    if (!flw_pytorch_get_number(import, dict, WORD_ADDRESS, &segment.address) ||
        !flw_pytorch_get_number(import, dict, WORD_TOTAL_SIZE, &segment.size_bytes) ||
        !flw_pytorch_get_stream(import, dict, &segment.stream)) {
        return false;
    }
    if (segment.size_bytes > UINT64_MAX - segment.address) {
        return flw_pytorch_fail_at(import, dict, "a segment's address and size go beyond 64 bits");
    }
    segment.is_large = type.kind != FLW_PICKLE_WORD || type.bits != WORD_SMALL;
    segment.pool = flw_pytorch_get_pool(import, dict, WORD_SEGMENT_POOL_ID);
    segment.is_expandable = expandable.kind == FLW_PICKLE_BOOL && expandable.bits == 1;
    segment.stack = flw_pytorch_get_stack(import, dict);
    if (!flw_history_add_segment(&import->history, &segment)) {
        return flw_pytorch_fail_memory(import);
    }
    if (!flw_pytorch_check_items(import, blocks, "an item of these blocks is no block")) {
        return false;
    }
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, blocks);
    struct flw_pickle_value block;
    uint64_t address = segment.address;
    while (flw_harvest_next(import->kept, &cursor, &block)) {
        if (!flw_pytorch_count_step(import) || !read_block(import, block, &segment, &address)) {
            return false;
        }
    }
    return true;
}

bool flw_pytorch_read_segments(struct flw_pytorch_import *import)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->segments);
    struct flw_pickle_value dict;
    uint64_t device;
    while (flw_harvest_next(import->kept, &cursor, &dict)) {
        if (!flw_pytorch_count_step(import) || !flw_pytorch_get_device(import, dict, &device)) {
            return false;
        }
        if (device == (uint64_t)import->device && !read_segment(import, dict)) {
            return false;
        }
    }
    return true;
}
