/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stacks of a trace file during reading: texts, frames and stacks by their numbers in the file, and those of
 * the next chunk's records.
 * Does not: drop records with stacks that were lost in a damaged chunk: these stacks are unknown.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "record/stackids.h"
#include "trace/formats/ftracereader.h"
#include "trace/trace/largearray.h"

/* ---- dictionaries ---- */

/* Add a number, the next one or, after damage, a later one: the numbers between are lost. */
static bool add_number(struct flw_ftracereader *r, struct flw_ftracereader_numbers *numbers,
                       uint64_t number, uint32_t value, const char *what)
{
    bool is_behind_loss = r->problem[0] != '\0' && number > numbers->count && number <= r->offset;
    if (number != numbers->count && !is_behind_loss) {
        return flw_ftracereader_stop(r, "%s %" PRIu64 " where %zu is next", what, number,
                                     numbers->count);
    }
    while (numbers->count <= number) {
        if (!FLW_ARRAY_FITS(numbers->at, numbers->count, numbers->room)) {
            return flw_ftracereader_fail_memory(r);
        }
        numbers->at[numbers->count] = numbers->count < number ? FLW_FTRACEREADER_LOST : value;
        numbers->count++;
    }
    return true;
}

static bool find_number(struct flw_ftracereader *r, const struct flw_ftracereader_numbers *numbers,
                        uint64_t number, const char *what, uint32_t *out)
{
    *out = number < numbers->count ? numbers->at[number] : FLW_FTRACEREADER_LOST;
    return number < numbers->count || r->problem[0] != '\0' ||
           flw_ftracereader_stop(r, "%s %" PRIu64 " is not in the dictionary", what, number);
}

bool flw_ftracereader_take_text(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint64_t number;
    uint32_t text;
    bool is_numbered = flw_wire_get_varint(&body, &number);
    size_t bytes = (size_t)(body.end - body.at);
    if (!is_numbered || bytes > FLW_STACK_TEXT_BYTES || memchr(body.at, '\0', bytes) != NULL) {
        return flw_ftracereader_stop(r, "a text of a frame has no number, a zero byte or over %d",
                                     FLW_STACK_TEXT_BYTES);
    }
    return (flw_stacks_add_text(&r->build.trace->stacks, body.at, bytes, &text) ||
            flw_ftracereader_fail_memory(r)) &&
           add_number(r, &r->stacks.texts, number, text, "text");
}

bool flw_ftracereader_take_frame(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint64_t number, function, file, line;
    struct flw_frame frame;
    uint32_t known = FLW_FTRACEREADER_LOST;
    if (!flw_wire_get_varint(&body, &number) || !flw_wire_get_varint(&body, &function) ||
        !flw_wire_get_varint(&body, &file) || !flw_wire_get_varint(&body, &line) ||
        line > UINT32_MAX) {
        return flw_ftracereader_stop(r, "a frame lacks a number, a text or a line");
    }
    frame.line = (uint32_t)line;
    if (!find_number(r, &r->stacks.texts, function, "text", &frame.function) ||
        !find_number(r, &r->stacks.texts, file, "text", &frame.file)) {
        return false;
    }
    bool is_whole = frame.function != FLW_FTRACEREADER_LOST && frame.file != FLW_FTRACEREADER_LOST;
    if (is_whole && !flw_stacks_put_frame(&r->build.trace->stacks, &frame, &known)) {
        return flw_ftracereader_fail_memory(r);
    }
    return add_number(r, &r->stacks.frames, number, known, "frame");
}

/* Read the frames of a stack as numbers in the file: new inner frames, then outermost frames of the previous stack. */
static bool read_frames(struct flw_ftracereader *r, struct flw_wire_in body)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    uint32_t frames[FLW_STACK_DEPTH_MOST];
    uint64_t shared, frame = 0;
    size_t count = 0;
    bool is_whole = flw_wire_get_varint(&body, &shared) && shared <= stacks->before_count;
    while (is_whole && body.at < body.end) {
        is_whole = flw_wire_get_varint(&body, &frame) && frame < UINT32_MAX &&
                   count + shared < FLW_STACK_DEPTH_MOST;
        if (is_whole) {
            frames[count++] = (uint32_t)frame;
        }
    }
    if (!is_whole || count + shared == 0) {
        return flw_ftracereader_stop(r, "a stack is not 1 to %d frames", FLW_STACK_DEPTH_MOST);
    }
    memmove(stacks->before + count, stacks->before + stacks->before_count - shared,
            shared * sizeof(*frames));
    memcpy(stacks->before, frames, count * sizeof(*frames));
    stacks->before_count = count + shared;
    return true;
}

bool flw_ftracereader_take_stack(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], stack = FLW_FTRACEREADER_LOST;
    uint64_t number;
    bool is_whole = true;
    if (!flw_wire_get_varint(&body, &number) || number == 0) {
        return flw_ftracereader_stop(r, "a stack has no number");
    }
    if (!read_frames(r, body)) {
        return false;
    }
    for (size_t i = 0; i < r->stacks.before_count; i++) {
        if (!find_number(r, &r->stacks.frames, r->stacks.before[i], "frame", &frames[i])) {
            return false;
        }
        is_whole &= frames[i] != FLW_FTRACEREADER_LOST;
    }
    if (is_whole &&
        !flw_stacks_add(&r->build.trace->stacks, frames, r->stacks.before_count, &stack)) {
        return flw_ftracereader_fail_memory(r);
    }
    return add_number(r, &r->stacks.stacks, number - 1, stack, "stack");
}

/* ---- records ---- */

bool flw_ftracereader_take_stacks(struct flw_ftracereader *r, struct flw_wire_in in)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    struct flw_stackids ids = {{0}, 0, {0}};
    uint32_t count = r->frame.record_count;
    stacks->record_count = 0;
    if (count > FLW_FTRACE_PAYLOAD_BYTES) {
        return flw_ftracereader_stop(r, "stacks of more records than a chunk can have");
    }
    if (!FLW_LARGEARRAY_HOLDS(stacks->of_records, count, stacks->record_room)) {
        return flw_ftracereader_fail_memory(r);
    }
    if (!flw_stackids_get(&ids, in, stacks->of_records, count)) {
        return flw_ftracereader_stop(r, "the stacks of records are not as many as there should be");
    }
    stacks->record_count = count;
    stacks->first_event = r->frame.first_event;
    stacks->first_block = r->frame.first_block;
    return true;
}

bool flw_ftracereader_take_remarks(struct flw_ftracereader *r, struct flw_wire_in in)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    uint64_t left = r->frame.record_count, count, compile_context, user_metadata;
    stacks->remark_count = 0;
    while (in.at < in.end) {
        bool is_whole = flw_wire_get_varint(&in, &count) && count > 0 && count <= left &&
                        flw_wire_get_varint(&in, &compile_context) &&
                        compile_context <= UINT32_MAX && flw_wire_get_varint(&in, &user_metadata) &&
                        user_metadata <= UINT32_MAX;
        if (!is_whole) {
            break;
        }
        if (!FLW_ARRAY_FITS(stacks->remarks, stacks->remark_count, stacks->remark_room)) {
            return flw_ftracereader_fail_memory(r);
        }
        stacks->remarks[stacks->remark_count++] = (struct flw_ftracereader_remarks){
            (uint32_t)count, (uint32_t)compile_context, (uint32_t)user_metadata};
        left -= count;
    }
    if (in.at < in.end || left > 0) {
        stacks->remark_count = 0;
        return flw_ftracereader_stop(r, "the remarks are not of as many records as they should be");
    }
    stacks->remark_event = r->frame.first_event;
    stacks->remark_block = r->frame.first_block;
    return true;
}

void flw_ftracereader_begin_records(struct flw_ftracereader *r)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    stacks->next_record = 0;
    stacks->next_remark = 0;
    if (stacks->remark_event != r->frame.first_event ||
        stacks->remark_block != r->frame.first_block) {
        stacks->remark_count = 0;
    }
    if (stacks->first_event != r->frame.first_event ||
        stacks->first_block != r->frame.first_block) {
        stacks->record_count = 0;
    }
}

bool flw_ftracereader_end_records(struct flw_ftracereader *r)
{
    bool are_used = r->stacks.next_record == r->stacks.record_count &&
                    r->stacks.next_remark == r->stacks.remark_count;
    r->stacks.record_count = 0;
    r->stacks.remark_count = 0;
    return are_used ||
           flw_ftracereader_stop(r, "a chunk has fewer records than stacks or remarks are given");
}

/* Find the text of a remark, plus 1. */
static bool find_remark(struct flw_ftracereader *r, uint32_t number, uint32_t *out)
{
    *out = 0;
    bool is_there = number == 0 || find_number(r, &r->stacks.texts, number - 1, "text", out);
    *out = number == 0 || *out == FLW_FTRACEREADER_LOST ? 0 : *out + 1;
    return is_there;
}

/* Read the remark of the next record. */
static bool next_remark(struct flw_ftracereader *r)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    struct flw_ftracereader_remarks none = {0}, *remark = &none;
    if (stacks->next_remark < stacks->remark_count) {
        remark = &stacks->remarks[stacks->next_remark];
        stacks->next_remark += --remark->record_count == 0;
    }
    return find_remark(r, remark->compile_context, &r->remark.compile_context) &&
           find_remark(r, remark->user_metadata, &r->remark.user_metadata);
}

bool flw_ftracereader_next_stack(struct flw_ftracereader *r)
{
    struct flw_ftracereader_stacks *stacks = &r->stacks;
    bool has_one = stacks->next_record < stacks->record_count;
    uint32_t number = has_one ? stacks->of_records[stacks->next_record++] : 0;
    r->stack = 0;
    if (!next_remark(r)) {
        return false;
    }
    if (number == 0) {
        return true;
    }
    bool is_there = find_number(r, &stacks->stacks, number - 1, "stack", &r->stack);
    r->stack = r->stack == FLW_FTRACEREADER_LOST ? 0 : r->stack;
    return is_there;
}

void flw_ftracereader_finish_stacks(struct flw_ftracereader_stacks *stacks)
{
    free(stacks->texts.at);
    free(stacks->frames.at);
    free(stacks->stacks.at);
    free(stacks->remarks);
    flw_largearray_free(stacks->of_records, stacks->record_room, sizeof(*stacks->of_records));
}
