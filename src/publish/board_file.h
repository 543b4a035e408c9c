/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the writer and the reader of a board share: locks, checksums, sleeping.
 */
#ifndef FLW_PUBLISH_BOARD_FILE_H
#define FLW_PUBLISH_BOARD_FILE_H

#include <sys/stat.h>

#include "publish/board.h"

/* The write lock of a whole file: taken without waiting, or asked after. */
bool flw_board_lock(int file);
bool flw_board_is_locked(int file);

uint32_t flw_board_crc(const void *bytes, size_t count);

/* Between a change of `sequence`, or a look at it, and the body: a locked instruction keeps later stores
 * behind it on x86, a system call its loads, and neither does elsewhere. (ThreadSanitizer knows no fences,
 * and sees one of the two processes.) */
static inline void flw_board_fence(void)
{
#if !defined(FLW_TSAN)
    atomic_thread_fence(memory_order_acq_rel);
#endif
}

/* Until the word is another than `seen`, or timeout_ns are over (UINT64_MAX: no limit), or sooner. */
void flw_board_sleep(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void flw_board_wake(_Atomic uint32_t *word);
/* Add 1 to the word and wake its sleepers, all in the kernel: an access by the program would raise SIGBUS if another
 * process had shortened the file. Returns false if the word cannot be reached. */
bool flw_board_add_and_wake(_Atomic uint32_t *word);

/* Remove a file if it is a stale board of this user; a draft may have no head yet. */
void flw_board_remove_stale(const char *path, bool is_draft);

#endif
