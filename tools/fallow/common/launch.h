/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running a command under the preload library: finding the library, the environment, the child, passing signals
 * on, the outcome.
 * Does not: know modes, or print the outcome.
 */
#ifndef FLW_TOOL_LAUNCH_H
#define FLW_TOOL_LAUNCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "preload/runpage.h"

#define FLW_LAUNCH_NOT_FOUND  127 /* exit codes of a command that was not started, a shell's */
#define FLW_LAUNCH_NOT_RUN    126
#define FLW_SETTINGS_BYTES    (128 * 1024) /* the system's limit */
#define FLW_LAUNCH_PATH_BYTES PATH_MAX

/* The text of FALLOW: KEY:VALUE,KEY:VALUE...; a backslash quotes the next character. */
struct flw_settings_text {
    char text[FLW_SETTINGS_BYTES];
};

/* Copy FALLOW from the environment. Returns false after an error if the text is too long. */
bool flw_settings_inherit(struct flw_settings_text *settings);

/* Set a key, in place of an earlier value; NULL changes nothing. Returns false after an error if the value is empty or
 * too long. */
bool flw_settings_put(struct flw_settings_text *settings, const char *key, const char *value);

/* A `take` of options for a struct flw_settings_text: "KEY:VALUE". */
bool flw_settings_take(void *member, const char *text);

/* Set a key to a path, made absolute because the command may change its folder. "-" stays. */
bool flw_settings_put_file(struct flw_settings_text *settings, const char *key, const char *path);

/* Find libfallow-simcuda.so beside this program or as installed. Returns false after an error. */
bool flw_launch_find_simulator(char out[FLW_LAUNCH_PATH_BYTES]);

struct flw_launch {
    const char *subcommand; /* for messages */
    char *const *command;   /* ends with NULL */
    const char *library;    /* NULL: beside this program, or in the installed folder of libraries */
    const struct flw_settings_text *settings;
    int input, output; /* descriptors of the command; 0: those of this program */
    bool replaces;     /* this program becomes the command, so there is no outcome */
    /* The outcome of flw_launch. */
    int exit_code; /* if signal is 0 */
    int signal;    /* the signal that ended the command, or 0 */
    char loaded[FLW_LAUNCH_PATH_BYTES];
    const struct flw_runpage
        *page; /* processes may still write to the page; NULL: not supported here */
};

/* Run the command and wait for its end. Returns 0; or, after an error, an exit code: FLW_EXIT_USAGE (the library would
 * refuse the settings), FLW_EXIT_FAILED, FLW_LAUNCH_NOT_FOUND, FLW_LAUNCH_NOT_RUN. Passes signals on to the command,
 * except a terminal's, which the command receives itself. */
int flw_launch(struct flw_launch *launch);

/* Return the number of taken places of the page. */
size_t flw_launch_place_count(const struct flw_runpage *page);
/* True if exec has replaced the image that took the place. */
bool flw_launch_is_replaced(const struct flw_runpage *page, size_t number);

/* Return the command's exit code, or end this program by the command's signal, without a second core. */
int flw_launch_end_as(const struct flw_launch *launch);

/* True if a hook was called, or may have been called by a process that ended too early to record the call. */
bool flw_launch_is_reached(const struct flw_launch *launch);

/* True if some process of the command has the flag. */
bool flw_launch_has(const struct flw_launch *launch, enum flw_runpage_flag flag);

/* Print the reason why no hook was called. Returns false if one was, or if the reason is in the log already. */
bool flw_launch_explain(const struct flw_launch *launch);

#endif
