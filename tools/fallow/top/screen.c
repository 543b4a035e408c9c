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
#include "common/tool_host.h"
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

/* ---- the loop */

struct watching {
    const struct flw_top_watch *watch;
    struct screen *screen;
    struct flw_top_look look, before;
    bool has_look, has_before;
    uint32_t pool; /* index of the one shown in full */
    char message[FLW_TOP_MESSAGE_BYTES];
};

static bool look_again(struct watching *watching, bool *out_ended)
{
    struct flw_top_look look;
    if (!flw_top_take(&look, watching->watch->directory, watching->watch->process,
                      watching->message, out_ended)) {
        return false;
    }
    if (watching->has_before) {
        flw_top_drop(&watching->before);
    }
    watching->before = watching->look;
    watching->has_before = watching->has_look;
    watching->look = look;
    watching->has_look = true;
    return true;
}

static bool show(struct watching *watching)
{
    measure(&watching->screen->page);
    if (watching->pool >= watching->look.pool_count) {
        watching->pool = 0;
    }
    flw_top_fill_screen(&watching->screen->page, &watching->look,
                        watching->has_before ? &watching->before : NULL, watching->pool);
    return draw(watching->screen);
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
        return 0;
    }
    if ((files[1].revents & POLLIN) != 0 && read(wakeups[0], &byte, 1) == 1) {
        return -(int)byte;
    }
    if (files[0].revents != 0) {
        return read(STDIN_FILENO, &byte, 1) == 1 ? byte : 'q'; /* the terminal is gone */
    }
    return 0;
}

static void stop_here(struct screen *screen)
{
    leave(screen);
    (void)raise(SIGSTOP);
    enter(screen);
}

/* False: it is over. */
static bool react(struct watching *watching, int what)
{
    uint32_t pools = watching->look.pool_count;
    switch (what) {
    case 'q':
    case 'Q':
    case -SIGINT:
    case -SIGTERM:
    case -SIGHUP:
        return false;
    case -SIGTSTP:
        stop_here(watching->screen);
        break;
    case '\t':
    case 'n':
        watching->pool = pools == 0 ? 0 : (watching->pool + 1) % pools;
        break;
    case 'p':
        watching->pool = pools == 0 ? 0 : (watching->pool + pools - 1) % pools;
        break;
    default:
        break;
    }
    return true;
}

static int run(struct watching *watching)
{
    bool is_ended = false, goes_on = true;
    uint64_t due_ns = flw_clock_fine_ns() + watching->watch->interval_ns;
    enter(watching->screen);
    while (goes_on && show(watching)) {
        int what = wait_for(due_ns);
        goes_on = react(watching, what);
        if (goes_on && flw_clock_fine_ns() >= due_ns) {
            due_ns = flw_clock_fine_ns() + watching->watch->interval_ns;
            goes_on = look_again(watching, &is_ended);
        }
    }
    leave(watching->screen);
    if (goes_on) {
        return FLW_EXIT_FAILED; /* the terminal takes nothing more */
    }
    if (is_ended) {
        printf("process %d has ended\n", (int)watching->watch->process);
    } else if (watching->message[0] != '\0') {
        flw_complain("top: %s", watching->message);
        return FLW_EXIT_FAILED;
    }
    return FLW_EXIT_OK;
}

int flw_top_watch_screen(const struct flw_top_watch *watch)
{
    struct watching watching = {.watch = watch};
    int code = FLW_EXIT_FAILED;
    const char *no_color = getenv("NO_COLOR");
    if (!look_again(&watching, NULL)) {
        flw_complain("top: %s", watching.message);
        return FLW_EXIT_FAILED;
    }
    watching.message[0] = '\0';
    watching.screen = flw_host_alloc(1, sizeof *watching.screen);
    if (!watch_signals()) {
        flw_complain("top: the host is out of descriptors");
    } else {
        watching.screen->has_color = no_color == NULL || no_color[0] == '\0';
        code = run(&watching);
        unwatch_signals();
    }
    flw_host_free(watching.screen);
    flw_top_drop(&watching.look);
    if (watching.has_before) {
        flw_top_drop(&watching.before);
    }
    return code;
}
