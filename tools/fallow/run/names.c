/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

#include "common/symbols.h"
#include "common/tool_host.h"

#define INLINED_MOST 16 /* functions at one instruction */

/* The frames that replace a frame: `count` of `list` from `first` on. */
struct expansion {
    uint32_t first, count;
};

struct naming {
    const struct flw_stacks *from;
    struct flw_stacks to;
    struct flw_modules modules;
    struct expansion *expansions; /* by frame */
    uint32_t *list;
    size_t list_count, list_room, named_count;
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

static bool put(struct naming *naming, const char *function, const char *file, uint32_t line)
{
    uint32_t frame;
    if (!flw_stacks_add_frame(&naming->to, function, file, line, &frame)) {
        return false;
    }
    FLW_HOST_GROW(naming->list, naming->list_room, naming->list_count + 1);
    naming->list[naming->list_count++] = frame;
    return true;
}

static bool expand(struct naming *naming, const struct flw_frame *frame)
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
        const char *name = places[i].function != NULL ? places[i].function : "";
        const char *source = places[i].file != NULL ? places[i].file : file;
        bool is_told = is_outer && function[0] != '\0' && strncmp(function, "_Z", 2) != 0;
        if (!put(naming, is_told ? function : name, source, places[i].line)) {
            return false;
        }
    }
    naming->named_count += count > 0;
    return count > 0 || put(naming, function, file, frame->line);
}

static bool expand_all(struct naming *naming)
{
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < naming->from->frame_count; i++) {
        naming->expansions[i].first = (uint32_t)naming->list_count;
        has_memory = expand(naming, &naming->from->frames[i]);
        naming->expansions[i].count = (uint32_t)naming->list_count - naming->expansions[i].first;
    }
    return has_memory;
}

static bool move_stack(struct naming *naming, uint32_t stack, uint32_t *out)
{
    static uint32_t frames[FLW_STACK_DEPTH_MOST * INLINED_MOST];
    struct flw_stack_walk walk = flw_stacks_walk(naming->from, stack);
    size_t count = 0;
    for (uint32_t frame; flw_stacks_next(&walk, &frame);) {
        const struct expansion *expansion = &naming->expansions[frame];
        memcpy(&frames[count], &naming->list[expansion->first],
               expansion->count * sizeof frames[0]);
        count += expansion->count;
    }
    return flw_stacks_add(&naming->to, frames, count, out);
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
    flw_stacks_settle(&naming->to);
    trace->stacks = naming->to;
    naming->to = (struct flw_stacks){0};
}

static void finish(struct naming *naming)
{
    flw_modules_finish(&naming->modules);
    flw_host_free(naming->expansions);
    flw_host_free(naming->list);
    flw_stacks_finish(&naming->to);
}

size_t flw_names_find(struct flw_trace *trace, bool *out_has_memory)
{
    struct naming naming = {.from = &trace->stacks};
    size_t stack_count = trace->stacks.stack_count;
    uint32_t *numbers = flw_host_alloc(stack_count + 1, sizeof *numbers);
    naming.expansions = flw_host_alloc(trace->stacks.frame_count + 1, sizeof *naming.expansions);
    bool has_memory = expand_all(&naming);
    for (size_t i = 1; has_memory && i < stack_count; i++) {
        has_memory = move_stack(&naming, (uint32_t)i, &numbers[i]);
    }
    size_t named_count = naming.named_count;
    if (has_memory && named_count > 0) {
        take_over(trace, &naming, numbers);
    }
    finish(&naming);
    flw_host_free(numbers);
    *out_has_memory = has_memory;
    return has_memory ? named_count : 0;
}
