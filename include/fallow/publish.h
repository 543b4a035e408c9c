/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Show this process's pools to `fallow top`: how much each holds, by stream and size class, hits,
 * events, the ladder.
 *
 * A program asks for it with one call; without it the library starts no thread and makes no file. All
 * pools of the process are shown, those made later too. The numbers go through a file in shared
 * memory, `/dev/shm/fallow.<uid>.<pid>`, 256 KiB, which its user alone (and root) can read, and which
 * is gone with the process: at exit at once, after a kill as soon as anybody looks.
 *
 * COST     while `fallow top` does not look: a thread that sleeps. While `fallow top` looks: the
 *          thread walks the pools once for each look, at most 50 times a second, about 5 ns a
 *          block, and takes a pool's locks for some 20 us at a time. A hit does the same
 *          instructions either way.
 * THREADS  every function may be called from any thread at any time. The child of a fork() publishes
 *          nothing until it asks for it. Not async-signal-safe.
 *
 * Needs no CUDA header; C11 and C++17.
 */
#ifndef FALLOW_PUBLISH_H
#define FALLOW_PUBLISH_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where and how pools are published. Zero is the default for every field but struct_size. */
typedef struct fallow_publish_config {
    size_t struct_size;      /**< set by fallow_publish_config_init */
    const char *directory;   /**< where the file goes; NULL = /dev/shm. On a file system in memory;
                                  `fallow top --directory` looks there. Read during start */
    fallow_log_function log; /**< gets one line where start fails; NULL = silent */
    void *log_context;       /**< for log */
} fallow_publish_config;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_publish_config_init_sized(fallow_publish_config *config, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_publish_config_init(fallow_publish_config *config)
{
    fallow_publish_config_init_sized(config, sizeof *config);
}

/**
 * Begin to publish the pools of this process. Calls are counted: where it is published already this
 * is one more user, and the config is not looked at.
 *
 * Ownership   each start that was OK takes one fallow_publish_stop; the end of the process, or of the
 *             library, does it too.
 * Errors      VERSION, IO (no such directory, no room in it, or no right to write there; or the
 *             machine has no threads left), OUT_OF_HOST_MEMORY. The log gets one line that says which.
 *             Nothing is left behind, the pools are not concerned: a program may ignore the status.
 * Cost        some 20 system calls, 256 KiB of shared memory, a thread with 128 KiB of stack.
 */
FALLOW_API fallow_status fallow_publish_start(const fallow_publish_config *config);

/** The last stop removes the file and ends the thread. One too many does nothing. */
FALLOW_API void fallow_publish_stop(void);

#ifdef __cplusplus
}
#endif

#endif
