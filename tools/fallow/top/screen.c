/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the terminal while `fallow top` runs in it: the other screen, keys, size, signals. A frame is
 * one write that overwrites the last one line by line and clears nothing first, so nothing flickers.
 * Colours and bold only where NO_COLOR is not set.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/command.h"
#include "common/terminal.h"
#include "common/tool_host.h"
#include "top/history.h"
#include "top/top.h"

#define FRAME_BYTES  (FLW_TOP_LINES * (FLW_TOP_LINE_BYTES + 32) + 256)
#define ENTER_SCREEN "\033[?1049h\033[?25l"
#define LEAVE_SCREEN "\033[?25h\033[?1049l"
#define NS_PER_MS    1000000

struct screen {
    struct termios before;
    bool has_color;
    size_t used;
    char frame[FRAME_BYTES];
    struct flw_top_page page;
};

/* ---- signals: each is a byte in a pipe, so that one poll waits for keys and signals */

static int wakeups[2] = {-1, -1};

static void note_signal(int number)
{
    int saved = errno;
    char byte = (char)number;
    (void)!write(wakeups[1], &byte, 1);
    errno = saved;
}

static const int watched[] = {SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT};

static bool watch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigemptyset(&action.sa_mask);
    if (pipe(wakeups) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        (void)sigaction(watched[i], &action, NULL);
    }
    return true;
}

static void unwatch_signals(void)
{
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        (void)signal(watched[i], SIG_DFL);
    }
    close(wakeups[0]);
    close(wakeups[1]);
}

/* ---- terminal */

static bool put_all(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(STDOUT_FILENO, text, length);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        text += n;
        length -= (size_t)n;
    }
    return true;
}

static void enter(struct screen *screen)
{
    if (tcgetattr(STDIN_FILENO, &screen->before) == 0) {
        struct termios raw = screen->before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    (void)put_all(ENTER_SCREEN, strlen(ENTER_SCREEN));
}

static void leave(const struct screen *screen)
{
    (void)put_all(LEAVE_SCREEN, strlen(LEAVE_SCREEN));
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->before);
}

static void measure(struct flw_top_page *page)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    }
    page->width = size.ws_col;
    page->height = size.ws_row;
}

/* ---- frames */

static void put(struct screen *screen, const char *text)
{
    size_t length = strlen(text);
    if (length < FRAME_BYTES - screen->used) {
        memcpy(screen->frame + screen->used, text, length);
        screen->used += length;
    }
}

static bool draw(struct screen *screen)
{
    static const char *const styles[] = {[FLW_TOP_PLAIN] = "",
                                         [FLW_TOP_TITLE] = "\033[1m",
                                         [FLW_TOP_HEADING] = "\033[7m",
                                         [FLW_TOP_ALARM] = "\033[31m"};
    const struct flw_top_page *page = &screen->page;
    screen->used = 0;
    put(screen, "\033[H");
    for (uint32_t i = 0; i < page->line_count; i++) {
        bool is_styled = screen->has_color && page->styles[i] != FLW_TOP_PLAIN;
        put(screen, i == 0 ? "" : "\r\n");
        put(screen, is_styled ? styles[page->styles[i]] : "");
        put(screen, page->lines[i]);
        put(screen, is_styled ? "\033[m" : "");
        put(screen, "\033[K"); /* after the style: what is cleared has none */
    }
    put(screen, "\033[J");
    return put_all(screen->frame, screen->used);
}

/* ---- keys: one byte, or what a terminal sends for those that have no letter */

enum key {
    KEY_NONE,
    KEY_ESCAPE = 27,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_HOME,
    KEY_END
};

#define ESCAPE_MS 25 /* the rest of a sequence comes at once; behind the key alone nothing does */

static bool has_input(int timeout_ms)
{
    struct pollfd file = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&file, 1, timeout_ms) > 0;
}

static int decode(char final, char number)
{
    static const struct {
        char final, number;
        int key;
    } keys[] = {{'A', 0, KEY_UP},        {'B', 0, KEY_DOWN},        {'H', 0, KEY_HOME},
                {'F', 0, KEY_END},       {'~', '1', KEY_HOME},      {'~', '4', KEY_END},
                {'~', '5', KEY_PAGE_UP}, {'~', '6', KEY_PAGE_DOWN}, {'~', '7', KEY_HOME},
                {'~', '8', KEY_END}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i].final == final && (keys[i].number == 0 || keys[i].number == number)) {
            return keys[i].key;
        }
    }
    return KEY_NONE;
}

/* Behind an escape: "[A", "OA", "[5~". */
static int read_sequence(void)
{
    char byte = 0, number = 0;
    if (!has_input(ESCAPE_MS)) {
        return KEY_ESCAPE;
    }
    if (read(STDIN_FILENO, &byte, 1) != 1 || (byte != '[' && byte != 'O')) {
        return KEY_NONE;
    }
    while (has_input(ESCAPE_MS) && read(STDIN_FILENO, &byte, 1) == 1) {
        if (byte >= '@' && byte <= '~') {
            return decode(byte, number);
        }
        number = number == 0 ? byte : number;
    }
    return KEY_NONE;
}

static int read_key(void)
{
    unsigned char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1) {
        return 'q'; /* the terminal is gone */
    }
    return byte == KEY_ESCAPE ? read_sequence() : byte;
}

/* Until the next look is due, or something happened. 0: nothing; a key, or minus a signal. */
static int wait_for(uint64_t until_ns)
{
    struct pollfd files[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = wakeups[0], .events = POLLIN}};
    uint64_t now_ns = flw_clock_fine_ns();
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / NS_PER_MS + 1 : 0;
    unsigned char byte;
    if (poll(files, 2, left_ms > 3600000 ? 3600000 : (int)left_ms) <= 0) {
        return KEY_NONE;
    }
    if ((files[1].revents & POLLIN) != 0 && read(wakeups[0], &byte, 1) == 1) {
        return -(int)byte;
    }
    return files[0].revents != 0 ? read_key() : KEY_NONE;
}

/* ---- what is watched */

struct looks {
    struct flw_top_look *list;
    uint32_t count;
};

struct watching {
    const struct flw_top_watch *watch;
    struct screen *screen;
    struct looks now, before;
    struct flw_top_history history;
    struct flw_top_view view;
    pid_t chosen;    /* the process in full, or the one that the list is at */
    bool is_list;    /* processes, a line each */
    bool has_list;   /* there is one to go back to */
    bool shows_help; /* until a key */
    char note[FLW_TOP_MESSAGE_BYTES];
};

static const struct flw_top_look *find(const struct looks *looks, pid_t process)
{
    for (uint32_t i = 0; i < looks->count; i++) {
        if (looks->list[i].process == process) {
            return &looks->list[i];
        }
    }
    return NULL;
}

static void drop(struct looks *looks)
{
    for (uint32_t i = 0; i < looks->count; i++) {
        flw_top_drop(&looks->list[i]);
    }
    flw_host_free(looks->list);
    *looks = (struct looks){0};
}

/* Those that answer. False: not one of those that were named does; *out_ended: because they have ended, else the
 * message says why. What another does not answer is a note. */
static bool take(struct watching *watching, struct looks *looks, bool *out_ended)
{
    const struct flw_top_watch *watch = watching->watch;
    struct flw_top_list found = {.processes = (pid_t *)watch->processes,
                                 .count = watch->process_count};
    bool is_all = watch->process_count == 0, has_silent = false;
    *out_ended = false;
    if (is_all && !flw_top_list_take(&found, watch->directory)) {
        snprintf(watching->note, sizeof watching->note, "cannot look into %.300s: %s",
                 watch->directory, strerror(errno));
        return false;
    }
    looks->list = flw_host_alloc(found.count, sizeof *looks->list);
    for (size_t i = 0; i < found.count; i++) {
        char message[FLW_TOP_MESSAGE_BYTES];
        bool is_ended = false;
        if (flw_top_take(&looks->list[looks->count], watch->directory, found.processes[i], message,
                         &is_ended)) {
            looks->count++;
        } else if (!is_ended) {
            memcpy(watching->note, message, sizeof message);
            has_silent = true;
        }
    }
    if (is_all) {
        flw_top_list_drop(&found);
    }
    *out_ended = !is_all && looks->count == 0 && !has_silent;
    return is_all || looks->count > 0;
}

static bool look_again(struct watching *watching, bool *out_ended)
{
    struct looks looks = {0};
    watching->note[0] = '\0';
    if (!take(watching, &looks, out_ended)) {
        drop(&looks);
        return false;
    }
    drop(&watching->before);
    watching->before = watching->now;
    watching->now = looks;
    watching->view.second = flw_clock_fine_ns() / 1000000000;
    for (uint32_t i = 0; i < looks.count; i++) {
        flw_top_history_note(&watching->history, &looks.list[i], watching->view.second);
    }
    if (!watching->is_list && find(&looks, watching->chosen) == NULL) { /* there is a list then */
        snprintf(watching->note, sizeof watching->note, "process %d has ended",
                 (int)watching->chosen);
        watching->is_list = true;
    }
    return true;
}

/* ---- the loop */

/* The chosen process is one that is there; its place in the looks. */
static uint32_t settle(struct watching *watching)
{
    const struct flw_top_look *look = find(&watching->now, watching->chosen);
    if (look == NULL && watching->now.count > 0) {
        look = watching->now.list;
        watching->chosen = look->process;
    }
    return look == NULL ? 0 : (uint32_t)(look - watching->now.list);
}

static bool show(struct watching *watching)
{
    struct flw_top_page *page = &watching->screen->page;
    struct flw_top_view *view = &watching->view;
    measure(page);
    view->chosen = settle(watching);
    view->history = &watching->history;
    view->note = watching->note[0] != '\0' ? watching->note : NULL;
    if (watching->shows_help) {
        flw_top_fill_help(page);
    } else if (watching->is_list || watching->now.count == 0) {
        flw_top_fill_processes(page, watching->now.list, watching->now.count, view);
    } else {
        const struct flw_top_look *look = &watching->now.list[view->chosen];
        view->pool = view->pool < look->pool_count ? view->pool : 0;
        flw_top_fill_screen(page, look, find(&watching->before, look->process), view);
        view->skip = view->skip < page->most_skip ? view->skip : page->most_skip;
    }
    return draw(watching->screen);
}

static void stop_here(struct screen *screen)
{
    leave(screen);
    (void)raise(SIGSTOP);
    enter(screen);
}

/* `at` of `count`, `step` further, no further than the ends; a step of more than count leads to one. */
static uint32_t move(uint32_t at, uint32_t count, int64_t step)
{
    int64_t to = (int64_t)at + step;
    return count == 0 || to < 0 ? 0 : to >= (int64_t)count ? count - 1 : (uint32_t)to;
}

static uint32_t place_of(const uint32_t *order, uint32_t count, uint32_t index)
{
    uint32_t place = 0;
    while (place < count && order[place] != index) {
        place++;
    }
    return place;
}

static void move_process(struct watching *watching, int64_t step)
{
    const struct looks *looks = &watching->now;
    uint32_t *order = flw_host_alloc(looks->count, sizeof *order);
    flw_top_order_looks(looks->list, looks->count, watching->view.sort, order);
    if (looks->count > 0) {
        uint32_t place = place_of(order, looks->count, settle(watching));
        watching->chosen = looks->list[order[move(place, looks->count, step)]].process;
    }
    flw_host_free(order);
}

/* Round and round, as the pools stand on the screen. */
static void move_pool(struct watching *watching, uint32_t step)
{
    const struct flw_top_look *look = find(&watching->now, watching->chosen);
    uint32_t count = look == NULL ? 0 : look->pool_count;
    if (count > 0 && !watching->is_list) {
        uint32_t *order = flw_host_alloc(count, sizeof *order);
        flw_top_order_pools(look, watching->view.sort, order);
        uint32_t place = place_of(order, count, watching->view.pool);
        watching->view.pool = order[(place + (step == 1 ? 1 : count - 1)) % count];
        watching->view.skip = 0;
        flw_host_free(order);
    }
}

static void move_rows(struct watching *watching, int64_t step)
{
    if (watching->is_list) {
        move_process(watching, step);
    } else {
        watching->view.skip = move(watching->view.skip, watching->screen->page.most_skip + 1, step);
    }
}

/* The order that a key asks for; FLW_TOP_SORTS: it asks for none. */
static enum flw_top_sort sort_of(int key)
{
    static const char keys[] = "orlch"; /* in the order of enum flw_top_sort */
    const char *at = key > 0 && key < 128 ? strchr(keys, key) : NULL;
    return at == NULL ? FLW_TOP_SORTS : (enum flw_top_sort)(at - keys);
}

static void open_process(struct watching *watching, bool is_list)
{
    watching->is_list = is_list && watching->has_list;
    watching->view.pool = watching->view.skip = 0;
}

static void react_to_key(struct watching *watching, int key)
{
    if (sort_of(key) != FLW_TOP_SORTS) {
        watching->view.sort = sort_of(key);
        return;
    }
    switch (key) {
    case '?':
        watching->shows_help = true;
        break;
    case '\t':
    case 'n':
        move_pool(watching, 1);
        break;
    case 'p':
        move_pool(watching, UINT32_MAX);
        break;
    case KEY_UP:
    case 'k':
        move_rows(watching, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_rows(watching, 1);
        break;
    case KEY_PAGE_UP:
        move_rows(watching, -10);
        break;
    case KEY_PAGE_DOWN:
    case ' ':
        move_rows(watching, 10);
        break;
    case KEY_HOME:
    case 'g':
        move_rows(watching, INT32_MIN);
        break;
    case KEY_END:
    case 'G':
        move_rows(watching, INT32_MAX);
        break;
    case '\r':
    case '\n':
        if (watching->is_list) {
            open_process(watching, false);
        }
        break;
    case KEY_ESCAPE:
    case 'b':
        open_process(watching, true);
        break;
    case 'w':
        watching->view.shows_owners = !watching->view.shows_owners;
        watching->view.skip = 0;
        break;
    default:
        break;
    }
}

/* A key or minus a signal. False: it is over. */
static bool react(struct watching *watching, int what)
{
    switch (what) {
    case 'q':
    case 'Q':
    case -SIGINT:
    case -SIGTERM:
    case -SIGHUP:
        return false;
    case -SIGTSTP:
        stop_here(watching->screen);
        return true;
    default:
        break;
    }
    if (what > 0 && watching->shows_help) {
        watching->shows_help = false;
    } else if (what > 0) {
        react_to_key(watching, what);
    }
    return true;
}

/* The screen is left: what there is to say, and the exit status. */
static int end(const struct watching *watching, bool is_ended)
{
    size_t count = watching->watch->process_count;
    if (is_ended && count == 1) {
        printf("process %d has ended\n", (int)watching->watch->processes[0]);
    } else if (is_ended) {
        printf("all %zu processes have ended\n", count);
    } else if (watching->note[0] != '\0') {
        flw_complain("top: %s", watching->note);
        return FLW_EXIT_FAILED;
    }
    return FLW_EXIT_OK;
}

static int run(struct watching *watching)
{
    bool is_ended = false, goes_on = true, is_lost = false;
    uint64_t due_ns = flw_clock_fine_ns() + watching->watch->interval_ns;
    enter(watching->screen);
    while (goes_on && !is_lost && show(watching)) {
        int what = wait_for(due_ns);
        goes_on = react(watching, what);
        if (goes_on && flw_clock_fine_ns() >= due_ns) {
            due_ns = flw_clock_fine_ns() + watching->watch->interval_ns;
            is_lost = !look_again(watching, &is_ended);
        }
    }
    leave(watching->screen);
    if (goes_on && !is_lost) {
        return FLW_EXIT_FAILED; /* the terminal takes nothing more */
    }
    if (!is_lost) {
        watching->note[0] = '\0'; /* told on the screen */
    }
    return end(watching, is_ended);
}

/* The first look. False: there is nothing to watch, and the line was written. */
static bool begin(struct watching *watching)
{
    bool is_ended = false;
    if (!look_again(watching, &is_ended)) {
        char message[FLW_TOP_MESSAGE_BYTES] = "";
        if (is_ended) { /* why, in the words of a look at the first */
            struct flw_top_look look;
            (void)flw_top_take(&look, watching->watch->directory, watching->watch->processes[0],
                               message, NULL);
        }
        flw_complain("top: %s", is_ended ? message : watching->note);
        return false;
    }
    return true;
}

int flw_top_watch_screen(const struct flw_top_watch *watch)
{
    struct watching watching = {.watch = watch,
                                .view = {.sort = watch->sort, .is_ascii = !flw_terminal_is_utf8()},
                                .chosen = watch->process_count > 0 ? watch->processes[0] : 0,
                                .has_list = watch->process_count != 1,
                                .is_list = watch->process_count != 1};
    int code = FLW_EXIT_FAILED;
    if (begin(&watching)) {
        watching.screen = flw_host_alloc(1, sizeof *watching.screen);
        if (!watch_signals()) {
            flw_complain("top: the host is out of descriptors");
        } else {
            watching.screen->has_color = flw_terminal_has_colour();
            code = run(&watching);
            unwatch_signals();
        }
        flw_host_free(watching.screen);
    }
    drop(&watching.now);
    drop(&watching.before);
    flw_top_history_drop(&watching.history);
    return code;
}
