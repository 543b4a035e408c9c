/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

#include "common/symbols.h"
#include "common/tool_host.h"

#define INLINED_MOST 16 /* functions at one instruction */

struct naming {
    const struct flw_stacks *from;
    struct flw_stacks to;
    struct flw_modules modules;
    uint32_t *list;   /* frames of `to` that replace the frames of `from`, in order */
    uint32_t *firsts; /* by frame of `from`: the first one in the list */
    size_t list_count, list_room, named_count;
    bool has_memory;
};

/* Return the length of the path in "/usr/lib/libx.so+0x1234"; 0 for other texts. */
static size_t split(const char *file, uint64_t *out_offset)
{
    const char *plus = strrchr(file, '+');
    char *end;
    if (plus == NULL || file[0] != '/' || strncmp(plus, "+0x", 3) != 0) {
        return 0;
    }
    *out_offset = strtoull(plus + 3, &end, 16);
    return *end == '\0' && *out_offset > 0 ? (size_t)(plus - file) : 0;
}

static void put(struct naming *naming, const char *function, const char *file, uint32_t line)
{
    uint32_t frame = 0;
    naming->has_memory &= flw_stacks_add_frame(&naming->to, function, file, line, &frame);
    FLW_HOST_ADD(naming->list, naming->list_count, naming->list_room, frame);
}

static void expand(struct naming *naming, const struct flw_frame *frame)
{
    struct flw_symbol_place places[INLINED_MOST];
    const char *function = flw_stacks_text(naming->from, frame->function);
    const char *file = flw_stacks_text(naming->from, frame->file);
    uint64_t offset = 0;
    size_t bytes = split(file, &offset), count = 0;
    size_t module = bytes > 0 ? flw_modules_add(&naming->modules, file, bytes) : SIZE_MAX;
    struct flw_symbols *symbols = flw_modules_open(&naming->modules, module);
    if (symbols != NULL) { /* the call is before its return address */
        count = flw_symbols_places(symbols, offset - 1, places, INLINED_MOST);
    }
    for (size_t i = 0; i < count; i++) {
        bool is_outer = i + 1 == count;
        bool is_told = is_outer && function[0] != '\0' && strncmp(function, "_Z", 2) != 0;
        const char *name = places[i].function != NULL ? places[i].function : "";
        put(naming, is_told ? function : name, places[i].file != NULL ? places[i].file : file,
            places[i].line);
    }
    if (count == 0) {
        put(naming, function, file, frame->line);
    }
    naming->named_count += count > 0;
}

/* Return the number of the stack with named frames. */
static uint32_t move_stack(struct naming *naming, uint32_t stack)
{
    static uint32_t frames[FLW_STACK_DEPTH_MOST * INLINED_MOST];
    struct flw_stack_walk walk = flw_stacks_walk(naming->from, stack);
    size_t count = 0;
    uint32_t number = 0;
    for (uint32_t frame; flw_stacks_next(&walk, &frame);) {
        const uint32_t *list = naming->list, *firsts = naming->firsts;
        for (uint32_t i = firsts[frame]; list != NULL && i < firsts[frame + 1]; i++) {
            frames[count++] = list[i];
        }
    }
    naming->has_memory &= flw_stacks_add(&naming->to, frames, count, &number);
    return number;
}

/* Replace the trace's stacks by the named ones. */
static void take_over(struct flw_trace *trace, struct naming *naming, const uint32_t *numbers)
{
    for (size_t i = 0; i < trace->record_stack_count; i++) {
        trace->record_stacks[i] = numbers[trace->record_stacks[i]];
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        trace->segments[i].stack = numbers[trace->segments[i].stack];
    }
    flw_stacks_finish(&trace->stacks);
    flw_stacks_seal(&naming->to);
    trace->stacks = naming->to;
    naming->to = (struct flw_stacks){0};
}

size_t flw_names_find(struct flw_trace *trace, bool *out_has_memory)
{
    struct naming naming = {.from = &trace->stacks, .has_memory = true};
    size_t stack_count = trace->stacks.lists.count, frame_count = trace->stacks.frames.count;
    FLW_LOCAL uint32_t *numbers = flw_host_alloc(stack_count + 1, sizeof *numbers);
    naming.firsts = flw_host_alloc(frame_count + 1, sizeof *naming.firsts);
    for (size_t i = 0; i < frame_count; i++) {
        expand(&naming, flw_stacks_frame(&trace->stacks, i));
        naming.firsts[i + 1] = (uint32_t)naming.list_count;
    }
    for (size_t i = 1; i < stack_count; i++) {
        numbers[i] = move_stack(&naming, (uint32_t)i);
    }
    if (naming.has_memory && naming.named_count > 0) {
        take_over(trace, &naming, numbers);
    }
    flw_modules_finish(&naming.modules);
    flw_stacks_finish(&naming.to);
    flw_host_free(naming.firsts);
    flw_host_free(naming.list);
    *out_has_memory = naming.has_memory;
    return naming.has_memory ? naming.named_count : 0;
}
