/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow top` as a command, on a process of the test: every form except the screen, and the messages if there is
 * nothing to show.
 *
 * FALLOW_COMMAND, FALLOW_TOP_TARGET: the programs.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#define TEXT_BYTES (1 << 20)

static char folder[64];
static char text[TEXT_BYTES];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/fallow-top-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* ---- the process that is looked at */

struct target {
    pid_t process;
    FILE *to, *from;
};

static void expect_word(struct target *target, const char *word)
{
    char line[128];
    assert_non_null(fgets(line, sizeof line, target->from));
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(line, word);
}

static void tell(struct target *target, const char *word)
{
    fprintf(target->to, "%s\n", word);
    assert_int_equal(fflush(target->to), 0);
}

static void start(struct target *target, const char *pools)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    target->process = fork();
    if (target->process == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with a test that fails */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        const char *program = getenv("FALLOW_TOP_TARGET");
        if (program != NULL) {
            execl(program, program, folder, pools, (char *)NULL);
        }
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    target->to = fdopen(in[1], "w");
    target->from = fdopen(out[0], "r");
    expect_word(target, "ready");
}

/* The process's status. */
static int reap(struct target *target)
{
    int status = 0;
    fclose(target->to);
    assert_int_equal(waitpid(target->process, &status, 0), target->process);
    fclose(target->from);
    return status;
}

static void end(struct target *target)
{
    tell(target, "quit");
    assert_int_equal(reap(target), 0);
}

static bool has_board(const struct target *target)
{
    char path[128];
    struct stat status;
    snprintf(path, sizeof path, "%s/fallow.%u.%d", folder, (unsigned)geteuid(),
             (int)target->process);
    return stat(path, &status) == 0;
}

/* ---- the command */

/* `fallow top ARGUMENTS`, both outputs into `text`. Its exit status. */
static int run(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' top --directory '%s' %s 2>&1 </dev/null",
             getenv("FALLOW_COMMAND"), folder, arguments);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t count = fread(text, 1, sizeof text - 1, out);
    text[count] = '\0';
    int status = pclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run_on(const struct target *target, const char *arguments)
{
    char line[256];
    snprintf(line, sizeof line, "%d %s", (int)target->process, arguments);
    return run(line);
}

static void expect_text(const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("no '%s' in: %s", part, text);
    }
}

static unsigned count_lines(void)
{
    unsigned count = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        count++;
    }
    return count;
}

/* ---- JSON */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_text(const char *at)
{
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < ' ') {
            return NULL;
        }
        at += *at == '\\';
    }
    return at + 1;
}

/* After one value; NULL: no value. */
static const char *skip_value(const char *at)
{
    char *number_end = NULL;
    at = skip_blanks(at);
    if (*at == '"') {
        return skip_text(at);
    }
    if (*at == '{' || *at == '[') {
        char closing = *at == '{' ? '}' : ']';
        at = skip_blanks(at + 1);
        while (*at != closing) {
            if (closing == '}') {
                at = *at == '"' ? skip_text(at) : NULL;
                if (at == NULL || *skip_blanks(at) != ':') {
                    return NULL;
                }
                at = skip_blanks(at) + 1;
            }
            at = skip_value(at);
            if (at == NULL) {
                return NULL;
            }
            at = skip_blanks(at);
            if (*at == ',' && *skip_blanks(at + 1) != closing) {
                at = skip_blanks(at + 1);
            } else if (*at != closing) {
                return NULL;
            }
        }
        return at + 1;
    }
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    (void)strtod(at, &number_end);
    return number_end == at ? NULL : number_end;
}

static void expect_json_lines(unsigned lines)
{
    const char *at = text;
    for (unsigned i = 0; i < lines; i++) {
        assert_int_equal(*at, '{');
        at = skip_value(at);
        if (at == NULL || *at != '\n') {
            fail_msg("no JSON: %s", text);
            return;
        }
        at++;
    }
    assert_int_equal(*at, '\0');
}

/* Every line of the target's own statistics is in the JSON, under the same name. */
static void expect_stats(struct target *target)
{
    char line[128], head[32], want[160];
    unsigned count = 0;
    tell(target, "stats");
    while (fgets(line, sizeof line, target->from) != NULL && strcmp(line, "end\n") != 0) {
        char *point = NULL, *gap = strchr(line, ' '); /* pool.name value */
        unsigned long pool = strtoul(line, &point, 10);
        if (gap == NULL || *point != '.') {
            fail_msg("no statistic: %s", line);
            return;
        }
        *gap = '\0';
        snprintf(head, sizeof head, "{\"pool\": \"%lu\"", pool);
        snprintf(want, sizeof want, "\"%s\": %llu,", point + 1, strtoull(gap + 1, NULL, 10));
        const char *at = strstr(text, head), *found = at == NULL ? NULL : strstr(at, want);
        const char *streams = at == NULL ? NULL : strstr(at, "\"streams\": [");
        if (found == NULL || streams == NULL || found > streams) {
            fail_msg("pool %lu has no %s in: %s", pool, want, at == NULL ? text : at);
        }
        count++;
    }
    assert_int_equal(count, 2 * 38);
}

static void at_a_quiet_point_the_json_says_what_the_pool_says(void **state)
{
    (void)state;
    struct target target;
    start(&target, "2");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_json_lines(1);
    expect_stats(&target);
    for (int i = 0; i < 2; i++) {
        tell(&target, "work");
        expect_word(&target, "works");
        assert_int_equal(run_on(&target, "--once --json"), 0); /* also during work */
        expect_json_lines(1);
        tell(&target, "rest");
        expect_word(&target, "rests");
        assert_int_equal(run_on(&target, "--once --json"), 0);
        expect_json_lines(1);
        expect_stats(&target);
    }
    expect_text("\"name\": \"top_target\"");
    expect_text("\"kind\": \"stream\"");
    expect_text("{\"size_bytes\": null, ");
    expect_text("\"last_climb\": {\"stage\": \"");
    end(&target);
}

/* ---- text */

static void expect_plain_80_columns(void)
{
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        if (length > 80 || memchr(at, '\033', length) != NULL) {
            fail_msg("more than 80 columns, or an escape: %.*s", (int)length, at);
        }
        at += length + (at[length] == '\n');
    }
}

static void expect_owner(unsigned long long bytes, unsigned count)
{
    char part[96];
    snprintf(part, sizeof part, "\"requested_bytes\": %llu, \"live_count\": %u}", bytes, count);
    expect_text(part);
}

/* Of a pool with three kinds of blocks: older than the recording, and of two places in the program. */
static void whose_the_memory_is_is_told_while_it_is_recorded(void **state)
{
    (void)state;
    struct target target;
    char path[96], word[128];
    start(&target, "1");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_text("\"owners\": null");
    assert_int_equal(run_on(&target, "--once"), 0);
    assert_null(strstr(text, "OWNER"));
    tell(&target, "work");
    expect_word(&target, "works");
    tell(&target, "rest");
    expect_word(&target, "rests");
    snprintf(path, sizeof path, "%s.ftrace", folder);
    snprintf(word, sizeof word, "record %s", path);
    tell(&target, word);
    expect_word(&target, "records");
    tell(&target, "keep");
    expect_word(&target, "kept");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_owner(5 * 3ull << 20, 5);
    expect_owner(7ull << 20, 7);
    expect_text("{\"owner\": \"no call stack, or before the recording\"");
    assert_int_equal(run_on(&target, "--once"), 0);
    expect_plain_80_columns();
    expect_text("  BLOCKS  OWNER\n    15 MiB ");
    expect_text("top_target+0x");
    tell(&target, "drop");
    expect_word(&target, "dropped");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_owner(3 * 3ull << 20, 3);
    expect_owner(7ull << 20, 7);
    tell(&target, "stop");
    expect_word(&target, "stopped");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_text("\"owners\": null");
    end(&target);
    assert_int_equal(unlink(path), 0);
}

static void arenas_are_named(void **state)
{
    (void)state;
    struct target target;
    start(&target, "1");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_text("\"arenas\": []");
    tell(&target, "lease");
    expect_word(&target, "leased");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_text("\"arena_bytes\": 1048576, \"arena_count\": 1,");
    expect_text("\"arenas\": [{\"name\": \"decode?of lane 0\", \"scratch_bytes\": 1048576, "
                "\"persistent_bytes\": 0, \"lease_count\": 1, \"capture_count\": 0, "
                "\"is_leased\": 1, \"is_locked\": 0}]");
    assert_int_equal(run_on(&target, "--once"), 0);
    expect_plain_80_columns();
    expect_text("\narena        1 MiB  decode?of lane 0, leased  kept 0 B  1 leases  0 captures\n");
    assert_int_equal(run("--prometheus"), 0);
    expect_text("\nfallow_pool_arenas{process=");
    tell(&target, "end");
    expect_word(&target, "ended");
    end(&target);
}

static void the_text_is_plain_and_fits_80_columns(void **state)
{
    (void)state;
    struct target target;
    char label[32];
    start(&target, "3");
    tell(&target, "work");
    expect_word(&target, "works");
    assert_int_equal(run_on(&target, "--once"), 0);
    expect_plain_80_columns();
    for (int i = 0; i < 3; i++) {
        snprintf(label, sizeof label, "\npool %d\n", i);
        expect_text(label);
    }
    static const char *const parts[] = {"3 pools",  "\nreserved ", "\nlive ",   "\nfree ",
                                        "\nhits ",  "\nevents ",   "\nladder ", "\nSTREAM ",
                                        "\nCLASS ", "\nruns "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        expect_text(parts[i]);
    }
    assert_int_equal(run(""), 0); /* the list */
    expect_plain_80_columns();
    assert_int_equal(count_lines(), 2);
    expect_text("top_target");
    assert_int_equal(run("--json --once"), 0);
    expect_json_lines(1);
    tell(&target, "rest");
    expect_word(&target, "rests");
    end(&target);
    assert_int_equal(run(""), 0);
    expect_text("no process of this user shows pools");
    assert_int_equal(run("--json"), 0);
    assert_string_equal(text, "");
}

/* Not on a terminal: one view after the other until the process ends. */
static void without_a_terminal_views_follow_each_other_to_the_end(void **state)
{
    (void)state;
    struct target target;
    char command[1024], line[4096];
    unsigned views = 0, rates = 0;
    start(&target, "1");
    tell(&target, "work");
    expect_word(&target, "works");
    snprintf(command, sizeof command, "'%s' top --directory '%s' %d --interval 0.1 2>&1 </dev/null",
             getenv("FALLOW_COMMAND"), folder, (int)target.process);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out) != NULL) {
        views += strncmp(line, "fallow top ", 11) == 0;
        rates += strncmp(line, "hits ", 5) == 0 && strstr(line, " now ") != NULL;
        if (views == 3 && target.process != 0) {
            tell(&target, "rest");
            expect_word(&target, "rests");
            end(&target);
            target.process = 0;
        }
    }
    int status = pclose(out);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(views >= 3 && rates + 1 == views);
}

/* ---- Prometheus */

static bool is_name(const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool is_letter = (at[i] >= 'a' && at[i] <= 'z') || at[i] == '_';
        if (!is_letter && (i == 0 || at[i] < '0' || at[i] > '9')) {
            return false;
        }
    }
    return length > 0;
}

/* {name="value",...}: after the brace; NULL: broken. */
static const char *skip_labels(const char *at)
{
    do {
        size_t length = strcspn(++at, "=");
        if (!is_name(at, length) || at[length] != '=' || at[length + 1] != '"') {
            return NULL;
        }
        for (at += length + 2; *at != '"'; at++) {
            if (*at == '\0' || *at == '\n') {
                return NULL;
            }
            if (*at == '\\' && strchr("\\\"n", *++at) == NULL) {
                return NULL;
            }
        }
        at++;
    } while (*at == ',');
    return *at == '}' ? at + 1 : NULL;
}

struct scrape {
    char metric[128], type[16]; /* of the next samples */
    char seen[200][128];        /* metrics so far */
    unsigned seen_count, sample_count;
    char samples[4000][160]; /* names and labels of samples so far */
};

static void take_head(struct scrape *scrape, const char *line)
{
    char metric[128];
    if (sscanf(line, "# HELP %127s %*s", metric) == 1) {
        for (unsigned i = 0; i < scrape->seen_count; i++) {
            assert_string_not_equal(scrape->seen[i], metric);
        }
        assert_true(scrape->seen_count < 200 && is_name(metric, strlen(metric)));
        strcpy(scrape->seen[scrape->seen_count++], metric);
        strcpy(scrape->metric, metric);
        scrape->type[0] = '\0';
        return;
    }
    assert_int_equal(sscanf(line, "# TYPE %127s %15s", metric, scrape->type), 2);
    assert_string_equal(metric, scrape->metric);
    size_t length = strlen(metric);
    bool is_total = length > 6 && strcmp(metric + length - 6, "_total") == 0;
    assert_string_equal(scrape->type, is_total ? "counter" : "gauge");
    assert_true(length <= 6 || strcmp(metric + length - 6, "_count") != 0);
}

static void take_sample(struct scrape *scrape, const char *line)
{
    size_t length = strcspn(line, "{");
    assert_true(scrape->type[0] != '\0');
    assert_int_equal(length, strlen(scrape->metric));
    assert_memory_equal(line, scrape->metric, length);
    const char *value = skip_labels(line + length);
    char *number_end = NULL;
    if (value == NULL || *value != ' ' || strtod(value + 1, &number_end) < 0 ||
        number_end == value + 1 || *number_end != '\0') {
        fail_msg("no sample: %s", line);
    }
    size_t key = (size_t)(value - line);
    assert_true(key < 160 && scrape->sample_count < 4000);
    memcpy(scrape->samples[scrape->sample_count], line, key);
    for (unsigned i = 0; i < scrape->sample_count; i++) {
        assert_string_not_equal(scrape->samples[i], scrape->samples[scrape->sample_count]);
    }
    scrape->sample_count++;
}

static void the_prometheus_text_is_one(void **state)
{
    (void)state;
    struct target one, two;
    struct scrape *scrape = calloc(1, sizeof *scrape);
    char want[128];
    assert_non_null(scrape);
    start(&one, "2");
    start(&two, "1");
    tell(&one, "work");
    expect_word(&one, "works");
    tell(&one, "rest");
    expect_word(&one, "rests");
    assert_int_equal(run("--prometheus"), 0);
    snprintf(want, sizeof want, "fallow_process_pools{process=\"%d\",command=\"top_target\"} 2\n",
             (int)one.process);
    expect_text(want);
    snprintf(want, sizeof want,
             "fallow_pool_info{process=\"%d\",pool=\"0\",device=\"0\",command=\"top_target\","
             "driver=\"sim\"} 1\n",
             (int)two.process);
    expect_text(want);
    snprintf(want, sizeof want,
             "fallow_pool_limit_bytes{process=\"%d\",pool=\"1\",device=\"0\"} "
             "2147483648\n",
             (int)one.process);
    expect_text(want);
    expect_text("fallow_ladder_climb_total{");
    expect_text(",class=\"runs\"} ");
    char *line = text;
    while (*line != '\0') {
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end); /* the last line ends too */
        *line_end = '\0';
        if (*line == '#') {
            take_head(scrape, line);
        } else {
            take_sample(scrape, line);
        }
        line = line_end + 1;
    }
    assert_true(scrape->seen_count > 40);
    assert_int_equal(run_on(&two, "--prometheus"), 0); /* of one alone */
    snprintf(want, sizeof want, "\"%d\"", (int)one.process);
    assert_null(strstr(text, want));
    free(scrape);
    end(&one);
    end(&two);
}

/* ---- nothing to see */

static void expect_refusal(const char *arguments, int code, const char *part)
{
    assert_int_equal(run(arguments), code);
    expect_text(part);
    assert_int_equal(count_lines(), 1);
    assert_memory_equal(text, "fallow: top: ", 13);
}

static void mistakes_are_named_in_one_line(void **state)
{
    (void)state;
    char line[64];
    expect_refusal("nobody", 2, "'nobody' is no process number");
    expect_refusal("0", 2, "'0' is no process number");
    expect_refusal("12 x", 2, "'x' is no process number");
    expect_refusal("--sort live_bytes", 2, "none of number, reserved, live, cached and hits");
    expect_refusal("--sort hts", 2, "did you mean 'hits'?");
    expect_refusal("2147483646 2147483647 --once", 1, "there is no process 2147483647");
    expect_refusal("--interval 0", 2, "0.1 to 3600");
    expect_refusal("--interval 1s", 2, "0.1 to 3600");
    expect_refusal("--interval nan", 2, "0.1 to 3600");
    expect_refusal("--json --prometheus", 2, "not both");
    expect_refusal("2147483647", 1, "there is no process 2147483647");
    snprintf(line, sizeof line, "%d", (int)getpid());
    expect_refusal(line, 1, "fallow_publish_start");
    expect_refusal("--directory /nonexistent/folder", 1, "/nonexistent/folder: No such file");
    expect_refusal("--directory /nonexistent/folder 7 --json", 1, "/nonexistent/folder");
}

/* Named processes, in that order, each in full; unnamed ones, a line each, in the requested order. */
static void several_processes_are_shown_as_they_were_named(void **state)
{
    (void)state;
    struct target one, two;
    char line[64], title[96];
    start(&one, "1");
    start(&two, "3");
    snprintf(line, sizeof line, "%d %d --once", (int)two.process, (int)one.process);
    assert_int_equal(run(line), 0);
    expect_plain_80_columns();
    snprintf(title, sizeof title, "fallow top  top_target (%d)  3 pools\n", (int)two.process);
    assert_memory_equal(text, title, strlen(title));
    snprintf(title, sizeof title, "\n\nfallow top  top_target (%d)  1 pool\n", (int)one.process);
    expect_text(title);
    snprintf(line, sizeof line, "%d %d --once --json", (int)two.process, (int)one.process);
    assert_int_equal(run(line), 0);
    expect_json_lines(2);
    tell(&two, "work");
    expect_word(&two, "works");
    tell(&two, "rest");
    expect_word(&two, "rests");
    assert_int_equal(run("--once --sort reserved"), 0);
    snprintf(title, sizeof title, "%8d top_target", (int)two.process);
    assert_memory_equal(strchr(text, '\n') + 1, title, strlen(title));
    end(&two);
    snprintf(line, sizeof line, "%d %d --once", (int)two.process, (int)one.process);
    assert_int_equal(run(line), 0); /* the remaining process */
    snprintf(title, sizeof title, "fallow top  top_target (%d)  1 pool\n", (int)one.process);
    assert_memory_equal(text, title, strlen(title));
    end(&one);
}

static void poke(const struct target *target, off_t offset, const void *bytes, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/fallow.%u.%d", folder, (unsigned)geteuid(),
             (int)target->process);
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, bytes, count, offset), (ssize_t)count);
    assert_int_equal(fchmod(file, 0600), 0);
    close(file);
}

static void expect_refusal_of(const struct target *target, const char *part)
{
    char line[64];
    snprintf(line, sizeof line, "%d --once", (int)target->process);
    expect_refusal(line, 1, part);
}

static void what_cannot_be_read_is_named_in_one_line(void **state)
{
    (void)state;
    struct target target;
    char path[128];
    start(&target, "1");
    snprintf(path, sizeof path, "%s/fallow.%u.%d", folder, (unsigned)geteuid(),
             (int)target.process);
    assert_int_equal(chmod(path, 0666), 0); /* others could have changed the file */
    expect_refusal_of(&target, "is not read");
    poke(&target, 8, "\7\0\0\0", 4);
    expect_refusal_of(&target, "publishes in version 7");
    poke(&target, 8, "\3\0\0\0", 4);
    assert_int_equal(run_on(&target, "--once"), 0);
    poke(&target, 0, "?", 1);
    expect_refusal_of(&target, "damaged");
    poke(&target, 0, "F", 1);
    assert_int_equal(kill(target.process, SIGSTOP), 0);
    int status = 0; /* the process stops some time after the signal, and answers until then */
    assert_int_equal(waitpid(target.process, &status, WUNTRACED), target.process);
    assert_true(WIFSTOPPED(status));
    expect_refusal_of(&target, "does not answer");
    assert_int_equal(kill(target.process, SIGCONT), 0);
    assert_int_equal(run_on(&target, "--once"), 0);
    end(&target);
}

static void a_process_without_pools_is_shown_as_that(void **state)
{
    (void)state;
    struct target target;
    start(&target, "0");
    assert_int_equal(run_on(&target, "--once"), 0);
    expect_text("0 pools\nno pools\n");
    assert_int_equal(run_on(&target, "--once --json"), 0);
    expect_text("\"pool_total\": 0, \"pools\": []}");
    end(&target);
}

static void a_kill_leaves_a_file_that_the_next_look_removes(void **state)
{
    (void)state;
    struct target target;
    start(&target, "1");
    assert_true(has_board(&target));
    assert_int_equal(kill(target.process, SIGKILL), 0);
    assert_true(WIFSIGNALED(reap(&target)));
    assert_true(has_board(&target));
    expect_refusal_of(&target, "there is no process");
    assert_false(has_board(&target));
    start(&target, "1");
    tell(&target, "exit"); /* without a stop */
    assert_int_equal(reap(&target), 0);
    assert_false(has_board(&target));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_a_quiet_point_the_json_says_what_the_pool_says),
        cmocka_unit_test(whose_the_memory_is_is_told_while_it_is_recorded),
        cmocka_unit_test(arenas_are_named),
        cmocka_unit_test(the_text_is_plain_and_fits_80_columns),
        cmocka_unit_test(without_a_terminal_views_follow_each_other_to_the_end),
        cmocka_unit_test(the_prometheus_text_is_one),
        cmocka_unit_test(several_processes_are_shown_as_they_were_named),
        cmocka_unit_test(mistakes_are_named_in_one_line),
        cmocka_unit_test(what_cannot_be_read_is_named_in_one_line),
        cmocka_unit_test(a_process_without_pools_is_shown_as_that),
        cmocka_unit_test(a_kill_leaves_a_file_that_the_next_look_removes),
    };
    if (getenv("FALLOW_COMMAND") == NULL || getenv("FALLOW_TOP_TARGET") == NULL) {
        fprintf(stderr, "test_top: FALLOW_COMMAND and FALLOW_TOP_TARGET name the programs\n");
        return FLW_TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
