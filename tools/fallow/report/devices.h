/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the devices of one recording beside the one that is shown: which there are, and one line for each; and
 * reading a pipe more than once, as several devices need.
 */
#ifndef FLW_TOOL_REPORT_DEVICES_H
#define FLW_TOOL_REPORT_DEVICES_H

#include "report/sheet.h"

#define FLW_PLACE_BYTES 4096

/* List the recorded devices beside the trace's own into `out` (FLW_SHEET_DEVICES); return how many. */
size_t flw_devices_list(const struct flw_trace *trace, int *out);

/* Add the device that `trace` is of. There is room for those of flw_devices_list. */
void flw_devices_add(struct flw_sheet_devices *devices, const struct flw_trace *trace);

/* Name the sheet of such a device: "snapshot.pickle, device 1". */
void flw_devices_name(struct flw_sheet *sheet);

/* Copy a pipe into memory so that it can be read again. `place` (FLW_PLACE_BYTES) receives the path to read: of a
 * descriptor of this process the same one, whose content the copy becomes. Anything but a pipe is left alone. False: a
 * message was printed. */
bool flw_devices_hold_pipe(const char *path, char *place);

#endif
