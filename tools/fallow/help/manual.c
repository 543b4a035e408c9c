/* SPDX-License-Identifier: Apache-2.0 */
#include "help/manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "common/tool_host.h"
#include "fallow/fallow.h"

/* One help text on its way into the page. */
struct manual {
    FILE *out;
    char **lines;
    size_t line_count;
    bool is_part;      /* of a section with a heading of its own */
    bool is_at_usage;  /* no description has begun */
    bool has_options;  /* their heading stands */
    bool has_ended;    /* exit status or example: what follows belongs there */
    bool is_in_nested; /* a list inside of an item */
};

/* ---- letters ---- */

/* One letter, so that nothing in a text is taken for a request, and quotes and hyphens stay what they are. */
static void put_letter(FILE *out, char letter)
{
    static const char special[] = "\\-'`^~";
    static const char *const escapes[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    const char *at = letter == '\0' ? NULL : strchr(special, letter);
    if (at != NULL) {
        fputs(escapes[at - special], out);
    } else {
        fputc(letter, out);
    }
}

static void put_text(FILE *out, const char *text, size_t length)
{
    if (length > 0 && text[0] == '.') {
        fputs("\\&", out);
    }
    for (size_t i = 0; i < length; i++) {
        put_letter(out, text[i]);
    }
}

static void put_line(FILE *out, const char *text, size_t length)
{
    put_text(out, text, length);
    fputc('\n', out);
}

static void put_bold_line(FILE *out, const char *text, size_t length)
{
    fputs("\\fB", out);
    put_text(out, text, length);
    fputs("\\fR\n", out);
}

/* ---- shape of a line ---- */

static size_t indent_of(const char *line)
{
    return strspn(line, " ");
}

static bool is_blank(const char *line)
{
    return line[indent_of(line)] == '\0';
}

static bool is_option(const char *text)
{
    return text[0] == '-' && (text[1] == '-' || isalpha((unsigned char)text[1]));
}

/* The length of what stands before two blanks or the end. */
static size_t field_length(const char *text)
{
    const char *gap = strstr(text, "  ");
    return gap == NULL ? strlen(text) : (size_t)(gap - text);
}

/* What stands behind the field and its blanks; an empty text behind the last. */
static const char *next_field(const char *text)
{
    text += field_length(text);
    return text + indent_of(text);
}

/* The text behind a beginning that it has, else NULL. */
static const char *behind(const char *line, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(line, beginning, length) == 0 ? line + length : NULL;
}

/* ---- headings and paragraphs ---- */

static void put_heading(struct manual *manual, const char *name)
{
    fputs(manual->is_part ? ".SS \"" : ".SH \"", manual->out);
    for (size_t i = 0; name[i] != '\0'; i++) {
        char letter = name[i];
        put_letter(manual->out,
                   manual->is_part && i > 0 ? letter : (char)toupper((unsigned char)letter));
    }
    fputs("\"\n", manual->out);
}

static void begin_description(struct manual *manual)
{
    if (manual->is_at_usage) {
        manual->is_at_usage = false;
        put_heading(manual, "description");
    }
}

static void begin_options(struct manual *manual)
{
    if (!manual->has_options && !manual->has_ended) {
        manual->has_options = true;
        put_heading(manual, "options");
    }
}

/* "usage: ..." and the lines below it. */
static size_t put_usage(struct manual *manual, size_t i)
{
    const char *line = behind(manual->lines[i], "usage: ");
    put_heading(manual, "synopsis");
    put_line(manual->out, line, strlen(line));
    while (++i < manual->line_count && !is_blank(manual->lines[i]) &&
           indent_of(manual->lines[i]) == strlen("usage: ")) {
        line = manual->lines[i] + strlen("usage: ");
        fputs(".br\n", manual->out);
        put_line(manual->out, line, strlen(line));
    }
    manual->is_at_usage = true;
    return i;
}

static size_t put_example(struct manual *manual, size_t i)
{
    const char *line = behind(manual->lines[i], "example: ");
    put_heading(manual, "example");
    fputs(".nf\n", manual->out);
    put_line(manual->out, line, strlen(line));
    fputs(".fi\n", manual->out);
    manual->has_ended = true;
    return i + 1;
}

/* The beginning of what is said of the exit status goes into the heading. */
static const char *begin_exit_status(struct manual *manual, const char *line)
{
    const char *rest = behind(line, "exit status");
    rest = rest != NULL ? rest : behind(line, "exit code");
    if (rest == NULL) {
        return line;
    }
    put_heading(manual, "exit status");
    manual->has_ended = true;
    return rest + strspn(rest, ": ");
}

static bool is_list_heading(const struct manual *manual, size_t i)
{
    const char *line = manual->lines[i];
    return strpbrk(line, " :.") == NULL && i + 1 < manual->line_count &&
           manual->lines[i + 1][0] == ' ';
}

static size_t put_paragraph(struct manual *manual, size_t i)
{
    if (is_list_heading(manual, i)) {
        manual->is_at_usage = false;
        manual->has_options |= strcmp(manual->lines[i], "options") == 0;
        put_heading(manual, manual->lines[i]);
        return i + 1;
    }
    const char *line = begin_exit_status(manual, manual->lines[i]);
    if (line == manual->lines[i]) {
        bool is_first = manual->is_at_usage;
        begin_description(manual);
        fputs(is_first ? "" : ".PP\n", manual->out);
    }
    put_line(manual->out, line, strlen(line));
    while (++i < manual->line_count && manual->lines[i][0] != ' ' && manual->lines[i][0] != '\0') {
        put_line(manual->out, manual->lines[i], strlen(manual->lines[i]));
    }
    return i;
}

/* ---- lists ---- */

static void end_nested(struct manual *manual)
{
    if (manual->is_in_nested) {
        manual->is_in_nested = false;
        fputs(".RE\n", manual->out);
    }
}

static void put_tag(struct manual *manual, const char *text, size_t length)
{
    fputs(".TP\n", manual->out);
    put_bold_line(manual->out, text, length);
}

static void put_nested_tag(struct manual *manual, const char *text, size_t length)
{
    if (!manual->is_in_nested) {
        manual->is_in_nested = true;
        fputs(".RS\n", manual->out);
    }
    put_tag(manual, text, length);
}

/* What is said of an item: further options in the same line, a nested item (a word and its text), text. */
static void put_fields(struct manual *manual, const char *text)
{
    while (*text != '\0') {
        const char *next = next_field(text);
        if (is_option(text)) {
            end_nested(manual);
            put_tag(manual, text, field_length(text));
        } else if (*next != '\0' && !is_option(next)) {
            put_nested_tag(manual, text, field_length(text));
            put_line(manual->out, next, field_length(next));
            next = next_field(next);
        } else {
            put_line(manual->out, text, field_length(text));
        }
        text = next;
    }
}

/* A name, or several options, and what is said of them from `column` on. */
static void put_item(struct manual *manual, const char *line, size_t column)
{
    const char *text = line + indent_of(line);
    size_t length = field_length(text);
    const char *rest = next_field(text);
    if (*rest == '\0' && strlen(line) > column && line[column - 1] == ' ') {
        rest = line + column; /* a name so long that one blank is left */
        length = (size_t)(rest - text) - 1;
    }
    while (is_option(text) && is_option(rest)) {
        length = (size_t)(rest - text) + field_length(rest);
        rest = next_field(rest);
    }
    end_nested(manual);
    put_tag(manual, text, length);
    put_fields(manual, rest);
}

/* Where the texts of the lines from i to the end begin; 0: there are no items. */
static size_t find_column(char *const *lines, size_t i, size_t end)
{
    for (size_t indent = indent_of(lines[i]); i < end; i++) {
        const char *text = lines[i] + indent;
        if (indent_of(lines[i]) == indent && *next_field(text) != '\0') {
            return (size_t)(next_field(text) - lines[i]);
        }
    }
    return 0;
}

static size_t put_list(struct manual *manual, size_t i)
{
    size_t end = i, indent = indent_of(manual->lines[i]);
    while (end < manual->line_count && manual->lines[end][0] == ' ') {
        end++;
    }
    size_t column = find_column(manual->lines, i, end);
    begin_description(manual);
    if (is_option(manual->lines[i] + indent)) {
        begin_options(manual);
    } else if (column == 0) {
        fputs(".IP\n", manual->out);
    }
    for (; i < end; i++) {
        const char *text = manual->lines[i] + indent_of(manual->lines[i]);
        if (column != 0 && indent_of(manual->lines[i]) == indent) {
            put_item(manual, manual->lines[i], column);
        } else if (column != 0 && indent_of(manual->lines[i]) < column) {
            end_nested(manual);
            fputs(".br\n", manual->out);
            put_line(manual->out, text, strlen(text));
        } else {
            put_fields(manual, text);
        }
    }
    end_nested(manual);
    return end;
}

/* ---- pages ---- */

static void put_upper(FILE *out, const char *name)
{
    for (; *name != '\0'; name++) {
        put_letter(out, (char)toupper((unsigned char)*name));
    }
}

void flw_manual_begin(FILE *out, const char *name, const char *summary)
{
    fputs(".\\\" Made by fallow help --man.\n.TH \"", out);
    put_upper(out, name);
    fprintf(out, "\" 1 \"\" \"fallow %d.%d.%d\" \"User Commands\"\n", FALLOW_VERSION_MAJOR,
            FALLOW_VERSION_MINOR, FALLOW_VERSION_PATCH);
    fputs(".nh\n.ad l\n.SH \"NAME\"\n", out);
    put_text(out, name, strlen(name));
    fputs(" \\- ", out);
    put_line(out, summary, strlen(summary));
}

/* The lines of a text, which loses its ends of lines. */
static void cut_lines(char *text, struct manual *manual)
{
    size_t capacity = 0;
    for (char *end, *line = text; line != NULL && *line != '\0'; line = end) {
        end = strchr(line, '\n');
        manual->lines =
            flw_host_grow(manual->lines, &capacity, manual->line_count + 1, sizeof *manual->lines);
        manual->lines[manual->line_count++] = line;
        if (end != NULL) {
            *end++ = '\0';
        }
    }
}

void flw_manual_add(FILE *out, const char *heading, const char *help)
{
    struct manual manual = {.out = out};
    char *text = flw_host_alloc(strlen(help) + 1, 1);
    strcpy(text, help);
    cut_lines(text, &manual);
    if (heading != NULL) {
        put_heading(&manual, heading);
        manual.is_part = true;
    }
    for (size_t i = 0; i < manual.line_count;) {
        const char *line = manual.lines[i];
        if (line[0] == '\0') {
            i++;
        } else if (behind(line, "usage: ") != NULL) {
            i = put_usage(&manual, i);
        } else if (behind(line, "example: ") != NULL) {
            i = put_example(&manual, i);
        } else {
            i = line[0] == ' ' ? put_list(&manual, i) : put_paragraph(&manual, i);
        }
    }
    flw_host_free(manual.lines);
    flw_host_free(text);
}

static void put_reference(FILE *out, const char *name)
{
    fputs("\\fB", out);
    put_text(out, name, strlen(name));
    fputs("\\fR(1)", out);
}

void flw_manual_begin_references(FILE *out, const char *name)
{
    fputs(".SH \"SEE ALSO\"\n", out);
    put_reference(out, name);
}

void flw_manual_add_reference(FILE *out, const char *name)
{
    fputs(",\n", out);
    put_reference(out, name);
}

void flw_manual_end(FILE *out)
{
    fputc('\n', out);
}
