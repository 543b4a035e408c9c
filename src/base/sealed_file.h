/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory files that several processes map.
 */
#ifndef FLW_BASE_SEALED_FILE_H
#define FLW_BASE_SEALED_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define FLW_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Create a memory file of `bytes` zeros with a size that no process can change. (If one process
 * shortens a file, every other process that touches the lost part of the mapping dies of SIGBUS.)
 * Returns -1 and sets errno on failure. */
static inline int flw_sealed_file_make(const char *name, size_t bytes)
{
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0 &&
        (ftruncate(file, (off_t)bytes) != 0 || fcntl(file, F_ADD_SEALS, FLW_SEALS) != 0)) {
        close(file);
        return -1;
    }
    return file;
}

/* True if the file is such a memory file and can be mapped safely. */
static inline bool flw_sealed_file_is_one(int file)
{
    int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

#endif
