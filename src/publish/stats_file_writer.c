/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the writer's side of a stats file. Once created it uses no descriptor: programs close
 * descriptors that are not theirs, and reuse the numbers for files of their own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "publish/stats_file_lock.h"

#define MAKE_TRIES 3

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a stats page is little-endian, written as in memory"
#endif
_Static_assert(offsetof(struct flw_stats_file_header, head_crc) == 24, "the layout is fixed");
_Static_assert(offsetof(struct flw_stats_file_header, asked) == 28, "the layout is fixed");
_Static_assert(sizeof(struct flw_stats_file_header) == 48, "the layout is fixed");

/* ---- life */

static bool refuse(char *message, const char *what, const char *path)
{
    snprintf(message, FLW_STATS_FILE_MESSAGE_BYTES,
             "nothing is published for fallow top: %s %s: %s", what, path, strerror(errno));
    return false;
}

/* Create the memory, the lock and the header; the file has no final name yet. False: see errno. */
static bool fill(struct flw_stats_file *stats_file, int file)
{
    struct flw_stats_file_header head = {.version = FLW_STATS_FILE_VERSION,
                                         .capacity_bytes = FLW_STATS_FILE_BODY_BYTES,
                                         .process = (uint64_t)getpid()};
    struct stat status;
    if (fchmod(file, 0600) != 0 || fstat(file, &status) != 0) {
        return false;
    }
    if (!flw_stats_file_lock(file)) {
        return false;
    }
    /* Allocate all of it now: a store to a page without room would kill the program. */
    errno = posix_fallocate(file, 0, FLW_STATS_FILE_BYTES);
    if (errno != 0) {
        return false;
    }
    void *memory = mmap(NULL, FLW_STATS_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    (void)madvise(memory, FLW_STATS_FILE_BYTES, MADV_DONTFORK);
    (void)madvise(memory, FLW_STATS_FILE_BYTES, MADV_DONTDUMP);
    memcpy(head.magic, FLW_STATS_FILE_MAGIC, sizeof head.magic);
    head.head_crc = flw_stats_file_crc(&head, offsetof(struct flw_stats_file_header, head_crc));
    memcpy(memory, &head, sizeof head);
    stats_file->header = memory;
    stats_file->inode = status.st_ino;
    stats_file->filesystem = status.st_dev;
    return true;
}

static void unmap(struct flw_stats_file *stats_file)
{
    if (stats_file->header != NULL) {
        (void)munmap(stats_file->header, FLW_STATS_FILE_BYTES);
        stats_file->header = NULL;
    }
}

/* Choose the first free name. False: see errno. */
static bool give_name(struct flw_stats_file *stats_file, const char *directory, const char *draft)
{
    struct flw_stats_file_name name = {.user = geteuid(), .process = getpid()};
    for (; name.copy < FLW_STATS_FILE_COPIES; name.copy++) {
        if (!flw_stats_file_path(stats_file->path, directory, &name)) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (link(draft, stats_file->path) == 0) {
            return true;
        }
        if (errno != EEXIST) {
            return false;
        }
    }
    return false;
}

/* One attempt. A draft has no lock for a moment, in which another process may remove it. */
static bool make(struct flw_stats_file *stats_file, const char *directory, const char *draft)
{
    flw_stats_file_remove_stale(draft, true); /* of a process that died half way, and had this
                                             number */
    int file = open(draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    bool is_made = fill(stats_file, file) && give_name(stats_file, directory, draft);
    int saved = errno;
    if (!is_made) {
        unmap(stats_file);
    }
    (void)unlink(draft);
    close(file); /* the mapping keeps the file, and the lock */
    errno = saved;
    return is_made;
}

bool flw_stats_file_post(struct flw_stats_file *stats_file, const char *directory,
                         char message[FLW_STATS_FILE_MESSAGE_BYTES])
{
    char draft[FLW_STATS_FILE_PATH_BYTES + 1];
    struct flw_stats_file_name name = {.user = geteuid(), .process = getpid()};
    *stats_file = (struct flw_stats_file){0};
    (void)flw_stats_file_sweep(directory, NULL, NULL);
    if (!flw_stats_file_path(draft, directory, &name)) {
        errno = ENAMETOOLONG;
        return refuse(message, "cannot use", directory);
    }
    strcat(draft, "~");
    for (int tries = 0; tries < MAKE_TRIES; tries++) {
        if (make(stats_file, directory, draft)) {
            return true;
        }
        if (errno != ENOENT && errno != EAGAIN && errno != EEXIST) {
            break;
        }
    }
    return refuse(message, "cannot make", stats_file->path[0] != '\0' ? stats_file->path : draft);
}

void flw_stats_file_remove(struct flw_stats_file *stats_file)
{
    struct stat status;
    if (stats_file->header != NULL && lstat(stats_file->path, &status) == 0 &&
        status.st_ino == stats_file->inode && status.st_dev == stats_file->filesystem) {
        (void)unlink(stats_file->path);
    }
    unmap(stats_file);
}

void flw_stats_file_forget(struct flw_stats_file *stats_file)
{
    stats_file->header = NULL;
}

/* ---- requests */

void flw_stats_file_await(struct flw_stats_file *stats_file)
{
    uint32_t answered = atomic_load(&stats_file->header->answered);
    if (atomic_load(&stats_file->header->asked) == answered) {
        flw_stats_file_sleep(&stats_file->header->asked, answered, UINT64_MAX);
    }
}

void flw_stats_file_interrupt(struct flw_stats_file *stats_file)
{
    (void)flw_stats_file_add_and_wake(&stats_file->header->asked);
}

uint32_t flw_stats_file_question(const struct flw_stats_file *stats_file)
{
    return atomic_load(&stats_file->header->asked);
}

void flw_stats_file_answer(struct flw_stats_file *stats_file, uint32_t question, const void *bytes,
                           size_t count)
{
    struct flw_stats_file_header *header = stats_file->header;
    uint32_t sequence = atomic_fetch_or(&header->sequence, 1);
    flw_stats_file_fence(); /* the odd value before the body, for all readers */
    memcpy((unsigned char *)header + FLW_STATS_FILE_HEADER_BYTES, bytes, count);
    __atomic_store_n(&header->body_bytes, (uint32_t)count, __ATOMIC_RELAXED);
    __atomic_store_n(&header->body_crc, flw_stats_file_crc(bytes, count), __ATOMIC_RELAXED);
    atomic_store_explicit(&header->sequence, (sequence | 1) + 1, memory_order_release);
    atomic_store(&header->answered, question);
    flw_stats_file_wake(&header->answered);
}
