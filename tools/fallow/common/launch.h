/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a command run under the preload library: where the library is, the environment, the child,
 * the signals in between, how it ended.
 * Does not: know modes, or say what came of it; whoever launches does.
 */
#ifndef FLW_TOOL_LAUNCH_H
#define FLW_TOOL_LAUNCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "preload/runpage.h"

#define FLW_LAUNCH_NOT_FOUND  127 /* exit codes of a command that was not started, as of a shell */
#define FLW_LAUNCH_NOT_RUN    126
#define FLW_SETTINGS_BYTES    (128 * 1024) /* what the system takes */
#define FLW_LAUNCH_PATH_BYTES PATH_MAX

/* The text of FALLOW: key:value, more of them after commas; a backslash takes the next character. */
struct flw_settings_text {
    char text[FLW_SETTINGS_BYTES];
};

/* What the caller's environment says. False: too long; the line has been written. */
bool flw_settings_inherit(struct flw_settings_text *settings);

/* The key takes the place of an earlier one; a NULL value changes nothing. False, and a line that names key and value: there is no
 * value, or no room. */
bool flw_settings_put(struct flw_settings_text *settings, const char *key, const char *value);

/* Whether the preload library takes it all. False: a line says what is wrong. */
bool flw_settings_check(const struct flw_settings_text *settings);

/* For FLW_OPTION_TAKE, of a struct flw_settings_text: "KEY:VALUE". */
bool flw_settings_take(void *member, const char *text);

/* flw_settings_put for a file, whose path is made absolute, since the command may go elsewhere. "-" stays. */
bool flw_settings_put_file(struct flw_settings_text *settings, const char *key, const char *path);

struct flw_launch {
    const char *subcommand; /* for messages */
    char *const *command;   /* ends with NULL */
    const char *library;    /* NULL: beside this program, or where its libraries are installed */
    const struct flw_settings_text *settings;
    int input, output; /* descriptors of the command; 0: those of this program */
    bool replaces;     /* this program becomes the command: nothing is known afterwards */
};

struct flw_launch_outcome {
    int exit_code; /* where signal is 0 */
    int signal;    /* that ended it */
    int pid;
    char library[FLW_LAUNCH_PATH_BYTES];
    const struct flw_runpage *page; /* processes may still write; NULL: the system has none */
};

/* 0: it ran, and outcome says how it ended. Else a line has been written and the result is the exit
 * code: FLW_EXIT_USAGE (the library would refuse the settings), FLW_EXIT_FAILED, FLW_LAUNCH_NOT_FOUND,
 * FLW_LAUNCH_NOT_RUN. Signals that come meanwhile go to
 * the command, but for those of a terminal, which it gets itself. */
int flw_launch(const struct flw_launch *launch, struct flw_launch_outcome *outcome);

/* The places of the page that are taken, and whether exec has replaced the image that took one. */
size_t flw_launch_place_count(const struct flw_runpage *page);
bool flw_launch_is_replaced(const struct flw_runpage *page, size_t number);

/* Ends as the command did: returns its exit code, or dies of its signal (without a second core). */
int flw_launch_end_as(const struct flw_launch_outcome *outcome);

/* Was a hook reached, or may one have been by a process that could not say any more? */
bool flw_launch_is_reached(const struct flw_launch_outcome *outcome);

/* True if some process of the command has the flag. */
bool flw_launch_has(const struct flw_launch_outcome *outcome, enum flw_runpage_flag flag);

/* Why no hook was reached: one line, after "fallow SUBCOMMAND: ". False: one was, or it has been said.
 */
bool flw_launch_explain(const struct flw_launch *launch, const struct flw_launch_outcome *outcome);

#endif
