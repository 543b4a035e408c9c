/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: parsing names as frames, and walking the slices thread by thread.
 */
#include "trace/formats/kinetostacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "record/array.h"
#include "trace/trace/largearray.h"

/* ---- names ---- */

/* Parse the 32-bit number that ends at `end`. Returns the begin, or NULL if there is none. */
static const char *number_before(const char *text, const char *end, uint32_t *out)
{
    const char *begin = end;
    uint64_t value = 0;
    while (begin > text && begin[-1] >= '0' && begin[-1] <= '9') {
        begin--;
    }
    for (const char *at = begin; at < end && value <= UINT32_MAX; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *out = (uint32_t)value;
    return begin < end && value <= UINT32_MAX ? begin : NULL;
}

/* Remove " at 0x7f2a4c", which identifies an object, so that all objects share a frame. */
static void cut_address(char *text)
{
    char *at = text[0] == '<' ? strstr(text, " at 0x") : NULL;
    if (at != NULL) {
        const char *end = at + strlen(" at 0x");
        end += strspn(end, "0123456789abcdefABCDEF");
        memmove(at, end, strlen(end) + 1);
    }
}

/* Add a text, cut at FLW_STACK_TEXT_BYTES. */
static bool add_text(struct flw_kinetostacks *slices, const char *text, size_t bytes, uint32_t *out)
{
    bytes = bytes < FLW_STACK_TEXT_BYTES ? bytes : FLW_STACK_TEXT_BYTES;
    return flw_stacks_add_text(slices->stacks, text, bytes, out);
}

bool flw_kinetostacks_add_frame(struct flw_kinetostacks *slices, char *text, uint32_t *out_frame)
{
    static const char mark[] = "): ";
    struct flw_frame frame = {0};
    const char *function = text, *file_end = text, *paren = strstr(text, mark);
    const char *number = paren != NULL ? number_before(text, paren, &frame.line) : NULL;
    if (number != NULL && number > text && number[-1] == '(') {
        file_end = number - 1;
        function = paren + strlen(mark);
    } else {
        frame.line = 0;
        cut_address(text);
    }
    return add_text(slices, function, strlen(function), &frame.function) &&
           add_text(slices, text, (size_t)(file_end - text), &frame.file) &&
           flw_stacks_put_frame(slices->stacks, &frame, out_frame);
}

bool flw_kinetostacks_add_place(struct flw_kinetostacks *slices, char *text, uint32_t *out_file,
                                uint32_t *out_line)
{
    const char *number = number_before(text, text + strlen(text), out_line);
    if (number == NULL || number < text + 2 || number[-1] != ':') {
        *out_line = 0;
        return true;
    }
    return add_text(slices, text, (size_t)(number - 1 - text), out_file);
}

/* If the text is cut, the last frame is incomplete and left out. */
bool flw_kinetostacks_add_stack(struct flw_kinetostacks *slices, char *text, bool is_cut,
                                uint32_t *out_stack)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST];
    size_t count = 0;
    char *next = text;
    while (next != NULL && count < FLW_STACK_DEPTH_MOST) {
        char *at = next;
        next = strchr(at, ';');
        if (next != NULL) {
            *next++ = '\0';
        }
        bool is_whole = next != NULL || !is_cut;
        if (*at != '\0' && is_whole && !flw_kinetostacks_add_frame(slices, at, &frames[count++])) {
            return false;
        }
    }
    return flw_stacks_add(slices->stacks, frames, count, out_stack);
}

/* ---- slices ---- */

bool flw_kinetostacks_add_slice(struct flw_kinetostacks *slices,
                                const struct flw_kineto_slice *slice)
{
    if (slices->count >= UINT32_MAX ||
        !FLW_LARGEARRAY_FITS(slices->slices, slices->count, slices->room)) {
        return false;
    }
    slices->slices[slices->count] = *slice;
    slices->slices[slices->count].order = (uint32_t)slices->count;
    slices->count++;
    return true;
}

/* Order by thread, then by begin; of equal begins the longest first, then file order. */
static int compare_slices(const void *a, const void *b)
{
    const struct flw_kineto_slice *x = a, *y = b;
    int order = flw_compare_u32(&x->thread, &y->thread);
    order = order != 0 ? order : flw_compare_u64(&x->begin_ns, &y->begin_ns);
    order = order != 0 ? order : flw_compare_u64(&y->end_ns, &x->end_ns);
    return order != 0 ? order : flw_compare_u32(&x->order, &y->order);
}

void flw_kinetostacks_begin(struct flw_kinetostacks *slices)
{
    if (slices->count > 0) {
        qsort(slices->slices, slices->count, sizeof *slices->slices, compare_slices);
    }
    slices->next = 0;
    slices->open_count = 0;
}

static struct flw_kineto_slice *innermost(const struct flw_kinetostacks *slices)
{
    return slices->open_count == 0 ? NULL : &slices->slices[slices->open[slices->open_count - 1]];
}

/* Close slices of other threads and those that ended before `time_ns`. */
static void close_until(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns)
{
    const struct flw_kineto_slice *last;
    while ((last = innermost(slices)) != NULL &&
           (last->thread != thread || last->end_ns < time_ns)) {
        slices->open_count--;
    }
}

/* Open slices that have begun. A slice that ends after the one around it is a sibling: with clocks of whole
 * microseconds, consecutive slices may share a moment. */
static bool open_until(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns)
{
    for (; slices->next < slices->count; slices->next++) {
        const struct flw_kineto_slice *slice = &slices->slices[slices->next];
        if (slice->thread > thread || (slice->thread == thread && slice->begin_ns > time_ns)) {
            break;
        }
        close_until(slices, slice->thread, slice->end_ns);
        if (!FLW_ARRAY_FITS(slices->open, slices->open_count, slices->open_room)) {
            return false;
        }
        slices->open[slices->open_count++] = slices->next;
    }
    close_until(slices, thread, time_ns);
    return true;
}

/* Return the slice's frame, at the line of the enclosed call if that is known. */
static bool place_frame(struct flw_kinetostacks *slices, const struct flw_kineto_slice *slice,
                        const struct flw_kineto_slice *called, uint32_t *out_frame)
{
    struct flw_frame frame = slices->stacks->frames[slice->frame];
    *out_frame = slice->frame;
    if (called == NULL || called->caller_line == 0 || called->caller_file != frame.file) {
        return true;
    }
    frame.line = called->caller_line;
    return flw_stacks_put_frame(slices->stacks, &frame, out_frame);
}

/* After the frames of operators, append the callers of the innermost operator that has any. */
static size_t append_callers(const struct flw_kinetostacks *slices, uint32_t stack,
                             uint32_t *frames, size_t count)
{
    struct flw_stack_walk walk = flw_stacks_walk(slices->stacks, stack);
    while (count < FLW_STACK_DEPTH_MOST && flw_stacks_next(&walk, &frames[count])) {
        count++;
    }
    return count;
}

bool flw_kinetostacks_find(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns,
                           uint32_t *out_stack)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], callers = 0;
    const struct flw_kineto_slice *called = NULL; /* the Python call below the present one */
    size_t count = 0;
    *out_stack = 0;
    if (!open_until(slices, thread, time_ns)) {
        return false;
    }
    for (size_t i = slices->open_count; i > 0 && count < FLW_STACK_DEPTH_MOST; i--) {
        const struct flw_kineto_slice *slice = &slices->slices[slices->open[i - 1]];
        if (!place_frame(slices, slice, called, &frames[count++])) {
            return false;
        }
        called = slice->is_python ? slice : called;
        callers = callers == 0 ? slice->stack : callers;
    }
    if (called == NULL) { /* otherwise the slices contain the code */
        count = append_callers(slices, callers, frames, count);
    }
    return flw_stacks_add(slices->stacks, frames, count, out_stack);
}

void flw_kinetostacks_finish(struct flw_kinetostacks *slices)
{
    flw_largearray_free(slices->slices, slices->room, sizeof *slices->slices);
    free(slices->open);
    *slices = (struct flw_kinetostacks){0};
}
