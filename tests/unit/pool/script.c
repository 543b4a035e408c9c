/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running script files.
 *
 *   script FILE...
 *
 * A line at the left margin names a test; the indented lines below are its statements, separated by line ends or ';'.
 * '#' begins a comment. A statement is a verb and its words, then '=' and the status that the call must return, or
 * several separated by '|'; without '=', FALLOW_OK. `VERB@POOL` calls another pool than the first one. A size is a
 * number with K, M, G or T; an expression joins values with + - * / % and parentheses (`is` compares two).
 *
 *   each NAME VALUE...        run the test once for each value, with $NAME replaced; ',' in a value stands for a space
 *   let NAME VALUE            name a value for the rest of the test
 *   for NAME END { ... }      run the statements for NAME = 0 ... END - 1; $(EXPRESSION) is a number
 *   thread { ... }            run them in a new thread
 *
 * Values: a statistic of the first pool (`hit_count`), of another (`q.hit_count`), `sim.FIELD` of the driver's ledger,
 * `n.ENTRY` (calls of a driver entry point; `n.all`), `failure_count` (pools that could not be created), `oom.FIELD`,
 * `i.FIELD` of the last `info`, `id.STREAM`, `access.BLOCKS.DEVICE`, the address of the last block of a name, `#NAME`
 * (how many it has), and ^VALUE: the value at the last `mark`.
 *
 * Does not: run statements of two threads at once.
 */
#include "unit/pool/script.h"

struct script script;

struct script_runner script_runner;

void script_fail(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "%s: %s: %s\n", script_runner.file, script_runner.statement, text);
    for (int i = 0; i < script_runner.variable_count; i++) {
        fprintf(stderr, "  %s is %s\n", script_runner.variables[i].name,
                script_runner.variables[i].value);
    }
    fprintf(stderr, "  last log line: %s\n", script.log);
    if (!pthread_equal(pthread_self(), script_runner.main_thread)) {
        abort();
    }
    fail();
    abort();
}

void script_cuda(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        script_fail("%s answered %d", what, (int)result);
    }
}

/* ---- statements */

/* Copy a statement with its variables replaced. */
static void substitute(const char *from, size_t length, char *out, size_t room)
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        char piece[256], name[256];
        size_t taken = 1;
        piece[0] = from[at];
        piece[1] = '\0';
        if (from[at] == '$' && at + 1 < length && from[at + 1] == '(') {
            size_t end = at + 2;
            for (size_t depth = 0; end < length && (from[end] != ')' || depth > 0); end++) {
                depth += from[end] == '(' ? 1 : 0;
                depth -= from[end] == ')' ? 1 : 0;
            }
            size_t bytes = end - at - 2;
            if (end == length || bytes >= sizeof name) {
                script_fail("an expression does not end, or is too long");
            }
            memcpy(name, from + at + 2, bytes);
            name[bytes] = '\0';
            snprintf(piece, sizeof piece, "%llu", (unsigned long long)script_value(name));
            taken = end - at + 1;
        } else if (from[at] == '$') {
            for (int i = script_runner.variable_count; i-- > 0;) {
                size_t bytes = strlen(script_runner.variables[i].name);
                if (at + bytes < length &&
                    strncmp(from + at + 1, script_runner.variables[i].name, bytes) == 0) {
                    strcpy(piece, script_runner.variables[i].value);
                    taken = bytes + 1;
                    break;
                }
            }
        }
        size_t bytes = strlen(piece);
        if (used + bytes + 1 > room) {
            script_fail("statement too long");
        }
        memcpy(out + used, piece, bytes);
        used += bytes;
        at += taken;
    }
    out[used] = '\0';
}

static bool is_expected(fallow_status status, char *statuses)
{
    bool is_met = strcmp(statuses, "*") == 0;
    char *rest = NULL;
    for (char *word = strtok_r(statuses, "|", &rest); word != NULL;
         word = strtok_r(NULL, "|", &rest)) {
        is_met = is_met || strcmp(fallow_status_name(status) + strlen("FALLOW_"), word) == 0;
    }
    return is_met;
}

static void run_for(struct script_call *call)
{
    uint64_t end = script_value(call->words[2]);
    int place = script_runner.variable_count++;
    if (place >= SCRIPT_VARIABLES || call->body == NULL) {
        script_fail("bad loop");
    }
    char name[SCRIPT_NAME];
    snprintf(name, sizeof name, "%s", call->words[1]);
    for (uint64_t i = 0; i < end; i++) {
        strcpy(script_runner.variables[place].name, name);
        snprintf(script_runner.variables[place].value, sizeof script_runner.variables[place].value,
                 "%llu", (unsigned long long)i);
        script_run_text(call->body, call->body_length);
    }
    script_runner.variable_count = place;
}

/* let NAME VALUE: for the rest of the test. */
static void run_let(const struct script_call *call)
{
    int place = 0;
    while (place < script_runner.variable_count &&
           strcmp(script_runner.variables[place].name, call->words[1]) != 0) {
        place++;
    }
    if (place == SCRIPT_VARIABLES || call->count < 3) {
        script_fail("no room for a variable");
    }
    script_runner.variable_count += place == script_runner.variable_count;
    snprintf(script_runner.variables[place].name, SCRIPT_NAME, "%s", call->words[1]);
    snprintf(script_runner.variables[place].value, sizeof script_runner.variables[place].value,
             "%s", call->words[2]);
}

static void run_call(struct script_call *call)
{
    char *statuses = NULL, *rest = NULL;
    snprintf(script_runner.statement, sizeof script_runner.statement, "%s", call->text);
    char copy[sizeof call->text];
    strcpy(copy, call->text);
    call->rest = call->text + strcspn(call->text, " ");
    call->rest += strspn(call->rest, " ");
    call->count = 0;
    for (char *word = strtok_r(copy, " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest)) {
        if (strcmp(word, "=") == 0) {
            statuses = strtok_r(NULL, " \n", &rest);
            break;
        }
        if (call->count == SCRIPT_WORDS) {
            script_fail("too many words");
        }
        call->words[call->count++] = word;
    }
    if (call->count == 0) {
        return;
    }
    if (strcmp(call->words[0], "for") == 0) {
        run_for(call);
        return;
    }
    if (strcmp(call->words[0], "let") == 0) {
        run_let(call);
        return;
    }
    char *at = strchr(call->words[0], '@');
    call->pool = script_first_pool();
    if (at != NULL) {
        *at = '\0';
        const struct script_thing *pool = script_find(at + 1, 'p', false);
        call->pool = pool != NULL ? pool->handle : NULL;
    }
    for (const struct script_verb *verb = script_verbs; verb->name != NULL; verb++) {
        if (strcmp(verb->name, call->words[0]) == 0) {
            if (call->count - 1 < verb->least_words) {
                script_fail("words are missing");
            }
            char expected[64];
            snprintf(expected, sizeof expected, "%s", statuses != NULL ? statuses : "OK");
            if (statuses != NULL) {
                script.log[0] = '\0'; /* the line that follows explains this status */
            }
            fallow_status status = verb->run(call);
            if (!is_expected(status, expected)) {
                script_fail("returned %s", fallow_status_name(status));
            }
            return;
        }
    }
    script_fail("no verb '%s'", call->words[0]);
}

/* Return the length of the statement at `text`; its body, if any, is between braces. */
static size_t statement_length(const char *text, size_t length, const char **out_body,
                               size_t *out_body_length)
{
    size_t at = 0, depth = 0, begin = 0;
    *out_body = NULL;
    for (; at < length; at++) {
        if (text[at] == '{' && depth++ == 0) {
            begin = at + 1;
        } else if (text[at] == '}' && --depth == 0) {
            *out_body = text + begin;
            *out_body_length = at - begin;
        } else if (depth == 0 && (text[at] == ';' || text[at] == '\n')) {
            break;
        }
    }
    return at;
}

void script_run_text(const char *text, size_t length)
{
    while (length > 0) {
        struct script_call call = {.body_length = 0};
        size_t begin = strspn(text, " \n;");
        if (begin >= length) {
            return;
        }
        text += begin;
        length -= begin;
        size_t bytes = statement_length(text, length, &call.body, &call.body_length);
        size_t head = call.body != NULL ? (size_t)(call.body - text) - 1 : bytes;
        substitute(text, head, call.text, sizeof call.text);
        run_call(&call);
        text += bytes;
        length -= bytes;
    }
}

/* ---- tests */

static void take_log(void)
{
    script.log[0] = '\0';
    script.log_count = script.alarm_count = 0;
}

static void begin_test(void)
{
    struct flw_sim sim = script.sim;
    for (size_t i = 0; i < script.thing_count; i++) {
        if (script.things[i].kind == 'p') {
            fallow_pool_abandon(script.things[i].handle); /* of a test that failed */
        } else if (script.things[i].kind == 'e') {
            free(script.things[i].handle);
        }
    }
    for (size_t i = 0; i < script.block_count; i++) {
        free(script.blocks[i].ptrs);
        free(script.blocks[i].sizes);
        free(script.blocks[i].streams);
    }
    memset(&script, 0, sizeof script);
    script.sim = sim;
    script_runner.mark_count = 0;
    take_log();
}

void script_check_world(void)
{
    flw_sim_ledger ledger = flw_sim_read_ledger(&script.sim);
    if (!script.is_gone && ledger.given_bytes + ledger.event_count + ledger.mapping_count +
                                   ledger.handle_count + ledger.reserved_address_bytes +
                                   ledger.pinned_bytes !=
                               0) {
        script_fail(
            "left: %llu bytes, %llu events, %llu mappings, %llu handles, %llu addresses, %llu pinned bytes",
            (unsigned long long)ledger.given_bytes, (unsigned long long)ledger.event_count,
            (unsigned long long)ledger.mapping_count, (unsigned long long)ledger.handle_count,
            (unsigned long long)ledger.reserved_address_bytes,
            (unsigned long long)ledger.pinned_bytes);
    }
    if (!script.is_violated && flw_sim_print_violations(&script.sim) != 0) {
        script_fail("rules were broken");
    }
}

/* Destroy the pools, the last one first. */
static void end_test(void)
{
    strcpy(script_runner.statement, "end of the test");
    for (size_t i = script.thing_count; i-- > 0;) {
        if (script.things[i].kind == 'p') {
            fallow_pool_destroy(script.things[i].handle);
        }
    }
    script_check_world();
}

/* Run the test for each value of its `each` lines, from `text` on. */
static void run_each(const char *text)
{
    text += strspn(text, " \n");
    if (strncmp(text, "each ", 5) != 0 || text >= script_runner.end) {
        begin_test();
        script_run_text(text, (size_t)(script_runner.end - text));
        end_test();
        return;
    }
    char line[1024], *rest = NULL;
    size_t length = strcspn(text, "\n");
    snprintf(line, sizeof line, "%.*s", (int)length, text);
    (void)strtok_r(line, " ", &rest);
    int place = script_runner.variable_count++;
    const char *name = strtok_r(NULL, " ", &rest);
    for (char *value = strtok_r(NULL, " ", &rest); value != NULL;
         value = strtok_r(NULL, " ", &rest)) {
        strcpy(script_runner.variables[place].name, name);
        strcpy(script_runner.variables[place].value, value);
        for (char *comma = script_runner.variables[place].value;
             (comma = strchr(comma, ',')) != NULL;) {
            *comma = ' ';
        }
        run_each(text + length);
    }
    script_runner.variable_count = place;
}

struct test {
    const char *file, *begin, *end;
};

static void run_script(void **state)
{
    const struct test *test = *state;
    script_runner.file = test->file;
    script_runner.begin = test->begin;
    script_runner.end = test->end;
    script_runner.variable_count = 0;
    script_runner.main_thread = pthread_self();
    run_each(test->begin);
}

#define TESTS_MOST 400

static struct test tests[TESTS_MOST];
static struct CMUnitTest units[TESTS_MOST];
static size_t test_count;

/* Blank out comments ('# ' to the end of the line), and divide the text at the lines without indentation. */
static void add_file(const char *path)
{
    FILE *in = fopen(path, "r");
    size_t room = 1 << 20, first = test_count;
    char *text = calloc(1, room);
    if (in == NULL || text == NULL) {
        fprintf(stderr, "script: cannot read %s\n", path);
        exit(2);
    }
    text[fread(text, 1, room - 1, in)] = '\0';
    fclose(in);
    for (char *hash = text; (hash = strstr(hash, "# ")) != NULL;) {
        memset(hash, ' ', strcspn(hash, "\n"));
    }
    for (char *line = text; *line != '\0';) {
        char *next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (*line != ' ' && *line != '\n') {
            if (test_count == TESTS_MOST) {
                fprintf(stderr, "script: too many tests\n");
                exit(2);
            }
            next[-1] = '\0';
            tests[test_count] = (struct test){.file = path, .begin = next};
            units[test_count] = (struct CMUnitTest){
                .name = line, .test_func = run_script, .initial_state = &tests[test_count]};
            test_count++;
        }
        if (test_count > first) {
            tests[test_count - 1].end = next;
        }
        line = next;
    }
}

int main(int count, char **words)
{
    if (!flw_sim_open(&script.sim)) {
        return 1;
    }
    for (int i = 1; i < count; i++) {
        add_file(words[i]);
    }
    return _cmocka_run_group_tests(words[count - 1], units, test_count, NULL, NULL);
}
