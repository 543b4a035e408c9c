/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the advice of a report: one sentence, and the setting or command that the user types.
 */
#include "report/verdict.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#include "common/figures.h"

/* ---- advice: settings and commands ---- */

enum origin {
    FROM_PYTORCH,
    FROM_RMM,
    FROM_OTHERS
};

/* Return the allocator of the recorded program. A trace that names no allocator counts as PyTorch's. */
static enum origin find_origin(const struct flw_sheet *sheet)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    const char *format = sheet->trace->format == NULL ? "" : sheet->trace->format;
    if (strstr(format, "rmm") != NULL) {
        return FROM_RMM;
    }
    bool is_pytorch = strstr(format, "pytorch") != NULL || strstr(format, "kineto") != NULL ||
                      (reference != NULL &&
                       strcmp(reference->result->policy->name, flw_policy_pytorch.name) == 0);
    return is_pytorch ? FROM_PYTORCH : FROM_OTHERS;
}

static bool is_expandable_already(const struct flw_trace *trace)
{
    bool is_expandable = false;
    for (size_t i = 0; i < trace->segment_count; i++) {
        is_expandable |= trace->segments[i].is_expandable;
    }
    for (size_t i = 0; i < trace->event_count && !is_expandable; i++) {
        is_expandable = trace->events[i].op == FLW_TRACE_SEGMENT_MAP;
    }
    return is_expandable;
}

/* The settings in the snapshot: the variable that PyTorch reads, and the value; "" if unknown. */
struct settings {
    char variable[FLW_SHEET_NAME_BYTES], value[FLW_SHEET_SETTING_BYTES];
};

static struct settings find_settings(const struct flw_trace *trace)
{
    struct settings found = {.variable = "PYTORCH_CUDA_ALLOC_CONF"};
    int bytes = 0;
    const char *line = flw_notes_find(trace->notes, "allocator_settings", &bytes);
    int variable_bytes = line == NULL ? 0 : (int)strcspn(line, " \n");
    if (variable_bytes > 0 && variable_bytes < bytes) {
        snprintf(found.variable, sizeof found.variable, "%.*s", variable_bytes, line);
        snprintf(found.value, sizeof found.value, "%.*s", bytes - variable_bytes - 1,
                 line + variable_bytes + 1);
    }
    return found;
}

/* True if `wanted` ("key:value") is an item of the comma-separated list `value`. */
static bool has_setting(const char *value, const char *wanted, size_t length)
{
    bool is_there = false;
    for (const char *at = value; !is_there && *at != '\0'; at += *at == ',') {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ",");
        is_there = bytes == length && memcmp(at, wanted, length) == 0;
        at += bytes;
    }
    return is_there;
}

/* True if every item of `wanted` is already set. */
static bool has_settings(const struct settings *settings, const char *wanted)
{
    bool has_all = true;
    for (const char *at = wanted; *at != '\0'; at += *at == ',') {
        size_t bytes = strcspn(at, ",");
        has_all &= has_setting(settings->value, at, bytes);
        at += bytes;
    }
    return has_all;
}

/* Write the setting that selects PyTorch's policy `name`, appended to the current settings: PyTorch uses the last value
 * of a repeated key. *out_is_pytorch: true if `name` is a policy of PyTorch's. Returns false if the policy is not
 * PyTorch's, has no setting, is already set, or would fail: some versions reject expandable segments with private
 * pools, and PyTorch's other backend has no such settings. */
static bool say_pytorch(const struct flw_sheet *sheet, const char *name, char *out, size_t room,
                        bool *out_is_pytorch)
{
    struct settings settings = find_settings(sheet->trace);
    char wanted[FLW_POLICY_NAME_BYTES + FLW_SHEET_NAME_BYTES];
    size_t length = strcspn(name, ":");
    const char *more = name[length] == ':' ? name + length + 1 : "";
    bool is_expandable = strlen(flw_policy_pytorch_expandable.name) == length &&
                         memcmp(name, flw_policy_pytorch_expandable.name, length) == 0;
    bool is_plain = strlen(flw_policy_pytorch.name) == length &&
                    memcmp(name, flw_policy_pytorch.name, length) == 0;
    snprintf(wanted, sizeof wanted, "%s%s%s", is_expandable ? "expandable_segments:True" : "",
             is_expandable && *more != '\0' ? "," : "", more);
    for (char *at = wanted; *at != '\0'; at++) { /* in PyTorch's syntax */
        *at = *at == '=' ? ':' : *at;
    }
    *out_is_pytorch = is_expandable || is_plain;
    bool keeps = settings.value[0] != '\0' &&
                 strlen(settings.value) + strlen(wanted) + FLW_SHEET_NAME_BYTES < room;
    int written = snprintf(out, room, "set %s=%s%s%s", settings.variable,
                           keeps ? settings.value : "", keeps ? "," : "", wanted);
    return *out_is_pytorch && written > 0 && (size_t)written < room && wanted[0] != '\0' &&
           !has_settings(&settings, wanted) &&
           strstr(settings.value, "backend:cudaMallocAsync") == NULL &&
           (!is_expandable ||
            (!is_expandable_already(sheet->trace) && sheet->program->lanes.pool_count == 0));
}

/* Write how to use Fallow for policy `name`; false if that is impossible. `fallow run` has the default economy only. */
static bool say_fallow(enum origin origin, const char *name, char *out, size_t room)
{
    static const struct {
        const struct flw_policy *policy;
        const char *argument;
    } economies[] = {{&flw_policy_fallow, ""},
                     {&flw_policy_fallow_memory_first, "economy=\"memory_first\""},
                     {&flw_policy_fallow_speed_first, "economy=\"speed_first\""}};
    if (origin == FROM_OTHERS) {
        snprintf(out, room, "start it with fallow run -- PROGRAM");
        return strcmp(name, flw_policy_fallow.name) == 0;
    }
    for (size_t i = 0; i < sizeof economies / sizeof *economies; i++) {
        if (strcmp(name, economies[i].policy->name) == 0) {
            snprintf(out, room, "use import fallow; fallow.enable_%s(%s)",
                     origin == FROM_RMM ? "rmm" : "torch", economies[i].argument);
            return true;
        }
    }
    return false;
}

#define ADD(...) flw_append(out->text, sizeof out->text, __VA_ARGS__)

/* One way to use less memory. */
struct way {
    char words[FLW_SHEET_SETTING_BYTES]; /* a verb and the setting or command */
    uint64_t bytes;                      /* held, or smallest sufficient limit; FLW_UNKNOWN */
    bool is_setting; /* changes a setting of the present allocator instead of replacing it */
};

/* Find the setting or command that selects policy `name`. False if there is none that may be advised. */
static bool find_way(const struct flw_sheet *sheet, const char *name, struct way *out)
{
    enum origin origin = find_origin(sheet);
    bool is_pytorch = false;
    out->is_setting = origin == FROM_PYTORCH &&
                      say_pytorch(sheet, name, out->words, sizeof out->words, &is_pytorch);
    if (out->is_setting || is_pytorch) {
        return out->is_setting;
    }
    bool is_cuda = origin != FROM_PYTORCH ||
                   strcmp(find_settings(sheet->trace).variable, "PYTORCH_CUDA_ALLOC_CONF") == 0;
    return is_cuda && say_fallow(origin, name, out->words, sizeof out->words);
}

/* If `way` replaces the allocator, append its cost to the advice. */
static void add_caveat(const struct flw_sheet *sheet, const struct way *way,
                       struct flw_sheet_advice *out)
{
    if (!way->is_setting) {
        ADD(" (Fallow has not run on a GPU yet%s)",
            find_origin(sheet) == FROM_PYTORCH
                ? "; it turns off PyTorch's memory snapshots, MemPool and graph trees"
                : "");
    }
}

/* Copy the setting without the verb. */
static void keep_setting(const struct way *way, struct flw_sheet_advice *out)
{
    static const char *const verbs[] = {"set ", "use ", "start it with "};
    const char *words = way->words;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        size_t length = strlen(verbs[i]);
        words += strncmp(words, verbs[i], length) == 0 ? length : 0;
    }
    snprintf(out->setting, sizeof out->setting, "%s", words);
}

/* ---- advice: after an out-of-memory ---- */

/* Write the limit of the failed request: " with the 42 MiB there were". */
static const char *say_limit(const struct flw_sheet_oom *oom, char *out)
{
    char limit[FLW_FIGURE_BYTES];
    snprintf(out, FLW_SHEET_NAME_BYTES,
             oom->is_limit_given ? " within %s" : " with the %s there were",
             flw_format_size(oom->limit_bytes, limit));
    return out;
}

/* Find the first setting, in the order of the replays, that serves the failed request; if there is none, the first
 * other allocator. */
static bool find_serving(const struct flw_sheet *sheet, struct way *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    bool is_found = false;
    for (size_t i = 0; i < oom->answer_count; i++) {
        struct way way;
        bool serves = oom->answers[i].outcome == FLW_SHEET_SERVED &&
                      find_way(sheet, oom->answers[i].name, &way);
        if (serves && (!is_found || (way.is_setting && !out->is_setting))) {
            way.bytes = oom->answers[i].smallest_limit_bytes;
            *out = way;
            is_found = true;
        }
    }
    return is_found;
}

static bool find_smallest(const struct flw_sheet *sheet, struct way *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    bool is_found = false;
    for (size_t i = 0; i < oom->answer_count; i++) {
        struct way way = {.bytes = oom->answers[i].smallest_limit_bytes};
        bool is_known = way.bytes != FLW_UNKNOWN && find_way(sheet, oom->answers[i].name, &way);
        if (is_known && (!is_found || way.bytes < out->bytes)) {
            *out = way;
            is_found = true;
        }
    }
    return is_found;
}

static bool is_served_as_it_is(const struct flw_sheet *sheet)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    bool is_served = false;
    for (size_t i = 0; i < oom->answer_count; i++) {
        is_served |= strcmp(oom->answers[i].name, flw_policy_pytorch.name) == 0 &&
                     oom->answers[i].outcome == FLW_SHEET_SERVED;
    }
    return is_served && find_origin(sheet) == FROM_PYTORCH;
}

/* Warn that replays other than PyTorch's model start with the live blocks packed side by side. */
static void add_bias(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    if (sheet->trace->initial_count != 0 && sheet->trace->has_segments) {
        ADD("; the recording began late, and memory from before is replayed without its holes");
    }
}

static void advise_serving(const struct flw_sheet *sheet, const struct way *way,
                           struct flw_sheet_advice *out)
{
    char limit[FLW_SHEET_NAME_BYTES], least[FLW_FIGURE_BYTES];
    keep_setting(way, out);
    ADD("to serve the failed request%s, %s", say_limit(&sheet->oom, limit), way->words);
    if (way->bytes != FLW_UNKNOWN) {
        out->saved_bytes = sheet->oom.limit_bytes - way->bytes;
        ADD("; it fits from %s on", flw_format_size(way->bytes, least));
    }
    add_bias(sheet, out);
    add_caveat(sheet, way, out);
}

/* List the owners of the most live bytes, if more is live than the device has: no setting avoids that failure. */
static void advise_holders(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    const struct flw_sheet_holding *holding = &sheet->holdings[FLW_SHEET_AT_OOM];
    char size[FLW_FIGURE_BYTES], limit[FLW_FIGURE_BYTES];
    ADD("reduce live memory, since no allocator setting would have avoided this: the program needs %s "
        "live and %s %s; ",
        flw_format_size(oom->live_bytes + oom->asked_bytes, size),
        oom->is_limit_given ? "has" : "had", flw_format_size(oom->limit_bytes, limit));
    if (!sheet->has_code) {
        ADD("record with call stacks to see which lines hold it");
    }
    for (size_t i = 0; sheet->has_code && i < flw_min(holding->owner_count, 3); i++) {
        ADD("%s%s (%s)", i == 0 ? "most is held by " : ", ", holding->owners[i].name,
            flw_format_size(holding->owners[i].bytes, size));
    }
}

static void advise_device(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    char limit[FLW_SHEET_NAME_BYTES], least[FLW_FIGURE_BYTES];
    bool is_known = oom->limit_bytes != FLW_UNKNOWN;
    struct way way;
    if (find_smallest(sheet, &way)) {
        keep_setting(&way, out);
        ADD("%s%s; the failed request needs at least %s for the allocator: %s",
            is_known ? "no setting serves it" : "the memory available then is unknown",
            is_known ? say_limit(oom, limit) : "", flw_format_size(way.bytes, least), way.words);
        add_bias(sheet, out);
        add_caveat(sheet, &way, out);
    } else {
        ADD("unknown: no replayed allocator is known to serve the failed request%s",
            oom->answer_count != 0 && !oom->is_searched
                ? "; the program is too long to search for the smallest device"
                : "");
    }
}

static void advise_oom(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    struct way way;
    char limit[FLW_SHEET_NAME_BYTES];
    if (is_served_as_it_is(sheet)) {
        ADD("nothing: PyTorch's own policy, replayed, serves the failed request%s%s",
            say_limit(&sheet->oom, limit),
            sheet->oom.is_limit_given ? "" : "; look for other users of the GPU at that moment");
    } else if (sheet->oom.limit_bytes != FLW_UNKNOWN &&
               sheet->oom.live_bytes + sheet->oom.asked_bytes > sheet->oom.limit_bytes) {
        advise_holders(sheet, out);
    } else if (find_serving(sheet, &way)) {
        advise_serving(sheet, &way, out);
    } else {
        advise_device(sheet, out);
    }
}

/* ---- advice: policies that hold less ---- */

#define LEAST_SHARE 50 /* advise no change that saves less than 1/50 */

/* Find the policy that holds least among the policies without a failed request: only settings of the present allocator
 * if `is_setting`, else all. */
static bool find_least(const struct flw_sheet *sheet, bool is_setting, struct way *out)
{
    bool is_found = false;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        struct way way;
        bool counts = result->policy->allocates && result->failure_count == 0 &&
                      result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE &&
                      find_way(sheet, result->policy->name, &way);
        if (!counts || (is_setting && !way.is_setting)) {
            continue;
        }
        way.bytes = result->statistics.peak_reserved_bytes;
        if (!is_found || way.bytes < out->bytes) {
            *out = way;
            is_found = true;
        }
    }
    return is_found;
}

static void advise_limit(const struct flw_sheet *sheet, const struct way *way, bool is_found,
                         struct flw_sheet_advice *out)
{
    char limit[FLW_FIGURE_BYTES], least[FLW_FIGURE_BYTES];
    flw_format_size(sheet->limit_bytes, limit);
    if (is_found) {
        keep_setting(way, out);
        ADD("to fit into %s, %s; it reserves %s", limit, way->words,
            flw_format_size(way->bytes, least));
        add_caveat(sheet, way, out);
    } else {
        ADD("no replayed setting fits into %s; the program itself needs %s", limit,
            flw_format_size(sheet->program->max_live_bytes, least));
    }
}

static void advise_less(const struct flw_sheet *sheet, uint64_t held_bytes, const struct way *way,
                        struct flw_sheet_advice *out)
{
    char saved[FLW_FIGURE_BYTES], held[FLW_FIGURE_BYTES];
    uint64_t saved_bytes = held_bytes - flw_min(held_bytes, way->bytes);
    double share = 100.0 * (double)saved_bytes / (double)held_bytes;
    flw_format_size(saved_bytes, saved);
    if (saved_bytes <= held_bytes / LEAST_SHARE) {
        ADD("nothing: no replayed setting saves more than %s (%.1f %%) of the %s reserved", saved,
            share, flw_format_size(held_bytes, held));
        return;
    }
    keep_setting(way, out);
    out->saved_bytes = saved_bytes;
    ADD("to save %s (%.1f %%), %s", saved, share, way->words);
    add_caveat(sheet, way, out);
}

static void advise_recording(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    ADD("No comparison: the recording has no history to replay.%s",
        find_origin(sheet) == FROM_PYTORCH
            ? " Call _record_memory_history() of torch.cuda.memory, torch.xpu.memory or "
              "torch_npu.npu.memory before the snapshot."
            : "");
}

void flw_verdict_advise(const struct flw_sheet *sheet, struct flw_sheet_advice *out)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    struct way least, setting;
    *out = (struct flw_sheet_advice){.saved_bytes = FLW_UNKNOWN};
    if (sheet->is_state) {
        advise_recording(sheet, out);
        return;
    }
    if (sheet->oom.count != 0) {
        advise_oom(sheet, out);
        return;
    }
    if (sheet->program->max_live_bytes == 0) {
        ADD("nothing: the trace allocates no memory");
        return;
    }
    uint64_t held_bytes = reference == NULL ? 0 : flw_sheet_held(sheet, reference);
    bool is_found = find_least(sheet, false, &least);
    if (is_found && find_least(sheet, true, &setting)) {
        bool is_near =
            setting.bytes < held_bytes &&
            4 * (held_bytes - setting.bytes) >= 3 * (held_bytes - flw_min(held_bytes, least.bytes));
        least = is_near ? setting : least;
    }
    if (reference != NULL && reference->result->policy->allocates &&
        reference->result->failure_count != 0) {
        advise_limit(sheet, &least, is_found, out);
    } else if (!is_found || held_bytes == 0) {
        ADD("unknown: no replayed allocator can be chosen by a setting or a line of code");
    } else {
        advise_less(sheet, held_bytes, &least, out);
    }
}
