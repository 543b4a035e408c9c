/* SPDX-License-Identifier: Apache-2.0 */
#include "common/command.h"

#include "base/bits.h"
#include "base/setting.h"

#include <ctype.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void (*flw_before_complaint)(void);

void flw_make_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        if (*c < ' ' || *c == 0x7f) {
            *c = '?';
        } else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) { /* a control character of 8 bits */
            c[0] = c[1] = '?';
        }
    }
}

static void complain(const char *format, va_list arguments)
{
    char *text = NULL;
    bool is_made = vasprintf(&text, format, arguments) >= 0;
    if (flw_before_complaint != NULL) {
        flw_before_complaint();
    }
    if (is_made) {
        flw_make_plain(text); /* arguments and files may contain any bytes */
    }
    fprintf(stderr, "fallow: %s\n", is_made ? text : "out of host memory");
    free(text);
}

bool flw_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return false;
}

int flw_refuse(enum flw_exit code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return code;
}

bool flw_flush_output(void)
{
    struct stat about;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return true;
    }
    bool is_pipe =
        fstat(STDOUT_FILENO, &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode));
    flw_complain("%s", is_pipe ? "standard output: its reader ended before everything was written"
                               : "cannot write to standard output; its disk may be full");
    clearerr(stdout);
    return false;
}

static struct sigaction pipe_before, size_before, child_before;

void flw_signals_keep(void)
{
    (void)sigaction(SIGPIPE, NULL, &pipe_before);
    (void)sigaction(SIGXFSZ, NULL, &size_before);
    (void)sigaction(SIGCHLD, NULL, &child_before);
}

void flw_signals_restore(void)
{
    (void)sigaction(SIGPIPE, &pipe_before, NULL);
    (void)sigaction(SIGXFSZ, &size_before, NULL);
    (void)sigaction(SIGCHLD, &child_before, NULL);
}

const char *flw_input_place(const char *path)
{
    return strcmp(path, "-") == 0 ? "/dev/stdin" : path;
}

/* Identify a file. One that does not exist yet is identified by its folder and name. */
static bool find_place(const char *path, struct stat *about, const char **out_name)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    *out_name = "";
    if (stat(path, about) == 0) {
        return S_ISREG(about->st_mode);
    }
    *out_name = slash == NULL ? path : slash + 1;
    size_t length = slash == NULL ? 0 : (size_t)(slash + 1 - path);
    if (length >= sizeof folder) {
        return false;
    }
    memcpy(folder, path, length);
    folder[length] = '\0';
    return stat(length == 0 ? "." : folder, about) == 0;
}

bool flw_is_same_file(const char *a, const char *b)
{
    struct stat about_a, about_b;
    const char *name_a, *name_b;
    return find_place(a, &about_a, &name_a) && find_place(b, &about_b, &name_b) &&
           about_a.st_dev == about_b.st_dev && about_a.st_ino == about_b.st_ino &&
           strcmp(name_a, name_b) == 0;
}

#define GUESS_LETTERS 48 /* longer words are not compared */

static bool is_same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Return the number of letters to insert, delete, change or swap with the next one to turn the word into the name. */
static size_t slip_distance(const char *word, size_t word_length, const char *name,
                            size_t name_length)
{
    /* The last three rows of the table of distances between beginnings. */
    size_t rows[3][GUESS_LETTERS + 1];
    for (size_t j = 0; j <= name_length; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= word_length; i++) {
        size_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= name_length; j++) {
            row[j] = flw_min(flw_min(last[j], row[j - 1]) + 1,
                             last[j - 1] + !is_same_letter(word[i - 1], name[j - 1]));
            if (i > 1 && j > 1 && is_same_letter(word[i - 1], name[j - 2]) &&
                is_same_letter(word[i - 2], name[j - 1])) {
                row[j] = flw_min(row[j], before[j - 2] + 1);
            }
        }
    }
    return rows[word_length % 3][name_length];
}

void flw_guess_offer(struct flw_guess *guess, const char *name)
{
    size_t length = strlen(name), most = guess->length < 3 ? 0 : guess->length < 6 ? 1 : 2;
    if (guess->length > GUESS_LETTERS || length > GUESS_LETTERS) {
        return;
    }
    size_t distance = slip_distance(guess->word, guess->length, name, length);
    bool is_beginning = guess->length >= 3 && strncmp(guess->word, name, guess->length) == 0;
    distance = is_beginning ? flw_min(distance, most) : distance;
    if (distance <= most && (guess->name == NULL || distance < guess->distance)) {
        guess->name = name;
        guess->distance = distance;
    }
}

const char *flw_guess_say(const struct flw_guess *guess, const char *lead,
                          char out[FLW_GUESS_BYTES])
{
    snprintf(out, FLW_GUESS_BYTES, "; ");
    if (guess->name != NULL) {
        snprintf(out, FLW_GUESS_BYTES, "; did you mean '%s%s'? ", lead, guess->name);
    }
    return out;
}

size_t flw_choose(const char *word, const char *(*name_at)(size_t index), const char *complaint,
                  const char *advice)
{
    struct flw_guess guess = {.word = word, .length = strlen(word)};
    char hint[FLW_GUESS_BYTES];
    for (size_t i = 0; name_at(i) != NULL; i++) {
        if (strcmp(name_at(i), word) == 0) {
            return i;
        }
        flw_guess_offer(&guess, name_at(i));
    }
    flw_complain("%s '%s'%s%s", complaint, word, flw_guess_say(&guess, "", hint), advice);
    return SIZE_MAX;
}

bool flw_is_one_of(const char *text, const char *const *names)
{
    while (*names != NULL && strcmp(text, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

bool flw_begins_with_any(const char *text, const char *const *beginnings)
{
    while (*beginnings != NULL && strncmp(text, *beginnings, strlen(*beginnings)) != 0) {
        beginnings++;
    }
    return *beginnings != NULL;
}

const char *flw_next_line(const char **text, int *out_length)
{
    const char *line = *text;
    if (line == NULL || *line == '\0') {
        return NULL;
    }
    *out_length = (int)strcspn(line, "\n");
    *text += *out_length + (line[*out_length] == '\n');
    return line;
}

bool flw_parse_byte(const char *text, const char **out_rest, unsigned *out)
{
    uint64_t value = 0;
    *out_rest = flw_number_read(text, 0, &value);
    *out = (unsigned)value;
    return *out_rest != NULL && value <= 0xFF;
}

bool flw_parse_count(const char *text, uint64_t *out_value)
{
    const char *rest = flw_number_read(text, 10, out_value);
    return rest != NULL && *rest == '\0';
}

bool flw_parse_bytes(const char *text, uint64_t *out_bytes)
{
    const char *rest = flw_number_read(text, 10, out_bytes);
    const char *behind = rest != NULL ? flw_number_scale(rest, out_bytes) : NULL;
    if (behind == NULL) {
        return false;
    }
    if (behind != rest) {
        behind += *behind == 'i' && behind[1] == 'B' ? 2 : *behind == 'B';
    }
    return *behind == '\0';
}
