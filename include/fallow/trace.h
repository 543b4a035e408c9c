/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Record a pool's allocations and frees as a trace for `fallow replay` and `fallow report`.
 *
 * A recording begins with the blocks that are live at that moment. After these it contains every
 * allocation, free, announced use, capture, trim and failure, with time, size, address, stream, thread
 * and tag (fallow_request.tag), and the phases that the program names. Threads write records of 32
 * bytes into rings of their own, without formatting, allocating or writing to files. Times have a
 * resolution of 16 ns, about the cost of reading the clock.
 *
 * There are two kinds. A *file* is written while the program runs; after a crash it lacks at most the
 * last 100 ms. A *flight recorder* (FALLOW_RECORD_RING_ONLY) keeps the last records of each thread in
 * memory and writes them on request: by fallow_record_dump, when an allocation fails, or on a signal.
 *
 * COST     without a recording: nothing on a hit. With one: reading the clock and four stores per call
 *          (tests/README.md, Recordings). With call stacks: the walk of the stack, a few hundred
 *          nanoseconds if libunwind.so.8 is installed and a few microseconds otherwise, and one more
 *          record if the stack differs from the thread's previous one. Each stack is kept once, until
 *          the process ends, with the Python code objects that it names.
 * THREADS  every function may be called from any thread at any time. The child of a fork() has no
 *          recorder; the parent continues to write the file.
 *
 * This header needs no CUDA header; C11 and C++17.
 */
#ifndef FALLOW_TRACE_H
#define FALLOW_TRACE_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A recording under way. An opaque handle. */
typedef struct fallow_recorder fallow_recorder;

/** Bits of fallow_record_config.flags. */
enum {
    /** A thread with a full ring waits for room, so no record is lost. Without this bit the record is
     *  dropped; the trace and the end of the recording report how many were. Not with RING_ONLY. */
    FALLOW_RECORD_BLOCK_WHEN_FULL = 1u << 0,
    /** Flight recorder: only dumps write `path`. */
    FALLOW_RECORD_RING_ONLY = 1u << 1,
    /** An allocation that fails for want of memory writes a dump before returning. */
    FALLOW_RECORD_DUMP_ON_OOM = 1u << 2,
    /** For call stacks: a Python thread that has released the interpreter's lock, as PyTorch's operators
     *  do, takes the lock to walk its Python frames. Set this only if no thread allocates while it holds
     *  a lock that a thread with the interpreter's lock waits for. Needs stack_depth. */
    FALLOW_RECORD_ENTER_PYTHON = 1u << 3
};

/** How to record. 0 selects the default of every field except struct_size and path. */
typedef struct fallow_record_config {
    size_t struct_size; /**< set by fallow_record_config_init */
    /** The file; for a flight recorder, the file of dumps without a path of their own. NULL: a flight
     *  recorder, with or without RING_ONLY. Read during start only. */
    const char *path;
    /** Size of each thread's ring, rounded up to a power of two; at most 1 GiB. 0 = 4 MiB, which is
     *  131,072 records. */
    size_t ring_bytes;
    uint32_t flags; /**< FALLOW_RECORD_ bits */
    /** The flight recorder dumps within about 10 ms of this signal, such as SIGUSR2; the handler only
     *  counts. 0 = none. Needs a path. */
    int dump_signal;
    /** Record allocations and failed allocations with their call stacks: at most this many C frames and
     *  as many Python frames. At most 64; 16 are usually enough. 0 = no stacks. */
    uint32_t stack_depth;
    uint32_t reserved_0; /**< 0 */
} fallow_record_config;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_record_config_init_sized(fallow_record_config *config, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_record_config_init(fallow_record_config *config)
{
    fallow_record_config_init_sized(config, sizeof *config);
}

/**
 * Start to record a pool.
 *
 * Ownership   the caller owns *out_recorder until fallow_record_stop. Destroying or abandoning the pool
 *             stops it too, and logs the status that fallow_record_stop would return. The handle stays
 *             safe to pass afterwards: every call returns INVALID_RECORDER.
 * Errors      INVALID_ARGUMENT (unknown bits; DUMP_ON_OOM or dump_signal without a path),
 *             INVALID_POOL, BUSY (the pool is being recorded, or the signal has a handler), IO (the
 *             log names the file), OUT_OF_HOST_MEMORY, VERSION. A failed start leaves nothing behind
 *             except possibly an empty file.
 * Cost        reads every block of the pool once. A file needs a thread of the library.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_start(fallow_pool *pool,
                                                              const fallow_record_config *config,
                                                              fallow_recorder **out_recorder);

/**
 * Write the records so far.
 *
 * path        flight recorder: write all rings into this file, which is complete or absent; NULL = the
 *             config's path. File: must be NULL; everything recorded before this call is passed to
 *             the operating system.
 * Errors      INVALID_RECORDER, INVALID_ARGUMENT (no path, or a path for a file), IO (the log names
 *             the file), OUT_OF_HOST_MEMORY.
 * Cost        waits for the file. Other threads continue to allocate; a thread waits for the copy if
 *             its ring would wrap around before the ring is copied.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_dump(fallow_recorder *recorder,
                                                             const char *path);

/**
 * Stop the recording. The handle becomes invalid.
 *
 * Errors      INVALID_RECORDER. After these two the recorder has stopped all the same, and the pool is
 *             not affected:
 *             - IO: the file could not be written, now or earlier (a full disk). The part before the
 *               failure can be read.
 *             - RECORDS_LOST: the file is complete except for events of threads with a full ring.
 *               The log has their number, and the file has a DROP record at each gap (`fallow trace
 *               verify` counts them). Cannot happen with BLOCK_WHEN_FULL, unless the host had no
 *               memory for a thread's ring.
 * Cost        waits for the file.
 */
FALLOW_API fallow_status fallow_record_stop(fallow_recorder *recorder);

/**
 * Record the begin of a phase of the program. Phases nest.
 *
 * Units       names have 1 to 1,000 bytes and no control characters. Each name is kept for the whole
 *             recording: use few.
 * Errors      INVALID_RECORDER, INVALID_ARGUMENT (the name), OUT_OF_HOST_MEMORY.
 */
FALLOW_API fallow_status fallow_record_phase_begin(fallow_recorder *recorder, const char *name);
/** Record the end of the innermost phase of that name. Errors as fallow_record_phase_begin. */
FALLOW_API fallow_status fallow_record_phase_end(fallow_recorder *recorder, const char *name);
/** Record an event without duration. Errors as fallow_record_phase_begin. */
FALLOW_API fallow_status fallow_record_mark(fallow_recorder *recorder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
