/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stats file, a file in shared memory with which a process publishes the pools: the name,
 * layout, life and access rights. Does not: interpret the contents (stats_page.h).
 *
 *   <directory>/fallow.<uid>.<pid>[.<n>]     mode 0600; n counts copies of the library in a process
 *
 *   0      struct flw_stats_file_header, little-endian
 *   4096   the body: body_bytes of it, with CRC-32C body_crc, while `sequence` is even
 *
 * A reader adds 1 to `asked` and wakes the sleepers. The writer then composes and posts a body,
 * sets `answered` to the value that it read in `asked`, and wakes the sleepers of that. Without
 * requests the writer does nothing.
 *
 * The writer's mapping holds a lock on the file (F_OFD_SETLK): the kernel releases it when the
 * process ends in any way, and a child of fork() has neither. So *a stats file without a lock is
 * stale*, and a process that gets the lock may remove it. A stats file appears under the name complete
 * and locked.
 *
 * A reader reads only its own user's files; root reads those that belong to the user in the name:
 * other users could create a file with a guessed name first in a public directory. */
#ifndef FLW_PUBLISH_STATS_FILE_H
#define FLW_PUBLISH_STATS_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FLW_STATS_FILE_DIRECTORY     "/dev/shm"
#define FLW_STATS_FILE_MAGIC         "FALLOWBD"
#define FLW_STATS_FILE_VERSION       3u
#define FLW_STATS_FILE_HEADER_BYTES  4096u
#define FLW_STATS_FILE_BYTES         (256u * 1024)
#define FLW_STATS_FILE_BODY_BYTES    (FLW_STATS_FILE_BYTES - FLW_STATS_FILE_HEADER_BYTES)
#define FLW_STATS_FILE_COPIES        8u /* of the library in one process, at most */
#define FLW_STATS_FILE_PATH_BYTES    512
#define FLW_STATS_FILE_MESSAGE_BYTES 768

/* Synchronization: the first four fields never change; the rest as above. */
struct flw_stats_file_header {
    char magic[8];
    uint32_t version;
    uint32_t capacity_bytes; /* of the body */
    uint64_t process;        /* as seen by the writer */
    uint32_t head_crc;       /* of the 24 bytes before */
    _Atomic uint32_t asked, answered;
    _Atomic uint32_t sequence; /* odd: the body is being written */
    uint32_t body_bytes, body_crc;
};

/* ---- writer */

struct flw_stats_file {
    struct flw_stats_file_header *header; /* NULL: none */
    uint64_t inode, filesystem;
    char path[FLW_STATS_FILE_PATH_BYTES];
};

/* Create a stats file for this process and remove stale ones of this user. False: the message is one
 * line with the reason; nothing is left behind. */
bool flw_stats_file_post(struct flw_stats_file *stats_file, const char *directory,
                         char message[FLW_STATS_FILE_MESSAGE_BYTES]);
/* Remove the stats file: the name, if still ours, and the memory. */
void flw_stats_file_remove(struct flw_stats_file *stats_file);
/* In the child of a fork: it is the parent's, and not mapped here. */
void flw_stats_file_forget(struct flw_stats_file *stats_file);

/* Sleep until a request, or flw_stats_file_interrupt. Returns at once while a request is open. */
void flw_stats_file_await(struct flw_stats_file *stats_file);
void flw_stats_file_interrupt(struct flw_stats_file *stats_file);
static inline bool flw_stats_file_is_asked(const struct flw_stats_file *stats_file)
{
    return atomic_load(&stats_file->header->asked) != atomic_load(&stats_file->header->answered);
}
uint32_t flw_stats_file_question(const struct flw_stats_file *stats_file);
/* Replace the body and wake requests up to `question`. At most FLW_STATS_FILE_BODY_BYTES. */
void flw_stats_file_answer(struct flw_stats_file *stats_file, uint32_t question, const void *bytes,
                           size_t count);

/* ---- reader */

enum flw_stats_file_state {
    FLW_STATS_FILE_OK,
    FLW_STATS_FILE_ABSENT,   /* no such file */
    FLW_STATS_FILE_NOT_OURS, /* another user's, or writable by others */
    FLW_STATS_FILE_STALE,    /* the process is gone */
    FLW_STATS_FILE_FOREIGN,  /* not a stats file, or a damaged one */
    FLW_STATS_FILE_VERSIONS, /* a stats file of another version */
    FLW_STATS_FILE_SILENT,   /* no answer in time */
    FLW_STATS_FILE_TORN,     /* the body was never complete */
    FLW_STATS_FILE_REFUSED   /* the system refused; errno has the reason */
};

struct flw_stats_file_reader {
    int file;
    struct flw_stats_file_header *header; /* only the kernel adds to the words and sleeps on them */
    uint32_t version;                     /* of the stats file */
    uint64_t process;
};

struct flw_stats_file_name {
    uid_t user;
    pid_t process;
    uint32_t copy;
};

/* Compose the path. False: longer than FLW_STATS_FILE_PATH_BYTES. */
bool flw_stats_file_path(char *path, const char *directory, const struct flw_stats_file_name *name);
/* Parse a file name. False: not a stats file's. */
bool flw_stats_file_parse(const char *file_name, struct flw_stats_file_name *out_name);

/* Open a stats file; only OK leaves anything open. A stale one stays (flw_stats_file_sweep). */
enum flw_stats_file_state flw_stats_file_open(struct flw_stats_file_reader *reader,
                                              const char *directory,
                                              const struct flw_stats_file_name *name);
/* Request a body and wait for it, up to timeout_ns. */
enum flw_stats_file_state flw_stats_file_ask(struct flw_stats_file_reader *reader,
                                             uint64_t timeout_ns);
/* Copy the body as a whole or not at all; `bytes` has room for FLW_STATS_FILE_BODY_BYTES. */
enum flw_stats_file_state flw_stats_file_read(struct flw_stats_file_reader *reader, void *bytes,
                                              size_t *out_count);
void flw_stats_file_close(struct flw_stats_file_reader *reader);

/* Remove stale stats files of this user and call `visit` (or NULL) for each other stats file, of any user.
 * False: the directory is unreadable. */
bool flw_stats_file_sweep(const char *directory,
                          void (*visit)(void *context, const struct flw_stats_file_name *name),
                          void *context);

#endif
