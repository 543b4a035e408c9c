/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: PyTorch's memory snapshots (torch.cuda.memory._snapshot, 2.0 and newer, and the bare list
 * of segments of older versions) as a trace.
 */
#ifndef FLW_TRACE_FORMATS_PYTORCH_H
#define FLW_TRACE_FORMATS_PYTORCH_H

#include <stdio.h>

#include "trace/io/input.h"
#include "trace/trace/build.h"

/* Read a snapshot into the build, as in formats.h; the input is at a pickle's first byte. */
bool flw_pytorch_read(struct flw_input *input, int device, struct flw_build *build);

#define FLW_PYTORCH_DEVICES 1024 /* as many as a snapshot holds */

/* Print a snapshot of a trace, of one of these devices. Returns NULL, or the reason why the snapshot is not whole. */
const char *flw_pytorch_print(const struct flw_trace *trace, FILE *file);

#endif
