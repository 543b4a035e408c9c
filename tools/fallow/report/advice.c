/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the advice of a report: one sentence, and the setting or command that the user types.
 */
#include "report/collect.h"

#include <stdio.h>
#include <stdlib.h>
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
static enum origin find_origin(const struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    const char *format = analysis->trace->format == NULL ? "" : analysis->trace->format;
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
    char variable[FLW_ANALYSIS_NAME_BYTES], value[FLW_ANALYSIS_SETTING_BYTES];
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

static bool is_named(const struct flw_policy *policy, const char *name, size_t length)
{
    return strlen(policy->name) == length && memcmp(policy->name, name, length) == 0;
}

/* Write the setting that selects PyTorch's policy `name`, appended to the current settings: PyTorch uses the last value
 * of a repeated key. *out_is_pytorch: true if `name` is a policy of PyTorch's. Returns false if the policy is not
 * PyTorch's, has no setting, is already set, or would fail: some versions reject expandable segments with private
 * pools, and PyTorch's other backend has no such settings. */
static bool say_pytorch(const struct flw_analysis *analysis, const char *name, char *out,
                        size_t room, bool *out_is_pytorch)
{
    struct settings settings = find_settings(analysis->trace);
    char wanted[FLW_POLICY_NAME_BYTES + FLW_ANALYSIS_NAME_BYTES];
    size_t length = strcspn(name, ":");
    const char *more = name[length] == ':' ? name + length + 1 : "";
    bool is_expandable = is_named(&flw_policy_pytorch_expandable, name, length);
    snprintf(wanted, sizeof wanted, "%s%s%s", is_expandable ? "expandable_segments:True" : "",
             is_expandable && *more != '\0' ? "," : "", more);
    for (char *at = wanted; *at != '\0'; at++) { /* in PyTorch's syntax */
        *at = *at == '=' ? ':' : *at;
    }
    *out_is_pytorch = is_expandable || is_named(&flw_policy_pytorch, name, length);
    bool keeps = settings.value[0] != '\0' &&
                 strlen(settings.value) + strlen(wanted) + FLW_ANALYSIS_NAME_BYTES < room;
    char *setting = NULL;
    int bytes = asprintf(&setting, "set %s=%s%s%s", settings.variable, keeps ? settings.value : "",
                         keeps ? "," : "", wanted);
    bool fits = bytes > 0 && (size_t)bytes < room;
    if (fits) {
        memcpy(out, setting, (size_t)bytes + 1);
    }
    if (bytes >= 0) {
        free(setting);
    }
    return *out_is_pytorch && fits && wanted[0] != '\0' && !has_settings(&settings, wanted) &&
           strstr(settings.value, "backend:cudaMallocAsync") == NULL &&
           (!is_expandable ||
            (!is_expandable_already(analysis->trace) && analysis->program->lanes.pool_count == 0));
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

/* One way to use less memory. */
struct way {
    char words[FLW_ANALYSIS_SETTING_BYTES]; /* a verb and the setting or command */
    uint64_t bytes;                         /* held, or smallest sufficient limit; FLW_UNKNOWN */
    bool is_setting; /* changes a setting of the present allocator instead of replacing it */
    bool serves;     /* the failed request */
};

/* Find the setting or command that selects policy `name`. False if there is none that may be advised. */
static bool find_way(const struct flw_analysis *analysis, const char *name, struct way *out)
{
    enum origin origin = find_origin(analysis);
    bool is_pytorch = false;
    out->is_setting = origin == FROM_PYTORCH &&
                      say_pytorch(analysis, name, out->words, sizeof out->words, &is_pytorch);
    if (out->is_setting || is_pytorch) {
        return out->is_setting;
    }
    bool is_cuda = origin != FROM_PYTORCH ||
                   strcmp(find_settings(analysis->trace).variable, "PYTORCH_CUDA_ALLOC_CONF") == 0;
    return is_cuda && say_fallow(origin, name, out->words, sizeof out->words);
}

/* List the ways of the replays that repeated the failed request, if there was one, else of the policies that failed
 * none. Returns their number. */
static size_t list_ways(const struct flw_analysis *analysis, struct way *ways)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    size_t count = 0;
    for (size_t i = 0; i < oom->answer_count; i++) {
        const struct flw_analysis_answer *answer = &oom->answers[i];
        ways[count].bytes = answer->smallest_limit_bytes;
        ways[count].serves = answer->outcome == FLW_ANALYSIS_SERVED;
        count += find_way(analysis, answer->name, &ways[count]);
    }
    for (size_t i = 0; oom->count == 0 && i < analysis->policy_count; i++) {
        const struct flw_run_result *result = analysis->policies[i].result;
        ways[count].bytes = result->statistics.peak_reserved_bytes;
        count += result->policy->allocates && result->failure_count == 0 &&
                 ways[count].bytes != FLW_NOT_APPLICABLE &&
                 find_way(analysis, result->policy->name, &ways[count]);
    }
    return count;
}

/* Find the way that needs least, or NULL: only settings of the present allocator if `is_setting`. */
static const struct way *find_least(const struct way *ways, size_t count, bool is_setting)
{
    const struct way *least = NULL;
    for (size_t i = 0; i < count; i++) {
        if (ways[i].bytes != FLW_UNKNOWN && (ways[i].is_setting || !is_setting) &&
            (least == NULL || ways[i].bytes < least->bytes)) {
            least = &ways[i];
        }
    }
    return least;
}

/* Find the first setting, in the order of the replays, that serves the failed request; if there is none, the first
 * other allocator, or NULL. */
static const struct way *find_serving(const struct way *ways, size_t count)
{
    const struct way *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (ways[i].serves && (found == NULL || (ways[i].is_setting && !found->is_setting))) {
            found = &ways[i];
        }
    }
    return found;
}

#define ADD(...) flw_append(analysis->advice.text, sizeof analysis->advice.text, __VA_ARGS__)

/* Append the conditions of a way to the advice, and keep its words without the verb as the setting. */
static void finish_way(struct flw_analysis *analysis, const struct way *way)
{
    static const char *const verbs[] = {"set ", "use ", "start it with "};
    const char *words = way->words;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        size_t length = strlen(verbs[i]);
        words += strncmp(words, verbs[i], length) == 0 ? length : 0;
    }
    snprintf(analysis->advice.setting, sizeof analysis->advice.setting, "%s", words);
    if (analysis->oom.count != 0 && analysis->trace->initial_count != 0 &&
        analysis->trace->has_segments) {
        /* Replays other than PyTorch's model start with the live blocks packed side by side. */
        ADD("; the recording began late, and memory from before is replayed without its holes");
    }
    if (!way->is_setting) {
        ADD(" (Fallow has not run on a GPU yet%s)",
            find_origin(analysis) == FROM_PYTORCH
                ? "; it turns off PyTorch's memory snapshots, MemPool and graph trees"
                : "");
    }
}

/* ---- advice: after an out-of-memory ---- */

/* Write the limit of the failed request: " with the 42 MiB there were". */
static const char *say_limit(const struct flw_analysis_oom *oom, char *out)
{
    snprintf(out, FLW_ANALYSIS_NAME_BYTES,
             oom->is_limit_given ? " within %s" : " with the %s there were",
             FLW_SIZE(oom->limit_bytes));
    return out;
}

static bool is_served_as_it_is(const struct flw_analysis *analysis)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    bool is_served = false;
    for (size_t i = 0; i < oom->answer_count; i++) {
        is_served |= strcmp(oom->answers[i].name, flw_policy_pytorch.name) == 0 &&
                     oom->answers[i].outcome == FLW_ANALYSIS_SERVED;
    }
    return is_served && find_origin(analysis) == FROM_PYTORCH;
}

static void advise_serving(struct flw_analysis *analysis, const struct way *way)
{
    char limit[FLW_ANALYSIS_NAME_BYTES];
    ADD("to serve the failed request%s, %s", say_limit(&analysis->oom, limit), way->words);
    if (way->bytes != FLW_UNKNOWN) {
        analysis->advice.saved_bytes = analysis->oom.limit_bytes - way->bytes;
        ADD("; it fits from %s on", FLW_SIZE(way->bytes));
    }
    finish_way(analysis, way);
}

/* List the owners of the most live bytes, if more is live than the device has: no setting avoids that failure. */
static void advise_holders(struct flw_analysis *analysis)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    const struct flw_analysis_holding *holding = &analysis->holdings[FLW_ANALYSIS_AT_OOM];
    ADD("reduce live memory, since no allocator setting would have avoided this: the program needs %s "
        "live and %s %s; ",
        FLW_SIZE(oom->live_bytes + oom->asked_bytes), oom->is_limit_given ? "has" : "had",
        FLW_SIZE(oom->limit_bytes));
    if (!analysis->has_code) {
        ADD("record with call stacks to see which lines hold it");
    }
    for (size_t i = 0; analysis->has_code && i < flw_min(holding->owner_count, 3); i++) {
        ADD("%s%s (%s)", i == 0 ? "most is held by " : ", ", holding->owners[i].name,
            FLW_SIZE(holding->owners[i].bytes));
    }
}

/* Advise the smallest device that serves the failed request; `way` NULL: none is known. */
static void advise_device(struct flw_analysis *analysis, const struct way *way)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    char limit[FLW_ANALYSIS_NAME_BYTES];
    bool is_known = oom->limit_bytes != FLW_UNKNOWN;
    if (way == NULL) {
        ADD("unknown: no replayed allocator serves the failed request for certain%s",
            oom->answer_count != 0 && !oom->is_searched
                ? "; the program is too long to search for the smallest device"
                : "");
        return;
    }
    ADD("%s%s; the failed request needs at least %s for the allocator: %s",
        is_known ? "no setting serves it" : "the memory available then is unknown",
        is_known ? say_limit(oom, limit) : "", FLW_SIZE(way->bytes), way->words);
    finish_way(analysis, way);
}

static void advise_oom(struct flw_analysis *analysis, const struct way *ways, size_t count)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    const struct way *serving = find_serving(ways, count);
    char limit[FLW_ANALYSIS_NAME_BYTES];
    if (is_served_as_it_is(analysis)) {
        ADD("nothing: PyTorch's own policy, replayed, serves the failed request%s%s",
            say_limit(oom, limit),
            oom->is_limit_given ? "" : "; look for other users of the GPU at that moment");
    } else if (oom->limit_bytes != FLW_UNKNOWN &&
               oom->live_bytes + oom->asked_bytes > oom->limit_bytes) {
        advise_holders(analysis);
    } else if (serving != NULL) {
        advise_serving(analysis, serving);
    } else {
        advise_device(analysis, find_least(ways, count, false));
    }
}

/* ---- advice: policies that hold less ---- */

#define LEAST_SHARE 50 /* advise no change that saves less than 1/50 */

/* Advise how to fit into the limit; `way` NULL: no policy does. */
static void advise_limit(struct flw_analysis *analysis, const struct way *way)
{
    const char *limit = FLW_SIZE(analysis->limit_bytes);
    if (way == NULL) {
        ADD("no replayed setting fits into %s; the program itself needs %s", limit,
            FLW_SIZE(analysis->program->max_live_bytes));
        return;
    }
    ADD("to fit into %s, %s; it reserves %s", limit, way->words, FLW_SIZE(way->bytes));
    finish_way(analysis, way);
}

static void advise_less(struct flw_analysis *analysis, uint64_t held_bytes, const struct way *way)
{
    uint64_t saved_bytes = held_bytes - flw_min(held_bytes, way->bytes);
    double share = 100.0 * (double)saved_bytes / (double)held_bytes;
    const char *saved = FLW_SIZE(saved_bytes);
    if (saved_bytes <= held_bytes / LEAST_SHARE) {
        ADD("nothing: no replayed setting saves more than %s (%.1f %%) of the %s reserved", saved,
            share, FLW_SIZE(held_bytes));
        return;
    }
    analysis->advice.saved_bytes = saved_bytes;
    ADD("to save %s (%.1f %%), %s", saved, share, way->words);
    finish_way(analysis, way);
}

/* Prefer a setting to another allocator if it saves at least three quarters of what the other saves. */
static void advise_policy(struct flw_analysis *analysis, const struct way *ways, size_t count)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    const struct way *least = find_least(ways, count, false);
    const struct way *setting = find_least(ways, count, true);
    uint64_t held_bytes = reference == NULL ? 0 : flw_analysis_held(analysis, reference);
    if (setting != NULL && setting->bytes < held_bytes &&
        4 * (held_bytes - setting->bytes) >= 3 * (held_bytes - flw_min(held_bytes, least->bytes))) {
        least = setting;
    }
    if (reference != NULL && reference->result->policy->allocates &&
        reference->result->failure_count != 0) {
        advise_limit(analysis, least);
    } else if (least == NULL || held_bytes == 0) {
        ADD("unknown: no replayed allocator can be chosen by a setting or a line of code");
    } else {
        advise_less(analysis, held_bytes, least);
    }
}

void flw_verdict_advise(struct flw_analysis *analysis)
{
    struct way ways[FLW_ANALYSIS_ANSWERS + 1];
    size_t count = list_ways(analysis, ways);
    analysis->advice = (struct flw_analysis_advice){.saved_bytes = FLW_UNKNOWN};
    if (analysis->is_state) {
        ADD("No comparison: the recording has no history to replay.%s",
            find_origin(analysis) == FROM_PYTORCH
                ? " Call _record_memory_history() of torch.cuda.memory, torch.xpu.memory or "
                  "torch_npu.npu.memory before the snapshot."
                : "");
    } else if (analysis->oom.count != 0) {
        advise_oom(analysis, ways, count);
    } else if (analysis->program->max_live_bytes == 0) {
        ADD("nothing: the trace allocates no memory");
    } else {
        advise_policy(analysis, ways, count);
    }
}
