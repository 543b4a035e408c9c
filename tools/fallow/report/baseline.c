/* SPDX-License-Identifier: Apache-2.0 */
#include "report/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

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

/* An object whose first member is its name. `read_array` reads the member `array`, where there is
 * one. */
static bool read_object(struct reader *reader, const char *name_key, char *out_name,
                        const char *array, bool (*read_array)(struct reader *reader))
{
    if (!expect(reader, FLW_JSON_KEY, "a name is missing") ||
        (strcmp(reader->json.text, name_key) != 0 && !fail(reader, "a name is missing")) ||
        !expect(reader, FLW_JSON_STRING, "a name is no string")) {
        return false;
    }
    cut(out_name, reader->json.text);
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_KEY; token = flw_json_next(&reader->json)) {
        snprintf(reader->now.key, sizeof reader->now.key, "%.*s", FLW_BASELINE_TEXT_BYTES - 1,
                 reader->json.text);
        bool is_array = array != NULL && strcmp(reader->json.text, array) == 0;
        token = flw_json_next(&reader->json);
        if (token == FLW_JSON_FAILED) {
            return false;
        }
        bool is_read = is_array && token == FLW_JSON_ARRAY ? read_array(reader)
                                                           : read_value(reader, token, NULL);
        if (!is_read) {
            return false;
        }
    }
    return token == FLW_JSON_OBJECT_END;
}

/* A list of such objects. */
static bool read_list(struct reader *reader, const char *name_key, char *out_name,
                      const char *array, bool (*read_array)(struct reader *reader),
                      const char *what)
{
    enum flw_json_token token = flw_json_next(&reader->json);
    for (; token == FLW_JSON_OBJECT; token = flw_json_next(&reader->json)) {
        if (!read_object(reader, name_key, out_name, array, read_array)) {
            return false;
        }
    }
    return token == FLW_JSON_ARRAY_END || (token != FLW_JSON_FAILED && fail(reader, what));
}

static bool read_policies(struct reader *reader)
{
    bool is_read =
        read_list(reader, "name", reader->now.policy, NULL, NULL, "a policy is no object");
    reader->now.policy[0] = '\0';
    return is_read;
}

static bool read_traces(struct reader *reader)
{
    return read_list(reader, "title", reader->now.trace, "policies", read_policies,
                     "a trace is no object");
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

void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b, FILE *out)
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
    if (headed == NULL) {
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
