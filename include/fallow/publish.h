/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Show this process's pools in `fallow top`: how much each holds by stream and size class, hits,
 * events, and how its allocations found memory.
 *
 * One call enables it. Until then the library starts no thread and creates no file. All pools of the
 * process are shown, later ones too. The numbers are in a file in shared memory,
 * `/dev/shm/fallow.<uid>.<pid>`, of 256 KiB, readable by its user and root. The file is removed when
 * the process exits; after a kill, by the next reader.
 *
 * COST     without a reader: a sleeping thread. With a reader: the thread walks the pools once per
 *          refresh, at most 50 times a second, at about 5 ns a block, and holds a pool's locks for
 *          about 20 us at a time. A hit executes the same instructions in both cases.
 * THREADS  every function may be called from any thread at any time. The child of a fork() publishes
 *          nothing until it starts again. Not async-signal-safe.
 *
 * This header needs no CUDA header; C11 and C++17.
 */
#ifndef FALLOW_PUBLISH_H
#define FALLOW_PUBLISH_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where and how pools are published. 0 selects the default of every field except struct_size. */
typedef struct fallow_publish_config {
    size_t struct_size; /**< set by fallow_publish_config_init */
    /** Directory of the file, on a file system in memory; NULL = /dev/shm. `fallow top --directory`
     *  reads it. Read during start only. */
    const char *directory;
    fallow_log_function log; /**< gets one line if start fails; NULL = no log */
    void *log_context;       /**< passed to log */
} fallow_publish_config;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_publish_config_init_sized(fallow_publish_config *config, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_publish_config_init(fallow_publish_config *config)
{
    fallow_publish_config_init_sized(config, sizeof *config);
}

/**
 * Publish the pools of this process. Calls are counted; if publishing has begun, config is ignored.
 *
 * Ownership   each successful start needs one fallow_publish_stop; the end of the process or the
 *             unloading of the library stops as well.
 * Errors      VERSION, IO (no such directory, no room, no right to write, or no more threads),
 *             OUT_OF_HOST_MEMORY. The log gets one line with the reason. A failed start leaves
 *             nothing behind and affects no pool: a program may ignore the status.
 * Cost        some 20 system calls, 256 KiB of shared memory, a thread with 128 KiB of stack.
 */
FALLOW_API fallow_status fallow_publish_start(const fallow_publish_config *config);

/** Undo one start. The last stop removes the file and ends the thread; further stops do nothing. */
FALLOW_API void fallow_publish_stop(void);

#ifdef __cplusplus
}
#endif

#endif
