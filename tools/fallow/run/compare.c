/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/command.h"

#define SHOWN_BYTES 60 /* of a line that differs */

struct run {
    unsigned pattern;
    FILE *output;
    struct flw_launch launch;
};

/* Run the command. Returns 0, or an exit code after an error. */
static int run_once(const struct flw_launch *launch, struct run *run)
{
    struct flw_settings_text settings = *launch->settings;
    char value[8];
    int code = FLW_EXIT_FAILED, nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    run->launch = *launch;
    snprintf(value, sizeof value, "0x%02x", run->pattern);
    run->output = tmpfile();
    if (run->output == NULL || nothing < 0) {
        flw_complain("%s: cannot keep the command's output: %s", launch->subcommand,
                     strerror(errno));
    } else if (flw_settings_put(&settings, "poison", value)) {
        run->launch.settings = &settings;
        run->launch.input = nothing;
        run->launch.output = fileno(run->output);
        code = flw_launch(&run->launch);
        run->launch.settings = launch->settings;
    }
    if (nothing >= 0) {
        (void)close(nothing);
    }
    return code;
}

struct difference {
    uint64_t offset, line, line_begin; /* of the first different byte; lines from 1 */
    bool found;
};

static struct difference find_difference(FILE *a, FILE *b)
{
    struct difference first = {.line = 1};
    rewind(a);
    rewind(b);
    for (;; first.offset++) {
        int x = getc(a), y = getc(b);
        if (x != y || x == EOF) {
            first.found = x != y;
            return first;
        }
        if (x == '\n') {
            first.line++;
            first.line_begin = first.offset + 1;
        }
    }
}

/* Print the run's output from shortly before the first different byte. */
static void show_line(const struct run *run, const struct difference *first)
{
    uint64_t before = first->offset - first->line_begin;
    uint64_t from = before > SHOWN_BYTES / 2 ? first->offset - SHOWN_BYTES / 2 : first->line_begin;
    char text[SHOWN_BYTES];
    size_t length = 0, shown = 0;
    if (fseeko(run->output, (off_t)from, SEEK_SET) == 0) {
        length = fread(text, 1, sizeof text, run->output);
    }
    for (; shown < length && text[shown] != '\n'; shown++) {
        text[shown] = (char)(text[shown] >= 0x20 && text[shown] < 0x7F ? text[shown] : '.');
    }
    printf("  0x%02x: %s%.*s%s\n", run->pattern, from > first->line_begin ? "..." : "", (int)shown,
           text, length == 0 ? "(its output has ended)" : "");
}

static void name_end(const struct run *run, char *out, size_t room)
{
    if (run->launch.signal != 0) {
        snprintf(out, room, "died of %s", strsignal(run->launch.signal));
    } else {
        snprintf(out, room, "exit status %d", run->launch.exit_code);
    }
}

static int tell(const struct run *a, const struct run *b)
{
    char ends[2][80];
    struct difference first = find_difference(a->output, b->output);
    bool is_same_end =
        a->launch.signal == b->launch.signal && a->launch.exit_code == b->launch.exit_code;
    name_end(a, ends[0], sizeof ends[0]);
    name_end(b, ends[1], sizeof ends[1]);
    if (is_same_end && !first.found) {
        printf("no difference between 0x%02x and 0x%02x: %s, %" PRIu64 " bytes of output\n",
               a->pattern, b->pattern, ends[0], first.offset);
        return FLW_EXIT_OK;
    }
    printf("the program's result depends on the contents of fresh memory\n");
    if (!is_same_end) {
        printf("  0x%02x: %s\n  0x%02x: %s\n", a->pattern, ends[0], b->pattern, ends[1]);
    }
    if (first.found) {
        printf("  outputs differ first at byte %" PRIu64 ", in line %" PRIu64 "\n", first.offset,
               first.line);
        show_line(a, &first);
        show_line(b, &first);
    }
    return FLW_EXIT_FAILED;
}

int flw_compare_run(const struct flw_launch *launch, const unsigned patterns[2])
{
    struct run runs[2] = {{.pattern = patterns[0]}, {.pattern = patterns[1]}};
    int code = run_once(launch, &runs[0]);
    if (code == 0 && !flw_launch_is_reached(&runs[0].launch)) {
        code = FLW_EXIT_FAILED; /* nothing was poisoned */
        if (!flw_launch_explain(&runs[0].launch)) {
            flw_complain("%s: nothing was poisoned, Fallow was off; nothing was compared",
                         launch->subcommand);
        }
    }
    if (code == 0) {
        code = run_once(launch, &runs[1]);
    }
    if (code == 0) {
        code = tell(&runs[0], &runs[1]);
    }
    for (int i = 0; i < 2; i++) {
        if (runs[i].output != NULL) {
            (void)fclose(runs[i].output);
        }
    }
    return code;
}
