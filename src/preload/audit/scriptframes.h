/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines of a Python program that a call came from. All native frames of a script are the
 * interpreter's own, so fills of different lines would otherwise be one site.
 * Does not: need Python, or the global lock: this uses the API of Python's own fault handler,
 * which is made for signal handlers and reads only this thread's frames. Pythons that do not
 * export it (from 3.13 on) and threads unknown to Python have no lines. */
#ifndef FLW_PRELOAD_AUDIT_SCRIPTFRAMES_H
#define FLW_PRELOAD_AUDIT_SCRIPTFRAMES_H

#include <stddef.h>

#define FLW_SCRIPTFRAMES_MAX 4

/* Write "train.py:31 in step", the innermost first, with newlines between; "" if there are none. A
 * frame that does not fit, and all further frames, are left out. At most FLW_SCRIPTFRAMES_MAX
 * frames. */
void flw_scriptframes_take(char *out, size_t room);

/* The same from the fault handler's output, which is modified. */
void flw_scriptframes_parse(char *text, char *out, size_t room);

#endif
