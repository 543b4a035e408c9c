/* SPDX-License-Identifier: Apache-2.0 */
#include "common/terminal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bits.h"

#include "common/command.h"
#include "common/tool_host.h"

#define COLUMNS_DEFAULT 100
#define COLUMNS_LEAST   20
#define INDENT          4

size_t flw_terminal_columns(void)
{
    struct winsize size = {0};
    const char *text = getenv("COLUMNS");
    uint64_t columns = 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
        columns = size.ws_col;
    } else if (text == NULL || !flw_parse_count(text, &columns) || columns > 100000) {
        columns = COLUMNS_DEFAULT;
    }
    return flw_max(columns, COLUMNS_LEAST);
}

bool flw_terminal_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *locale = getenv(names[i]);
        if (locale != NULL && locale[0] != '\0') { /* the first that is set is the locale */
            return strcasestr(locale, "utf-8") != NULL || strcasestr(locale, "utf8") != NULL;
        }
    }
    return false;
}

bool flw_terminal_has_colour(void)
{
    const char *no_colour = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && (no_colour == NULL || no_colour[0] == '\0');
}

/* ---- letters ---- */

/* A letter, or a change of colour, which takes no column. */
struct piece {
    size_t bytes;
    bool is_colour;
    bool is_shown; /* can be written without moving the cursor */
};

/* Return the bytes of the change of colour that begins here; 0: none does. */
static size_t colour_bytes(const char *text, size_t length)
{
    size_t n = 2;
    if (length < 3 || text[0] != '\033' || text[1] != '[') {
        return 0;
    }
    while (n < length && (text[n] == ';' || (text[n] >= '0' && text[n] <= '9'))) {
        n++;
    }
    return n < length && text[n] == 'm' ? n + 1 : 0;
}

static struct piece piece_at(const char *text, size_t length)
{
    unsigned char first = (unsigned char)text[0];
    size_t colour = colour_bytes(text, length), i = 1;
    size_t n = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
    while (i < n && i < length && (text[i] & 0xc0) == 0x80) {
        i++;
    }
    bool is_control = n == 1 ? first < ' ' || first >= 0x7f
                             : n == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0;
    return colour != 0 ? (struct piece){colour, true, true}
                       : (struct piece){i, false, i == n && !is_control};
}

size_t flw_terminal_width(const char *text)
{
    size_t width = 0, length = strlen(text);
    struct piece piece;
    for (size_t at = 0; at < length; at += piece.bytes) {
        piece = piece_at(text + at, length - at);
        width += !piece.is_colour;
    }
    return width;
}

/* ---- lines ---- */

struct screen {
    size_t columns;
    bool is_ascii;
    char *line; /* written so far */
    size_t length, capacity;
};

/* Return the bytes of the line that fit into `columns`; if not all, up to a blank after the first `indent` bytes, if
 * there is one. */
static size_t find_end(const char *line, size_t length, size_t columns, size_t indent)
{
    size_t width = 0, blank = 0;
    struct piece piece;
    for (size_t at = 0; at < length; at += piece.bytes) {
        piece = piece_at(line + at, length - at);
        if (!piece.is_colour && ++width > columns) {
            return line[at] == ' ' ? at : blank > indent ? blank : at;
        }
        blank = line[at] == ' ' ? at : blank;
    }
    return length;
}

static void put(const struct screen *screen, const char *text, size_t length)
{
    struct piece piece;
    for (size_t at = 0; at < length; at += piece.bytes) {
        piece = piece_at(text + at, length - at);
        bool is_shown =
            piece.is_shown && (piece.is_colour || piece.bytes == 1 || !screen->is_ascii);
        fwrite(is_shown ? text + at : "?", 1, is_shown ? piece.bytes : 1, stdout);
    }
}

static void put_line(const struct screen *screen)
{
    const char *line = screen->line;
    size_t left = screen->length, indent = 0;
    while (indent < left && line[indent] == ' ') {
        indent++;
    }
    size_t end = find_end(line, left, screen->columns, indent);
    put(screen, line, end);
    indent = flw_min(indent + INDENT, screen->columns / 2);
    while (end < left) {
        line += end;
        left -= end;
        for (; left > 0 && *line == ' '; left--) {
            line++;
        }
        if (left > 0) {
            printf("\n%*s", (int)indent, "");
        }
        end = find_end(line, left, screen->columns - indent, 0);
        put(screen, line, end);
    }
    putchar('\n');
}

static ssize_t take(void *cookie, const char *text, size_t length)
{
    struct screen *screen = cookie;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n') {
            put_line(screen);
            screen->length = 0;
        } else {
            FLW_HOST_ADD(screen->line, screen->length, screen->capacity, text[i]);
        }
    }
    return (ssize_t)length;
}

static int finish(void *cookie)
{
    struct screen *screen = cookie;
    if (screen->length != 0) {
        put_line(screen);
    }
    flw_host_free(screen->line);
    flw_host_free(screen);
    return 0;
}

FILE *flw_terminal_open(bool is_ascii)
{
    struct screen *screen = flw_host_alloc(1, sizeof *screen);
    *screen = (struct screen){.columns = flw_terminal_columns(),
                              .is_ascii = is_ascii || !flw_terminal_is_utf8()};
    FILE *file = fopencookie(screen, "w", (cookie_io_functions_t){.write = take, .close = finish});
    if (file == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
    return file;
}

void flw_terminal_close(FILE *file)
{
    (void)fclose(file);
}
