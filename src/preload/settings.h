/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the user's settings, read once from FALLOW=key:value,... (a backslash takes the next
 * character literally).
 * Does not: act on them.
 *
 * The table in include/fallow/README.md has every key with unit and default. `state`, the page of
 * `fallow run`, is set by that command alone (runplace.h reads it).
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
    uint64_t one_handle_bytes;
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
