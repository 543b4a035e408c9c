/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the formats of trace files, and reading a file in any of these formats.
 * Does not: use file names to recognise formats.
 */
#ifndef FLW_TRACE_FORMATS_FORMATS_H
#define FLW_TRACE_FORMATS_FORMATS_H

#include "trace/io/input.h"
#include "trace/trace/trace.h"

/* A format that can be written. The writer's file lists the facts that the format cannot express. */
struct flw_trace_format {
    const char *name; /* the name in `fallow trace export --to` */
    /* Write the file; "-" is standard output. Returns false and a message if the disk fails or is full; then there is
     * no file. */
    bool (*write)(const struct flw_trace *trace, const char *path, char *message);
    bool is_binary;
};

/* Return the format of this name, or NULL if none is written. */
const struct flw_trace_format *flw_trace_format_find(const char *name);

/* Read a trace file, whatever its format (recognised by content; .xz, .gz and .zst are unpacked).
 *
 * device   ordinal to read; -1 = the one that ran out of memory first, else the one with the most events
 * message  one line that names the file, the place in it and the fault; empty on success
 * True     the whole file was read, or (.ftrace) all up to a fault, which (*out_trace)->truncation names
 * False    nothing is held
 * Safety   the file is data: nothing in it is ever executed
 * Cost     O(file) time; memory in the order of the decoded events */
bool flw_trace_read(const char *path, int device, struct flw_trace **out_trace, char *message);

/* Read from memory, for tests and fuzzers. `name` is for messages. */
bool flw_trace_read_bytes(const void *bytes, size_t count, const char *name, int device,
                          struct flw_trace **out_trace, char *message);

/* Read like flw_trace_read, but read a .ftrace also past damage, from the next whole chunk on; a DROP event marks lost
 * events. */
bool flw_trace_read_damaged(const char *path, int device, struct flw_trace **out_trace,
                            char *message);

/* The writers. RMM's log has allocations (blocks of the start first), frees and failures, times in microseconds.
 * Chrome's JSON has counters of requested, allocated and reserved bytes, instants for other events, and the [memory]
 * events of PyTorch profiles. PyTorch's snapshot is a pickle of protocol 4, of a device up to 1023. */
bool flw_trace_write_text(const struct flw_trace *trace, const char *path, char *message);
bool flw_trace_write_ftrace(const struct flw_trace *trace, const char *path, char *message);
bool flw_trace_write_rmm(const struct flw_trace *trace, const char *path, char *message);
bool flw_trace_write_chrome(const struct flw_trace *trace, const char *path, char *message);
bool flw_trace_write_pytorch(const struct flw_trace *trace, const char *path, char *message);

#endif
