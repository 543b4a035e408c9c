/* SPDX-License-Identifier: Apache-2.0 */
#include "report/owner.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/heapview.h"
#include "report/sheet.h"
#include "trace/trace.h"

#include "common/command.h"
#include "common/tool_host.h"

#define NAME_BYTES (2 * FLW_STACK_TEXT_BYTES + 32) /* a function, a file and a line */

/* ---- the rule ---- */

#define RULE                                                                                   \
    "the innermost Python frame outside of torch, packages and the standard library; else of " \
    "a package; else the autograd node or the operator"
#define NATIVE_RULE \
    "; else the innermost function outside of the system's, CUDA's and Python's libraries"

static bool take_pattern(struct flw_owner_rule *rule, const char *text, bool is_owner)
{
    rule->patterns = flw_host_grow(rule->patterns, &rule->pattern_room, rule->pattern_count + 1,
                                   sizeof *rule->patterns);
    struct flw_owner_pattern *pattern = &rule->patterns[rule->pattern_count];
    int error = regcomp(&pattern->compiled, text, REG_EXTENDED | REG_NOSUB);
    if (error != 0) {
        char message[200];
        regerror(error, &pattern->compiled, message, sizeof message);
        flw_complain("--%s '%s': %s", is_owner ? "owner" : "skip", text, message);
        return false;
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
    flw_complain("--by '%s' is none of frame, file, module and phase", word);
    return false;
}

bool flw_owner_rule_is_whole(const struct flw_owner_rule *rule)
{
    bool is_whole = rule->by != FLW_OWNER_BY_PHASE || rule->pattern_count == 0;
    if (!is_whole) {
        flw_complain("--owner and --skip choose among frames, and --by phase looks at none");
    }
    return is_whole;
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
    return trace->stacks.stack_count != 0 || (rule->by == FLW_OWNER_BY_PHASE && has_phases(trace));
}

/* Other recorders' frames of C are mostly a framework's. */
static bool has_native_frames(const struct flw_trace *trace)
{
    return trace->notes != NULL && strstr(trace->notes, "recorder fallow") != NULL;
}

/* "frames that match 'a' or 'b'": one kind of pattern; nothing where there is none. */
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
        fputs("the innermost phase of the recording that was open; else what the call stack says: "
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
    char *kept = flw_host_alloc(bytes + 1, 1);
    memcpy(kept, text, bytes);
    free(text);
    return kept;
}

/* ---- what a frame is ---- */

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

static bool begins_with_any(const char *text, const char *const *beginnings)
{
    while (*beginnings != NULL && strncmp(text, *beginnings, strlen(*beginnings)) != 0) {
        beginnings++;
    }
    return *beginnings != NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Profiles cut the folder off of what Python can import, so nothing but its name says that a file is Python's own. */
static bool is_standard_module(const char *file)
{
    static const char *const names[] = {"abc.py",       "asyncio/",     "collections/",
                                        "concurrent/",  "copy.py",      "dataclasses.py",
                                        "enum.py",      "functools.py", "inspect.py",
                                        "logging/",     "random.py",    "runpy.py",
                                        "threading.py", "typing.py",    "unittest/",
                                        "warnings.py",  "weakref.py",   NULL};
    return begins_with_any(file, names);
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
    if (is_standard_module(file)) {
        return PLACE_FRAMEWORK;
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

/* torch::autograd::generated::MmBackward0::apply(...); of profiles "autograd::engine::evaluate_function: MmBackward0" */
static bool is_node(const char *function, char *out, size_t room)
{
    static const char prefix[] = "autograd::engine::evaluate_function: ";
    const char *begin, *apply = strstr(function, "::apply(");
    if (strncmp(function, prefix, sizeof prefix - 1) == 0) {
        snprintf(out, room, "%s", function + sizeof prefix - 1);
        return out[0] != '\0';
    }
    if (apply == NULL || strstr(function, "autograd::") == NULL) {
        return false;
    }
    size_t bytes = word_before(function, apply, &begin);
    snprintf(out, room, "%.*s", (int)flw_min(bytes, room), begin);
    return bytes > 0;
}

/* at::_ops::bmm::call(...); of profiles "aten::bmm" */
static bool is_operator(const char *function, char *out, size_t room)
{
    static const char prefix[] = "at::_ops::", short_prefix[] = "aten::";
    bool is_short = strncmp(function, short_prefix, sizeof short_prefix - 1) == 0;
    if (!is_short && strncmp(function, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    const char *name = function + (is_short ? sizeof short_prefix : sizeof prefix) - 1;
    size_t bytes = strcspn(name, ":");
    snprintf(out, room, "aten::%.*s", (int)flw_min(bytes, room), name);
    return bytes > 0;
}

static const char *base_name(const char *file)
{
    const char *base = file;
    for (const char *at = file; *at != '\0'; at++) {
        base = *at == '/' || *at == '\\' ? at + 1 : base;
    }
    return base;
}

/* A function of the program, by its name and where it is: its source's file, or "module+0x1234". */
static bool is_native_program(const char *function, const char *file)
{
    static const char *const roots[] = {"/usr/",    "/lib/",    "/lib64/",  ".",         "Python/",
                                        "Objects/", "Modules/", "Include/", "Programs/", NULL};
    static const char *const modules[] = {"libcuda", "libtorch",  "libc10",    "libpython",
                                          "libnv",   "libcublas", "libfallow", NULL};
    static const char *const functions[] = {"_Py",      "Py",   "__libc_", "_start",
                                            "_ctypes_", "ffi_", NULL};
    return file[0] != '\0' && !begins_with_any(file, roots) &&
           !begins_with_any(base_name(file), modules) &&
           strstr(base_name(file), ".cpython-") == NULL && strstr(file, "/Python-") == NULL &&
           !begins_with_any(function, functions);
}

/* What a frame is worth, told once a frame; the least is the best. */
enum worth {
    WORTH_NOTHING,
    WORTH_NAMED, /* by --owner */
    WORTH_PROGRAM,
    WORTH_PACKAGE,
    WORTH_NODE,
    WORTH_OPERATOR,
    WORTH_NATIVE, /* in a recording of our own */
    WORTH_COUNT
};

struct frame_name {
    enum worth worth;
    uint32_t text, brief; /* in the owners' names; both 0 where it is worth nothing */
};

/* Owners while they are found. */
struct finder {
    struct flw_owners *owners;
    const struct flw_trace *trace;
    const struct flw_owner_rule *rule;
    bool has_native;
    struct flw_addressmap known;              /* text -> owner */
    uint32_t *of_stack;                       /* by stack: its owner */
    uint32_t of_size[2][FLW_SHEET_SIZE_BINS]; /* older than the recording or not; 0: not yet */
};

static uint32_t intern(struct flw_owners *owners, const char *text)
{
    uint64_t number = 0;
    if (!flw_intern_add_text(&owners->names, text, strlen(text), &number)) {
        flw_host_refuse(1, NAME_BYTES);
    }
    return (uint32_t)number;
}

/* "vllm" of ".../site-packages/vllm/worker/worker.py"; "run" of "/home/u/run/model.py". */
static void name_module(const char *file, char *out, size_t room)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/", NULL};
    const char *base = base_name(file), *end = base, *begin = base;
    if (has_any(file, folders)) {
        begin = strstr(file, "-packages") + strlen("-packages/");
        end = begin + strcspn(begin, "/\\");
    } else if (base > file + 1) {
        end = base - 1;
        for (begin = end; begin > file && begin[-1] != '/' && begin[-1] != '\\';) {
            begin--;
        }
    }
    if (begin == end) { /* a file in no folder */
        end = begin + strlen(begin);
    }
    size_t bytes = (size_t)(end - begin);
    bytes -= bytes > 3 && strncmp(end - 3, ".py", 3) == 0 ? 3 : 0;
    snprintf(out, room, "%.*s", (int)flw_min(bytes, room), begin);
}

/* "weights" of "Model.build.<locals>.weights". */
static const char *local_name(const char *function)
{
    static const char mark[] = "<locals>.";
    for (const char *at; (at = strstr(function, mark)) != NULL;) {
        function = at + sizeof mark - 1;
    }
    return function;
}

static void say_place(const char *function, const char *file, uint32_t line, char *out, size_t room)
{
    bool is_module = line == 0 && strstr(file, "+0x") != NULL; /* and a place in it */
    if (!is_module) {
        snprintf(out, room, "%s (%s:%u)", function, file, line);
    } else {
        bool is_named = function[0] != '\0';
        snprintf(out, room, "%s%s%s%s", function, is_named ? " (" : "", file, is_named ? ")" : "");
    }
}

/* The two names of a frame that stands for a place in the code. */
static void name_code(struct flw_owners *owners, enum flw_owner_by by, const char *function,
                      const char *file, uint32_t line, struct frame_name *out)
{
    char text[NAME_BYTES];
    bool has_file = file[0] != '\0' && strcmp(file, "??") != 0;
    if (!has_file) {
        out->text = out->brief = intern(owners, function);
    } else if (by == FLW_OWNER_BY_FRAME) {
        say_place(function, file, line, text, sizeof text);
        out->text = intern(owners, text);
        say_place(local_name(function), base_name(file), line, text, sizeof text);
        out->brief = intern(owners, text);
    } else if (by == FLW_OWNER_BY_FILE) {
        out->text = intern(owners, file);
        out->brief = intern(owners, base_name(file));
    } else {
        name_module(file, text, sizeof text);
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

static struct frame_name name_frame(const struct finder *finder, const struct flw_frame *frame)
{
    const struct flw_stacks *stacks = &finder->trace->stacks;
    struct frame_name name = {WORTH_NOTHING, 0, 0};
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    enum place place = place_of(file);
    char text[NAME_BYTES];
    if (finder->rule->pattern_count != 0) {
        snprintf(text, sizeof text, "%s (%s:%u)", function, file, frame->line);
        if (matches(finder->rule, false, text)) {
            return name;
        }
    }
    if (finder->rule->pattern_count != 0 && matches(finder->rule, true, text)) {
        name.worth = WORTH_NAMED;
    } else if (place == PLACE_PROGRAM || place == PLACE_PACKAGE) {
        name.worth = place == PLACE_PROGRAM ? WORTH_PROGRAM : WORTH_PACKAGE;
    } else if (place == PLACE_NOT_PYTHON && is_node(function, text, sizeof text)) {
        name.worth = WORTH_NODE;
    } else if (place == PLACE_NOT_PYTHON && is_operator(function, text, sizeof text)) {
        name.worth = WORTH_OPERATOR;
    } else if (place == PLACE_NOT_PYTHON && finder->has_native &&
               is_native_program(function, file)) {
        name.worth = WORTH_NATIVE;
    }
    if (name.worth == WORTH_NODE || name.worth == WORTH_OPERATOR) {
        name.text = name.brief = intern(finder->owners, text);
    } else if (name.worth != WORTH_NOTHING) {
        name_code(finder->owners, finder->rule->by, function, file, frame->line, &name);
    }
    return name;
}

/* ---- owners ---- */

/* The short name goes to terminals, which obey control characters. */
static uint32_t clean(struct flw_owners *owners, uint32_t brief)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "%s", flw_intern_text(&owners->names, brief));
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7F ? '?' : *c;
    }
    return intern(owners, text);
}

static uint32_t add_owner(struct finder *finder, uint32_t text, uint32_t brief)
{
    struct flw_owners *owners = finder->owners;
    uint32_t owner = flw_addressmap_find(&finder->known, text);
    if (owner == FLW_ADDRESSMAP_ABSENT) {
        owner = (uint32_t)owners->count;
        owners->texts =
            flw_host_grow(owners->texts, &owners->room, owners->count + 1, sizeof *owners->texts);
        owners->shorts = flw_host_grow(owners->shorts, &owners->short_room, owners->count + 1,
                                       sizeof *owners->shorts);
        owners->texts[owners->count] = text;
        owners->shorts[owners->count++] = clean(owners, brief);
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

/* The frame that owns what the stack asked for. */
static struct frame_name choose(const struct finder *finder, const struct frame_name *names,
                                uint32_t stack)
{
    struct frame_name best[WORTH_COUNT] = {{0}};
    enum worth most = finder->rule->pattern_count != 0 ? WORTH_NAMED : WORTH_PROGRAM;
    struct flw_stack_walk walk = flw_stacks_walk(&finder->trace->stacks, stack);
    uint32_t frame;
    while (best[most].worth == WORTH_NOTHING && flw_stacks_next(&walk, &frame)) {
        const struct frame_name *name = &names[frame];
        /* the outermost operator, the innermost of all others */
        if (best[name->worth].worth == WORTH_NOTHING || name->worth == WORTH_OPERATOR) {
            best[name->worth] = *name;
        }
    }
    unsigned worth = WORTH_NAMED;
    while (worth < WORTH_COUNT && best[worth].worth == WORTH_NOTHING) {
        worth++;
    }
    return worth < WORTH_COUNT ? best[worth] : best[WORTH_NOTHING];
}

static void read_frames(struct finder *finder)
{
    const struct flw_stacks *stacks = &finder->trace->stacks;
    struct frame_name *names = flw_host_alloc(stacks->frame_count, sizeof *names);
    for (size_t i = 0; i < stacks->frame_count; i++) {
        names[i] = name_frame(finder, &stacks->frames[i]);
    }
    for (size_t i = 1; i < stacks->stack_count; i++) {
        struct frame_name owner = choose(finder, names, (uint32_t)i);
        if (owner.worth != WORTH_NOTHING) {
            finder->of_stack[i] = add_owner(finder, owner.text, owner.brief);
        }
    }
    flw_host_free(names);
}

/* ---- phases ---- */

enum pass {
    PASS_NEITHER,
    PASS_BACKWARD,
    PASS_OPTIMIZER
};

static enum pass pass_of(const struct flw_stacks *stacks, const struct flw_frame *frame)
{
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    if (has_folder(file, "/torch/optim/")) {
        return PASS_OPTIMIZER;
    }
    bool is_engine = strstr(function, "autograd::Engine::") != NULL ||
                     strstr(function, "autograd::engine::") != NULL ||
                     strstr(function, "_engine_run_backward") != NULL;
    return is_engine ? PASS_BACKWARD : PASS_NEITHER;
}

/* What stacks say of phases where the recording says nothing. */
static void read_passes(struct finder *finder)
{
    static const char *const words[] = {[PASS_NEITHER] = "neither backward nor optimizer",
                                        [PASS_BACKWARD] = "backward",
                                        [PASS_OPTIMIZER] = "optimizer"};
    const struct flw_stacks *stacks = &finder->trace->stacks;
    uint8_t *passes = flw_host_alloc(stacks->frame_count, 1);
    finder->of_stack[0] = add_named(finder, "neither in a phase nor with a call stack");
    for (size_t i = 0; i < stacks->frame_count; i++) {
        passes[i] = (uint8_t)pass_of(stacks, &stacks->frames[i]);
    }
    for (size_t i = 1; i < stacks->stack_count; i++) {
        struct flw_stack_walk walk = flw_stacks_walk(stacks, (uint32_t)i);
        enum pass pass = PASS_NEITHER;
        uint32_t frame;
        while (flw_stacks_next(&walk, &frame)) {
            pass = (enum pass)flw_max(pass, passes[frame]);
        }
        finder->of_stack[i] = add_named(finder, words[pass]);
    }
    flw_host_free(passes);
}

/* The phases that are open, the innermost last. */
struct open_phases {
    uint32_t *names;
    size_t count, room;
};

static void note_phase(struct open_phases *open, const struct flw_trace_event *event, uint32_t name)
{
    size_t at = open->count;
    if (event->op == FLW_TRACE_PHASE_BEGIN) {
        open->names = flw_host_grow(open->names, &open->room, open->count + 1, sizeof *open->names);
        open->names[open->count++] = name;
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

/* What has no stack and is older than the recording, or whose recording has none at all, is told by its size. */
static uint32_t owner_of(struct finder *finder, size_t record, uint64_t size_bytes)
{
    const struct flw_trace *trace = finder->trace;
    uint32_t stack = flw_trace_stack(trace, record);
    bool is_older = record < trace->initial_count;
    if (stack != 0 || (!is_older && finder->owners->has_code)) {
        return finder->of_stack[stack];
    }
    size_t bin = flw_sheet_size_bin(size_bytes);
    uint32_t *owner = &finder->of_size[is_older][bin];
    if (*owner == 0) {
        char size[FLW_OWNER_SIZE_BYTES], name[FLW_SHEET_NAME_BYTES];
        flw_owners_name_size(size, bin);
        snprintf(name, sizeof name, "%s%s", is_older ? "before the recording, " : "", size);
        *owner = add_named(finder, name);
    }
    return *owner;
}

static void read_records(struct finder *finder)
{
    const struct flw_trace *trace = finder->trace;
    uint32_t *of_record = finder->owners->of_record + trace->initial_count;
    struct flw_trace_walk walk = {0};
    struct open_phases open = {0};
    for (size_t i = 0; i < trace->initial_count; i++) {
        finder->owners->of_record[i] = owner_of(finder, i, trace->blocks[i].size_bytes);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (finder->rule->by == FLW_OWNER_BY_PHASE) {
            const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, i);
            note_phase(&open, event, detail == NULL ? FLW_TRACE_NO_NAME : detail->name);
        }
        if (event->op != FLW_TRACE_ALLOC && event->op != FLW_TRACE_OOM) {
            continue;
        }
        of_record[i] = open.count != 0
                           ? add_named(finder, trace->names[open.names[open.count - 1]])
                           : owner_of(finder, trace->initial_count + i, event->size_bytes);
    }
    flw_host_free(open.names);
}

void flw_owners_find(struct flw_owners *owners, const struct flw_trace *trace,
                     const struct flw_owner_rule *rule)
{
    struct finder finder = {
        .owners = owners, .trace = trace, .rule = rule, .has_native = has_native_frames(trace)};
    *owners = (struct flw_owners){.has_code = has_code(trace, rule)};
    owners->of_record =
        flw_host_alloc(trace->initial_count + trace->event_count, sizeof *owners->of_record);
    finder.of_stack = flw_host_alloc(trace->stacks.stack_count + 1, sizeof *finder.of_stack);
    add_named(&finder, "code that is not known"); /* FLW_OWNER_UNKNOWN */
    if (rule->by == FLW_OWNER_BY_PHASE) {
        read_passes(&finder);
    } else {
        read_frames(&finder);
    }
    read_records(&finder);
    flw_addressmap_finish(&finder.known);
    flw_host_free(finder.of_stack);
}

void flw_owners_finish(struct flw_owners *owners)
{
    flw_intern_finish(&owners->names);
    flw_host_free(owners->of_record);
    flw_host_free(owners->texts);
    flw_host_free(owners->shorts);
    *owners = (struct flw_owners){0};
}

void flw_owners_name_size(char out[FLW_OWNER_SIZE_BYTES], size_t bin)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    snprintf(out, FLW_OWNER_SIZE_BYTES, "up to %u %s", 1u << bin % 10, units[bin / 10]);
}
