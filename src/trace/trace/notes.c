/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: distinguishing a note from a record, and the growth of the notes' text.
 */
#include "trace/trace/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/array.h"

#define DEVICES_LISTED 16
#define DEVICES_KEY    "recorded_devices"
#define DEVICES_BYTES  128

static bool is_reserved_key(const char *key, size_t bytes)
{
    static const char *const reserved[] = {"device", "stream", "fields", "begin_ns", "gaps"};
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        if (strlen(reserved[i]) == bytes && memcmp(reserved[i], key, bytes) == 0) {
            return true;
        }
    }
    return false;
}

bool flw_notes_is_line(const char *begin, const char *end)
{
    const char *c = begin;
    if (c < end && *c == '#') {
        c++;
    } else {
        while (c < end && ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_')) {
            c++;
        }
        if (c == begin || is_reserved_key(begin, (size_t)(c - begin))) {
            return false;
        }
    }
    if (c >= end || *c != ' ') {
        return false;
    }
    for (; c < end; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) {
            return false;
        }
    }
    return true;
}

bool flw_notes_add(struct flw_notes *notes, const char *begin, const char *end)
{
    size_t bytes = (size_t)(end - begin);
    while (notes->bytes + bytes + 1 >= notes->room) {
        if (!FLW_ARRAY_FITS(notes->text, notes->room, notes->room)) {
            return false;
        }
    }
    memcpy(notes->text + notes->bytes, begin, bytes);
    notes->bytes += bytes;
    notes->text[notes->bytes++] = '\n';
    notes->text[notes->bytes] = '\0';
    return true;
}

bool flw_notes_add_lines(struct flw_notes *notes, const char *lines)
{
    bool is_added = true;
    while (is_added && *lines != '\0') {
        size_t bytes = strcspn(lines, "\n");
        is_added = flw_notes_add(notes, lines, lines + bytes);
        lines += bytes + (lines[bytes] == '\n');
    }
    return is_added;
}

bool flw_notes_add_devices(struct flw_notes *notes, const bool *is_recorded, int count)
{
    char line[DEVICES_BYTES] = DEVICES_KEY;
    int listed = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = strlen(line);
        if (is_recorded[i] && listed++ < DEVICES_LISTED) {
            snprintf(line + bytes, sizeof(line) - bytes, " %d", i);
        }
    }
    if (listed > DEVICES_LISTED) {
        strcat(line, " ...");
    }
    return listed < 2 || flw_notes_add(notes, line, line + strlen(line));
}

const char *flw_notes_find(const char *notes, const char *key, int *out_bytes)
{
    size_t key_bytes = strlen(key);
    const char *line = notes;
    while (line != NULL && (strncmp(line, key, key_bytes) != 0 || line[key_bytes] != ' ')) {
        line = strchr(line, '\n');
        line += line != NULL;
    }
    if (line == NULL) {
        return NULL;
    }
    line += key_bytes + 1;
    *out_bytes = (int)strcspn(line, "\n");
    return line;
}

/* Ignore anything but a list of numbers: a file of the text form may have any header. */
const char *flw_notes_find_devices(const char *notes, int *out_bytes)
{
    const char *line = flw_notes_find(notes, DEVICES_KEY, out_bytes);
    if (line == NULL) {
        return NULL;
    }
    size_t bytes = strspn(line, "0123456789 ");
    bytes += strncmp(line + bytes, "...", 3) == 0 ? 3 : 0; /* there are more devices */
    return bytes > 0 && bytes <= DEVICES_BYTES && bytes == (size_t)*out_bytes ? line : NULL;
}

char *flw_notes_take(struct flw_notes *notes)
{
    char *text = notes->text;
    *notes = (struct flw_notes){0};
    return text;
}

void flw_notes_finish(struct flw_notes *notes)
{
    free(notes->text);
    *notes = (struct flw_notes){0};
}
