/* SPDX-License-Identifier: Apache-2.0 */
#include "common/progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "trace/io/progress.h"

#include "common/command.h"
#include "common/figures.h"

#define AFTER_NS     UINT64_C(1000000000)
#define EVERY_NS     UINT64_C(200000000)
#define LINE_BYTES   256
#define NAME_COLUMNS 40

static struct {
    bool is_on, is_shown;
    uint64_t begin_ns, shown_ns;
    size_t place, count;
    const char *verb; /* of the line shown last */
} line;

/* Copy the file's name without folders, cut at the front if long. Bytes that could move the cursor, or be half a letter,
 * become question marks. */
static void copy_name(const char *name, char out[NAME_COLUMNS + 1])
{
    const char *slash = strrchr(name, '/');
    name = slash != NULL ? slash + 1 : name;
    size_t length = strlen(name);
    bool is_cut = length > NAME_COLUMNS;
    snprintf(out, NAME_COLUMNS + 1, "%s%s", is_cut ? "..." : "",
             is_cut ? name + length - NAME_COLUMNS + 3 : name);
    for (char *c = out; *c != '\0'; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
}

static size_t columns_of_terminal(void)
{
    struct winsize size = {0};
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return flw_min(is_known ? size.ws_col : 80, LINE_BYTES);
}

void flw_progress_show(const char *verb, const char *name, const char *detail, double share)
{
    uint64_t now_ns = line.is_on ? flw_clock_fine_ns() : 0;
    if (!line.is_on || now_ns - line.begin_ns < AFTER_NS ||
        (line.is_shown && verb == line.verb && now_ns - line.shown_ns < EVERY_NS)) {
        return;
    }
    char text[LINE_BYTES] = "", shown_name[NAME_COLUMNS + 1] = "";
    size_t room = columns_of_terminal();
    flw_append(text, room, "%s", verb);
    if (name != NULL) {
        copy_name(name, shown_name);
        flw_append(text, room, " %s", shown_name);
    }
    if (line.count > 1) {
        flw_append(text, room, " (%zu of %zu)", line.place, line.count);
    }
    flw_append(text, room, ": %s", detail != NULL ? detail : "");
    if (share >= 0) {
        flw_append(text, room, "%s%.0f %%", detail != NULL ? ", " : "",
                   100.0 * (share < 1 ? share : 1));
    }
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
    line.is_shown = true;
    line.shown_ns = now_ns;
    line.verb = verb;
}

void flw_progress_hide(void)
{
    if (line.is_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        line.is_shown = false;
    }
}

static void show_trace(const struct flw_trace_progress *progress)
{
    char detail[48];
    bool is_bytes = strcmp(progress->unit, "bytes") == 0, has_end = progress->of != 0;
    double share = has_end ? (double)progress->done / (double)progress->of : FLW_PROGRESS_UNKNOWN;
    snprintf(detail, sizeof detail, "%" PRIu64 " %s", progress->done >> (is_bytes ? 20 : 0),
             is_bytes ? "MiB" : progress->unit);
    flw_progress_show(progress->verb, progress->name, has_end ? NULL : detail, share);
}

void flw_progress_begin(void)
{
    const char *terminal = getenv("TERM");
    line.is_on = isatty(STDERR_FILENO) && (terminal == NULL || strcmp(terminal, "dumb") != 0);
    line.begin_ns = flw_clock_fine_ns();
    flw_before_complaint = flw_progress_hide;
    flw_trace_listener = line.is_on ? show_trace : NULL;
}

bool flw_progress_is_on(void)
{
    return line.is_on;
}

void flw_progress_place(size_t place, size_t count)
{
    line.place = place;
    line.count = count;
}
