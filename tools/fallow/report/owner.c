/* SPDX-License-Identifier: Apache-2.0 */
#include "report/owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/analysis.h"
#include "report/heapview.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/frame.h"
#include "common/tool_host.h"

#define NAME_BYTES (2 * FLW_STACK_TEXT_BYTES + 32) /* a function, a file and a line */

/* ---- the rule ---- */

#define RULE                                                                                   \
    "the innermost Python frame outside of torch, packages and the standard library; else of " \
    "a package; else the autograd node or the operator; else the innermost Python frame"
#define NATIVE_RULE \
    "; else the innermost function outside of the system's, CUDA's and Python's libraries"

static bool take_pattern(struct flw_owner_rule *rule, const char *text, bool is_owner)
{
    FLW_HOST_GROW(rule->patterns, rule->pattern_room, rule->pattern_count + 1);
    struct flw_owner_pattern *pattern = &rule->patterns[rule->pattern_count];
    int error = regcomp(&pattern->compiled, text, REG_EXTENDED | REG_NOSUB);
    if (error != 0) {
        char message[200];
        regerror(error, &pattern->compiled, message, sizeof message);
        return flw_complain("--%s '%s': %s", is_owner ? "owner" : "skip", text, message);
    }
    pattern->text = text;
    pattern->is_owner = is_owner;
    rule->pattern_count++;
    return true;
}

bool flw_owner_take_owner(void *rule, const char *pattern)
{
    return take_pattern(rule, pattern, true);
}

bool flw_owner_take_skip(void *rule, const char *pattern)
{
    return take_pattern(rule, pattern, false);
}

bool flw_owner_take_by(void *member, const char *word)
{
    static const char *const words[] = {[FLW_OWNER_BY_FRAME] = "frame",
                                        [FLW_OWNER_BY_FILE] = "file",
                                        [FLW_OWNER_BY_MODULE] = "module",
                                        [FLW_OWNER_BY_PHASE] = "phase"};
    struct flw_owner_rule *rule = member;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            rule->by = (enum flw_owner_by)i;
            return true;
        }
    }
    return flw_complain("--by '%s' is none of frame, file, module and phase", word);
}

bool flw_owner_rule_is_whole(const struct flw_owner_rule *rule)
{
    return rule->by != FLW_OWNER_BY_PHASE || rule->pattern_count == 0 ||
           flw_complain("--owner and --skip need frames, and --by phase uses none");
}

void flw_owner_rule_finish(struct flw_owner_rule *rule)
{
    for (size_t i = 0; i < rule->pattern_count; i++) {
        regfree(&rule->patterns[i].compiled);
    }
    flw_host_free(rule->patterns);
    *rule = (struct flw_owner_rule){0};
}

static bool has_phases(const struct flw_trace *trace)
{
    size_t i = 0;
    while (i < trace->event_count && trace->events[i].op != FLW_TRACE_PHASE_BEGIN) {
        i++;
    }
    return i < trace->event_count;
}

static bool has_code(const struct flw_trace *trace, const struct flw_owner_rule *rule)
{
    return trace->stacks.lists.count != 0 || (rule->by == FLW_OWNER_BY_PHASE && has_phases(trace));
}

/* True if the trace has native frames of the program. In traces of other recorders most native frames are a
 * framework's. */
static bool has_native_frames(const struct flw_trace *trace)
{
    return trace->notes != NULL && strstr(trace->notes, "recorder fallow") != NULL;
}

/* Append "frames that match 'a' or 'b'" for one kind of pattern, if there is any. */
static void say_patterns(const struct flw_owner_rule *rule, bool is_owner, const char *before,
                         const char *behind, FILE *out)
{
    bool is_first = true;
    for (size_t i = 0; i < rule->pattern_count; i++) {
        if (rule->patterns[i].is_owner == is_owner) {
            fprintf(out, "%s'%s'", is_first ? before : " or ", rule->patterns[i].text);
            is_first = false;
        }
    }
    fputs(is_first ? "" : behind, out);
}

char *flw_owner_rule_say(const struct flw_owner_rule *rule, const struct flw_trace *trace)
{
    static const char *const of[] = {[FLW_OWNER_BY_FRAME] = "",
                                     [FLW_OWNER_BY_FILE] = "the file of ",
                                     [FLW_OWNER_BY_MODULE] = "the package or folder of "};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
    if (!has_code(trace, rule)) {
        fputs("the size, since the recording has no call stacks", out);
    } else if (rule->by == FLW_OWNER_BY_PHASE) {
        fputs("the innermost open phase of the recording; else, by the call stack: "
              "backward, optimizer or neither",
              out);
    } else {
        fputs(of[rule->by], out);
        say_patterns(rule, true, "the innermost frame that matches ", "; else ", out);
        fputs(RULE, out);
        fputs(has_native_frames(trace) ? NATIVE_RULE : "", out);
        say_patterns(rule, false, "; never a frame that matches ", "", out);
    }
    if (fclose(out) != 0) {
        flw_host_refuse(1, bytes);
    }
    return text;
}

/* The name of a frame, found once per frame. */
struct frame_name {
    enum flw_frame_kind kind;
    uint32_t text, brief; /* in the owners' names; both 0: the frame names nothing */
};

/* State of the search for owners. */
struct finder {
    struct flw_owners *owners;
    const struct flw_trace *trace;
    const struct flw_owner_rule *rule;
    bool has_native;
    struct flw_addressmap known; /* text -> owner */
    uint32_t *of_stack;          /* by stack: the owner */
    uint32_t of_size[2]
                    [FLW_ANALYSIS_SIZE_BINS]; /* index 1: older than the recording. 0: none yet */
};

static uint32_t intern(struct flw_owners *owners, const char *text)
{
    uint32_t number = 0;
    if (!flw_intern_add_text(&owners->names, text, strlen(text), &number)) {
        flw_host_refuse(1, NAME_BYTES);
    }
    return number;
}

/* Make the full and the short name of a frame in code. */
static void name_code(struct flw_owners *owners, enum flw_owner_by by, const char *function,
                      const char *file, uint32_t line, struct frame_name *out)
{
    char text[NAME_BYTES];
    bool has_file = file[0] != '\0' && strcmp(file, "??") != 0;
    if (!has_file) {
        out->text = out->brief = intern(owners, function);
    } else if (by == FLW_OWNER_BY_FRAME) {
        flw_frame_say_place(function, file, line, text, sizeof text);
        out->text = intern(owners, text);
        flw_frame_say_place(flw_frame_local_name(function), flw_frame_base_name(file), line, text,
                            sizeof text);
        out->brief = intern(owners, text);
    } else if (by == FLW_OWNER_BY_FILE) {
        out->text = intern(owners, file);
        out->brief = intern(owners, flw_frame_base_name(file));
    } else {
        flw_frame_name_module(file, text, sizeof text);
        out->text = out->brief = intern(owners, text);
    }
}

static bool matches(const struct flw_owner_rule *rule, bool is_owner, const char *text)
{
    size_t i = 0;
    while (i < rule->pattern_count &&
           (rule->patterns[i].is_owner != is_owner ||
            regexec(&rule->patterns[i].compiled, text, 0, NULL, 0) != 0)) {
        i++;
    }
    return i < rule->pattern_count;
}

/* Name the pass of a frame for requests outside of recorded phases: of a stack's passes the optimizer is the best. */
static struct frame_name name_pass(const struct finder *finder, const char *function,
                                   const char *file)
{
    bool is_optimizer = flw_frame_has_folder(file, "/torch/optim/");
    bool is_backward = strstr(function, "autograd::Engine::") != NULL ||
                       strstr(function, "autograd::engine::") != NULL ||
                       strstr(function, "_engine_run_backward") != NULL;
    uint32_t text = intern(finder->owners, is_optimizer  ? "optimizer"
                                           : is_backward ? "backward"
                                                         : "neither backward nor optimizer");
    enum flw_frame_kind kind = is_optimizer  ? FLW_FRAME_PROGRAM
                               : is_backward ? FLW_FRAME_PACKAGE
                                             : FLW_FRAME_LIBRARY;
    return (struct frame_name){kind, text, text};
}

static struct frame_name name_frame(const struct finder *finder, const struct flw_frame *frame)
{
    const struct flw_stacks *stacks = &finder->trace->stacks;
    struct frame_name name = {FLW_FRAME_OTHER, 0, 0};
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    char text[NAME_BYTES];
    if (finder->rule->by == FLW_OWNER_BY_PHASE) {
        return name_pass(finder, function, file);
    }
    if (finder->rule->pattern_count != 0) {
        snprintf(text, sizeof text, "%s (%s:%u)", function, file, frame->line);
        if (matches(finder->rule, false, text)) {
            return name;
        }
    }
    bool is_named = finder->rule->pattern_count != 0 && matches(finder->rule, true, text);
    name.kind = is_named ? FLW_FRAME_NAMED
                         : flw_frame_tell(function, file, finder->has_native, text, sizeof text);
    if (name.kind == FLW_FRAME_NODE || name.kind == FLW_FRAME_OPERATOR) {
        name.text = name.brief = intern(finder->owners, text);
    } else if (name.kind != FLW_FRAME_OTHER) {
        name_code(finder->owners, finder->rule->by, function, file, frame->line, &name);
    }
    return name;
}

/* ---- owners ---- */

/* Replace control characters in the short name, because terminals obey such characters. */
static uint32_t clean(struct flw_owners *owners, uint32_t brief)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "%s", flw_intern_text(&owners->names, brief));
    flw_make_plain(text);
    return intern(owners, text);
}

/* Replace an empty name, so that every row of a list has one. */
static uint32_t fill(struct flw_owners *owners, uint32_t name)
{
    return flw_intern_text(&owners->names, name)[0] == '\0' ? intern(owners, "?") : name;
}

static uint32_t add_owner(struct finder *finder, uint32_t text, uint32_t brief)
{
    struct flw_owners *owners = finder->owners;
    text = fill(owners, text);
    uint32_t owner = flw_addressmap_find(&finder->known, text);
    if (owner == FLW_ADDRESSMAP_ABSENT) {
        owner = (uint32_t)owners->count;
        FLW_HOST_GROW(owners->list, owners->room, owners->count + 1);
        owners->list[owners->count++] =
            (struct flw_owner){.text = text, .brief = fill(owners, clean(owners, brief))};
        if (!flw_addressmap_put(&finder->known, text, owner)) {
            flw_host_refuse(1, sizeof *finder->known.slots);
        }
    }
    return owner;
}

static uint32_t add_named(struct finder *finder, const char *name)
{
    uint32_t text = intern(finder->owners, name);
    return add_owner(finder, text, text);
}

/* Choose the frame that owns the requests of the stack. */
static struct frame_name choose(const struct finder *finder, const struct frame_name *names,
                                uint32_t stack)
{
    struct frame_name best = {FLW_FRAME_OTHER, 0, 0};
    enum flw_frame_kind most =
        finder->rule->pattern_count != 0 ? FLW_FRAME_NAMED : FLW_FRAME_PROGRAM;
    struct flw_stack_walk walk = flw_stacks_walk(&finder->trace->stacks, stack);
    uint32_t frame;
    while (best.kind != most && flw_stacks_next(&walk, &frame)) {
        if (flw_frame_is_better(names[frame].kind, best.kind)) {
            best = names[frame];
        }
    }
    return best;
}

static void read_frames(struct finder *finder)
{
    const struct flw_stacks *stacks = &finder->trace->stacks;
    FLW_LOCAL struct frame_name *names = flw_host_alloc(stacks->frames.count, sizeof *names);
    for (size_t i = 0; i < stacks->frames.count; i++) {
        names[i] = name_frame(finder, flw_stacks_frame(stacks, i));
    }
    for (size_t i = 1; i < stacks->lists.count; i++) {
        struct frame_name owner = choose(finder, names, (uint32_t)i);
        if (owner.kind != FLW_FRAME_OTHER) {
            finder->of_stack[i] = add_owner(finder, owner.text, owner.brief);
        }
    }
}

/* ---- phases ---- */

/* The open phases, the innermost last. */
struct open_phases {
    uint32_t *names;
    size_t count, room;
};

static void note_phase(struct open_phases *open, const struct flw_trace_event *event, uint32_t name)
{
    size_t at = open->count;
    if (event->op == FLW_TRACE_PHASE_BEGIN) {
        FLW_HOST_ADD(open->names, open->count, open->room, name);
    } else if (event->op == FLW_TRACE_PHASE_END) {
        while (at > 0 && open->names[at - 1] != name) {
            at--;
        }
        if (at > 0) {
            memmove(&open->names[at - 1], &open->names[at],
                    (open->count - at) * sizeof *open->names);
            open->count--;
        }
    }
}

/* ---- records ---- */

/* Return the owner of a record. Without a stack the owner is named by the block's size, if the block is older than the
 * recording or the recording has no stacks. */
static uint32_t owner_of(struct finder *finder, size_t record, uint64_t size_bytes)
{
    const struct flw_trace *trace = finder->trace;
    uint32_t stack = flw_trace_stack(trace, record);
    bool is_older = record < trace->initial_count;
    if (stack != 0 || (!is_older && finder->owners->has_code)) {
        return finder->of_stack[stack];
    }
    size_t bin = flw_analysis_size_bin(size_bytes);
    uint32_t *owner = &finder->of_size[is_older][bin];
    if (*owner == 0) {
        char name[FLW_ANALYSIS_NAME_BYTES];
        snprintf(name, sizeof name, "%sup to %s", is_older ? "before the recording, " : "",
                 FLW_SIZE(UINT64_C(1) << bin));
        *owner = add_named(finder, name);
    }
    return *owner;
}

static void read_records(struct finder *finder)
{
    const struct flw_trace *trace = finder->trace;
    struct flw_owners *owners = finder->owners;
    struct flw_trace_walk walk = {0};
    struct open_phases open = {0};
    bool has_oom = false;
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        size_t at = i - trace->initial_count;
        const struct flw_trace_event *event = i < trace->initial_count ? NULL : &trace->events[at];
        if (event != NULL && finder->rule->by == FLW_OWNER_BY_PHASE) {
            const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, at);
            note_phase(&open, event, detail == NULL ? FLW_TRACE_NO_NAME : detail->name);
        }
        if (event != NULL && event->op != FLW_TRACE_ALLOC && event->op != FLW_TRACE_OOM) {
            continue;
        }
        uint32_t owner =
            open.count != 0
                ? add_named(finder, flw_intern_text(&trace->names, open.names[open.count - 1]))
                : owner_of(finder, i,
                           event == NULL ? trace->blocks[i].size_bytes : event->size_bytes);
        if (event == NULL || event->op == FLW_TRACE_ALLOC) {
            size_t block = event == NULL ? i : event->block;
            owners->of_block[block] = owner;
            owners->stack_of_block[block] = flw_trace_stack(trace, i);
        } else if (!has_oom) {
            owners->of_oom = owner;
            has_oom = true;
        }
    }
    flw_host_free(open.names);
}

void flw_owners_find(struct flw_owners *owners, const struct flw_trace *trace,
                     const struct flw_owner_rule *rule)
{
    struct finder finder = {
        .owners = owners, .trace = trace, .rule = rule, .has_native = has_native_frames(trace)};
    *owners = (struct flw_owners){.has_code = has_code(trace, rule)};
    owners->of_block = flw_host_alloc(trace->block_count, sizeof *owners->of_block);
    owners->stack_of_block = flw_host_alloc(trace->block_count, sizeof *owners->stack_of_block);
    finder.of_stack = flw_host_alloc(trace->stacks.lists.count + 1, sizeof *finder.of_stack);
    add_named(&finder, "code that is not known"); /* FLW_OWNER_UNKNOWN */
    if (rule->by == FLW_OWNER_BY_PHASE) {
        finder.of_stack[0] = add_named(&finder, "neither in a phase nor with a call stack");
    }
    read_frames(&finder);
    read_records(&finder);
    flw_addressmap_finish(&finder.known);
    flw_host_free(finder.of_stack);
}

void flw_owners_finish(struct flw_owners *owners)
{
    flw_intern_finish(&owners->names);
    flw_host_free(owners->of_block);
    flw_host_free(owners->stack_of_block);
    flw_host_free(owners->list);
    *owners = (struct flw_owners){0};
}

void flw_owners_cut_name(const struct flw_owners *owners, uint32_t owner, char *out)
{
    const size_t most = FLW_ANALYSIS_NAME_BYTES - 1;
    const char *name = flw_owners_short_name(owners, owner), *place = strrchr(name, '(');
    size_t length = strlen(name), kept = place == NULL ? 0 : flw_min(strlen(place), most / 4 * 3);
    if (length <= most) {
        memcpy(out, name, length + 1);
    } else {
        snprintf(out, most + 1, "%.*s...%s", (int)(most - 3 - kept), name, name + length - kept);
    }
}
