/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: parsing names as frames, and walking the slices thread by thread.
 */
#include "trace/formats/kineto.h"

#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "trace/trace/largearray.h"

/* ---- names ---- */

/* Parse the 32-bit number between the character `before` and `end`. Returns the place of `before`, or NULL. */
static const char *take_line(const char *text, const char *end, char before, uint32_t *out)
{
    const char *begin = end;
    uint64_t value = 0;
    while (begin > text && begin[-1] >= '0' && begin[-1] <= '9') {
        begin--;
    }
    for (const char *at = begin; at < end && value <= UINT32_MAX; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
    }
    bool is_line = begin > text && begin < end && begin[-1] == before && value <= UINT32_MAX;
    *out = is_line ? (uint32_t)value : 0;
    return is_line ? begin - 1 : NULL;
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
    return flw_intern_add_text(&slices->stacks->texts, text, bytes, out);
}

static bool add_frame(struct flw_kinetostacks *slices, char *text, uint32_t *out_frame)
{
    static const char mark[] = "): ";
    struct flw_frame frame = {0};
    const char *paren = strstr(text, mark);
    const char *file_end = paren != NULL ? take_line(text, paren, '(', &frame.line) : NULL;
    const char *function = file_end != NULL ? paren + strlen(mark) : text;
    if (file_end == NULL) {
        cut_address(text);
        file_end = text;
    }
    return add_text(slices, function, strlen(function), &frame.function) &&
           add_text(slices, text, (size_t)(file_end - text), &frame.file) &&
           flw_intern_add(&slices->stacks->frames, &frame, sizeof frame, out_frame);
}

bool flw_kinetostacks_add_place(struct flw_kinetostacks *slices, char *text, uint32_t *out_file,
                                uint32_t *out_line)
{
    const char *colon = take_line(text, text + strlen(text), ':', out_line);
    if (colon == NULL || colon == text) {
        *out_line = 0;
        return true;
    }
    return add_text(slices, text, (size_t)(colon - text), out_file);
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
        if (*at != '\0' && is_whole && !add_frame(slices, at, &frames[count++])) {
            return false;
        }
    }
    return flw_stacks_add(slices->stacks, frames, count, out_stack);
}

/* ---- slices ---- */

bool flw_kinetostacks_add_slice(struct flw_kinetostacks *slices,
                                const struct flw_kineto_slice *slice, char *name)
{
    if (slices->count >= UINT32_MAX ||
        !FLW_LARGEARRAY_FITS(slices->slices, slices->count, slices->room)) {
        return false;
    }
    struct flw_kineto_slice *added = &slices->slices[slices->count];
    *added = *slice;
    added->link = (uint32_t)slices->count++;
    return add_frame(slices, name, &added->frame);
}

/* Order by thread, then by begin; of equal begins the longest first, then file order. */
static int compare_slices(const void *a, const void *b)
{
    const struct flw_kineto_slice *x = a, *y = b;
    int order = flw_compare_u32(&x->thread, &y->thread);
    order = order != 0 ? order : flw_compare_u64(&x->begin_ns, &y->begin_ns);
    order = order != 0 ? order : flw_compare_u64(&y->end_ns, &x->end_ns);
    return order != 0 ? order : flw_compare_u32(&x->link, &y->link);
}

/* Return the number of the slice, or of the innermost one around it, that is on the thread and lasts until `end_ns`;
 * each plus 1; 0: none. */
static uint32_t lasting(const struct flw_kinetostacks *slices, size_t number, uint32_t thread,
                        uint64_t end_ns)
{
    while (number > 0 && (slices->slices[number - 1].thread != thread ||
                          slices->slices[number - 1].end_ns < end_ns)) {
        number = slices->slices[number - 1].link;
    }
    return (uint32_t)number;
}

/* A slice that ends after the one around it is a sibling: with clocks of whole microseconds, consecutive slices may
 * share a moment. */
void flw_kinetostacks_begin(struct flw_kinetostacks *slices)
{
    FLW_SORT(slices->slices, slices->count, compare_slices);
    for (size_t i = 0; i < slices->count; i++) {
        struct flw_kineto_slice *slice = &slices->slices[i];
        slice->link = lasting(slices, i, slice->thread, slice->end_ns);
    }
    slices->next = 0;
}

/* Return the slice's frame, at the line of the enclosed call if that is known. */
static bool place_frame(struct flw_kinetostacks *slices, const struct flw_kineto_slice *slice,
                        const struct flw_kineto_slice *called, uint32_t *out_frame)
{
    struct flw_frame frame = *flw_stacks_frame(slices->stacks, slice->frame);
    *out_frame = slice->frame;
    if (called == NULL || called->caller_line == 0 || called->caller_file != frame.file) {
        return true;
    }
    frame.line = called->caller_line;
    return flw_intern_add(&slices->stacks->frames, &frame, sizeof frame, out_frame);
}

bool flw_kinetostacks_find(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns,
                           uint32_t *out_stack)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], callers = 0;
    const struct flw_kineto_slice *called = NULL; /* the Python call below the present one */
    size_t count = 0;
    while (slices->next < slices->count && (slices->slices[slices->next].thread < thread ||
                                            (slices->slices[slices->next].thread == thread &&
                                             slices->slices[slices->next].begin_ns <= time_ns))) {
        slices->next++;
    }
    for (uint32_t number = lasting(slices, slices->next, thread, time_ns);
         number > 0 && count < FLW_STACK_DEPTH_MOST;) {
        const struct flw_kineto_slice *slice = &slices->slices[number - 1];
        if (!place_frame(slices, slice, called, &frames[count++])) {
            return false;
        }
        called = slice->is_python ? slice : called;
        callers = callers == 0 ? slice->stack : callers;
        number = slice->link;
    }
    if (called ==
        NULL) { /* no slice has the code: append the callers of the innermost operator with any */
        struct flw_stack_walk walk = flw_stacks_walk(slices->stacks, callers);
        while (count < FLW_STACK_DEPTH_MOST && flw_stacks_next(&walk, &frames[count])) {
            count++;
        }
    }
    return flw_stacks_add(slices->stacks, frames, count, out_stack);
}

void flw_kinetostacks_finish(struct flw_kinetostacks *slices)
{
    flw_largearray_free(slices->slices, slices->room, sizeof *slices->slices);
    *slices = (struct flw_kinetostacks){0};
}
