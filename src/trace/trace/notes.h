/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the header lines of a trace that no field holds: their syntax, and their text.
 * Does not: interpret them, except the recorded devices.
 */
#ifndef FLW_TRACE_TRACE_NOTES_H
#define FLW_TRACE_TRACE_NOTES_H

#include <stdbool.h>
#include <stddef.h>

/* All zero is empty. */
struct flw_notes {
    char *text; /* lines, each with a newline; NULL = none */
    size_t bytes, room;
};

/* True for "# text", or "key value" of printable characters with a key that is not one of the text form's own. */
bool flw_notes_is_line(const char *begin, const char *end);

/* Add a line, given without a newline. Returns false if memory runs out; then nothing has changed. */
bool flw_notes_add(struct flw_notes *notes, const char *begin, const char *end);

/* Add a text of whole lines in the same way. */
bool flw_notes_add_lines(struct flw_notes *notes, const char *lines);

/* Add the line "recorded_devices A B ..." if there are several; it lists the first few. */
bool flw_notes_add_devices(struct flw_notes *notes, const bool *is_recorded, int count);

/* Return the text after the key and a space in the first line that begins with both, of *out_bytes bytes; or NULL. */
const char *flw_notes_find(const char *notes, const char *key, int *out_bytes);

/* Key and value of the line of an overwritten ring of events. */
#define FLW_NOTES_OVERWRITTEN "events_overwritten"
#define FLW_NOTES_OVERWRITTEN_SAYS                                                             \
    "the oldest events were overwritten (trace_alloc_overflowed): the history begins late; a " \
    "larger max_entries of _record_memory_history() keeps more"

/* Return the recorded devices "A B ..." of *out_bytes bytes in a trace's notes, which may be NULL. NULL: one device, or
 * unknown. */
const char *flw_notes_find_devices(const char *notes, int *out_bytes);

/* Return the text, which the caller frees; NULL: none. */
char *flw_notes_take(struct flw_notes *notes);
void flw_notes_finish(struct flw_notes *notes);

#endif
