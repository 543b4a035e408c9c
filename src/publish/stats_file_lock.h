/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of a stats file's writer and reader: locks, checksums, sleeping. */
#ifndef FLW_PUBLISH_STATS_FILE_LOCK_H
#define FLW_PUBLISH_STATS_FILE_LOCK_H

#include <sys/stat.h>

#include "publish/stats_file.h"

/* Take the write lock of a whole file without waiting; query it. */
bool flw_stats_file_lock(int file);
bool flw_stats_file_is_locked(int file);

uint32_t flw_stats_file_crc(const void *bytes, size_t count);

/* Order `sequence` and the body: on x86 a locked instruction keeps later stores behind a change of
 * it, and a system call keeps loads behind a read of it; elsewhere neither does. (ThreadSanitizer
 * models no fences, and sees one of the two processes.) */
static inline void flw_stats_file_fence(void)
{
#if !defined(FLW_TSAN)
    atomic_thread_fence(memory_order_acq_rel);
#endif
}

/* Sleep until the word differs from `seen` or timeout_ns are over (UINT64_MAX: no
 * limit), or less. */
void flw_stats_file_sleep(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void flw_stats_file_wake(_Atomic uint32_t *word);
/* Add 1 to the word and wake the sleepers, in the kernel: an access by the program would raise
 * SIGBUS if another process had shortened the file. Returns false if the word cannot be reached. */
bool flw_stats_file_add_and_wake(_Atomic uint32_t *word);

/* Remove a file if it is a stale stats file of this user; a draft may have no header yet. */
void flw_stats_file_remove_stale(const char *path, bool is_draft);

#endif
