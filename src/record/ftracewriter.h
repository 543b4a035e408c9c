/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the trace file `.ftrace`: the form and the writer. trace/formats/ftrace.h reads it.
 * Does not: pack the file further. A .ftrace.zst, .xz or .gz is read like any other packed trace.
 *
 * A file is a header and chunks, little-endian throughout. Chunks are only ever appended; each has
 * its own checksums and starts from nothing, so what was written before a crash can be read, and
 * what follows a damaged chunk too. CRC means CRC-32C.
 *
 *   HEADER, 64 bytes                          CHUNK HEADER, 64 bytes
 *    0  "FALLOWTR"                             0  "FTRC"
 *    8  u16 major, u16 minor version           4  u8 type, u8 codec, u16 0
 *   12  u32 bytes of this header, 64 or more   8  u32 bytes of the payload, at most 1 MiB
 *   16  u64 flags                             12  u32 bytes it unpacks to (codecs 0, 1: the same)
 *   24  u64 wall clock, ns since 1970         16  u32 records in it
 *   32  u64 monotonic clock, ns               20  u32 thread that the records begin with
 *   40  u64 ticks a second; 10^9 = ns         24  u64 number of the first event in the file
 *   48  u32 process                           32  u64 number of the first block in the file
 *   52  u32 device, u32 devices there are     40  u64 base, ns since the beginning
 *   60  u32 CRC of bytes 0 to 59              48  u32 ticks in a step of the records' time, u32 0
 *                                             56  u32 CRC of the payload
 *                                             60  u32 CRC of bytes 0 to 59
 *
 *   Clocks, process and devices are 0 where unknown. Flags: 1 times, 2 addresses, 4 segments, 8 stacks, 16
 *   remarks are *   recorded; bits 0 to 31 may be passed over by a reader that does not know them, bits 32 to 63 may
 *   not. Bytes of the header beyond 64 are passed over.
 *
 *   type 1 META      lines of the text form's header (text.h): ["gaps" ...] note*. Several follow one
 *                    another.
 *        2 DICT      entries: varint kind, varint length, body. Kind 1, a stream: varint number (0, 1,
 *                    2, ... in the file), varint handle. Kind 2, a name: varint number, the bytes.
 *                    Kinds 3 to 5 since minor version 1: a text: varint number, the bytes, none of them 0,
 *                    at most 8,000. A frame: varints number, text of the function, text of the file, line
 *                    (0: not known). A stack: varint number, from 1; varint count of the outermost frames
 *                    that it shares with the stack before it in the chunk; varints, the other frames, the
 *                    innermost first; 1 to 1,000 frames in all.
 *                    Other kinds are passed over. An entry comes before the record that uses it.
 *        3 SNAPSHOT  BLOCK, SEGMENT and CONTEXT records (record.h): what was there before the first
 *                    event; blocks in address order. Before all EVENTS.
 *        4 EVENTS    the other records
 *        5 DROP      u64: so many events are missing. It counts as one event and one record.
 *        6 END       u64 events, u64 blocks, u64 segments, u64 chunks before this one; u32 CRC of all
 *                    bytes of the file before this chunk, u32 0. Nothing follows.
 *        7 STACKS    since minor version 1: the stacks of the records, CONTEXT aside, of the chunk behind it,
 *                    whose first event and block are its own (stackids.h); 0: none, and so have those
 *                    beyond the count of records. Where such a chunk does not follow it is passed over.
 *        8 REMARKS   since minor version 1: what is said beside the stacks of the records of that chunk, in
 *                    the same way. Items: varint, so many records; varints, text of the compile context and
 *                    text of the user metadata, each plus 1, 0 = none.
 *   Chunks of other types are passed over. `codec` is that of the records; 0 elsewhere.
 *
 *   The beginning is the moment of the header's clocks, or the first event where they are 0. Events and
 *   blocks are numbered in the order of the file, blocks of the start first. An event's
 *   time is the base and, in ns, the chunk's ticks; it never falls (where ticks are not ns, a reader
 *   takes an earlier one for the last). A file without END was not finished: all of it counts that
 *   can be read. A reader that meets damage stops, or looks for the next "FTRC" whose header's CRC
 *   is right: the numbers there tell what is lost.
 *
 *   A version with a higher major number cannot be read; one with a higher minor number can: unknown
 *   chunk types, long records, dictionary kinds and ends of bodies say how long they are. A file without
 *   stacks and remarks is of minor version 0. What is lost of a dictionary of stacks leaves events without one, and
 *   takes no event away.
 *
 * Why so: frees name blocks by how many were allocated since, not by recycled slots, so a chunk needs
 * no state of the ones before it, and repeated phases of a program are repeated bytes for a
 * compressor. Addresses are kept: policies are compared with the recorded ones. A caching allocator
 * hands out again what was freed last, so most cost nothing (record.h). Times have a scale a chunk
 * since recordings count in microseconds. One header for all chunks, of a cache line, keeps raw
 * records aligned.
 */
#ifndef FLW_RECORD_FTRACEWRITER_H
#define FLW_RECORD_FTRACEWRITER_H

#include "record/event.h"
#include "record/record.h"

#define FLW_FTRACE_MAGIC       "FALLOWTR"
#define FLW_FTRACE_CHUNK_MAGIC "FTRC"
#define FLW_FTRACE_MAJOR       1
#define FLW_FTRACE_MINOR       1 /* of files with stacks; 0 of files without */

#define FLW_FTRACE_CHUNK_BYTES   (UINT32_C(64) << 10) /* of a payload, as written here */
#define FLW_FTRACE_PAYLOAD_BYTES (UINT32_C(1) << 20)  /* of a payload, at most */

#define FLW_FTRACE_HAS_TIMES     UINT64_C(1)
#define FLW_FTRACE_HAS_ADDRESSES UINT64_C(2)
#define FLW_FTRACE_HAS_SEGMENTS  UINT64_C(4)
#define FLW_FTRACE_HAS_STACKS    UINT64_C(8)
#define FLW_FTRACE_HAS_REMARKS   UINT64_C(16)

#define FLW_FTRACE_TEXT_BYTES  8000 /* of a frame's function or file */
#define FLW_FTRACE_STACK_DEPTH 1000

enum flw_ftrace_type {
    FLW_FTRACE_META = 1,
    FLW_FTRACE_DICT,
    FLW_FTRACE_SNAPSHOT,
    FLW_FTRACE_EVENTS,
    FLW_FTRACE_DROP,
    FLW_FTRACE_END,
    FLW_FTRACE_STACKS,
    FLW_FTRACE_REMARKS
};

enum flw_ftrace_entry { /* kinds of a dictionary's entries */
    FLW_FTRACE_STREAM = 1,
    FLW_FTRACE_NAME,
    FLW_FTRACE_TEXT,
    FLW_FTRACE_FRAME,
    FLW_FTRACE_STACK
};

struct flw_ftrace_settings {
    bool has_times, has_addresses, has_segments, has_stacks, has_remarks;
    enum flw_record_codec codec;
    uint32_t device, device_count, process;
    uint64_t wall_ns, mono_ns; /* 0 = unknown */
    uint32_t step_ns;          /* all times should be multiples of it; at least 1 */
};

struct flw_ftrace_writer;

/* Destination of the bytes, in order; the caller's, and valid as long as the writer. */
struct flw_ftrace_sink {
    bool (*write)(void *context, const void *bytes, size_t count);
    bool (*flush)(void *context); /* pass on bytes that `write` has kept back; NULL: it keeps
                                      none */
    void *context;
};

/* Create a writer and write the header. NULL: no memory. */
struct flw_ftrace_writer *flw_ftrace_writer_create(const struct flw_ftrace_sink *sink,
                                                   const struct flw_ftrace_settings *settings);

/* Free the writer, without finishing the file. */
void flw_ftrace_writer_destroy(struct flw_ftrace_writer *writer);

/* Each returns false if there is no memory or the sink failed; all later calls do too.
 *
 * Order: notes, streams and names at any time, but before their first use; segments and initial
 * blocks before events. Streams and names are numbered in the order in which they are added. */
bool flw_ftrace_writer_add_notes(struct flw_ftrace_writer *writer, const char *lines);
bool flw_ftrace_writer_add_stream(struct flw_ftrace_writer *writer, uint64_t handle);
bool flw_ftrace_writer_add_name(struct flw_ftrace_writer *writer, const char *name);

/* If the settings have stacks: add each text and frame once, before the first use; numbers are in
 * the order in which they are added, from 1 for stacks. Frames: the innermost first, 1 to
 * FLW_FTRACE_STACK_DEPTH of them. These calls close no chunk. */
bool flw_ftrace_writer_add_text(struct flw_ftrace_writer *writer, const char *text);
bool flw_ftrace_writer_add_frame(struct flw_ftrace_writer *writer, uint32_t function, uint32_t file,
                                 uint32_t line);
bool flw_ftrace_writer_add_stack(struct flw_ftrace_writer *writer, const uint32_t *frames,
                                 size_t count);
/* Set the stack of the segment, block or event that is added next; later ones have none. */
void flw_ftrace_writer_set_stack(struct flw_ftrace_writer *writer, uint32_t stack);
/* Set the remarks of everything added from here on: texts plus 1, 0: none. */
void flw_ftrace_writer_set_remark(struct flw_ftrace_writer *writer, uint32_t compile_context,
                                  uint32_t user_metadata);

/* Add a SEGMENT, a BLOCK or an event with its caller. Its time is in ns since the beginning; an earlier time than the
 * last event's is raised to it, because times in a file never decrease. Blocks are numbered as they are added. */
bool flw_ftrace_writer_add(struct flw_ftrace_writer *writer, struct flw_record record);

/* Pass everything to the operating system, where a crash of the process cannot lose it. Closes the
 * chunk. */
bool flw_ftrace_writer_flush(struct flw_ftrace_writer *writer);

/* Write the END chunk. Nothing may be added afterwards. */
bool flw_ftrace_writer_end(struct flw_ftrace_writer *writer);

#endif
