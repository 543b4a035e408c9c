/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the terminal while `fallow top` has all of it: keys, scrolling, colours (not if NO_COLOR is set).
 */
#include "top/top.h"

#if FLW_HAS_NCURSES

#include <curses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/command.h"
#include "common/terminal.h"
#include "common/tool_host.h"

#define NS_PER_MS    1000000
#define KEYS         "q quit  tab process  r l c h o sort  arrows scroll"
#define MOST_COLUMNS 511

struct screen {
    const struct flw_top_settings *settings;
    struct flw_top_snapshots now, before;
    enum flw_top_sort sort;
    pid_t chosen;     /* the process in full */
    int skip;         /* lines scrolled past */
    int hidden_count; /* lines that do not fit on the screen */
    attr_t attributes[FLW_TOP_ALARM + 1];
};

static volatile sig_atomic_t is_interrupted;

static void note_interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* ---- drawing */

/* Return the value, or the exceeded bound. */
static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static void draw_title(const struct screen *screen)
{
    char clock[16] = "", right[64];
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) != NULL) {
        (void)strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    }
    snprintf(right, sizeof right, "  by %s  %s", flw_top_sort_names[screen->sort], clock);
    (void)attrset(screen->attributes[FLW_TOP_TITLE]);
    (void)mvaddnstr(0, 0, KEYS, COLS);
    (void)mvaddnstr(0, COLS > (int)strlen(right) ? COLS - (int)strlen(right) : 0, right, COLS);
}

static void write_page(const struct screen *screen, FILE *out)
{
    struct flw_top_page page = {
        .out = out, .width = (uint32_t)clamp(COLS, 0, MOST_COLUMNS), .has_styles = true};
    if (screen->now.note[0] != '\0') {
        flw_top_add_line(&page, FLW_TOP_ALARM, "%s", screen->now.note);
    }
    if (screen->now.count == 0) {
        flw_top_add_line(&page, FLW_TOP_PLAIN, "no process of this user shows pools");
    }
    if (screen->now.count > 1) {
        flw_top_write_list(&page, &screen->now, screen->sort);
        flw_top_add_line(&page, FLW_TOP_PLAIN, "%s", "");
    }
    const struct flw_top_snapshot *snapshot = flw_top_snapshots_find(&screen->now, screen->chosen);
    if (snapshot != NULL) {
        flw_top_write_process(&page, snapshot,
                              flw_top_snapshots_find(&screen->before, snapshot->process),
                              screen->sort);
    }
}

static void draw(struct screen *screen)
{
    char *text = NULL;
    size_t bytes = 0;
    int count = 0, at = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        flw_host_refuse(1, LINES);
    }
    screen->chosen = flw_top_choose(&screen->now, screen->sort, screen->chosen, 0);
    write_page(screen, out);
    fclose(out);
    for (const char *line = text; (line = strchr(line, '\n')) != NULL; line++) {
        count++;
    }
    screen->hidden_count = clamp(count - LINES + 1, 0, count);
    screen->skip = clamp(screen->skip, 0, screen->hidden_count);
    (void)erase();
    draw_title(screen);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, at++) {
        *end = '\0';
        if (at >= screen->skip && at - screen->skip + 1 < LINES) {
            (void)attrset(screen->attributes[*line - ' ' - 1]);
            (void)mvaddnstr(at - screen->skip + 1, 0, line + 1, COLS);
        }
    }
    (void)refresh();
    free(text);
}

/* ---- keys */

/* React to a key. Returns false if the user quits. */
static bool react(struct screen *screen, int key)
{
    static const char sorts[] = "orlch"; /* in the order of enum flw_top_sort */
    const struct {
        int key, lines;
    } scrolls[] = {{KEY_UP, -1},
                   {KEY_DOWN, 1},
                   {KEY_PPAGE, 1 - LINES},
                   {KEY_NPAGE, LINES - 1},
                   {' ', LINES - 1},
                   {KEY_HOME, -screen->skip},
                   {KEY_END, screen->hidden_count}};
    const char *sort = key > 0 && key < 128 ? strchr(sorts, key) : NULL;
    if (sort != NULL) {
        screen->sort = (enum flw_top_sort)(sort - sorts);
    } else if (key == '\t') {
        screen->chosen = flw_top_choose(&screen->now, screen->sort, screen->chosen, 1);
    }
    for (size_t i = 0; i < sizeof scrolls / sizeof *scrolls; i++) {
        if (scrolls[i].key == key) {
            screen->skip = clamp(screen->skip + scrolls[i].lines, 0, screen->hidden_count);
        }
    }
    return key != 'q' && key != 'Q';
}

/* ---- the loop */

/* True if the terminal was closed: reading a key then returns at once, again and again. */
static bool is_terminal_gone(void)
{
    struct pollfd keys = {.fd = STDIN_FILENO};
    return poll(&keys, 1, 0) > 0 && (keys.revents & (POLLHUP | POLLERR)) != 0;
}

/* Returns false once the processes cannot be watched any more. */
static bool run(struct screen *screen, char *message, bool *out_ended)
{
    uint64_t due_ns = flw_clock_fine_ns() + screen->settings->interval_ns;
    while (is_interrupted == 0) {
        draw(screen);
        uint64_t now_ns = flw_clock_fine_ns();
        timeout(due_ns > now_ns ? (int)((due_ns - now_ns) / NS_PER_MS) + 1 : 0);
        int key = getch();
        if (key == ERR ? is_terminal_gone() : !react(screen, key)) {
            break;
        }
        if (flw_clock_fine_ns() >= due_ns) {
            due_ns = flw_clock_fine_ns() + screen->settings->interval_ns;
            if (!flw_top_snapshots_next(&screen->now, &screen->before, screen->settings, message,
                                        out_ended)) {
                return false;
            }
        }
    }
    return true;
}

static void set_up(struct screen *screen)
{
    struct sigaction action = {.sa_handler = note_interrupt};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    if (!flw_terminal_has_colour()) {
        return;
    }
    screen->attributes[FLW_TOP_TITLE] = A_BOLD;
    screen->attributes[FLW_TOP_HEADING] = A_REVERSE;
    screen->attributes[FLW_TOP_ALARM] = A_BOLD;
    if (start_color() == OK && use_default_colors() == OK && init_pair(1, COLOR_RED, -1) == OK) {
        screen->attributes[FLW_TOP_ALARM] = COLOR_PAIR(1);
    }
}

int flw_top_watch_screen(const struct flw_top_settings *settings)
{
    struct screen screen = {.settings = settings, .sort = settings->sort};
    char message[FLW_TOP_MESSAGE_BYTES] = "";
    bool is_ended = false, is_watched = flw_top_snapshots_next(&screen.now, &screen.before,
                                                               settings, message, &is_ended);
    SCREEN *terminal = is_watched ? newterm(NULL, stdout, stdin) : NULL;
    int code = is_watched ? -1 : FLW_EXIT_FAILED; /* also if the processes have ended already */
    if (terminal != NULL) {
        set_up(&screen);
        is_watched = run(&screen, message, &is_ended);
        (void)endwin();
        delscreen(terminal);
        code = is_watched || is_ended ? FLW_EXIT_OK : FLW_EXIT_FAILED;
    }
    if (code == FLW_EXIT_FAILED) {
        flw_complain("top: %s", message);
    } else if (!is_watched && settings->process_count == 1) {
        printf("process %d has ended\n", (int)settings->processes[0]);
    } else if (!is_watched) {
        printf("all %zu processes have ended\n", settings->process_count);
    }
    flw_top_snapshots_drop(&screen.now);
    flw_top_snapshots_drop(&screen.before);
    return code;
}

#else

int flw_top_watch_screen(const struct flw_top_settings *settings)
{
    (void)settings;
    return -1;
}

#endif
