/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trace/io/jsonwriter.h"

#include "common/figures.h"
#include "common/terminal.h"

void flw_doctor_begin(struct flw_doctor_sheet *sheet, const char *section)
{
    snprintf(sheet->section, sizeof sheet->section, "%s", section);
}

static struct flw_doctor_entry *add_entry(struct flw_doctor_sheet *sheet, const char *key,
                                          enum flw_doctor_kind kind)
{
    if (sheet->entry_count == FLW_DOCTOR_ENTRIES) {
        sheet->is_full = true;
        return NULL;
    }
    struct flw_doctor_entry *entry = &sheet->entries[sheet->entry_count++];
    *entry = (struct flw_doctor_entry){.kind = kind};
    memcpy(entry->section, sheet->section, sizeof entry->section);
    snprintf(entry->key, sizeof entry->key, "%s", key);
    return entry;
}

void flw_doctor_text(struct flw_doctor_sheet *sheet, const char *key, const char *format, ...)
{
    struct flw_doctor_entry *entry = add_entry(sheet, key, FLW_DOCTOR_TEXT);
    if (entry != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(entry->text, sizeof entry->text, format, arguments);
        va_end(arguments);
    }
}

void flw_doctor_number(struct flw_doctor_sheet *sheet, const char *key, enum flw_doctor_kind kind,
                       uint64_t number)
{
    struct flw_doctor_entry *entry = add_entry(sheet, key, kind);
    if (entry != NULL) {
        entry->number = number;
    }
}

void flw_doctor_advise(struct flw_doctor_sheet *sheet, const char *format, ...)
{
    if (sheet->advice_count == FLW_DOCTOR_ADVICE) {
        sheet->is_full = true;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sheet->advice[sheet->advice_count++], FLW_DOCTOR_TEXT_BYTES, format, arguments);
    va_end(arguments);
}

/* ---- text ---- */

static void print_value(FILE *out, const struct flw_doctor_entry *entry)
{
    char size[FLW_FIGURE_BYTES];
    switch (entry->kind) {
    case FLW_DOCTOR_TEXT:
        fputs(entry->text, out);
        break;
    case FLW_DOCTOR_COUNT:
        fprintf(out, "%" PRIu64, entry->number);
        break;
    case FLW_DOCTOR_BYTES:
        fputs(flw_format_size(entry->number, size), out);
        break;
    case FLW_DOCTOR_NS:
        fprintf(out, "%10.2f us", (double)entry->number / 1000);
        break;
    case FLW_DOCTOR_BOOL:
        fputs(entry->number != 0 ? "yes" : "no", out);
        break;
    }
}

static void print_text(FILE *out, const struct flw_doctor_sheet *sheet)
{
    const char *section = "";
    for (size_t i = 0; i < sheet->entry_count; i++) {
        const struct flw_doctor_entry *entry = &sheet->entries[i];
        if (strcmp(section, entry->section) != 0) {
            section = entry->section;
            fprintf(out, "%s%s\n", i == 0 ? "" : "\n", section);
        }
        fprintf(out, "  %-34s ", entry->key);
        print_value(out, entry);
        fputc('\n', out);
    }
    fprintf(out, "\nwhat to set\n");
    for (size_t i = 0; i < sheet->advice_count; i++) {
        fprintf(out, "  - %s\n", sheet->advice[i]);
    }
    if (sheet->advice_count == 0) {
        fprintf(out, "  nothing: the defaults fit\n");
    }
}

/* ---- JSON ---- */

static void print_json(const struct flw_doctor_sheet *sheet)
{
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    const char *section = "";
    flw_json_begin(out, NULL, '{');
    for (size_t i = 0; i < sheet->entry_count; i++) {
        const struct flw_doctor_entry *entry = &sheet->entries[i];
        if (strcmp(section, entry->section) != 0) {
            if (i != 0) {
                flw_json_end(out, '}');
                out->line = "";
            }
            section = entry->section;
            flw_json_begin(out, section, '{');
        }
        if (entry->kind == FLW_DOCTOR_TEXT) {
            flw_json_text(out, entry->key, entry->text);
        } else if (entry->kind == FLW_DOCTOR_BOOL) {
            flw_json_bool(out, entry->key, entry->number != 0);
        } else {
            flw_json_number(out, entry->key, entry->number);
        }
    }
    if (sheet->entry_count != 0) {
        flw_json_end(out, '}');
        out->line = "";
    }
    flw_json_begin(out, "advice", '[');
    for (size_t i = 0; i < sheet->advice_count; i++) {
        flw_json_text(out, NULL, sheet->advice[i]);
    }
    puts("]}");
}

void flw_doctor_print(const struct flw_doctor_sheet *sheet, bool is_json)
{
    if (is_json) {
        print_json(sheet);
    } else {
        FILE *out = flw_terminal_open(false);
        print_text(out, sheet);
        flw_terminal_close(out);
    }
}
