/* SPDX-License-Identifier: Apache-2.0 */
#include "report/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "trace/io/input.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tool_host.h"
#include "report/print.h"

_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_BASELINE_MESSAGE_BYTES, "the input's message fits");

struct reader {
    struct flw_input input;
    struct flw_json json;
    struct flw_baseline *baseline;
    struct flw_baseline_number now; /* trace, policy and key of what is being read */
    bool has_schema;
};

/* ---- reading ---- */

static bool fail(struct reader *reader, const char *what)
{
    return flw_input_fail(&reader->input, reader->json.offset,
                          "%s; it is not the JSON of fallow report", what);
}

static void cut(char *out, const char *text)
{
    snprintf(out, FLW_BASELINE_TEXT_BYTES, "%.*s", FLW_BASELINE_TEXT_BYTES - 1, text);
}

static void push(struct reader *reader)
{
    struct flw_baseline *baseline = reader->baseline;
    baseline->numbers = flw_host_grow(baseline->numbers, &baseline->capacity, baseline->count + 1,
                                      sizeof *baseline->numbers);
    cut(reader->now.text, reader->json.text);
    reader->now.value = strtod(reader->now.text, NULL);
    baseline->numbers[baseline->count++] = reader->now;
}

static bool expect(struct reader *reader, enum flw_json_token wanted, const char *what)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    return token == wanted || (token != FLW_JSON_FAILED && fail(reader, what));
}

/* A member's value: a number is kept, an object's numbers too; other things are stepped over. */
static bool read_value(struct reader *reader, enum flw_json_token token, const char *outer)
{
    char *key = reader->now.key;
    if (token == FLW_JSON_NUMBER ||
        (token == FLW_JSON_LITERAL && strcmp(reader->json.text, "null") == 0)) {
        push(reader);
        return true;
    }
    if (token != FLW_JSON_OBJECT || outer != NULL) {
        return flw_json_skip(&reader->json, token);
    }
    char name[FLW_BASELINE_TEXT_BYTES];
    cut(name, key);
    for (token = flw_json_next(&reader->json); token == FLW_JSON_KEY;
         token = flw_json_next(&reader->json)) {
        snprintf(key, FLW_BASELINE_KEY_BYTES, "%s.%.*s", name, FLW_BASELINE_TEXT_BYTES - 1,
                 reader->json.text);
        token = flw_json_next(&reader->json);
        if (token == FLW_JSON_FAILED || !read_value(reader, token, name)) {
            return false;
        }
    }
    return token == FLW_JSON_OBJECT_END;
}

/* ---- owners ---- */

static bool read_count(struct reader *reader, enum flw_json_token token, uint64_t *out)
{
    bool is_negative = false;
    bool is_count = token == FLW_JSON_NUMBER &&
                    flw_json_get_whole(&reader->json, &is_negative, out) && !is_negative;
    return is_count || (token != FLW_JSON_FAILED && fail(reader, "a count is no whole number"));
}

static void push_owner(struct reader *reader, const struct flw_baseline_owner *owner)
{
    struct flw_baseline *baseline = reader->baseline;
    baseline->owners = flw_host_grow(baseline->owners, &baseline->owner_capacity,
                                     baseline->owner_count + 1, sizeof *baseline->owners);
    baseline->owners[baseline->owner_count++] = *owner;
}

/* An owner of the moment that `owner` names already. */
static bool read_owner(struct reader *reader, struct flw_baseline_owner owner)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    bool is_read = true;
    for (; is_read && token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        bool is_name = strcmp(reader->json.text, "owner") == 0;
        bool is_bytes = strcmp(reader->json.text, "bytes") == 0;
        token = flw_json_next(&reader->json);
        if (is_name && token == FLW_JSON_STRING) {
            flw_json_unescape(&reader->json);
            cut(owner.name, reader->json.text);
        } else if (is_bytes) {
            is_read = read_count(reader, token, &owner.bytes);
        } else {
            is_read = token != FLW_JSON_FAILED && flw_json_skip(&reader->json, token);
        }
    }
    push_owner(reader, &owner);
    return is_read && token == FLW_JSON_OBJECT_END;
}

static bool read_owner_list(struct reader *reader, const struct flw_baseline_owner *of)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_OBJECT; token = flw_json_next(&reader->json)) {
        if (!read_owner(reader, *of)) {
            return false;
        }
    }
    return token == FLW_JSON_ARRAY_END ||
           (token != FLW_JSON_FAILED && fail(reader, "an owner is no object"));
}

static bool read_moment(struct reader *reader, enum flw_sheet_moment moment)
{
    struct flw_baseline_owner owner = {.moment = moment};
    enum flw_json_token token = flw_json_next(&reader->json);
    bool is_read = true;
    for (; is_read && token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        bool is_rest = strcmp(reader->json.text, "rest_bytes") == 0;
        bool is_list = strcmp(reader->json.text, "owners") == 0;
        token = flw_json_next(&reader->json);
        if (is_rest) {
            struct flw_baseline_owner rest = owner;
            is_read = read_count(reader, token, &rest.bytes);
            push_owner(reader, &rest);
        } else if (is_list && token == FLW_JSON_ARRAY) {
            is_read = read_owner_list(reader, &owner);
        } else {
            is_read = token != FLW_JSON_FAILED && flw_json_skip(&reader->json, token);
        }
    }
    return is_read && token == FLW_JSON_OBJECT_END;
}

static const char *const moment_keys[FLW_SHEET_MOMENT_COUNT] = {
    [FLW_SHEET_AT_PEAK] = "at_peak",
    [FLW_SHEET_AT_OOM] = "at_out_of_memory",
    [FLW_SHEET_AT_END] = "at_end",
    [FLW_SHEET_SURVIVORS] = "survivors"};

static bool read_holders(struct reader *reader)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    bool is_read = true;
    for (; is_read && token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        unsigned moment = 0;
        while (moment < FLW_SHEET_MOMENT_COUNT &&
               strcmp(reader->json.text, moment_keys[moment]) != 0) {
            moment++;
        }
        token = flw_json_next(&reader->json);
        if (moment < FLW_SHEET_MOMENT_COUNT && token == FLW_JSON_OBJECT) {
            is_read = read_moment(reader, (enum flw_sheet_moment)moment);
        } else {
            is_read = token != FLW_JSON_FAILED && flw_json_skip(&reader->json, token);
        }
    }
    return is_read && token == FLW_JSON_OBJECT_END;
}

/* ---- traces and policies ---- */

/* An object whose first member is its name; its others are for `read_member`, whose key is reader->now.key. */
static bool read_object(struct reader *reader, const char *name_key, char *out_name,
                        bool (*read_member)(struct reader *reader, enum flw_json_token token))
{
    if (!expect(reader, FLW_JSON_KEY, "a name is missing") ||
        (strcmp(reader->json.text, name_key) != 0 && !fail(reader, "a name is missing")) ||
        !expect(reader, FLW_JSON_STRING, "a name is no string")) {
        return false;
    }
    flw_json_unescape(&reader->json);
    cut(out_name, reader->json.text);
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        snprintf(reader->now.key, sizeof reader->now.key, "%.*s", FLW_BASELINE_TEXT_BYTES - 1,
                 reader->json.text);
        token = flw_json_next(&reader->json);
        if (token == FLW_JSON_FAILED || !read_member(reader, token)) {
            return false;
        }
    }
    return token == FLW_JSON_OBJECT_END;
}

static bool read_number(struct reader *reader, enum flw_json_token token)
{
    return read_value(reader, token, NULL);
}

static bool read_policies(struct reader *reader)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_OBJECT; token = flw_json_next(&reader->json)) {
        if (!read_object(reader, "name", reader->now.policy, read_number)) {
            return false;
        }
    }
    reader->now.policy[0] = '\0';
    return token == FLW_JSON_ARRAY_END ||
           (token != FLW_JSON_FAILED && fail(reader, "a policy is no object"));
}

static bool read_part(struct reader *reader, enum flw_json_token token)
{
    if (strcmp(reader->now.key, "policies") == 0 && token == FLW_JSON_ARRAY) {
        return read_policies(reader);
    }
    if (strcmp(reader->now.key, "holders") == 0 && token == FLW_JSON_OBJECT) {
        return read_holders(reader);
    }
    return read_value(reader, token, NULL);
}

static bool read_traces(struct reader *reader)
{
    struct flw_baseline *baseline = reader->baseline;
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_OBJECT; token = flw_json_next(&reader->json)) {
        size_t place = baseline->trace_count++;
        baseline->traces = flw_host_grow(baseline->traces, &baseline->trace_capacity,
                                         baseline->trace_count, sizeof *baseline->traces);
        baseline->traces[place].first_owner = baseline->owner_count;
        if (!read_object(reader, "title", reader->now.trace, read_part)) {
            return false;
        }
        memcpy(baseline->traces[place].title, reader->now.trace, FLW_BASELINE_TEXT_BYTES);
        baseline->traces[place].owner_end = baseline->owner_count;
    }
    return token == FLW_JSON_ARRAY_END ||
           (token != FLW_JSON_FAILED && fail(reader, "a trace is no object"));
}

static bool read_schema(struct reader *reader)
{
    uint64_t schema = 0;
    bool is_negative = false;
    if (!expect(reader, FLW_JSON_NUMBER, "the schema is no number")) {
        return false;
    }
    reader->has_schema = true;
    if (!flw_json_get_whole(&reader->json, &is_negative, &schema) || is_negative ||
        schema != FLW_PRINT_SCHEMA) {
        return flw_input_fail(&reader->input, reader->json.offset,
                              "schema %s, and this fallow reads %d; write it anew",
                              reader->json.text, FLW_PRINT_SCHEMA);
    }
    return true;
}

static bool read_root(struct reader *reader)
{
    if (!expect(reader, FLW_JSON_OBJECT, "it begins with no object")) {
        return false;
    }
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        bool is_read = false;
        if (strcmp(reader->json.text, "schema") == 0) {
            is_read = read_schema(reader);
        } else if (strcmp(reader->json.text, "traces") == 0 && reader->has_schema) {
            is_read =
                expect(reader, FLW_JSON_ARRAY, "the traces are no list") && read_traces(reader);
        } else {
            token = flw_json_next(&reader->json);
            is_read = token != FLW_JSON_FAILED && flw_json_skip(&reader->json, token);
        }
        if (!is_read) {
            return false;
        }
    }
    if (token != FLW_JSON_OBJECT_END) {
        return false;
    }
    return reader->has_schema || fail(reader, "no schema is named");
}

static bool read_all(struct reader *reader, struct flw_baseline *out)
{
    *out = (struct flw_baseline){0};
    reader->json.input = &reader->input;
    reader->baseline = out;
    bool is_read = read_root(reader) && flw_input_drain(&reader->input);
    flw_input_close(&reader->input);
    if (!is_read) {
        flw_baseline_finish(out);
    }
    return is_read;
}

bool flw_baseline_read(const char *path, struct flw_baseline *out, char *message)
{
    struct reader reader = {0};
    message[0] = '\0';
    return flw_input_open(&reader.input, path, message) && read_all(&reader, out);
}

bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_baseline *out,
                             char *message)
{
    struct reader reader = {0};
    message[0] = '\0';
    return flw_input_open_bytes(&reader.input, text, length, "this report", message) &&
           read_all(&reader, out);
}

void flw_baseline_finish(struct flw_baseline *baseline)
{
    flw_host_free(baseline->numbers);
    flw_host_free(baseline->owners);
    flw_host_free(baseline->traces);
    *baseline = (struct flw_baseline){0};
}

/* ---- comparing ---- */

static bool is_same_policy(const struct flw_baseline_number *a, const struct flw_baseline_number *b)
{
    return strcmp(a->trace, b->trace) == 0 && strcmp(a->policy, b->policy) == 0;
}

/* Where `wanted` is in the other; numbers mostly come in the same order, so the search goes on from
 * the last. count: nowhere. `by_key` false: the first number of its policy. */
static size_t find(const struct flw_baseline *in, const struct flw_baseline_number *wanted,
                   size_t from, bool by_key)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t at = (from + i) % in->count;
        const struct flw_baseline_number *number = &in->numbers[at];
        if (is_same_policy(number, wanted) && (!by_key || strcmp(number->key, wanted->key) == 0)) {
            return at;
        }
    }
    return in->count;
}

static void print_missing(const struct flw_baseline *a, const struct flw_baseline *b,
                          const char *side, FILE *out)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct flw_baseline_number *number = &a->numbers[i];
        bool is_first = i == 0 || !is_same_policy(number, number - 1);
        if (is_first && find(b, number, 0, false) == b->count) {
            fprintf(out, "only in %s: %s %s\n", side, number->trace, number->policy);
        }
    }
}

static void print_change(const struct flw_baseline_number *a, const struct flw_baseline_number *b,
                         FILE *out)
{
    fprintf(out, "  %-36s %20s %20s", a->key, a->text, b->text);
    if (a->value != 0 && strcmp(a->text, "null") != 0 && strcmp(b->text, "null") != 0) {
        fprintf(out, " %+9.2f %%", 100.0 * (b->value / a->value - 1.0));
    }
    fputc('\n', out);
}

static bool print_numbers(const struct flw_baseline *a, const struct flw_baseline *b, FILE *out)
{
    const struct flw_baseline_number *headed = NULL; /* whose policy was named last */
    size_t at = 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct flw_baseline_number *number = &a->numbers[i];
        size_t found = find(b, number, at, true);
        if (found == b->count) {
            continue;
        }
        at = found + 1;
        if (strcmp(number->text, b->numbers[found].text) == 0) {
            continue;
        }
        if (headed == NULL || !is_same_policy(headed, number)) {
            fprintf(out, "%s %s\n", number->trace, number->policy);
            headed = number;
        }
        print_change(number, &b->numbers[found], out);
    }
    print_missing(a, b, "the first", out);
    print_missing(b, a, "the second", out);
    return headed != NULL;
}

/* ---- comparing owners ---- */

#define CHANGES_SHOWN 12

struct change {
    const char *name;
    uint64_t before, after;
};

/* The changes of one moment of one trace. */
struct changes {
    struct change *list;
    size_t count, capacity;
    uint64_t before, after; /* of all, those included that are the same */
    bool has_before, has_after;
};

static uint64_t size_of(const struct change *change)
{
    return change->after > change->before ? change->after - change->before
                                          : change->before - change->after;
}

static int compare_changes(const void *a, const void *b)
{
    uint64_t left = size_of(a);
    uint64_t right = size_of(b);
    return left != right
               ? (left > right ? -1 : 1)
               : strcmp(((const struct change *)a)->name, ((const struct change *)b)->name);
}

/* Two owners that are shown alike are one. */
static void add_owners(struct changes *changes, const struct flw_baseline *of, size_t trace,
                       unsigned moment, bool is_after)
{
    for (size_t i = of->traces[trace].first_owner; i < of->traces[trace].owner_end; i++) {
        const struct flw_baseline_owner *owner = &of->owners[i];
        size_t at = 0;
        if (owner->moment != moment) {
            continue;
        }
        *(is_after ? &changes->has_after : &changes->has_before) = true;
        *(is_after ? &changes->after : &changes->before) += owner->bytes;
        while (at < changes->count && strcmp(changes->list[at].name, owner->name) != 0) {
            at++;
        }
        if (owner->name[0] == '\0') {
            continue; /* the rest: in the sums alone */
        }
        if (at == changes->count) {
            changes->list = flw_host_grow(changes->list, &changes->capacity, ++changes->count,
                                          sizeof *changes->list);
            changes->list[at].name = owner->name;
        }
        *(is_after ? &changes->list[at].after : &changes->list[at].before) += owner->bytes;
    }
}

static void print_owner_change(const char *name, uint64_t before, uint64_t after,
                               struct flw_unit unit, FILE *out)
{
    char texts[2][FLW_FIGURE_BYTES], size[FLW_FIGURE_BYTES], change[FLW_FIGURE_BYTES + 1];
    flw_format_bytes(before, unit, texts[0]);
    flw_format_bytes(after, unit, texts[1]);
    flw_format_bytes(before < after ? after - before : before - after, unit, size);
    snprintf(change, sizeof change, "%s%s", before < after ? "+" : before > after ? "-" : "", size);
    fprintf(out, "%10s %10s %10s  %s\n", texts[0], texts[1], change, name);
}

/* False: all hold the same, or one of the reports does not say. */
static bool print_changes(const char *title, const char *what, struct changes *changes, FILE *out)
{
    struct flw_unit unit =
        flw_unit_choose(changes->before > changes->after ? changes->before : changes->after);
    uint64_t before = changes->before;
    uint64_t after = changes->after;
    if (changes->count != 0) {
        qsort(changes->list, changes->count, sizeof *changes->list, compare_changes);
    }
    bool is_same = before == after && (changes->count == 0 || size_of(&changes->list[0]) == 0);
    if (is_same || !changes->has_before || !changes->has_after) {
        return false;
    }
    fprintf(out, "%s, by owner, %s, %s\n", title, what, unit.name);
    fprintf(out, "%10s %10s %10s  owner\n", "before", "after", "change");
    for (size_t i = 0; i < changes->count && i < CHANGES_SHOWN; i++) {
        const struct change *change = &changes->list[i];
        if (size_of(change) == 0) {
            break;
        }
        print_owner_change(change->name, change->before, change->after, unit, out);
        before -= change->before;
        after -= change->after;
    }
    if (before != 0 || after != 0) {
        print_owner_change("the others", before, after, unit, out);
    }
    print_owner_change("all", changes->before, changes->after, unit, out);
    return true;
}

static bool print_owners(const struct flw_baseline *a, const struct flw_baseline *b, FILE *out)
{
    static const char *const moments[FLW_SHEET_MOMENT_COUNT] = {
        [FLW_SHEET_AT_PEAK] = "at the peak",
        [FLW_SHEET_AT_OOM] = "when it ran out of memory",
        [FLW_SHEET_AT_END] = "at the end",
        [FLW_SHEET_SURVIVORS] = "allocated in the recording, not freed"};
    bool differ = false;
    for (size_t i = 0; i < a->trace_count; i++) {
        size_t j = 0;
        while (j < b->trace_count && strcmp(a->traces[i].title, b->traces[j].title) != 0) {
            j++;
        }
        for (unsigned moment = 0; j < b->trace_count && moment < FLW_SHEET_MOMENT_COUNT; moment++) {
            struct changes changes = {0};
            add_owners(&changes, a, i, moment, false);
            add_owners(&changes, b, j, moment, true);
            differ |= print_changes(a->traces[i].title, moments[moment], &changes, out);
            flw_host_free(changes.list);
        }
    }
    return differ;
}

void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b, FILE *out)
{
    bool differ = print_numbers(a, b, out);
    differ |= print_owners(a, b, out);
    if (!differ) {
        fputs("no number differs\n", out);
    }
}

/* How much worse a number is that may only fall: by share of what it was. */
static double excess(const struct flw_baseline_number *then, const struct flw_baseline_number *now)
{
    return then->value == 0 ? (now->value > 0 ? 1.0 : 0.0) : now->value / then->value - 1.0;
}

bool flw_baseline_is_kept(const struct flw_baseline *then, const struct flw_baseline *now,
                          char *message)
{
    const struct flw_baseline_number *worst = NULL;
    const struct flw_baseline_number *worst_then = NULL;
    double most = 0;
    size_t compared_count = 0;
    size_t at = 0;
    for (size_t i = 0; i < then->count; i++) {
        const struct flw_baseline_number *number = &then->numbers[i];
        bool is_held =
            strcmp(number->key, "peak_reserved_bytes") == 0 || strcmp(number->key, "failures") == 0;
        size_t found =
            is_held && number->policy[0] != '\0' ? find(now, number, at, true) : now->count;
        if (found == now->count) {
            continue;
        }
        at = found + 1;
        compared_count++;
        if (excess(number, &now->numbers[found]) > most) {
            most = excess(number, &now->numbers[found]);
            worst = &now->numbers[found];
            worst_then = number;
        }
    }
    message[0] = '\0';
    if (compared_count == 0) {
        snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
                 "the baseline has no trace and policy in common with this report");
    } else if (worst != NULL) {
        snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
                 "%s: policy %s has %s of %s, above the baseline's %s (%+.2f %%)", worst->trace,
                 worst->policy, worst->key, worst->text, worst_then->text, 100.0 * most);
    }
    return message[0] == '\0';
}
