/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Record what a pool allocates and frees, as a trace that `fallow replay` and `fallow trace` read.
 *
 * A recording begins with the blocks that are allocated at that moment, and then has every
 * allocation, free, announced use, capture, trim and failure, with its time, size, address, stream,
 * thread and tag (fallow_request.tag), and the phases that the program names. Threads put records
 * of 32 bytes into rings of their own; nothing is formatted, allocated or written there.
 *
 * Times have steps of 16 ns, about what it takes to read the clock.
 *
 * Two kinds. A *file* is written while the program runs: it can be read after a crash up to the last
 * 100 ms at most. A *flight recorder* (FALLOW_RECORD_RING_ONLY) keeps the last records of each thread in
 * memory and writes them when asked: by fallow_record_dump, when an allocation fails, or by a signal.
 *
 * COST     off: nothing on a hit. On: a clock and four stores for each call (tests/README.md, Recordings); with
 *          stacks the look at it besides, some hundred ns with libunwind.so.8 installed, some us without, and a
 *          record more where it is another than the thread's last one. Stacks are kept for as long as the process, each
 *          once, and the code objects of Python that they name.
 * THREADS  every function may be called from any thread at any time. The child of a fork() has no
 *          recorder; the file goes on with the parent.
 *
 * Needs no CUDA header; C11 and C++17.
 */
#ifndef FALLOW_TRACE_H
#define FALLOW_TRACE_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A recording under way. A handle: compared, never followed. */
typedef struct fallow_recorder fallow_recorder;

/** Bits of fallow_record_config.flags. */
enum {
    FALLOW_RECORD_BLOCK_WHEN_FULL = 1u << 0, /**< nothing is lost: a thread whose ring is full waits
                                                  until there is room. Without it the record is lost;
                                                  the trace and the end of the recording say how many
                                                  were. Not with RING_ONLY */
    FALLOW_RECORD_RING_ONLY = 1u << 1,   /**< flight recorder: `path` is written by dumps only */
    FALLOW_RECORD_DUMP_ON_OOM = 1u << 2, /**< an allocation that fails for want of memory dumps
                                                  before it returns */
    FALLOW_RECORD_ENTER_PYTHON = 1u << 3 /**< for stacks: a thread of Python's that has let the
                                                  interpreter go, as PyTorch's operators do, takes it
                                                  for the look. Only where no thread allocates with a lock
                                                  held that another, which has the interpreter, waits for.
                                                  Needs stack_depth */
};

/** How to record. Zero is the default for every field but struct_size and path. */
typedef struct fallow_record_config {
    size_t struct_size; /**< set by fallow_record_config_init */
    const char *path;   /**< the file, or what dumps without a path of their own become; read during
                             start. NULL: a flight recorder, with RING_ONLY or without */
    size_t ring_bytes;  /**< of each thread, rounded up to a power of two; 0 = 4 MiB, 131,072
                             records. At most 1 GiB */
    uint32_t flags;     /**< FALLOW_RECORD_ bits */
    int dump_signal;    /**< the flight recorder dumps within some 10 ms of this signal, such as
                             SIGUSR2; the handler only counts. 0 = none. Needs a path */
    uint32_t
        stack_depth; /**< allocations, and those that fail, are recorded with the call stack that asked for
                             them: at most so many frames of C, and as many of Python where the thread runs it;
                             at most 64, 16 will do. 0 = no stacks */
    uint32_t reserved_0; /**< 0 */
} fallow_record_config;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_record_config_init_sized(fallow_record_config *config, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_record_config_init(fallow_record_config *config)
{
    fallow_record_config_init_sized(config, sizeof *config);
}

/**
 * Begin to record a pool.
 *
 * Ownership   the caller owns *out_recorder until fallow_record_stop. The end of the pool stops it
 *             too, abandoning included, and the log has what its status would say. The handle stays safe to pass afterwards: INVALID_RECORDER.
 * Errors      INVALID_ARGUMENT (unknown bits; DUMP_ON_OOM or dump_signal without a path), INVALID_POOL, BUSY (the
 *             pool is being recorded, or the signal has a handler), IO (the log names the file),
 *             OUT_OF_HOST_MEMORY, VERSION. Nothing is left behind but perhaps an empty file.
 * Cost        looks at every block of the pool once. A file takes a thread of the library's.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_start(fallow_pool *pool,
                                                              const fallow_record_config *config,
                                                              fallow_recorder **out_recorder);

/**
 * Write what there is. Flight recorder: all rings, as one file that is complete or absent; `path` NULL:
 * the config's. A file: hand everything up to this call to the operating system; `path` has to be NULL.
 *
 * Errors      INVALID_RECORDER, INVALID_ARGUMENT (no path, or one too many), IO (the log names the
 *             file), OUT_OF_HOST_MEMORY.
 * Cost        waits for the file. Other threads go on allocating; where rings are so small, or the
 *             machine so busy, that they come round faster than they can be copied, they wait for the
 *             copy.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_dump(fallow_recorder *recorder,
                                                             const char *path);

/**
 * End the recording. The handle is gone.
 *
 * Errors      INVALID_RECORDER. With these two the recorder has ended all the same, and the pool is not
 *             concerned: IO, the file could not be written, now or before (a full disk), what it holds
 *             up to there can be read; RECORDS_LOST, the file is whole and lacks events whose thread
 *             found no room for them: the log says how many, and a DROP stands in the file where they
 *             are missing (`fallow trace verify` counts them). Not with BLOCK_WHEN_FULL, unless the
 *             host had no memory for a thread's ring.
 * Cost        waits for the file.
 */
FALLOW_API fallow_status fallow_record_stop(fallow_recorder *recorder);

/**
 * A phase of the program begins or ends, or something happened. Phases nest; an end is the end of the
 * innermost phase of that name.
 *
 * Units       names: 1 to 1,000 bytes, no control characters. They are kept: use few.
 * Errors      INVALID_RECORDER, INVALID_ARGUMENT (the name), OUT_OF_HOST_MEMORY.
 */
FALLOW_API fallow_status fallow_record_phase_begin(fallow_recorder *recorder, const char *name);
/** See fallow_record_phase_begin. */
FALLOW_API fallow_status fallow_record_phase_end(fallow_recorder *recorder, const char *name);
/** See fallow_record_phase_begin. */
FALLOW_API fallow_status fallow_record_mark(fallow_recorder *recorder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
