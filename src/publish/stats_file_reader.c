/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the reader's side of a stats file. It checks everything: the file's owner, the format, that the
 * process lives, that the body is complete. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "publish/stats_file_lock.h"

#define READ_TRIES 20

static enum flw_stats_file_state check_owner(int file, const struct flw_stats_file_name *name)
{
    struct stat status;
    uid_t self = geteuid();
    if (fstat(file, &status) != 0) {
        return FLW_STATS_FILE_REFUSED;
    }
    if (!S_ISREG(status.st_mode) || status.st_uid != name->user ||
        (self != 0 && status.st_uid != self) || (status.st_mode & 077) != 0) {
        return FLW_STATS_FILE_NOT_OURS;
    }
    if (status.st_size < (off_t)FLW_STATS_FILE_HEADER_BYTES) {
        return FLW_STATS_FILE_FOREIGN;
    }
    return flw_stats_file_is_locked(file) ? FLW_STATS_FILE_OK : FLW_STATS_FILE_STALE;
}

static bool is_whole(const struct flw_stats_file_header *head)
{
    return memcmp(head->magic, FLW_STATS_FILE_MAGIC, sizeof head->magic) == 0 &&
           head->head_crc ==
               flw_stats_file_crc(head, offsetof(struct flw_stats_file_header, head_crc));
}

static enum flw_stats_file_state check_head(struct flw_stats_file_reader *reader)
{
    struct flw_stats_file_header head;
    if (pread(reader->file, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.magic, FLW_STATS_FILE_MAGIC, sizeof head.magic) != 0) {
        return FLW_STATS_FILE_FOREIGN;
    }
    reader->version = head.version;
    reader->process = head.process;
    if (head.version != FLW_STATS_FILE_VERSION) {
        return FLW_STATS_FILE_VERSIONS; /* the rest of the header is unknown */
    }
    return is_whole(&head) && head.capacity_bytes <= FLW_STATS_FILE_BODY_BYTES
               ? FLW_STATS_FILE_OK
               : FLW_STATS_FILE_FOREIGN;
}

enum flw_stats_file_state flw_stats_file_open(struct flw_stats_file_reader *reader,
                                              const char *directory,
                                              const struct flw_stats_file_name *name)
{
    char path[FLW_STATS_FILE_PATH_BYTES];
    enum flw_stats_file_state state;
    *reader = (struct flw_stats_file_reader){.file = -1};
    if (!flw_stats_file_path(path, directory, name)) {
        return FLW_STATS_FILE_ABSENT;
    }
    reader->file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (reader->file < 0) {
        return errno == ENOENT                                       ? FLW_STATS_FILE_ABSENT
               : errno == EACCES || errno == EPERM || errno == ELOOP ? FLW_STATS_FILE_NOT_OURS
                                                                     : FLW_STATS_FILE_REFUSED;
    }
    state = check_owner(reader->file, name);
    if (state == FLW_STATS_FILE_OK) {
        state = check_head(reader);
    }
    if (state == FLW_STATS_FILE_OK) {
        void *memory = mmap(NULL, FLW_STATS_FILE_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                            reader->file, 0);
        if (memory == MAP_FAILED) {
            state = FLW_STATS_FILE_REFUSED;
        } else {
            reader->header = memory;
        }
    }
    if (state != FLW_STATS_FILE_OK) {
        int saved = errno;
        close(reader->file);
        reader->file = -1;
        errno = saved;
    }
    return state;
}

void flw_stats_file_close(struct flw_stats_file_reader *reader)
{
    if (reader->header != NULL) {
        (void)munmap(reader->header, FLW_STATS_FILE_HEADER_BYTES);
    }
    if (reader->file >= 0) {
        close(reader->file);
    }
    *reader = (struct flw_stats_file_reader){.file = -1};
}

/* Copy the header. Returns false if the file has been shortened or emptied. */
static bool read_head(const struct flw_stats_file_reader *reader, struct flw_stats_file_header *out)
{
    return pread(reader->file, out, sizeof *out, 0) == (ssize_t)sizeof *out && is_whole(out);
}

/* True if the process has ended meanwhile. */
static bool is_stale(const struct flw_stats_file_reader *reader)
{
    return !flw_stats_file_is_locked(reader->file);
}

enum flw_stats_file_state flw_stats_file_ask(struct flw_stats_file_reader *reader,
                                             uint64_t timeout_ns)
{
    struct flw_stats_file_header head;
    uint64_t end_ns = flw_clock_fine_ns() + timeout_ns;
    if (!flw_stats_file_add_and_wake(&reader->header->asked) || !read_head(reader, &head)) {
        return FLW_STATS_FILE_FOREIGN;
    }
    uint32_t question = atomic_load(&head.asked); /* this reader's request, or a later one */
    for (;;) {
        if (!read_head(reader, &head)) {
            return FLW_STATS_FILE_FOREIGN;
        }
        uint32_t answered = atomic_load(&head.answered);
        if ((int32_t)(answered - question) >= 0) {
            return FLW_STATS_FILE_OK;
        }
        uint64_t now_ns = flw_clock_fine_ns();
        if (is_stale(reader)) {
            return FLW_STATS_FILE_STALE;
        }
        if (now_ns >= end_ns) {
            return FLW_STATS_FILE_SILENT;
        }
        /* In short steps: a process that dies wakes no reader. */
        uint64_t step_ns = end_ns - now_ns < 100000000 ? end_ns - now_ns : 100000000;
        flw_stats_file_sleep(&reader->header->answered, answered, step_ns);
    }
}

static bool read_once(const struct flw_stats_file_reader *reader, void *bytes, size_t *out_count)
{
    struct flw_stats_file_header before, after;
    if (!read_head(reader, &before) || (atomic_load(&before.sequence) & 1) != 0 ||
        before.body_bytes > FLW_STATS_FILE_BODY_BYTES) {
        return false;
    }
    flw_stats_file_fence(); /* the header before the body */
    ssize_t count = pread(reader->file, bytes, before.body_bytes, FLW_STATS_FILE_HEADER_BYTES);
    flw_stats_file_fence(); /* the body before the second read */
    *out_count = before.body_bytes;
    return count == (ssize_t)before.body_bytes && read_head(reader, &after) &&
           atomic_load(&before.sequence) == atomic_load(&after.sequence) &&
           before.body_crc == flw_stats_file_crc(bytes, before.body_bytes);
}

enum flw_stats_file_state flw_stats_file_read(struct flw_stats_file_reader *reader, void *bytes,
                                              size_t *out_count)
{
    for (int tries = 0; tries < READ_TRIES; tries++) {
        if (read_once(reader, bytes, out_count)) {
            return FLW_STATS_FILE_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return FLW_STATS_FILE_TORN;
}
