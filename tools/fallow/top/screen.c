/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the terminal while `fallow top` has all of it: keys, scrolling, colours (not if NO_COLOR is set).
 */
#include "top/top.h"

#if FLW_HAS_NCURSES

#include <curses.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "common/command.h"
#include "common/terminal.h"
#include "common/tool_host.h"

#define NS_PER_MS 1000000
#define KEYS      "q quit  tab process  r l c h o sort  arrows scroll"

struct screen {
    struct flw_top_page page; /* the first member: put() finds the screen by it */
    const struct flw_top_settings *settings;
    struct flw_top_looks now, before;
    enum flw_top_sort sort;
    pid_t chosen;        /* the process in full */
    uint32_t skip;       /* lines scrolled past */
    uint32_t line_count; /* of the page, as far as it is drawn */
    attr_t attributes[FLW_TOP_ALARM + 1];
};

static volatile sig_atomic_t is_interrupted;

static void note_interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* ---- drawing */

static void put(struct flw_top_page *page, enum flw_top_style style, const char *line)
{
    struct screen *screen = (struct screen *)page;
    uint32_t at = screen->line_count++;
    if (at >= screen->skip && at - screen->skip + 1 < (uint32_t)LINES) {
        (void)attrset(screen->attributes[style]);
        (void)mvaddnstr((int)(at - screen->skip) + 1, 0, line, COLS);
    }
}

static void draw_title(const struct screen *screen)
{
    char clock[16] = "", right[64];
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) != NULL) {
        (void)strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    }
    snprintf(right, sizeof right, "  by %s  %s", flw_top_sort_name(screen->sort), clock);
    (void)attrset(screen->attributes[FLW_TOP_TITLE]);
    (void)mvaddnstr(0, 0, KEYS, COLS);
    (void)mvaddnstr(0, COLS > (int)strlen(right) ? COLS - (int)strlen(right) : 0, right, COLS);
}

/* The index of the chosen process in `order`; the first one is chosen if it is gone. */
static uint32_t place_of_chosen(struct screen *screen, const uint32_t *order)
{
    for (uint32_t i = 0; i < screen->now.count; i++) {
        if (screen->now.looks[order[i]].process == screen->chosen) {
            return i;
        }
    }
    screen->chosen = screen->now.count > 0 ? screen->now.looks[order[0]].process : 0;
    return 0;
}

/* Choose the process `step` further in the list. */
static void choose(struct screen *screen, uint32_t step)
{
    uint32_t count = (uint32_t)screen->now.count;
    uint32_t *order = flw_host_alloc(count, sizeof *order);
    flw_top_order_looks(screen->now.looks, count, screen->sort, order);
    uint32_t place = place_of_chosen(screen, order);
    if (count > 0) {
        screen->chosen = screen->now.looks[order[(place + step) % count]].process;
    }
    flw_host_free(order);
}

static void draw_page(struct screen *screen)
{
    uint32_t count = (uint32_t)screen->now.count;
    uint32_t *order = flw_host_alloc(count, sizeof *order);
    screen->line_count = 0;
    if (screen->now.note[0] != '\0') {
        put(&screen->page, FLW_TOP_ALARM, screen->now.note);
    }
    if (count == 0) {
        put(&screen->page, FLW_TOP_PLAIN, "no process of this user shows pools");
    }
    if (count > 1) {
        flw_top_order_looks(screen->now.looks, count, screen->sort, order);
        flw_top_write_list(&screen->page, screen->now.looks, order, count);
        put(&screen->page, FLW_TOP_PLAIN, "");
    }
    const struct flw_top_look *look = flw_top_looks_find(&screen->now, screen->chosen);
    if (look != NULL) {
        flw_top_write_process(&screen->page, look,
                              flw_top_looks_find(&screen->before, look->process), screen->sort);
    }
    flw_host_free(order);
}

static uint32_t most_skip(const struct screen *screen)
{
    uint32_t rows = LINES > 1 ? (uint32_t)LINES - 1 : 0;
    return screen->line_count > rows ? screen->line_count - rows : 0;
}

static void draw(struct screen *screen)
{
    choose(screen, 0);
    screen->page.width = (uint32_t)flw_min((uint64_t)COLS, FLW_TOP_LINE_BYTES - 1);
    (void)erase();
    draw_title(screen);
    draw_page(screen);
    if (screen->skip > most_skip(screen)) {
        screen->skip = most_skip(screen);
        (void)erase();
        draw_title(screen);
        draw_page(screen);
    }
    (void)refresh();
}

/* ---- keys */

static void scroll_by(struct screen *screen, int64_t lines)
{
    int64_t to = (int64_t)screen->skip + lines;
    screen->skip = to < 0 ? 0 : (uint32_t)flw_min((uint64_t)to, most_skip(screen));
}

/* False: the user quits. */
static bool react(struct screen *screen, int key)
{
    static const char sorts[] = "orlch"; /* in the order of enum flw_top_sort */
    const char *sort = key > 0 && key < 128 ? strchr(sorts, key) : NULL;
    if (sort != NULL) {
        screen->sort = (enum flw_top_sort)(sort - sorts);
        return true;
    }
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case '\t':
        choose(screen, 1);
        break;
    case KEY_UP:
        scroll_by(screen, -1);
        break;
    case KEY_DOWN:
        scroll_by(screen, 1);
        break;
    case KEY_PPAGE:
        scroll_by(screen, 1 - LINES);
        break;
    case KEY_NPAGE:
    case ' ':
        scroll_by(screen, LINES - 1);
        break;
    case KEY_HOME:
        screen->skip = 0;
        break;
    case KEY_END:
        scroll_by(screen, INT32_MAX);
        break;
    default:
        break;
    }
    return true;
}

/* ---- the loop */

/* Look at the processes. Returns false if none is left to watch; see *out_ended and the message. */
static bool look(struct screen *screen, char *message, bool *out_ended)
{
    struct flw_top_looks looks;
    if (!flw_top_looks_take(&looks, screen->settings, message, out_ended)) {
        return false;
    }
    flw_top_looks_drop(&screen->before);
    screen->before = screen->now;
    screen->now = looks;
    return true;
}

/* A terminal that is gone answers every question for a key at once. */
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
            if (!look(screen, message, out_ended)) {
                return false;
            }
        }
    }
    return true;
}

static void set_colours(struct screen *screen)
{
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

static int end(const struct screen *screen, bool is_ended, const char *message)
{
    size_t count = screen->settings->process_count;
    if (!is_ended) {
        flw_complain("top: %s", message);
        return FLW_EXIT_FAILED;
    }
    if (count == 1) {
        printf("process %d has ended\n", (int)screen->settings->processes[0]);
    } else {
        printf("all %zu processes have ended\n", count);
    }
    return FLW_EXIT_OK;
}

int flw_top_watch_screen(const struct flw_top_settings *settings)
{
    struct screen screen = {.page.put = put, .settings = settings, .sort = settings->sort};
    char message[FLW_TOP_MESSAGE_BYTES] = "";
    bool is_ended = false;
    if (!look(&screen, message, &is_ended)) {
        flw_complain("top: %s", message);
        return FLW_EXIT_FAILED;
    }
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    int code = -1;
    if (terminal != NULL) {
        struct sigaction action = {.sa_handler = note_interrupt};
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGHUP, &action, NULL);
        (void)cbreak();
        (void)noecho();
        (void)keypad(stdscr, TRUE);
        (void)curs_set(0);
        set_colours(&screen);
        bool is_watched = run(&screen, message, &is_ended);
        (void)endwin();
        delscreen(terminal);
        code = is_watched ? FLW_EXIT_OK : end(&screen, is_ended, message);
    }
    flw_top_looks_drop(&screen.now);
    flw_top_looks_drop(&screen.before);
    return code;
}

#else

int flw_top_watch_screen(const struct flw_top_settings *settings)
{
    (void)settings;
    return -1;
}

#endif
