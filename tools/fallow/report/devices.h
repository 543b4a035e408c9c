/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the devices of a recording that the report does not show, with one line for each, and reading a pipe more
 * than once, which several devices need.
 */
#ifndef FLW_TOOL_REPORT_DEVICES_H
#define FLW_TOOL_REPORT_DEVICES_H

#include "report/analysis.h"

#define FLW_PLACE_BYTES 4096

/* Fill `out` (FLW_ANALYSIS_DEVICES) with the recorded devices other than the trace's own; return their number. */
size_t flw_devices_list(const struct flw_trace *trace, int *out);

/* Append the device of `trace`. There is room for all devices of flw_devices_list. */
void flw_devices_add(struct flw_analysis_devices *devices, const struct flw_trace *trace);

/* Append the device to the name of the analysis: "snapshot.pickle, device 1". */
void flw_devices_name(struct flw_analysis *analysis);

/* Copy a pipe into memory so that it can be read again. `place` (FLW_PLACE_BYTES) receives the path to read. If `path`
 * is a descriptor of this process, the copy replaces the pipe under the same number. Other files are not copied.
 * Returns false after printing a message. */
bool flw_devices_hold_pipe(const char *path, char *place);

#endif
