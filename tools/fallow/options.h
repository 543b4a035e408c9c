/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what is said of an option that getopt_long refused, the same words for every subcommand.
 * Does not: parse; replay, report, trace and gen look at their arguments themselves.
 */
#ifndef FLW_TOOL_OPTIONS_H
#define FLW_TOOL_OPTIONS_H

/* One line to standard error. `answer` is getopt_long's, '?' or ':', whose list of letters begins
 * with ':' (behind a '+'), so that it says nothing itself; `command` as on the command line, as in
 * "bench kernels". Called before the next getopt_long. */
void flw_complain_option(const char *command, char *const *argv, int answer);

#endif
