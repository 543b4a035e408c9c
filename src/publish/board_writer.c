/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the writer's side of a board. Once created it uses no descriptor: programs close
 * descriptors that are not theirs, and reuse the numbers for files of their own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "publish/board_file.h"

#define MAKE_TRIES 3

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a board is little-endian, and written as it lies in memory"
#endif
_Static_assert(offsetof(struct flw_board_header, head_crc) == 24, "the layout is fixed");
_Static_assert(offsetof(struct flw_board_header, asked) == 28, "the layout is fixed");
_Static_assert(sizeof(struct flw_board_header) == 48, "the layout is fixed");

/* ---- life */

static bool refuse(char *message, const char *what, const char *path)
{
    snprintf(message, FLW_BOARD_MESSAGE_BYTES, "nothing is published for fallow top: %s %s: %s",
             what, path, strerror(errno));
    return false;
}

/* Create the memory, the lock and the header; the file has no final name yet. False: see errno. */
static bool fill(struct flw_board *board, int file)
{
    struct flw_board_header head = {.version = FLW_BOARD_VERSION,
                                    .capacity_bytes = FLW_BOARD_BODY_BYTES,
                                    .process = (uint64_t)getpid()};
    struct stat status;
    if (fchmod(file, 0600) != 0 || fstat(file, &status) != 0) {
        return false;
    }
    if (!flw_board_lock(file)) {
        return false;
    }
    /* Allocate all of it now: a store to a page without room would kill the program. */
    errno = posix_fallocate(file, 0, FLW_BOARD_BYTES);
    if (errno != 0) {
        return false;
    }
    void *memory = mmap(NULL, FLW_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    (void)madvise(memory, FLW_BOARD_BYTES, MADV_DONTFORK);
    (void)madvise(memory, FLW_BOARD_BYTES, MADV_DONTDUMP);
    memcpy(head.magic, FLW_BOARD_MAGIC, sizeof head.magic);
    head.head_crc = flw_board_crc(&head, offsetof(struct flw_board_header, head_crc));
    memcpy(memory, &head, sizeof head);
    board->header = memory;
    board->inode = status.st_ino;
    board->filesystem = status.st_dev;
    return true;
}

static void unmap(struct flw_board *board)
{
    if (board->header != NULL) {
        (void)munmap(board->header, FLW_BOARD_BYTES);
        board->header = NULL;
    }
}

/* Choose the first free name. False: see errno. */
static bool give_name(struct flw_board *board, const char *directory, const char *draft)
{
    struct flw_board_name name = {.user = geteuid(), .process = getpid()};
    for (; name.copy < FLW_BOARD_COPIES; name.copy++) {
        if (!flw_board_path(board->path, directory, &name)) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (link(draft, board->path) == 0) {
            return true;
        }
        if (errno != EEXIST) {
            return false;
        }
    }
    return false;
}

/* One attempt. A draft has no lock for a moment, in which another process may remove it. */
static bool make(struct flw_board *board, const char *directory, const char *draft)
{
    flw_board_remove_stale(draft, true); /* of a process that died half way, and had this
                                             number */
    int file = open(draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    bool is_made = fill(board, file) && give_name(board, directory, draft);
    int saved = errno;
    if (!is_made) {
        unmap(board);
    }
    (void)unlink(draft);
    close(file); /* the mapping keeps the file, and the lock */
    errno = saved;
    return is_made;
}

bool flw_board_post(struct flw_board *board, const char *directory,
                    char message[FLW_BOARD_MESSAGE_BYTES])
{
    char draft[FLW_BOARD_PATH_BYTES + 1];
    struct flw_board_name name = {.user = geteuid(), .process = getpid()};
    *board = (struct flw_board){0};
    (void)flw_board_sweep(directory, NULL, NULL);
    if (!flw_board_path(draft, directory, &name)) {
        errno = ENAMETOOLONG;
        return refuse(message, "cannot use", directory);
    }
    strcat(draft, "~");
    for (int tries = 0; tries < MAKE_TRIES; tries++) {
        if (make(board, directory, draft)) {
            return true;
        }
        if (errno != ENOENT && errno != EAGAIN && errno != EEXIST) {
            break;
        }
    }
    return refuse(message, "cannot make", board->path[0] != '\0' ? board->path : draft);
}

void flw_board_remove(struct flw_board *board)
{
    struct stat status;
    if (board->header != NULL && lstat(board->path, &status) == 0 &&
        status.st_ino == board->inode && status.st_dev == board->filesystem) {
        (void)unlink(board->path);
    }
    unmap(board);
}

void flw_board_forget(struct flw_board *board)
{
    board->header = NULL;
}

/* ---- requests */

void flw_board_await(struct flw_board *board)
{
    uint32_t answered = atomic_load(&board->header->answered);
    if (atomic_load(&board->header->asked) == answered) {
        flw_board_sleep(&board->header->asked, answered, UINT64_MAX);
    }
}

void flw_board_interrupt(struct flw_board *board)
{
    (void)flw_board_add_and_wake(&board->header->asked);
}

uint32_t flw_board_question(const struct flw_board *board)
{
    return atomic_load(&board->header->asked);
}

void flw_board_answer(struct flw_board *board, uint32_t question, const void *bytes, size_t count)
{
    struct flw_board_header *header = board->header;
    uint32_t sequence = atomic_fetch_or(&header->sequence, 1);
    flw_board_fence(); /* the odd value before the body, for all readers */
    memcpy((unsigned char *)header + FLW_BOARD_HEADER_BYTES, bytes, count);
    __atomic_store_n(&header->body_bytes, (uint32_t)count, __ATOMIC_RELAXED);
    __atomic_store_n(&header->body_crc, flw_board_crc(bytes, count), __ATOMIC_RELAXED);
    atomic_store_explicit(&header->sequence, (sequence | 1) + 1, memory_order_release);
    atomic_store(&header->answered, question);
    flw_board_wake(&header->answered);
}
