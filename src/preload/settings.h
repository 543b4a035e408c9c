/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the user's settings, read once from FALLOW=key:value,... (a backslash takes the next
 * character literally).
 * Does not: act on them.
 *
 *   mode     off | trace | cache | strict | audit   (cache)
 *   trace    FILE   record every call there; without a mode: trace
 *   stacks   DEPTH  record each allocation with the call stack, at most this many frames of C and of Python (0)
 *   enter_python 0 | 1   1: for stacks, a thread that has released Python's interpreter lock takes it for the walk; not for
 *            programs in which a thread with the interpreter lock waits for a lock under which another one allocates
 *   stats    FILE | -   at exit: one line of JSON to FILE, one line of text to stderr for -; under `fallow run` also
 *            for a process that was killed or ended by _exit
 *   poison   BYTE   fill new blocks with this byte (0xa5, 165)
 *   limit    BYTES  at most this much device memory per context (8G; K, M, G, T are powers of 1024); cuMemGetInfo and
 *                   cuDeviceTotalMem show the program no more
 *   reserve  BYTES  leave this much to calls that cannot be repeated (512M)
 *   large    BYTES  size from which a request gets its own driver allocation (1M)
 *   page_source  automatic | segments   without a difference here: cudaMalloc's memory is a segment
 *   ipc      0 | 1  1: every allocation is its own driver allocation, so all can be exported
 *   top      0 | 1  1: show the pools in `fallow top`, from the first use of the driver on
 *   audit    PREFIX store the findings of an audit of fills in PREFIX.<pid>; without a mode: audit
 *   trial    SITE[=BYTE]  audit: where this site fills with zeros, fill with that byte (0xff)
 *   only     NAME   be on in programs of this name alone (repeatable; the name as in ps)
 *   skip     NAME   be off in programs of this name (repeatable)
 *   state    FILE   the page of `fallow run`, which sets this itself (runplace.h reads it)
 *
 * An unknown key or an unreadable value is reported in one line, and the program runs as without
 * Fallow. */
#ifndef FLW_PRELOAD_SETTINGS_H
#define FLW_PRELOAD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_mode {
    FLW_MODE_OFF, /* nothing is substituted, and every wrapper only calls the real function */
    FLW_MODE_TRACE,
    FLW_MODE_CACHE,
    FLW_MODE_STRICT,
    FLW_MODE_AUDIT
};

#define FLW_SETTING_TEXT_BYTES 1024

struct flw_settings {
    enum flw_mode mode;
    bool has_mode;                             /* given by the user */
    char trace_file[FLW_SETTING_TEXT_BYTES];   /* "": no trace */
    char stats_file[FLW_SETTING_TEXT_BYTES];   /* "": none; "-": stderr */
    char audit_prefix[FLW_SETTING_TEXT_BYTES]; /* "": no audit */
    unsigned stack_depth;                      /* 0: no stacks */
    bool enters_python;                        /* for the stacks (fallow/trace.h, ENTER_PYTHON) */
    int poison;                                /* -1: none */
    uint64_t trial_id;                         /* of a site; 0: none */
    int trial_byte;
    uint64_t limit_bytes; /* 0: none */
    uint64_t reserve_bytes;
    uint64_t large_bytes;
    bool is_ipc, is_top;
};

extern struct flw_settings flw_settings;

/* Length of the message of an invalid setting. */
#define FLW_SETTINGS_MESSAGE_BYTES 512

/* Set defaults, then read `text` (NULL: nothing). False: *settings has defaults with mode off, and
 * `message` has the reason. `program`: the name for only and skip. Pure. */
bool flw_settings_parse(struct flw_settings *settings, const char *text, const char *program,
                        char message[FLW_SETTINGS_MESSAGE_BYTES]);

/* Set flw_settings from the environment, the first time; a privileged program (AT_SECURE) is off.
 * False: another thread is doing so; calls meanwhile are answered as without Fallow. Lock-free. */
bool flw_settings_ready(void);

/* Switch Fallow off for the rest of the process, and log the reason. */
__attribute__((format(printf, 1, 2))) void flw_settings_switch_off(const char *format, ...);

#endif
