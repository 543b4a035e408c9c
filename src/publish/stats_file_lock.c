/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: names of stats files, their locks, and the removal of stale ones. Allocates no host memory. */
#include "publish/stats_file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "record/crc32c.h"

#define NS_PER_SECOND UINT64_C(1000000000)

bool flw_stats_file_path(char *path, const char *directory, const struct flw_stats_file_name *name)
{
    char copy[16] = "";
    if (name->copy != 0) {
        snprintf(copy, sizeof copy, ".%u", name->copy);
    }
    int length = snprintf(path, FLW_STATS_FILE_PATH_BYTES, "%s/fallow.%u.%d%s", directory,
                          (unsigned)name->user, (int)name->process, copy);
    return length > 0 && length < FLW_STATS_FILE_PATH_BYTES;
}

/* Read a number without signs, blanks or leading zeros, up to INT_MAX or the largest user id. */
static const char *read_number(const char *text, unsigned long most, unsigned long *out_value)
{
    char *end = NULL;
    if (*text < '0' || *text > '9' || (*text == '0' && text[1] >= '0' && text[1] <= '9')) {
        return NULL;
    }
    errno = 0;
    *out_value = strtoul(text, &end, 10);
    return errno == 0 && *out_value <= most ? end : NULL;
}

bool flw_stats_file_parse(const char *file_name, struct flw_stats_file_name *out_name)
{
    static const char prefix[] = "fallow.";
    unsigned long user = 0, process = 0, copy = 0;
    if (strncmp(file_name, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    const char *at = read_number(file_name + sizeof prefix - 1, UINT32_MAX, &user);
    if (at == NULL || *at != '.') {
        return false;
    }
    at = read_number(at + 1, INT_MAX, &process);
    if (at == NULL || process == 0) {
        return false;
    }
    if (*at == '.') {
        at = read_number(at + 1, FLW_STATS_FILE_COPIES - 1, &copy);
        if (at == NULL || copy == 0) {
            return false;
        }
    }
    *out_name = (struct flw_stats_file_name){
        .user = (uid_t)user, .process = (pid_t)process, .copy = (uint32_t)copy};
    return *at == '\0';
}

/* ---- locks */

bool flw_stats_file_lock(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool flw_stats_file_is_locked(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Only the holder of the file's lock may remove the name: a new stats file gets the name only
 * afterwards. */
void flw_stats_file_remove_stale(const char *path, bool is_draft)
{
    struct stat held, named;
    char magic[sizeof FLW_STATS_FILE_MAGIC] = "";
    int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return;
    }
    if (fstat(file, &held) == 0 && S_ISREG(held.st_mode) && held.st_uid == geteuid() &&
        flw_stats_file_lock(file) && lstat(path, &named) == 0 && named.st_ino == held.st_ino &&
        named.st_dev == held.st_dev && pread(file, magic, sizeof magic - 1, 0) >= 0 &&
        (strcmp(magic, FLW_STATS_FILE_MAGIC) == 0 || (is_draft && magic[0] == '\0'))) {
        (void)unlink(path);
    }
    close(file);
}

/* ---- checksums, sleeping */

static struct flw_crc32c crc;

static void init_crc(void)
{
    flw_crc32c_init(&crc);
}

uint32_t flw_stats_file_crc(const void *bytes, size_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_crc);
    return flw_crc32c_add(&crc, 0, bytes, count);
}

void flw_stats_file_sleep(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec most = {.tv_sec = (time_t)(timeout_ns / NS_PER_SECOND),
                            .tv_nsec = (long)(timeout_ns % NS_PER_SECOND)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns == UINT64_MAX ? NULL : &most, NULL,
                  0);
}

void flw_stats_file_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool flw_stats_file_add_and_wake(_Atomic uint32_t *word)
{
    return syscall(SYS_futex, word, FUTEX_WAKE_OP, INT_MAX, NULL, word,
                   FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)) >= 0;
}

/* ---- reading a directory */

/* The records of getdents64. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

struct sweep {
    const char *directory;
    void (*visit)(void *context, const struct flw_stats_file_name *name);
    void *context;
};

static void look_at(const struct sweep *sweep, const char *file_name)
{
    struct flw_stats_file_name name;
    char plain[NAME_MAX + 1], path[FLW_STATS_FILE_PATH_BYTES + 1];
    struct stat status;
    size_t length = strlen(file_name);
    bool is_draft = length > 0 && length < sizeof plain && file_name[length - 1] == '~';
    snprintf(plain, sizeof plain, "%.*s", (int)(length - is_draft), file_name);
    if (!flw_stats_file_parse(plain, &name) ||
        !flw_stats_file_path(path, sweep->directory, &name)) {
        return;
    }
    strcat(path, is_draft ? "~" : "");
    if (name.user == geteuid()) {
        flw_stats_file_remove_stale(path, is_draft);
    }
    if (!is_draft && sweep->visit != NULL && lstat(path, &status) == 0) {
        sweep->visit(sweep->context, &name);
    }
}

bool flw_stats_file_sweep(const char *directory,
                          void (*visit)(void *context, const struct flw_stats_file_name *name),
                          void *context)
{
    struct sweep sweep = {.directory = directory, .visit = visit, .context = context};
    _Alignas(struct entry) char buffer[4096];
    int file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    long count;
    while ((count = syscall(SYS_getdents64, file, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < count;) {
            const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
            look_at(&sweep, entry->name);
            at += entry->length;
        }
    }
    close(file);
    return count == 0;
}
