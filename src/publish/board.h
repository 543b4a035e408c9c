/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the board, a file in shared memory with which a process publishes the pools: the name,
 * layout, life and access rights. Does not: interpret the contents (bulletin.h).
 *
 *   <directory>/fallow.<uid>.<pid>[.<n>]     mode 0600; n counts copies of the library in a process
 *
 *   0      struct flw_board_header, little-endian
 *   4096   the body: body_bytes of it, with CRC-32C body_crc, while `sequence` is even
 *
 * A reader adds 1 to `asked` and wakes the sleepers. The writer then composes and posts a body,
 * sets `answered` to the value that it read in `asked`, and wakes the sleepers of that. Without
 * requests the writer does nothing.
 *
 * The writer's mapping holds a lock on the file (F_OFD_SETLK): the kernel releases it when the
 * process ends in any way, and a child of fork() has neither. So *a board without a lock is
 * stale*, and a process that gets the lock may remove it. A board appears under the name complete
 * and locked.
 *
 * A reader reads only its own user's files; root reads those that belong to the user in the name:
 * other users could create a file with a guessed name first in a public directory. */
#ifndef FLW_PUBLISH_BOARD_H
#define FLW_PUBLISH_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FLW_BOARD_DIRECTORY     "/dev/shm"
#define FLW_BOARD_MAGIC         "FALLOWBD"
#define FLW_BOARD_VERSION       3u
#define FLW_BOARD_HEADER_BYTES  4096u
#define FLW_BOARD_BYTES         (256u * 1024)
#define FLW_BOARD_BODY_BYTES    (FLW_BOARD_BYTES - FLW_BOARD_HEADER_BYTES)
#define FLW_BOARD_COPIES        8u /* of the library in one process, at most */
#define FLW_BOARD_PATH_BYTES    512
#define FLW_BOARD_MESSAGE_BYTES 768

/* Synchronization: the first four fields never change; the rest as above. */
struct flw_board_header {
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

struct flw_board {
    struct flw_board_header *header; /* NULL: none */
    uint64_t inode, filesystem;
    char path[FLW_BOARD_PATH_BYTES];
};

/* Create a board for this process and remove stale ones of this user. False: the message is one
 * line with the reason; nothing is left behind. */
bool flw_board_post(struct flw_board *board, const char *directory,
                    char message[FLW_BOARD_MESSAGE_BYTES]);
/* Remove the board: the name, if still ours, and the memory. */
void flw_board_remove(struct flw_board *board);
/* In the child of a fork: it is the parent's, and not mapped here. */
void flw_board_forget(struct flw_board *board);

/* Sleep until a request, or flw_board_interrupt. Returns at once while a request is open. */
void flw_board_await(struct flw_board *board);
void flw_board_interrupt(struct flw_board *board);
static inline bool flw_board_is_asked(const struct flw_board *board)
{
    return atomic_load(&board->header->asked) != atomic_load(&board->header->answered);
}
uint32_t flw_board_question(const struct flw_board *board);
/* Replace the body and wake requests up to `question`. At most FLW_BOARD_BODY_BYTES. */
void flw_board_answer(struct flw_board *board, uint32_t question, const void *bytes, size_t count);

/* ---- reader */

enum flw_board_state {
    FLW_BOARD_OK,
    FLW_BOARD_ABSENT,   /* no such file */
    FLW_BOARD_NOT_OURS, /* another user's, or writable by others */
    FLW_BOARD_STALE,    /* the process is gone */
    FLW_BOARD_FOREIGN,  /* not a board, or a damaged one */
    FLW_BOARD_VERSIONS, /* a board of another version */
    FLW_BOARD_SILENT,   /* no answer in time */
    FLW_BOARD_TORN,     /* the body was never complete */
    FLW_BOARD_REFUSED   /* the system refused; errno has the reason */
};

struct flw_board_reader {
    int file;
    struct flw_board_header *header; /* only the kernel adds to the words and sleeps on them */
    uint32_t version;                /* of the board */
    uint64_t process;
};

struct flw_board_name {
    uid_t user;
    pid_t process;
    uint32_t copy;
};

/* Compose the path. False: longer than FLW_BOARD_PATH_BYTES. */
bool flw_board_path(char *path, const char *directory, const struct flw_board_name *name);
/* Parse a file name. False: not a board's. */
bool flw_board_parse(const char *file_name, struct flw_board_name *out_name);

/* Open a board; only OK leaves anything open. A stale one stays (flw_board_sweep). */
enum flw_board_state flw_board_open(struct flw_board_reader *reader, const char *directory,
                                    const struct flw_board_name *name);
/* Request a body and wait for it, up to timeout_ns. */
enum flw_board_state flw_board_ask(struct flw_board_reader *reader, uint64_t timeout_ns);
/* Copy the body as a whole or not at all; `bytes` has room for FLW_BOARD_BODY_BYTES. */
enum flw_board_state flw_board_read(struct flw_board_reader *reader, void *bytes,
                                    size_t *out_count);
void flw_board_close(struct flw_board_reader *reader);

/* Remove stale boards of this user and call `visit` (or NULL) for each other board, of any user.
 * False: the directory is unreadable. */
bool flw_board_sweep(const char *directory,
                     void (*visit)(void *context, const struct flw_board_name *name),
                     void *context);

#endif
