/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the lines of a text that precede a record, and checking their order.
 */
#include "trace/formats/textstacks.h"

#include <inttypes.h>

static bool fail_memory(struct flw_textstacks *r)
{
    return flw_line_fail(r->line, "no memory to hold the trace");
}

bool flw_textstacks_read_frame(struct flw_textstacks *r)
{
    struct flw_stacks *stacks = &r->build->trace->stacks;
    struct flw_frame frame;
    char text[FLW_STACK_TEXT_BYTES];
    uint64_t line;
    uint32_t number;
    size_t bytes;
    if (r->new_stack != 0) {
        return flw_line_fail(r->line, "the record that has stack=%" PRIu32 " is to follow",
                             r->new_stack);
    }
    if (!flw_line_take_column(r->line, &line)) {
        return false;
    }
    if (line > UINT32_MAX) {
        return flw_line_fail(r->line, "no line of a file");
    }
    frame.line = (uint32_t)line;
    for (int i = 0; i < 2; i++) {
        if (!flw_line_take_space(r->line) ||
            !flw_line_take_text(r->line, text, sizeof text, &bytes)) {
            return false;
        }
        if (!flw_stacks_add_text(stacks, text, bytes, i == 0 ? &frame.function : &frame.file)) {
            return fail_memory(r);
        }
    }
    size_t next = stacks->frame_count;
    if (!flw_stacks_put_frame(stacks, &frame, &number)) {
        return fail_memory(r);
    }
    return number == next ? flw_line_take_end(r->line)
                          : flw_line_fail(r->line, "the frame is frame %" PRIu32, number);
}

/* Read a text: the number plus 1; 0: none. */
static bool take_said(struct flw_textstacks *r, uint32_t *out)
{
    char text[FLW_STACK_TEXT_BYTES];
    size_t bytes;
    *out = 0;
    if (!flw_line_take_space(r->line)) {
        return false;
    }
    if (flw_line_accept(r->line, "-")) {
        return true;
    }
    if (!flw_line_take_text(r->line, text, sizeof text, &bytes)) {
        return false;
    }
    if (!flw_stacks_add_text(&r->build->trace->stacks, text, bytes, out)) {
        return fail_memory(r);
    }
    *out += 1;
    return true;
}

bool flw_textstacks_read_remark(struct flw_textstacks *r)
{
    struct flw_trace_remark remark = {0};
    if (!take_said(r, &remark.compile_context) || !take_said(r, &remark.user_metadata)) {
        return false;
    }
    if (r->has_new_remark || r->met_frames != r->build->trace->stacks.frame_count ||
        r->new_stack != 0 || flw_trace_remark_is(&remark, &r->remark)) {
        return flw_line_fail(r->line, "a remark is the one before it, or not before an event");
    }
    r->remark = remark;
    r->has_new_remark = true;
    return flw_line_take_end(r->line);
}

static bool take_frames(struct flw_textstacks *r, uint32_t *frames, size_t *out_count)
{
    size_t count = 0;
    do {
        uint64_t frame;
        if (!flw_line_take_column(r->line, &frame)) {
            return false;
        }
        if (count == FLW_STACK_DEPTH_MOST) {
            return flw_line_fail(r->line, "a stack of more than %d frames", FLW_STACK_DEPTH_MOST);
        }
        if (frame > r->met_frames || frame >= r->build->trace->stacks.frame_count) {
            return flw_line_fail(r->line, "frame %" PRIu64 " where %" PRIu32 " is the next new one",
                                 frame, r->met_frames);
        }
        r->met_frames += frame == r->met_frames;
        frames[count++] = (uint32_t)frame;
    } while (r->line->at < r->line->end);
    *out_count = count;
    return true;
}

bool flw_textstacks_read_stack(struct flw_textstacks *r)
{
    struct flw_stacks *stacks = &r->build->trace->stacks;
    uint32_t frames[FLW_STACK_DEPTH_MOST], number;
    size_t count = 0, next = stacks->stack_count == 0 ? 1 : stacks->stack_count;
    if (!take_frames(r, frames, &count)) {
        return false;
    }
    if (r->met_frames != stacks->frame_count || r->new_stack != 0) {
        return flw_line_fail(r->line, "a frame or a stack before it is not used");
    }
    if (!flw_stacks_add(stacks, frames, count, &number)) {
        return fail_memory(r);
    }
    r->new_stack = number;
    return number == next || flw_line_fail(r->line, "the stack is stack %" PRIu32, number);
}

bool flw_textstacks_take_stack(struct flw_textstacks *r, uint32_t *out)
{
    const struct flw_stacks *stacks = &r->build->trace->stacks;
    if (!flw_line_take_keyed(r->line, " stack=", out)) {
        return false;
    }
    if (r->met_frames != stacks->frame_count || (r->new_stack != 0 && r->new_stack != *out)) {
        return flw_line_fail(r->line,
                             "what is said of a stack is not used by the record behind it");
    }
    r->new_stack = 0;
    return *out == 0 || *out < stacks->stack_count ||
           flw_line_fail(r->line, "stack %" PRIu32 " is not there yet", *out);
}

bool flw_textstacks_add_remark(struct flw_textstacks *r, size_t event)
{
    r->remark.record = event;
    r->has_new_remark = false;
    return flw_build_add_remark(r->build, &r->remark) || fail_memory(r);
}

bool flw_textstacks_check_end(struct flw_textstacks *r)
{
    bool are_used = r->new_stack == 0 && r->met_frames == r->build->trace->stacks.frame_count &&
                    !r->has_new_remark;
    return are_used || flw_line_fail(r->line, "no record has the last stack or remark");
}
