/* SPDX-License-Identifier: Apache-2.0 */
#include "report/baseline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

#include "common/tabular.h"
#include "common/tool_host.h"
#include "report/print.h"

_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_BASELINE_MESSAGE_BYTES, "the input's message fits");

#define KEY_BYTES     128
#define CHANGES_SHOWN 12

typedef const struct flw_json_node *node;

static const char *text_of(node object, const char *key)
{
    return flw_json_member(object, key, FLW_JSON_STRING)->text;
}

static node first_of(node object, const char *key)
{
    return flw_json_member(object, key, FLW_JSON_ARRAY)->child;
}

/* ---- reading ---- */

/* Check that the tree is a report, and of this schema. */
static bool is_report(struct flw_input *input, node root)
{
    node schema = flw_json_member(root, "schema", FLW_JSON_NUMBER), at = root;
    const char *wrong = root->kind != FLW_JSON_OBJECT     ? "it begins with no object"
                        : schema->kind == FLW_JSON_FAILED ? "no schema is named"
                                                          : NULL;
    for (node trace = first_of(root, "traces"); wrong == NULL && trace != NULL;
         trace = trace->next) {
        if (flw_json_member(trace, "title", FLW_JSON_STRING)->kind == FLW_JSON_FAILED) {
            wrong = "a trace has no title";
            at = trace;
        }
    }
    if (wrong != NULL) {
        return flw_input_fail(input, at->offset, "%s; it is not the JSON of fallow report", wrong);
    }
    return strtod(schema->text, NULL) == FLW_PRINT_SCHEMA ||
           flw_input_fail(input, schema->offset,
                          "schema %s, and this fallow reads %d; write it anew", schema->text,
                          FLW_PRINT_SCHEMA);
}

static bool read_all(struct flw_input *input, struct flw_json_tree *out)
{
    FLW_LOCAL struct flw_json *json = flw_host_alloc(1, sizeof *json);
    json->input = input;
    bool is_read =
        flw_json_tree_read(out, json) && flw_input_drain(input) && is_report(input, out->root);
    flw_input_close(input);
    return is_read;
}

bool flw_baseline_read(const char *path, struct flw_json_tree *out, char *message)
{
    struct flw_input input;
    message[0] = '\0';
    return flw_input_open(&input, path, message) && read_all(&input, out);
}

bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_json_tree *out,
                             char *message)
{
    struct flw_input input;
    message[0] = '\0';
    return flw_input_open_bytes(&input, text, length, "this report", message) &&
           read_all(&input, out);
}

/* ---- matching ---- */

/* Return the element whose text at `key`, without the first `skipped` characters, is `wanted`; NULL: none. */
static node find(node element, const char *key, size_t skipped, const char *wanted)
{
    while (element != NULL && strcmp(text_of(element, key) + skipped, wanted) != 0) {
        element = element->next;
    }
    return element;
}

/* Return the length of the file's name if all traces are of one file ("NAME", and "NAME, device 1" of the other
 * devices), else 0. */
static size_t find_stem(node traces)
{
    size_t length = traces == NULL ? 0 : strlen(text_of(traces, "title"));
    for (node trace = traces == NULL ? NULL : traces->next; trace != NULL; trace = trace->next) {
        const char *title = text_of(trace, "title");
        if (strncmp(text_of(traces, "title"), title, length) != 0 || title[length] != ',') {
            return 0;
        }
    }
    return length;
}

/* A trace or one of a trace's policies in two reports. */
struct match {
    const char *title, *policy; /* policy "": the trace itself */
    node a, b;                  /* b NULL: only the first report has it */
};

struct matches {
    struct match *list;
    size_t count, capacity;
};

/* List the traces of `a`, each followed by its policies. goes_by_file: ignore the name if each report has one file. */
static struct matches match_reports(const struct flw_json_tree *a, const struct flw_json_tree *b,
                                    bool goes_by_file)
{
    struct matches matches = {NULL, 0, 0};
    node a_traces = first_of(a->root, "traces"), b_traces = first_of(b->root, "traces");
    size_t a_stem = find_stem(a_traces), b_stem = find_stem(b_traces);
    if (!goes_by_file || a_stem == 0 || b_stem == 0) {
        a_stem = b_stem = 0;
    }
    for (node trace = a_traces; trace != NULL; trace = trace->next) {
        const char *title = text_of(trace, "title");
        node other = find(b_traces, "title", b_stem, title + a_stem);
        node others = other == NULL ? NULL : first_of(other, "policies");
        FLW_HOST_ADD(matches.list, matches.count, matches.capacity,
                     (struct match){title, "", trace, other});
        for (node policy = first_of(trace, "policies"); policy != NULL; policy = policy->next) {
            const char *name = text_of(policy, "name");
            FLW_HOST_ADD(matches.list, matches.count, matches.capacity,
                         (struct match){title, name, policy, find(others, "name", 0, name)});
        }
    }
    return matches;
}

/* ---- numbers ---- */

static bool is_number(node value)
{
    return value->kind == FLW_JSON_NUMBER ||
           (value->kind == FLW_JSON_LITERAL && strcmp(value->text, "null") == 0);
}

/* Add a row for each number that differs, in both objects and their nested objects. */
static void add_numbers(node a, node b, const char *prefix, struct flw_table *table)
{
    for (node from = a->child; from != NULL; from = from->next) {
        node to = flw_json_member(b, from->key, FLW_JSON_FAILED);
        double share = strtod(to->text, NULL) / strtod(from->text, NULL) - 1.0;
        bool is_known = from->kind == to->kind && isfinite(share);
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s%s", prefix, from->key);
        if (from->kind == FLW_JSON_OBJECT && to->kind == FLW_JSON_OBJECT && prefix[0] == '\0' &&
            strcmp(key, "holders") != 0) {
            flw_append(key, sizeof key, ".");
            add_numbers(from, to, key, table);
        } else if (is_number(from) && is_number(to) && strcmp(from->text, to->text) != 0) {
            flw_table_row(table, NULL);
            flw_table_name(table, "", key);
            flw_table_cell(table, "before", from->text);
            flw_table_cell(table, "after", to->text);
            flw_table_change(table, "change %", 2, is_known ? 100.0 * share : NAN);
        }
    }
}

/* Print the changes of a trace or policy. Returns false if there are none. */
static bool print_numbers(const struct match *match, FILE *out)
{
    struct flw_table table = {.row_count = 0};
    if (match->b != NULL) {
        add_numbers(match->a, match->b, "", &table);
    }
    bool differ = table.row_count != 0;
    if (differ) {
        fprintf(out, "%s%s%s\n", match->title, match->policy[0] == '\0' ? "" : " ", match->policy);
        flw_table_print(&table, out);
    }
    return differ;
}

/* Print the traces and the policies that only the report of `side` has. */
static void print_missing(const struct matches *matches, const char *side, FILE *out)
{
    for (size_t i = 0; i < matches->count; i++) {
        const struct match *match = &matches->list[i];
        if (match->b == NULL) {
            fprintf(out, "only in %s: %s%s%s\n", side, match->title,
                    match->policy[0] == '\0' ? "" : " ", match->policy);
        }
    }
}

/* ---- owners ---- */

struct change {
    const char *name;
    uint64_t bytes[2]; /* before and after */
};

/* The changes of one moment of one trace. */
struct changes {
    struct change *list;
    size_t count, capacity;
    uint64_t bytes[2]; /* totals, including unchanged owners */
};

static uint64_t size_of(const struct change *change)
{
    return flw_max(change->bytes[0], change->bytes[1]) -
           flw_min(change->bytes[0], change->bytes[1]);
}

static int compare_changes(const void *a, const void *b)
{
    uint64_t left = size_of(a), right = size_of(b);
    return left != right
               ? (left > right ? -1 : 1)
               : strcmp(((const struct change *)a)->name, ((const struct change *)b)->name);
}

static uint64_t count_of(node object, const char *key)
{
    return strtoull(flw_json_member(object, key, FLW_JSON_NUMBER)->text, NULL, 10);
}

/* Add the owners of a moment; side 0: before, 1: after. Owners with the same displayed name are merged. */
static void add_owners(struct changes *changes, node moment, unsigned side)
{
    changes->bytes[side] = count_of(moment, "rest_bytes");
    for (node owner = first_of(moment, "owners"); owner != NULL; owner = owner->next) {
        const char *name = text_of(owner, "owner");
        uint64_t bytes = count_of(owner, "bytes");
        size_t at = 0;
        while (at < changes->count && strcmp(changes->list[at].name, name) != 0) {
            at++;
        }
        if (at == changes->count) {
            FLW_HOST_ADD(changes->list, changes->count, changes->capacity,
                         (struct change){.name = name});
        }
        changes->list[at].bytes[side] += bytes;
        changes->bytes[side] += bytes;
    }
}

static void add_change(struct flw_table *table, const char *name, const uint64_t *bytes)
{
    double difference = (double)bytes[1] - (double)bytes[0];
    flw_table_row(table, NULL);
    flw_table_bytes(table, "before", bytes[0]);
    flw_table_bytes(table, "after", bytes[1]);
    flw_table_change(table, "change", table->unit.decimals, difference / (double)table->unit.bytes);
    flw_table_name(table, "owner", name);
}

/* Print the changed owners. Returns false if there are none. */
static bool print_changes(const char *title, const char *when, struct changes *changes, FILE *out)
{
    struct flw_table table = {.unit =
                                  flw_unit_choose(flw_max(changes->bytes[0], changes->bytes[1]))};
    uint64_t others[] = {changes->bytes[0], changes->bytes[1]};
    FLW_SORT(changes->list, changes->count, compare_changes);
    if (others[0] == others[1] && (changes->count == 0 || size_of(&changes->list[0]) == 0)) {
        return false;
    }
    for (size_t i = 0; i < changes->count && i < CHANGES_SHOWN; i++) {
        const struct change *change = &changes->list[i];
        if (size_of(change) != 0) {
            add_change(&table, change->name, change->bytes);
            others[0] -= change->bytes[0];
            others[1] -= change->bytes[1];
        }
    }
    if (others[0] != 0 || others[1] != 0) {
        add_change(&table, "the others", others);
    }
    add_change(&table, "all", changes->bytes);
    fprintf(out, "%s, by owner, %s\n", title, when);
    flw_table_print(&table, out);
    return true;
}

static bool print_owners(const struct match *match, FILE *out)
{
    static const char *const moments[][2] = {
        {"at_peak", "at the peak"},
        {"at_out_of_memory", "when it ran out of memory"},
        {"at_end", "at the end"},
        {"survivors", "allocated in the recording, not freed"}};
    bool differ = false;
    for (size_t i = 0; match->b != NULL && i < sizeof moments / sizeof *moments; i++) {
        struct changes changes = {0};
        node before = flw_json_member(match->a, "holders", FLW_JSON_OBJECT);
        node after = flw_json_member(match->b, "holders", FLW_JSON_OBJECT);
        before = flw_json_member(before, moments[i][0], FLW_JSON_OBJECT);
        after = flw_json_member(after, moments[i][0], FLW_JSON_OBJECT);
        if (before->kind == FLW_JSON_OBJECT && after->kind == FLW_JSON_OBJECT) {
            add_owners(&changes, before, 0);
            add_owners(&changes, after, 1);
            differ |= print_changes(match->title, moments[i][1], &changes, out);
        }
        flw_host_free(changes.list);
    }
    return differ;
}

/* ---- both ---- */

void flw_baseline_print_diff(const struct flw_json_tree *a, const struct flw_json_tree *b,
                             FILE *out)
{
    struct matches matches = match_reports(a, b, true), turned = match_reports(b, a, true);
    bool differ = false;
    for (size_t i = 0; i < matches.count; i++) {
        differ |= print_numbers(&matches.list[i], out);
    }
    print_missing(&matches, "the first", out);
    print_missing(&turned, "the second", out);
    for (size_t i = 0; i < matches.count; i++) {
        if (matches.list[i].policy[0] == '\0') {
            differ |= print_owners(&matches.list[i], out);
        }
    }
    if (!differ) {
        fputs("no number differs\n", out);
    }
    flw_host_free(matches.list);
    flw_host_free(turned.list);
}

/* Return the relative growth of a figure; NAN if a report lacks the figure. */
static double find_growth(node before, node after)
{
    double from = strtod(before->text, NULL), to = strtod(after->text, NULL);
    if (before->kind == FLW_JSON_FAILED || after->kind == FLW_JSON_FAILED) {
        return NAN;
    }
    return from != 0 ? to / from - 1.0 : to > 0 ? 1.0 : 0.0;
}

bool flw_baseline_is_kept(const struct flw_json_tree *then, const struct flw_json_tree *now,
                          char *message)
{
    static const char *const keys[] = {"peak_reserved_bytes", "failures"};
    struct matches matches = match_reports(then, now, false);
    double most = 0;
    snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
             "the baseline has no trace and policy in common with this report");
    for (size_t i = 0; i < 2 * matches.count; i++) {
        const struct match *match = &matches.list[i / 2];
        if (match->policy[0] == '\0' || match->b == NULL) {
            continue;
        }
        node before = flw_json_member(match->a, keys[i % 2], FLW_JSON_NUMBER);
        node after = flw_json_member(match->b, keys[i % 2], FLW_JSON_NUMBER);
        double growth = find_growth(before, after);
        if (growth > most) {
            snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
                     "%s: policy %s has %s of %s, above the baseline's %s (%+.2f %%)", match->title,
                     match->policy, keys[i % 2], after->text, before->text, 100.0 * growth);
            most = growth;
        } else if (growth <= 0 && most == 0) {
            message[0] = '\0';
        }
    }
    flw_host_free(matches.list);
    return message[0] == '\0';
}
