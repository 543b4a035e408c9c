/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the formats of trace files, and reading a file in any of these formats.
 * Does not: use file names to recognise formats.
 */
#ifndef FLW_TRACE_FORMATS_FORMATS_H
#define FLW_TRACE_FORMATS_FORMATS_H

#include <stdio.h>

#include "trace/io/input.h"
#include "trace/trace/trace.h"

#define FLW_TRACE_NO_MEMORY "no memory to write it"

/* A format that can be written. The printer's file lists the facts that the format cannot express. */
struct flw_trace_format {
    const char *name; /* the name in `fallow trace export --to` */
    bool is_binary;
    /* Print a trace. Write errors are visible in ferror. Returns NULL, or the reason why the output is not whole. */
    const char *(*print)(const struct flw_trace *trace, FILE *file);
    int last_device; /* that the format can express */
};

/* Return the format of this name, or NULL if none is written. */
const struct flw_trace_format *flw_trace_format_find(const char *name);

/* Write a trace in a format to a file; "-" is standard output. Returns false and a message if that fails; then there is
 * no file.
 *
 * RMM's log has allocations (blocks of the start first), frees and failures, times in microseconds. Chrome's JSON has
 * counters of requested, allocated and reserved bytes, instants for other events, and the [memory] events of PyTorch
 * profiles. PyTorch's snapshot is a pickle of protocol 4. */
bool flw_trace_write(const struct flw_trace *trace, const char *format, const char *path,
                     char *message);

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

/* Read from an input at its first byte, which stays open and has the message. */
bool flw_trace_read_open(struct flw_input *input, int device, struct flw_trace **out_trace);

/* Read like flw_trace_read, but read a .ftrace also past damage, from the next whole chunk on; a DROP event marks lost
 * events. */
bool flw_trace_read_damaged(const char *path, int device, struct flw_trace **out_trace,
                            char *message);

#endif
