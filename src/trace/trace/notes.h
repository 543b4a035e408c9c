/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the header lines of a trace that no field holds: which lines may be one, and their text.
 * Does not: know what they say, but for the recorded devices.
 */
#ifndef FLW_TRACE_TRACE_NOTES_H
#define FLW_TRACE_TRACE_NOTES_H

#include <stdbool.h>
#include <stddef.h>

/* All zero is none. */
struct flw_notes {
    char *text; /* lines, each with its newline; NULL = none */
    size_t bytes, room;
};

/* "# text", or "key value" of printable characters, the key not one of the text form's own. */
bool flw_notes_is_line(const char *begin, const char *end);

/* Add a line without its newline. False: no memory, nothing has changed. */
bool flw_notes_add(struct flw_notes *notes, const char *begin, const char *end);

/* The same, a text of whole lines. */
bool flw_notes_add_lines(struct flw_notes *notes, const char *lines);

/* "recorded_devices A B ..." where there are several; the first few. */
bool flw_notes_add_devices(struct flw_notes *notes, const bool *is_recorded, int count);

/* Return the text after the key and a space in the first line that begins with both; *out_bytes long. NULL: none. */
const char *flw_notes_find(const char *notes, const char *key, int *out_bytes);

/* The key of the line written when a recorder's ring of events was overwritten, and its meaning. */
#define FLW_NOTES_OVERWRITTEN "events_overwritten"
#define FLW_NOTES_OVERWRITTEN_SAYS                                                             \
    "the oldest events were overwritten (trace_alloc_overflowed): the history begins late; a " \
    "larger max_entries of _record_memory_history() keeps more"

/* "A B ..." of a trace's notes, which may be NULL; *out_bytes of them. NULL: there is one device, or it is not said. */
const char *flw_notes_find_devices(const char *notes, int *out_bytes);

/* The text, which the caller frees; NULL = none. */
char *flw_notes_take(struct flw_notes *notes);
void flw_notes_finish(struct flw_notes *notes);

#endif
