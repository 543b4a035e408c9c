/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace/stacks.h"

#include <stdlib.h>
#include <string.h>

bool flw_stacks_add_frame(struct flw_stacks *stacks, const char *function, const char *file,
                          uint32_t line, uint32_t *out_frame)
{
    struct flw_frame frame = {.line = line};
    return flw_intern_add_text(&stacks->texts, function, strlen(function), &frame.function) &&
           flw_intern_add_text(&stacks->texts, file, strlen(file), &frame.file) &&
           flw_intern_add(&stacks->frames, &frame, sizeof frame, out_frame);
}

#define NUMBER_BYTES 5 /* of 7 bits each */

static unsigned char *put_number(unsigned char *at, uint32_t number)
{
    for (; number >= 0x80; number >>= 7) {
        *at++ = (unsigned char)(number | 0x80);
    }
    *at++ = (unsigned char)number;
    return at;
}

bool flw_stacks_add(struct flw_stacks *stacks, const uint32_t *frames, size_t count,
                    uint32_t *out_stack)
{
    unsigned char bytes[FLW_STACK_DEPTH_MOST * NUMBER_BYTES], *end = bytes;
    for (size_t i = 0; i < count && i < FLW_STACK_DEPTH_MOST; i++) {
        end = put_number(end, frames[i]);
    }
    *out_stack = 0;
    return end == bytes ||
           ((stacks->lists.count > 0 || flw_intern_add(&stacks->lists, bytes, 0, out_stack)) &&
            flw_intern_add(&stacks->lists, bytes, (size_t)(end - bytes), out_stack));
}

void flw_stacks_seal(struct flw_stacks *stacks)
{
    flw_addressmap_finish(&stacks->frames.places);
    flw_addressmap_finish(&stacks->lists.places);
}

struct flw_stack_walk flw_stacks_walk(const struct flw_stacks *stacks, uint32_t stack)
{
    struct flw_stack_walk walk = {NULL, NULL};
    if (stack != 0) {
        walk.at = flw_intern_at(&stacks->lists, stack);
        walk.end = walk.at + flw_intern_size(&stacks->lists, stack);
    }
    return walk;
}

static bool is_walkable(const struct flw_stacks *stacks, uint32_t stack)
{
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    uint32_t frame, depth = 0;
    bool is_whole = walk.at < walk.end && walk.end[-1] < 0x80;
    while (is_whole && flw_stacks_next(&walk, &frame)) {
        is_whole = frame < stacks->frames.count && ++depth <= FLW_STACK_DEPTH_MOST;
    }
    return is_whole;
}

bool flw_stacks_are_valid(const struct flw_stacks *stacks)
{
    bool is_valid = stacks->lists.count != 1;
    for (uint32_t i = 0; is_valid && i < stacks->texts.count; i++) {
        is_valid = flw_intern_size(&stacks->texts, i) <= FLW_STACK_TEXT_BYTES + 1;
    }
    for (uint32_t i = 0; is_valid && i < stacks->frames.count; i++) {
        const struct flw_frame *frame = flw_stacks_frame(stacks, i);
        is_valid = frame->function < stacks->texts.count && frame->file < stacks->texts.count;
    }
    for (uint32_t i = 1; is_valid && i < stacks->lists.count; i++) {
        is_valid = is_walkable(stacks, i);
    }
    return is_valid;
}

void flw_stacks_finish(struct flw_stacks *stacks)
{
    flw_intern_finish(&stacks->texts);
    flw_intern_finish(&stacks->frames);
    flw_intern_finish(&stacks->lists);
}

/* ---- in the order of first use ---- */

bool flw_stack_order_begin(struct flw_stack_order *order)
{
    order->stack_numbers = calloc(order->stacks->lists.count + 1, sizeof *order->stack_numbers);
    order->frame_numbers = calloc(order->stacks->frames.count + 1, sizeof *order->frame_numbers);
    if (order->stack_numbers == NULL || order->frame_numbers == NULL) {
        flw_stack_order_finish(order);
        return false;
    }
    return true;
}

static bool meet_stack(struct flw_stack_order *order, uint32_t stack)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], frame;
    size_t count = 0;
    bool goes_on = true;
    struct flw_stack_walk walk = flw_stacks_walk(order->stacks, stack);
    while (goes_on && flw_stacks_next(&walk, &frame)) {
        if (order->frame_numbers[frame] == 0) {
            order->frame_numbers[frame] = ++order->frame_count;
            goes_on = order->put_frame == NULL ||
                      order->put_frame(order->context, flw_stacks_frame(order->stacks, frame));
        }
        frames[count++] = order->frame_numbers[frame] - 1;
    }
    order->stack_numbers[stack] = ++order->stack_count;
    return goes_on && (order->put_stack == NULL || order->put_stack(order->context, frames, count));
}

bool flw_stack_order_take(struct flw_stack_order *order, uint32_t stack, uint32_t *out_number)
{
    bool goes_on = stack == 0 || order->stack_numbers[stack] != 0 || meet_stack(order, stack);
    *out_number = stack == 0 ? 0 : order->stack_numbers[stack];
    return goes_on;
}

void flw_stack_order_finish(struct flw_stack_order *order)
{
    free(order->stack_numbers);
    free(order->frame_numbers);
    order->stack_numbers = NULL;
    order->frame_numbers = NULL;
}
