/* SPDX-License-Identifier: Apache-2.0 */
#include "report/owner.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "common/tool_host.h"

#define NAME_BYTES 2100 /* two texts of a trace, and a number */

enum place {
    PLACE_PROGRAM,
    PLACE_PACKAGE,
    PLACE_FRAMEWORK,
    PLACE_NOT_PYTHON
};

/* Windows' paths are told as others'. */
static bool has_folder(const char *file, const char *folder)
{
    size_t bytes = strlen(folder);
    if (strncmp(file, folder + 1, bytes - 1) == 0) {
        return true; /* a path that is not absolute */
    }
    for (const char *at = file; *at != '\0'; at++) {
        size_t i = 0;
        while (i < bytes && (at[i] == folder[i] || (at[i] == '\\' && folder[i] == '/'))) {
            i++;
        }
        if (i == bytes) {
            return true;
        }
    }
    return false;
}

static bool has_any(const char *file, const char *const *folders)
{
    while (*folders != NULL && !has_folder(file, *folders)) {
        folders++;
    }
    return *folders != NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Generated code has no file, or one in a cache. */
static enum place place_of(const char *file)
{
    static const char *const frameworks[] = {"/torch/",         "/triton/",          "/numpy/",
                                             "/torchinductor_", "/functorch/",       "/importlib/",
                                             "/contextlib.py",  "/multiprocessing/", NULL};
    static const char *const packages[] = {"/site-packages/", "/dist-packages/", NULL};
    static const char *const standard[] = {"/lib/python", "/Lib/", "/cpython-", NULL};
    if (file[0] == '<') {
        return PLACE_FRAMEWORK; /* <string>, <frozen ...>, <eval_with_key> */
    }
    if (!ends_with(file, ".py")) {
        return PLACE_NOT_PYTHON;
    }
    if (has_any(file, packages)) {
        const char *inside = strstr(file, "-packages");
        return has_any(inside, frameworks) ? PLACE_FRAMEWORK : PLACE_PACKAGE;
    }
    return has_any(file, frameworks) || has_any(file, standard) ? PLACE_FRAMEWORK : PLACE_PROGRAM;
}

/* The identifier that ends at `end`; how long it is. */
static size_t word_before(const char *text, const char *end, const char **out_begin)
{
    const char *begin = end;
    while (begin > text && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) {
        begin--;
    }
    *out_begin = begin;
    return (size_t)(end - begin);
}

/* torch::autograd::generated::MmBackward0::apply(...) */
static bool is_node(const char *function, char *out, size_t room)
{
    const char *begin, *apply = strstr(function, "::apply(");
    if (apply == NULL || strstr(function, "autograd::") == NULL) {
        return false;
    }
    size_t bytes = word_before(function, apply, &begin);
    snprintf(out, room, "%.*s", (int)flw_min(bytes, room), begin);
    return bytes > 0;
}

/* at::_ops::bmm::call(...) */
static bool is_operator(const char *function, char *out, size_t room)
{
    static const char prefix[] = "at::_ops::";
    if (strncmp(function, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    const char *name = function + sizeof prefix - 1;
    size_t bytes = strcspn(name, ":");
    snprintf(out, room, "aten::%.*s", (int)flw_min(bytes, room), name);
    return bytes > 0;
}

/* What a frame is worth, told once a frame. */
enum worth {
    WORTH_NOTHING,
    WORTH_PROGRAM,
    WORTH_PACKAGE,
    WORTH_NODE,
    WORTH_OPERATOR,
    WORTH_COUNT
};

struct frame_name {
    enum worth worth;
    uint32_t text; /* in the owners' names */
};

static struct frame_name name_frame(struct flw_owners *owners, const struct flw_stacks *stacks,
                                    const struct flw_frame *frame)
{
    struct frame_name name = {WORTH_NOTHING, 0};
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    enum place place = place_of(file);
    char text[NAME_BYTES];
    if (place == PLACE_PROGRAM || place == PLACE_PACKAGE) {
        name.worth = place == PLACE_PROGRAM ? WORTH_PROGRAM : WORTH_PACKAGE;
        snprintf(text, sizeof text, "%s (%s:%u)", function, file, frame->line);
    } else if (place == PLACE_NOT_PYTHON && is_node(function, text, sizeof text)) {
        name.worth = WORTH_NODE;
    } else if (place == PLACE_NOT_PYTHON && is_operator(function, text, sizeof text)) {
        name.worth = WORTH_OPERATOR;
    }
    uint64_t number = 0;
    if (name.worth != WORTH_NOTHING &&
        !flw_intern_add_text(&owners->names, text, strlen(text), &number)) {
        flw_host_refuse(1, sizeof text);
    }
    name.text = (uint32_t)number;
    return name;
}

/* The text of the stack's owner; 0: not known. */
static uint32_t choose(const struct flw_stacks *stacks, const struct frame_name *names,
                       uint32_t stack)
{
    uint32_t best[WORTH_COUNT] = {0}, frame;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    while (best[WORTH_PROGRAM] == 0 && flw_stacks_next(&walk, &frame)) {
        const struct frame_name *name = &names[frame];
        if (best[name->worth] == 0 || name->worth == WORTH_OPERATOR) { /* the outermost operator */
            best[name->worth] = name->text;
        }
    }
    uint32_t text = 0;
    for (unsigned worth = WORTH_PROGRAM; worth < WORTH_COUNT && text == 0; worth++) {
        text = best[worth];
    }
    return text;
}

static uint32_t owner_of(struct flw_owners *owners, struct flw_addressmap *known, uint32_t text)
{
    if (text == 0) {
        return 0;
    }
    uint32_t owner = flw_addressmap_find(known, text);
    if (owner == FLW_ADDRESSMAP_ABSENT) {
        owner = (uint32_t)owners->count;
        owners->texts[owners->count++] = text;
        if (!flw_addressmap_put(known, text, owner)) {
            flw_host_refuse(1, sizeof *known->slots);
        }
    }
    return owner;
}

void flw_owners_find(struct flw_owners *owners, const struct flw_stacks *stacks)
{
    struct flw_addressmap known = {0};
    uint64_t none;
    *owners = (struct flw_owners){.count = 1};
    owners->of_stack = flw_host_alloc(stacks->stack_count + 1, sizeof *owners->of_stack);
    owners->texts = flw_host_alloc(stacks->frame_count + 1, sizeof *owners->texts);
    struct frame_name *names = flw_host_alloc(stacks->frame_count, sizeof *names);
    if (!flw_intern_add_text(&owners->names, "", 0, &none)) { /* so that 0 is no name */
        flw_host_refuse(1, 1);
    }
    for (size_t i = 0; i < stacks->frame_count; i++) {
        names[i] = name_frame(owners, stacks, &stacks->frames[i]);
    }
    for (size_t i = 1; i < stacks->stack_count; i++) {
        owners->of_stack[i] = owner_of(owners, &known, choose(stacks, names, (uint32_t)i));
    }
    flw_addressmap_finish(&known);
    flw_host_free(names);
}

void flw_owners_finish(struct flw_owners *owners)
{
    flw_intern_finish(&owners->names);
    flw_host_free(owners->of_stack);
    flw_host_free(owners->texts);
    *owners = (struct flw_owners){0};
}

void flw_owners_name(const struct flw_owners *owners, uint32_t owner, char *out, size_t room)
{
    const char *name = flw_intern_text(&owners->names, owners->texts[owner]);
    const char *file = strrchr(name, '(');
    const char *base = file;
    for (const char *at = file; at != NULL && *at != '\0'; at++) {
        base = *at == '/' || *at == '\\' ? at : base;
    }
    if (file == NULL || strchr(file, ':') == NULL) {
        snprintf(out, room, "%s", name);
    } else {
        snprintf(out, room, "%.*s(%s", (int)flw_min((size_t)(file - name), room), name, base + 1);
    }
}
