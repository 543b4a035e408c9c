/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines of a Python program that a call came from. All native frames of a script are the
 * interpreter's own, so fills of different lines would be one site.
 * Does not: need Python, or its global lock: it uses what Python's own fault handler uses, which is made
 * for signal handlers and looks at this thread's frames alone. Pythons that do not export it (from
 * 3.13 on) and threads that Python does not know have no lines.
 */
#ifndef FLW_PRELOAD_AUDIT_SCRIPTFRAMES_H
#define FLW_PRELOAD_AUDIT_SCRIPTFRAMES_H

#include <stddef.h>

#define FLW_SCRIPTFRAMES_MAX 4

/* "train.py:31 in step", the innermost first, a newline between two; "" where there are none. A frame
 * that does not fit, and what follows it, is left out. At most FLW_SCRIPTFRAMES_MAX of them. */
void flw_scriptframes_take(char *out, size_t room);

/* The same from what the fault handler writes, which is changed. */
void flw_scriptframes_parse(char *text, char *out, size_t room);

#endif
