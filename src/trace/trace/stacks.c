/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "trace/trace/largearray.h"

static bool is_same(const struct flw_frame *a, const struct flw_frame *b)
{
    return a->function == b->function && a->file == b->file && a->line == b->line;
}

bool flw_stacks_add_text(struct flw_stacks *stacks, const void *bytes, size_t count,
                         uint32_t *out_text)
{
    uint64_t number = 0;
    bool has_memory = flw_intern_add_text(&stacks->texts, bytes, count, &number);
    *out_text = (uint32_t)number; /* an offset in 4 GiB of texts */
    return has_memory;
}

bool flw_stacks_add_frame(struct flw_stacks *stacks, const char *function, const char *file,
                          uint32_t line, uint32_t *out_frame)
{
    struct flw_frame frame = {.line = line};
    return flw_stacks_add_text(stacks, function, strlen(function), &frame.function) &&
           flw_stacks_add_text(stacks, file, strlen(file), &frame.file) &&
           flw_stacks_put_frame(stacks, &frame, out_frame);
}

bool flw_stacks_put_frame(struct flw_stacks *stacks, const struct flw_frame *frame,
                          uint32_t *out_frame)
{
    uint64_t hash = flw_intern_hash(frame, sizeof *frame);
    uint32_t known;
    while ((known = flw_addressmap_find(&stacks->frame_places, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (is_same(&stacks->frames[known], frame)) {
            *out_frame = known;
            return true;
        }
        hash++; /* two frames with the same hash */
    }
    *out_frame = (uint32_t)stacks->frame_count;
    return stacks->frame_count < FLW_ADDRESSMAP_ABSENT &&
           FLW_LARGEARRAY_FITS(stacks->frames, stacks->frame_count, stacks->frame_room) &&
           flw_addressmap_put(&stacks->frame_places, hash, (uint32_t)stacks->frame_count) &&
           FLW_LARGEARRAY_ADD(stacks->frames, stacks->frame_count, stacks->frame_room, *frame);
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

static bool is_stack(const struct flw_stacks *stacks, uint32_t stack, const unsigned char *bytes,
                     size_t count)
{
    uint64_t begin = stacks->begins[stack];
    return stacks->begins[stack + 1] - begin == count &&
           memcmp(stacks->bytes + begin, bytes, count) == 0;
}

/* Append a stack; the first call also adds stack 0, which has no bytes. */
static bool append(struct flw_stacks *stacks, const unsigned char *bytes, size_t count)
{
    size_t next = stacks->stack_count == 0 ? 1 : stacks->stack_count;
    if (next >= FLW_ADDRESSMAP_ABSENT ||
        !FLW_LARGEARRAY_FITS(stacks->begins, next + 1, stacks->begin_room)) {
        return false;
    }
    while (stacks->byte_room < stacks->byte_count + count) {
        if (!FLW_LARGEARRAY_FITS(stacks->bytes, stacks->byte_room, stacks->byte_room)) {
            return false;
        }
    }
    memcpy(stacks->bytes + stacks->byte_count, bytes, count);
    stacks->byte_count += count;
    stacks->begins[next + 1] = stacks->byte_count;
    stacks->stack_count = next + 1;
    return true;
}

bool flw_stacks_add(struct flw_stacks *stacks, const uint32_t *frames, size_t count,
                    uint32_t *out_stack)
{
    unsigned char bytes[FLW_STACK_DEPTH_MOST * NUMBER_BYTES], *end = bytes;
    uint32_t known;
    for (size_t i = 0; i < count && i < FLW_STACK_DEPTH_MOST; i++) {
        end = put_number(end, frames[i]);
    }
    size_t byte_count = (size_t)(end - bytes);
    *out_stack = 0;
    if (byte_count == 0) {
        return true;
    }
    uint64_t hash = flw_intern_hash(bytes, byte_count);
    while ((known = flw_addressmap_find(&stacks->stack_places, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (is_stack(stacks, known, bytes, byte_count)) {
            *out_stack = known;
            return true;
        }
        hash++; /* two stacks with the same hash */
    }
    if (!append(stacks, bytes, byte_count)) {
        return false;
    }
    *out_stack = (uint32_t)stacks->stack_count - 1;
    return flw_addressmap_put(&stacks->stack_places, hash, *out_stack);
}

void flw_stacks_seal(struct flw_stacks *stacks)
{
    flw_addressmap_finish(&stacks->frame_places);
    flw_addressmap_finish(&stacks->stack_places);
}

struct flw_stack_walk flw_stacks_walk(const struct flw_stacks *stacks, uint32_t stack)
{
    struct flw_stack_walk walk = {NULL, NULL};
    if (stack != 0) {
        walk.at = stacks->bytes + stacks->begins[stack];
        walk.end = stacks->bytes + stacks->begins[stack + 1];
    }
    return walk;
}

static bool is_walkable(const struct flw_stacks *stacks, uint32_t stack)
{
    uint64_t begin = stacks->begins[stack], end = stacks->begins[stack + 1];
    bool is_whole = begin < end && end <= stacks->byte_count && stacks->bytes[end - 1] < 0x80;
    struct flw_stack_walk walk = {NULL, NULL};
    uint32_t frame, depth = 0;
    if (is_whole) {
        walk = flw_stacks_walk(stacks, stack);
    }
    while (is_whole && flw_stacks_next(&walk, &frame)) {
        is_whole = frame < stacks->frame_count && ++depth <= FLW_STACK_DEPTH_MOST;
    }
    return is_whole;
}

static bool texts_are_short(const struct flw_intern *texts)
{
    size_t bytes;
    for (size_t at = 0; at < texts->text_bytes; at += bytes + 1) {
        bytes = strlen(texts->texts + at);
        if (bytes > FLW_STACK_TEXT_BYTES) {
            return false;
        }
    }
    return true;
}

bool flw_stacks_are_valid(const struct flw_stacks *stacks)
{
    bool is_valid = stacks->stack_count != 1 && texts_are_short(&stacks->texts);
    for (size_t i = 0; is_valid && i < stacks->frame_count; i++) {
        const struct flw_frame *frame = &stacks->frames[i];
        is_valid =
            frame->function < stacks->texts.text_bytes && frame->file < stacks->texts.text_bytes;
    }
    for (size_t i = 1; is_valid && i < stacks->stack_count; i++) {
        is_valid = is_walkable(stacks, (uint32_t)i);
    }
    return is_valid;
}

void flw_stacks_finish(struct flw_stacks *stacks)
{
    flw_stacks_seal(stacks);
    flw_intern_finish(&stacks->texts);
    flw_largearray_free(stacks->frames, stacks->frame_room, sizeof *stacks->frames);
    flw_largearray_free(stacks->bytes, stacks->byte_room, 1);
    flw_largearray_free(stacks->begins, stacks->begin_room, sizeof *stacks->begins);
    *stacks = (struct flw_stacks){0};
}

/* ---- in the order of first use ---- */

bool flw_stack_order_begin(struct flw_stack_order *order)
{
    order->stack_numbers = calloc(order->stacks->stack_count + 1, sizeof *order->stack_numbers);
    order->frame_numbers = calloc(order->stacks->frame_count + 1, sizeof *order->frame_numbers);
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
                      order->put_frame(order->context, &order->stacks->frames[frame]);
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
