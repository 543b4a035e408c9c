/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow top`, and its loop without a screen.
 */
#include "top/top.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "common/options.h"

static const char help[] =
    "usage: fallow top [PID ...] [--once] [--json | --prometheus] [--sort KEY] [--interval S]\n"
    "\n"
    "Show the pools of running processes: memory by stream and size class, hits, events, and the steps\n"
    "that served misses. A process publishes its pools when it calls fallow_publish_start\n"
    "(fallow/publish.h), or when it was started by fallow run --set top:1.\n"
    "Without PID: all processes of this user that publish pools.\n"
    "\n"
    "On a terminal the view is redrawn: a list of several processes, or one process in full; tab selects\n"
    "the next process, arrows scroll, r, l, c, h and o sort, q quits. Otherwise, with --json, and in\n"
    "builds without ncurses, views of each PID are printed one after another, or one view without PID.\n"
    "NO_COLOR in the environment turns colours off.\n"
    "\n"
    "  --once           print one view and end\n"
    "  --json           print one JSON object a line for each process\n"
    "  --prometheus     print one text for Prometheus (exposition format 0.0.4)\n"
    "  --sort KEY       sort lists by number (default), reserved, live, cached or hits, largest first\n"
    "  --interval S     seconds between two views, 0.1 to 3600 (1)\n"
    "  --directory DIR  folder where processes publish (/dev/shm)\n"
    "\n"
    "exit status 0: shown, or the process has ended; 1: there is nothing to show, and the line gives the\n"
    "reason; 2: the command line is wrong\n"
    "\n"
    "example: fallow top --once\n";

struct settings {
    struct flw_top_settings top;
    bool is_once, is_json, is_prometheus;
};

/* ---- command line */

static bool take_interval(void *member, const char *text)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0.1 || seconds > 3600) {
        return flw_complain("top: --interval '%.100s': give seconds, 0.1 to 3600", text);
    }
    *(uint64_t *)member = (uint64_t)(seconds * 1e9);
    return true;
}

static bool take_sort(void *member, const char *text)
{
    struct flw_guess guess = {.word = text, .length = strlen(text)};
    char hint[FLW_GUESS_BYTES];
    for (enum flw_top_sort i = FLW_TOP_BY_NUMBER; i < FLW_TOP_SORTS; i++) {
        if (strcmp(text, flw_top_sort_names[i]) == 0) {
            *(enum flw_top_sort *)member = i;
            return true;
        }
        flw_guess_offer(&guess, flw_top_sort_names[i]);
    }
    return flw_complain(
        "top: --sort '%.100s' is none of number, reserved, live, cached and hits%ssee "
        "fallow top --help",
        text, flw_guess_say(&guess, "", hint));
}

static bool take_directory(void *member, const char *text)
{
    *(const char **)member = text;
    return (strlen(text) > 0 && strlen(text) < 400) ||
           flw_complain("top: --directory '%.100s': there is no such folder", text);
}

static const struct flw_option option_list[] = {
    {FLW_OPTION(struct settings, "once", SET, is_once)},
    {FLW_OPTION(struct settings, "json", SET, is_json)},
    {FLW_OPTION(struct settings, "prometheus", SET, is_prometheus)},
    {FLW_OPTION(struct settings, "interval", TAKE, top.interval_ns), .take = take_interval},
    {FLW_OPTION(struct settings, "sort", TAKE, top.sort), .take = take_sort},
    {FLW_OPTION(struct settings, "directory", TAKE, top.directory), .take = take_directory},
    {.name = NULL}};

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct flw_options command = {.command = "top", .help = help, .list = option_list};
    int code = flw_options_read(&command, settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (settings->is_json && settings->is_prometheus) {
        return flw_refuse(FLW_EXIT_USAGE, "top: --json or --prometheus, not both");
    }
    for (; optind < argc; optind++) {
        uint64_t number = 0;
        if (!flw_parse_count(argv[optind], &number) || number == 0 || number > INT_MAX) {
            return flw_refuse(FLW_EXIT_USAGE, "top: '%.100s' is no process number", argv[optind]);
        }
        if (settings->top.process_count == FLW_TOP_PROCESSES) {
            return flw_refuse(FLW_EXIT_USAGE,
                              "top: more than %d processes; name fewer, or none for all",
                              FLW_TOP_PROCESSES);
        }
        settings->top.processes[settings->top.process_count++] = (pid_t)number;
    }
    return FLW_OPTIONS_READ;
}

/* ---- views */

/* Print the named processes in full, or else a line for each process. */
static void print_text(const struct flw_top_snapshots *all, const struct flw_top_snapshots *before,
                       const struct flw_top_settings *settings)
{
    struct flw_top_page page = {.out = stdout, .width = 80};
    if (settings->process_count == 0 && all->count > 0) {
        flw_top_write_list(&page, all, settings->sort);
    } else if (all->count == 0) {
        printf("no process of this user shows pools in %s%s\n", settings->directory,
               all->other_count > 0 ? "; processes of other users do" : "");
    } else {
        for (size_t i = 0; i < all->count; i++) {
            fputs(i > 0 ? "\n" : "", stdout);
            flw_top_write_process(&page, &all->snapshots[i],
                                  flw_top_snapshots_find(before, all->snapshots[i].process),
                                  settings->sort);
        }
    }
}

static bool print(const struct flw_top_snapshots *all, const struct flw_top_snapshots *before,
                  const struct settings *settings)
{
    if (settings->is_prometheus) {
        flw_top_print_prometheus(all, stdout);
    } else if (!settings->is_json) {
        print_text(all, before, &settings->top);
    }
    for (size_t i = 0; settings->is_json && i < all->count; i++) {
        flw_top_print_json(&all->snapshots[i], stdout);
        putchar('\n');
    }
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}

static void pause_for(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Print one view, or one after the other until the named processes have ended. */
static int print_all(const struct settings *settings)
{
    struct flw_top_snapshots now = {0}, before = {0};
    char message[FLW_TOP_MESSAGE_BYTES];
    bool is_ended = false, is_ok = true, goes_on = true;
    for (bool is_first = true; goes_on; is_first = false) {
        if (!flw_top_snapshots_next(&now, &before, &settings->top, message, &is_ended)) {
            is_ok = is_ended && !is_first;
            (void)(is_ok || flw_complain("top: %s", message));
            break;
        }
        if (is_first && now.note[0] != '\0') {
            flw_complain("top: %s", now.note);
        }
        fputs(is_first || settings->is_json ? "" : "\n", stdout);
        is_ok = print(&now, &before, settings);
        goes_on = is_ok && !settings->is_once && settings->top.process_count != 0;
        pause_for(goes_on ? settings->top.interval_ns : 0);
    }
    flw_top_snapshots_drop(&before);
    flw_top_snapshots_drop(&now);
    return is_ok ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_top(int argc, char **argv)
{
    struct settings settings = {
        .top = {.interval_ns = 1000000000, .directory = FLW_STATS_FILE_DIRECTORY}};
    int code = parse(argc, argv, &settings);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    settings.is_once |= settings.is_prometheus;
    if (!settings.is_once && !settings.is_json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)) {
        code = flw_top_watch_screen(&settings.top);
        if (code >= 0) {
            return code;
        }
    }
    return print_all(&settings);
}
