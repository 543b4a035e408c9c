/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the user wants, read once from FALLOW=key:value,... (a backslash takes the next
 * character as it is).
 * Does not: act on it.
 *
 *   mode     off | trace | cache | strict | audit   (cache)
 *   trace    FILE   record every call there; with no mode given: trace
 *   stacks   DEPTH  with each allocation on record the call stack, at most so many frames of C and of Python (0)
 *   enter_python 0 | 1   1: for stacks, a thread that has let Python's interpreter go takes it for the look; not for
 *            programs in which a thread with the interpreter waits for a lock that another one allocates under
 *   stats    FILE | -   at exit: one line of JSON to FILE, one line of text to stderr for -; under `fallow run` also
 *            of a process that was killed or ended by _exit
 *   poison   BYTE   fill what is allocated with this byte (0xa5, 165)
 *   limit    BYTES  at most this much device memory per context (8G; K, M, G, T are powers of 1024); the program
 *                   sees no more in cuMemGetInfo and cuDeviceTotalMem
 *   reserve  BYTES  leave this much to calls that cannot be tried again (512M)
 *   large    BYTES  from here on a request gets its own driver allocation (1M)
 *   page_source  automatic | segments   the same here: what cudaMalloc gives is a segment
 *   ipc      0 | 1  1: every allocation is its own driver allocation, so all can be exported
 *   top      0 | 1  1: show the pools to `fallow top`, from the first use of the driver on
 *   audit    PREFIX keep what an audit of fills finds in PREFIX.<pid>; with no mode given: audit
 *   trial    SITE[=BYTE]  audit: where this site fills with zeros, fill with that byte (0xff)
 *   only     NAME   be on in programs of this name alone (repeatable; the name as in ps)
 *   skip     NAME   be off in programs of this name (repeatable)
 *   state    FILE   the page of `fallow run`, which sets this itself (runplace.h reads it)
 *
 * An unknown key or an unreadable value: one line, and the program runs as without Fallow.
 */
#ifndef FLW_PRELOAD_SETTINGS_H
#define FLW_PRELOAD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_mode {
    FLW_MODE_OFF, /* nothing is substituted, every wrapper calls the real one and nothing else */
    FLW_MODE_TRACE,
    FLW_MODE_CACHE,
    FLW_MODE_STRICT,
    FLW_MODE_AUDIT
};

#define FLW_SETTING_TEXT_BYTES 1024

struct flw_settings {
    enum flw_mode mode;
    bool has_mode;                             /* it was given, not the default */
    char trace_file[FLW_SETTING_TEXT_BYTES];   /* "": no trace */
    char stats_file[FLW_SETTING_TEXT_BYTES];   /* "": none; "-": stderr */
    char audit_prefix[FLW_SETTING_TEXT_BYTES]; /* "": no audit */
    unsigned stack_depth;                      /* 0: no stacks */
    bool enters_python;                        /* for them (fallow/trace.h, ENTER_PYTHON) */
    int poison;                                /* -1: none */
    uint64_t trial_id;                         /* of a site; 0: none */
    int trial_byte;
    uint64_t limit_bytes; /* 0: none */
    uint64_t reserve_bytes;
    uint64_t large_bytes;
    bool is_ipc, is_top;
};

extern struct flw_settings flw_settings;

/* Room for one line that names what is wrong and what to do. */
#define FLW_SETTINGS_MESSAGE_BYTES 512

/* Defaults, then `text` (NULL: nothing). False: *settings is all defaults with mode off, and
 * `message` says why. `program`: the name that only and skip are compared with. Pure. */
bool flw_settings_parse(struct flw_settings *settings, const char *text, const char *program,
                        char message[FLW_SETTINGS_MESSAGE_BYTES]);

/* Fill flw_settings from the environment, the first time; a privileged program (AT_SECURE) is off.
 * False: another thread is at it; what is asked now is answered as without Fallow. No lock. */
bool flw_settings_ready(void);

/* Switch Fallow off for the rest of the process, with the line that says why. */
__attribute__((format(printf, 1, 2))) void flw_settings_switch_off(const char *format, ...);

#endif
