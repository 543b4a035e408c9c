/* SPDX-License-Identifier: Apache-2.0 */
#include "report/baseline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

#include "common/tabular.h"
#include "common/tool_host.h"
#include "report/print.h"

_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_BASELINE_MESSAGE_BYTES, "the input's message fits");

#define KEY_BYTES     128
#define CHANGES_SHOWN 12

typedef const struct flw_json_node *node;

/* ---- reading ---- */

/* Return why the tree is no report, and where; NULL for a report. */
static const char *blame(const struct flw_json_tree *tree, node *out_at)
{
    node root = &tree->nodes[0];
    *out_at = root;
    if (root->kind != FLW_JSON_OBJECT) {
        return "it begins with no object";
    }
    *out_at = flw_json_member(tree, root, "schema", FLW_JSON_NUMBER);
    if ((*out_at)->kind == FLW_JSON_FAILED) {
        *out_at = root;
        return "no schema is named";
    }
    node traces = flw_json_member(tree, root, "traces", FLW_JSON_ARRAY);
    for
        FLW_JSON_EACH(tree, trace, traces)
        {
            *out_at = trace;
            if (flw_json_member(tree, trace, "title", FLW_JSON_STRING)->kind == FLW_JSON_FAILED) {
                return "a trace has no title";
            }
        }
    return NULL;
}

static bool read_all(struct flw_input *input, struct flw_baseline *out)
{
    struct flw_json *json = flw_host_alloc(1, sizeof *json);
    node at;
    *out = (struct flw_baseline){0};
    json->input = input;
    bool is_read = flw_json_tree_read(&out->tree, json) && flw_input_drain(input);
    flw_host_free(json);
    const char *wrong = is_read ? blame(&out->tree, &at) : NULL;
    if (wrong != NULL) {
        is_read =
            flw_input_fail(input, at->offset, "%s; it is not the JSON of fallow report", wrong);
    } else if (is_read) {
        at = flw_json_member(&out->tree, &out->tree.nodes[0], "schema", FLW_JSON_NUMBER);
        const char *schema = flw_json_text_of(&out->tree, at);
        is_read =
            strtod(schema, NULL) == FLW_PRINT_SCHEMA ||
            flw_input_fail(input, at->offset, "schema %s, and this fallow reads %d; write it anew",
                           schema, FLW_PRINT_SCHEMA);
    }
    flw_input_close(input);
    if (!is_read) {
        flw_baseline_finish(out);
    }
    return is_read;
}

bool flw_baseline_read(const char *path, struct flw_baseline *out, char *message)
{
    struct flw_input input;
    message[0] = '\0';
    return flw_input_open(&input, path, message) && read_all(&input, out);
}

bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_baseline *out,
                             char *message)
{
    struct flw_input input;
    message[0] = '\0';
    return flw_input_open_bytes(&input, text, length, "this report", message) &&
           read_all(&input, out);
}

void flw_baseline_finish(struct flw_baseline *baseline)
{
    flw_json_tree_finish(&baseline->tree);
}

/* ---- finding ---- */

static const char *member_text(const struct flw_json_tree *tree, node object, const char *key)
{
    return flw_json_text_of(tree, flw_json_member(tree, object, key, FLW_JSON_STRING));
}

static node member_list(const struct flw_json_tree *tree, node object, const char *key)
{
    return flw_json_member(tree, object, key, FLW_JSON_ARRAY);
}

static node traces_of(const struct flw_baseline *of)
{
    return member_list(&of->tree, &of->tree.nodes[0], "traces");
}

/* Return the length of the file's name if all traces are of one file ("NAME", and "NAME, device 1" of the other
 * devices), else 0. */
static size_t find_stem(const struct flw_baseline *of)
{
    const char *first = NULL;
    for
        FLW_JSON_EACH(&of->tree, trace, traces_of(of))
        {
            const char *title = member_text(&of->tree, trace, "title");
            size_t length = first == NULL ? 0 : strlen(first);
            if (first == NULL) {
                first = title;
            } else if (strncmp(first, title, length) != 0 || title[length] != ',') {
                return 0;
            }
        }
    return first == NULL ? 0 : strlen(first);
}

/* Two reports to compare. */
struct pair {
    const struct flw_json_tree *a, *b;
    node a_traces, b_traces;
    size_t a_stem, b_stem; /* both 0: compare whole titles */
};

static struct pair pair_of(const struct flw_baseline *a, const struct flw_baseline *b,
                           bool goes_by_file)
{
    struct pair pair = {&a->tree, &b->tree, traces_of(a), traces_of(b), find_stem(a), find_stem(b)};
    if (!goes_by_file || pair.a_stem == 0 || pair.b_stem == 0) {
        pair.a_stem = pair.b_stem = 0;
    }
    return pair;
}

static node find_trace(const struct pair *pair, node wanted)
{
    const char *title = member_text(pair->a, wanted, "title") + pair->a_stem;
    for
        FLW_JSON_EACH(pair->b, trace, pair->b_traces)
        {
            if (strcmp(member_text(pair->b, trace, "title") + pair->b_stem, title) == 0) {
                return trace;
            }
        }
    return flw_json_at(pair->b, 0);
}

/* Return the element with the same text at `key`. */
static node find_named(const struct pair *pair, node list, const char *key, const char *name)
{
    for
        FLW_JSON_EACH(pair->b, element, list)
        {
            if (strcmp(member_text(pair->b, element, key), name) == 0) {
                return element;
            }
        }
    return flw_json_at(pair->b, 0);
}

/* ---- numbers ---- */

static bool is_number(const struct flw_json_tree *tree, node value)
{
    return value->kind == FLW_JSON_NUMBER ||
           (value->kind == FLW_JSON_LITERAL && strcmp(flw_json_text_of(tree, value), "null") == 0);
}

/* Add a row for each number that differs, in both objects and their nested objects. */
static void add_numbers(const struct pair *pair, node a, node b, const char *prefix,
                        struct flw_table *table)
{
    for
        FLW_JSON_EACH(pair->a, from, a)
        {
            const char *name = flw_json_key_of(pair->a, from);
            node to = flw_json_member(pair->b, b, name, FLW_JSON_FAILED);
            const char *before = flw_json_text_of(pair->a, from),
                       *after = flw_json_text_of(pair->b, to);
            double share = strtod(after, NULL) / strtod(before, NULL) - 1.0;
            bool is_known = from->kind == to->kind && isfinite(share);
            char key[KEY_BYTES];
            snprintf(key, sizeof key, "%s%s", prefix, name);
            if (from->kind == FLW_JSON_OBJECT && to->kind == FLW_JSON_OBJECT && prefix[0] == '\0' &&
                strcmp(name, "holders") != 0) {
                flw_append(key, sizeof key, ".");
                add_numbers(pair, from, to, key, table);
            } else if (is_number(pair->a, from) && is_number(pair->b, to) &&
                       strcmp(before, after) != 0) {
                const union flw_value values[] = {{.text = key},
                                                  {.text = before},
                                                  {.text = after},
                                                  {.real = is_known ? 100.0 * share : NAN}};
                flw_table_row(table, NULL, values);
            }
        }
}

/* Print the changes of a trace or of the trace's policy of that name; return true if there are any. */
static bool print_numbers(const struct pair *pair, node a, node b, const char *title,
                          const char *policy, size_t width, FILE *out)
{
    static const struct flw_column columns[] = {{"", FLW_COLUMN_TEXT, 0, false},
                                                {"before", FLW_COLUMN_CELL, 0, false},
                                                {"after", FLW_COLUMN_CELL, 0, false},
                                                {"change %", FLW_COLUMN_REAL, 2, true}};
    struct flw_table table;
    flw_table_begin(&table, columns, 4, flw_unit_choose(0));
    add_numbers(pair, a, b, "", &table);
    bool differ = table.row_count > table.head_count;
    if (differ) {
        fprintf(out, "%s%s%s\n", title, policy[0] == '\0' ? "" : " ", policy);
        flw_table_print(&table, width, out);
    }
    flw_table_finish(&table);
    return differ;
}

static bool print_trace(const struct pair *pair, node a, node b, size_t width, FILE *out)
{
    const char *title = member_text(pair->a, a, "title");
    bool differ = print_numbers(pair, a, b, title, "", width, out);
    for
        FLW_JSON_EACH(pair->a, policy, member_list(pair->a, a, "policies"))
        {
            const char *name = member_text(pair->a, policy, "name");
            node other = find_named(pair, member_list(pair->b, b, "policies"), "name", name);
            differ |= print_numbers(pair, policy, other, title, name, width, out);
        }
    return differ;
}

/* Print the traces and the policies of `pair->a` that `pair->b` lacks. */
static void print_missing(const struct pair *pair, const char *side, FILE *out)
{
    for
        FLW_JSON_EACH(pair->a, trace, pair->a_traces)
        {
            const char *title = member_text(pair->a, trace, "title");
            node other = find_trace(pair, trace);
            if (other->kind == FLW_JSON_FAILED) {
                fprintf(out, "only in %s: %s\n", side, title);
            }
        for
            FLW_JSON_EACH(pair->a, policy, member_list(pair->a, trace, "policies"))
            {
                const char *name = member_text(pair->a, policy, "name");
                node list = member_list(pair->b, other, "policies");
                if (find_named(pair, list, "name", name)->kind == FLW_JSON_FAILED) {
                    fprintf(out, "only in %s: %s %s\n", side, title, name);
                }
            }
        }
}

/* ---- owners ---- */

struct change {
    const char *name;
    uint64_t before, after;
};

/* The changes of one moment of one trace. */
struct changes {
    struct change *list;
    size_t count, capacity;
    uint64_t before, after; /* totals, including unchanged owners */
};

static uint64_t size_of(const struct change *change)
{
    return change->after > change->before ? change->after - change->before
                                          : change->before - change->after;
}

static int compare_changes(const void *a, const void *b)
{
    uint64_t left = size_of(a), right = size_of(b);
    return left != right
               ? (left > right ? -1 : 1)
               : strcmp(((const struct change *)a)->name, ((const struct change *)b)->name);
}

static uint64_t member_count(const struct flw_json_tree *tree, node object, const char *key)
{
    return strtoull(flw_json_text_of(tree, flw_json_member(tree, object, key, FLW_JSON_NUMBER)),
                    NULL, 10);
}

/* Add the owners of a moment. Owners with the same displayed name are merged. */
static void add_owners(struct changes *changes, const struct flw_json_tree *tree, node moment,
                       bool is_after)
{
    uint64_t *sum = is_after ? &changes->after : &changes->before;
    *sum = member_count(tree, moment, "rest_bytes");
    for
        FLW_JSON_EACH(tree, owner, member_list(tree, moment, "owners"))
        {
            const char *name = member_text(tree, owner, "owner");
            uint64_t bytes = member_count(tree, owner, "bytes");
            size_t at = 0;
            while (at < changes->count && strcmp(changes->list[at].name, name) != 0) {
                at++;
            }
            if (at == changes->count) {
                changes->list = flw_host_grow(changes->list, &changes->capacity, ++changes->count,
                                              sizeof *changes->list);
                changes->list[at] = (struct change){.name = name};
            }
            *(is_after ? &changes->list[at].after : &changes->list[at].before) += bytes;
            *sum += bytes;
        }
}

static void add_change(struct flw_table *table, const char *name, uint64_t before, uint64_t after)
{
    double difference = (double)after - (double)before;
    const union flw_value values[] = {{.count = before},
                                      {.count = after},
                                      {.real = difference / (double)table->unit.bytes},
                                      {.text = name}};
    flw_table_row(table, NULL, values);
}

/* Print the changed owners. Returns false if there are none. */
static bool print_changes(const char *title, const char *when, struct changes *changes,
                          size_t width, FILE *out)
{
    struct flw_unit unit = flw_unit_choose(flw_max(changes->before, changes->after));
    const struct flw_column columns[] = {{"before", FLW_COLUMN_BYTES, 0, false},
                                         {"after", FLW_COLUMN_BYTES, 0, false},
                                         {"change", FLW_COLUMN_REAL, unit.decimals, true},
                                         {"owner", FLW_COLUMN_TEXT, 0, false}};
    uint64_t before = changes->before, after = changes->after;
    struct flw_table table;
    if (changes->count != 0) {
        qsort(changes->list, changes->count, sizeof *changes->list, compare_changes);
    }
    if (before == after && (changes->count == 0 || size_of(&changes->list[0]) == 0)) {
        return false;
    }
    flw_table_begin(&table, columns, 4, unit);
    for (size_t i = 0; i < changes->count && i < CHANGES_SHOWN; i++) {
        const struct change *change = &changes->list[i];
        if (size_of(change) == 0) {
            break;
        }
        add_change(&table, change->name, change->before, change->after);
        before -= change->before;
        after -= change->after;
    }
    if (before != 0 || after != 0) {
        add_change(&table, "the others", before, after);
    }
    add_change(&table, "all", changes->before, changes->after);
    fprintf(out, "%s, by owner, %s\n", title, when);
    flw_table_print(&table, width, out);
    flw_table_finish(&table);
    return true;
}

static bool print_owners(const struct pair *pair, node a, node b, size_t width, FILE *out)
{
    static const char *const moments[][2] = {
        {"at_peak", "at the peak"},
        {"at_out_of_memory", "when it ran out of memory"},
        {"at_end", "at the end"},
        {"survivors", "allocated in the recording, not freed"}};
    node before = flw_json_member(pair->a, a, "holders", FLW_JSON_OBJECT);
    node after = flw_json_member(pair->b, b, "holders", FLW_JSON_OBJECT);
    bool differ = false;
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        struct changes changes = {0};
        node from = flw_json_member(pair->a, before, moments[i][0], FLW_JSON_OBJECT);
        node to = flw_json_member(pair->b, after, moments[i][0], FLW_JSON_OBJECT);
        if (from->kind == FLW_JSON_OBJECT && to->kind == FLW_JSON_OBJECT) {
            add_owners(&changes, pair->a, from, false);
            add_owners(&changes, pair->b, to, true);
            differ |= print_changes(member_text(pair->a, a, "title"), moments[i][1], &changes,
                                    width, out);
        }
        flw_host_free(changes.list);
    }
    return differ;
}

/* ---- both ---- */

void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b,
                             size_t columns, FILE *out)
{
    struct pair pair = pair_of(a, b, true);
    struct pair turned = pair_of(b, a, true);
    bool differ = false;
    for
        FLW_JSON_EACH(pair.a, trace, pair.a_traces)
        {
            differ |= print_trace(&pair, trace, find_trace(&pair, trace), columns, out);
        }
    print_missing(&pair, "the first", out);
    print_missing(&turned, "the second", out);
    for
        FLW_JSON_EACH(pair.a, trace, pair.a_traces)
        {
            differ |= print_owners(&pair, trace, find_trace(&pair, trace), columns, out);
        }
    if (!differ) {
        fputs("no number differs\n", out);
    }
}

/* The figure of a policy with the largest relative growth. */
struct worst {
    double most;
    const char *title, *policy, *key, *before, *after;
    size_t compared_count;
};

static void compare_policy(const struct pair *pair, node then, node now, const char *title,
                           struct worst *worst)
{
    static const char *const keys[] = {"peak_reserved_bytes", "failures"};
    for (size_t i = 0; i < 2; i++) {
        node before = flw_json_member(pair->a, then, keys[i], FLW_JSON_NUMBER);
        node after = flw_json_member(pair->b, now, keys[i], FLW_JSON_NUMBER);
        if (before->kind == FLW_JSON_FAILED || after->kind == FLW_JSON_FAILED) {
            continue;
        }
        const char *texts[] = {flw_json_text_of(pair->a, before), flw_json_text_of(pair->b, after)};
        double from = strtod(texts[0], NULL), to = strtod(texts[1], NULL);
        double excess = from == 0 ? (to > 0 ? 1.0 : 0.0) : to / from - 1.0;
        worst->compared_count++;
        if (excess > worst->most) {
            *worst = (struct worst){excess,
                                    title,
                                    member_text(pair->a, then, "name"),
                                    keys[i],
                                    texts[0],
                                    texts[1],
                                    worst->compared_count};
        }
    }
}

bool flw_baseline_is_kept(const struct flw_baseline *then, const struct flw_baseline *now,
                          char *message)
{
    struct pair pair = pair_of(then, now, false);
    struct worst worst = {.most = 0};
    for
        FLW_JSON_EACH(pair.a, trace, pair.a_traces)
        {
            node other = member_list(pair.b, find_trace(&pair, trace), "policies");
        for
            FLW_JSON_EACH(pair.a, policy, member_list(pair.a, trace, "policies"))
            {
                compare_policy(
                    &pair, policy,
                    find_named(&pair, other, "name", member_text(pair.a, policy, "name")),
                    member_text(pair.a, trace, "title"), &worst);
            }
        }
    message[0] = '\0';
    if (worst.compared_count == 0) {
        snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
                 "the baseline has no trace and policy in common with this report");
    } else if (worst.most > 0) {
        snprintf(message, FLW_BASELINE_MESSAGE_BYTES,
                 "%s: policy %s has %s of %s, above the baseline's %s (%+.2f %%)", worst.title,
                 worst.policy, worst.key, worst.after, worst.before, 100.0 * worst.most);
    }
    return message[0] == '\0';
}
