/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow top`, and its forms that are no screen.
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
    "usage: fallow top [PID] [--once] [--json | --prometheus] [--interval S] [--directory DIR]\n"
    "\n"
    "The pools of a running process: what they hold, by stream and size class, hits, events, the\n"
    "ladder. A process shows them when it calls fallow_publish_start (fallow/publish.h), or when it\n"
    "was started by fallow run --set top:1.\n"
    "Without PID: the processes of this user that do.\n"
    "\n"
    "On a terminal the view is redrawn; tab, n and p choose a pool, q ends. Elsewhere, and with\n"
    "--json, a view follows the other. NO_COLOR in the environment: no colours.\n"
    "\n"
    "  --once           one view, then end\n"
    "  --json           one JSON object a line: of PID, or of each process\n"
    "  --prometheus     one text for Prometheus (exposition format 0.0.4), of PID or of all\n"
    "  --interval S     seconds between two views, 0.1 to 3600 (1)\n"
    "  --directory DIR  where processes publish (/dev/shm)\n"
    "\n"
    "exit status 0: shown, or the process has ended; 1: there is nothing to show, the line says why;\n"
    "2: the command line\n"
    "\n"
    "example: fallow top --once\n";

enum form {
    FORM_TEXT,
    FORM_JSON,
    FORM_PROMETHEUS
};

struct settings {
    pid_t process; /* 0: none was named */
    bool is_once;
    enum form form;
    uint64_t interval_ns;
    const char *directory;
};

/* ---- command line */

static bool parse_interval(const char *text, uint64_t *out_ns)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0.1 || seconds > 3600) {
        return false;
    }
    *out_ns = (uint64_t)(seconds * 1e9);
    return true;
}

static int mistake(const char *format, const char *text) __attribute__((format(printf, 1, 0)));

static int mistake(const char *format, const char *text)
{
    char line[512];
    snprintf(line, sizeof line, format, text);
    flw_top_complain(line);
    return FLW_EXIT_USAGE;
}

static int parse_option(struct settings *settings, int option, char *const *argv)
{
    enum form form = option == 'j' ? FORM_JSON : FORM_PROMETHEUS;
    switch (option) {
    case 'h':
        fputs(help, stdout);
        return 1;
    case 'o':
        settings->is_once = true;
        return 0;
    case 'j':
    case 'p':
        if (settings->form != FORM_TEXT && settings->form != form) {
            return mistake("--json or --prometheus, not both%s", "");
        }
        settings->form = form;
        return 0;
    case 'i':
        return parse_interval(optarg, &settings->interval_ns)
                   ? 0
                   : mistake("--interval '%.100s': give seconds, 0.1 to 3600", optarg);
    case 'd':
        settings->directory = optarg;
        return strlen(optarg) > 0 && strlen(optarg) < 400
                   ? 0
                   : mistake("--directory '%.100s': no folder is called that", optarg);
    default:
        flw_complain_option("top", argv, option);
        return FLW_EXIT_USAGE;
    }
}

/* 0: go on; 1: help was shown; 2: a mistake was named. */
static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct option options[] = {{"once", no_argument, NULL, 'o'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"prometheus", no_argument, NULL, 'p'},
                                            {"interval", required_argument, NULL, 'i'},
                                            {"directory", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        int answer = parse_option(settings, option, argv);
        if (answer != 0) {
            return answer;
        }
    }
    if (optind < argc) {
        uint64_t number = 0;
        if (!flw_parse_count(argv[optind], &number) || number == 0 || number > INT_MAX) {
            return mistake("'%.100s' is no process number", argv[optind]);
        }
        settings->process = (pid_t)number;
        optind++;
    }
    return optind < argc ? mistake("what is '%.100s'? one process number is enough", argv[optind])
                         : 0;
}

/* ---- looks of all processes */

struct looks {
    struct flw_top_look *looks;
    size_t count;
};

static void drop_looks(struct looks *all)
{
    for (size_t i = 0; i < all->count; i++) {
        flw_top_drop(&all->looks[i]);
    }
    free(all->looks);
}

/* Those that answer; who ended meanwhile is no mistake. False: see the message. */
static bool take_all(struct looks *all, const struct settings *settings, char *message)
{
    struct flw_top_list list;
    if (!flw_top_list_take(&list, settings->directory)) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "cannot look into %s: %s", settings->directory,
                 strerror(errno));
        return false;
    }
    all->looks = calloc(list.count + 1, sizeof *all->looks);
    bool is_ok = all->looks != NULL && !list.is_out_of_memory;
    for (uint32_t i = 0; is_ok && i < list.count; i++) {
        bool is_ended = false;
        if (flw_top_take(&all->looks[all->count], settings->directory, list.processes[i], message,
                         &is_ended)) {
            all->count++;
        } else if (!is_ended) {
            flw_top_complain(message);
        }
    }
    if (is_ok && all->count == 0 && settings->form == FORM_TEXT) {
        printf("no process of this user shows pools in %s%s\n", settings->directory,
               list.other_count > 0 ? "; other users' do" : "");
    }
    flw_top_list_drop(&list);
    snprintf(message, FLW_TOP_MESSAGE_BYTES, "the host is out of memory");
    return is_ok;
}

/* False: see the message; *out_ended: because the process is gone. */
static bool take(struct looks *all, const struct settings *settings, char *message, bool *out_ended)
{
    *out_ended = false;
    *all = (struct looks){0};
    if (settings->process == 0) {
        return take_all(all, settings, message);
    }
    all->looks = calloc(1, sizeof *all->looks);
    if (all->looks == NULL) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "the host is out of memory");
        return false;
    }
    bool is_ok =
        flw_top_take(all->looks, settings->directory, settings->process, message, out_ended);
    all->count = is_ok;
    return is_ok;
}

/* ---- forms */

static void print_page(const struct flw_top_page *page)
{
    for (uint32_t i = 0; i < page->line_count; i++) {
        puts(page->lines[i]);
    }
}

static bool print_text(const struct looks *all, const struct looks *before,
                       const struct settings *settings)
{
    const struct flw_top_look *earlier = before->count > 0 ? before->looks : NULL;
    struct flw_top_page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        flw_top_complain("the host is out of memory");
        return false;
    }
    page->width = 80;
    if (settings->process != 0) {
        flw_top_fill_overview(page, all->looks);
        print_page(page);
        for (uint32_t i = 0; i < all->looks->pool_count; i++) {
            flw_top_fill_pool(page, all->looks, earlier, i);
            print_page(page);
        }
    } else if (all->count > 0) {
        flw_top_fill_list_heading(page);
        print_page(page);
        for (size_t i = 0; i < all->count; i++) {
            flw_top_fill_list_line(page, &all->looks[i]);
            print_page(page);
        }
    }
    free(page);
    return true;
}

static bool print(const struct looks *all, const struct looks *before,
                  const struct settings *settings)
{
    switch (settings->form) {
    case FORM_PROMETHEUS:
        flw_top_print_prometheus(all->looks, all->count, stdout);
        break;
    case FORM_JSON:
        for (size_t i = 0; i < all->count; i++) {
            flw_top_print_json(&all->looks[i], stdout);
            putchar('\n');
        }
        break;
    case FORM_TEXT:
        if (!print_text(all, before, settings)) {
            return false;
        }
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

static int print_all(const struct settings *settings)
{
    struct looks now, before = {0};
    char message[FLW_TOP_MESSAGE_BYTES];
    bool is_ended = false, is_ok = take(&now, settings, message, &is_ended);
    if (!is_ok) {
        flw_top_complain(message);
    }
    bool goes_on = is_ok = is_ok && print(&now, &before, settings);
    while (goes_on && !settings->is_once && settings->process != 0) {
        pause_for(settings->interval_ns);
        drop_looks(&before);
        before = now;
        goes_on = take(&now, settings, message, &is_ended);
        is_ok = goes_on || is_ended;
        if (goes_on) {
            if (settings->form == FORM_TEXT) {
                putchar('\n');
            }
            goes_on = is_ok = print(&now, &before, settings);
        } else if (!is_ok) {
            flw_top_complain(message);
        }
    }
    drop_looks(&before);
    drop_looks(&now);
    return is_ok ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_top(int argc, char **argv)
{
    struct settings settings = {.interval_ns = 1000000000, .directory = FLW_BOARD_DIRECTORY};
    int parsed = parse(argc, argv, &settings);
    if (parsed != 0) {
        return parsed == 1 ? FLW_EXIT_OK : FLW_EXIT_USAGE;
    }
    settings.is_once |= settings.form == FORM_PROMETHEUS;
    if (settings.process != 0 && !settings.is_once && settings.form == FORM_TEXT &&
        isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)) {
        struct flw_top_watch watch = {.directory = settings.directory,
                                      .process = settings.process,
                                      .interval_ns = settings.interval_ns};
        return flw_top_watch_screen(&watch);
    }
    return print_all(&settings);
}
