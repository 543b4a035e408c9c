/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: export and import between two processes; sharing.script has one process.
 */
#include "unit/pool/test_api.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fallow/sleep.h"
#include "support/emulator.h"
#include "support/trim.h"

#define BLOCK_BYTES (3 * MIB + 1000)

static uint32_t peek(struct api *api, void *ptr, size_t offset)
{
    uint32_t word = 0;
    assert_int_equal(
        api->sim.cu.cuMemcpyDtoH_v2(&word, (CUdeviceptr)(uintptr_t)ptr + offset, sizeof word), 0);
    return word;
}

static void poke(struct api *api, void *ptr, size_t offset, uint32_t word)
{
    assert_int_equal(
        api->sim.cu.cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)ptr + offset, &word, sizeof word), 0);
}

/* ---- two processes */

#define WORD_OUT  0x5eed0001u
#define WORD_BACK 0x5eed0002u

static bool send_share(int socket, const fallow_share *share)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec bytes = {(void *)(uintptr_t)share, sizeof *share};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &share->descriptor, sizeof(int));
    return sendmsg(socket, &message, 0) == (ssize_t)sizeof *share;
}

static bool receive_share(int socket, fallow_share *share)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {share, sizeof *share};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    bool is_whole = recvmsg(socket, &message, 0) == (ssize_t)sizeof *share;
    const struct cmsghdr *header = is_whole ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        share->descriptor = descriptor;
    }
    return header != NULL;
}

#define MUST(condition)                                                   \
    if (!(condition)) {                                                   \
        fprintf(stderr, "importer, line %d: %s\n", __LINE__, #condition); \
        return 1;                                                         \
    }

/* Run as a program of its own, with nothing but the socket. */
static int import_from(int socket)
{
    struct api api;
    fallow_share share;
    void *ptr = NULL;
    char told;
    api_begin_sharing(&api, 0);
    MUST(receive_share(socket, &share));
    MUST(fallow_import(api.pool, &share, &ptr) == FALLOW_OK);
    if (share.type == FALLOW_HANDLE_FD) {
        close(share.descriptor);
    }
    MUST(peek(&api, ptr, 8) == WORD_OUT);
    MUST(peek(&api, ptr, share.size_bytes - 4) == WORD_OUT);
    poke(&api, ptr, 8, WORD_BACK);
    MUST(write(socket, "w", 1) == 1);  /* written */
    MUST(read(socket, &told, 1) == 1); /* the exporter has freed the block, and filled another */
    MUST(peek(&api, ptr, 8) == WORD_BACK);
    poke(&api, ptr, 12, WORD_OUT);
    MUST(fallow_unimport(api.pool, ptr) == FALLOW_OK);
    MUST(fallow_unimport(api.pool, ptr) == FALLOW_INVALID_POINTER);
    MUST(write(socket, "d", 1) == 1); /* done */
    api_end(&api);
    return 0;
}

static char own_path[4096];

/* CUDA is unusable in the child of a fork, so the child executes a new program at once. */
static pid_t start_importer(int socket)
{
    char number[16];
    snprintf(number, sizeof number, "%d", socket);
    const char *words[] = {FLW_EMULATOR own_path, "--import", number, NULL};
    pid_t child = fork();
    if (child == 0) {
        fcntl(socket, F_SETFD, 0);
        alarm(60); /* survives exec: where the test fails, nobody answers */
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child;
}

/* The importer's memory outlives the exporter's block, and none of it is reused. */
static void free_beside_importer(struct api *api, void *ptr, const fallow_share *share)
{
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    assert_int_equal(api->sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
    assert_int_equal(api_stats(api).exported_bytes, 0);
    assert_int_equal(api_stats(api).reserved_bytes, 0);
    for (int i = 0; i < 8; i++) {
        void *other = api_alloc(api, share->size_bytes, api->stream);
        poke(api, other, 8, 0);
        poke(api, other, 12, 0);
    }
}

static void share_with_another_process(uint32_t type)
{
    struct api api;
    int sockets[2], result = -1;
    char told;
    api_begin_sharing(&api, FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC);
    void *ptr = api_must_alloc(&api, BLOCK_BYTES, 0,
                               type == FALLOW_HANDLE_FD ? FALLOW_REQUEST_EXPORT_FD
                                                        : FALLOW_REQUEST_EXPORT_FABRIC);
    poke(&api, ptr, 8, WORD_OUT);
    poke(&api, ptr, BLOCK_BYTES - 4, WORD_OUT);
    fallow_share share = api_export(&api, ptr, type);
    assert_int_equal(share.size_bytes, BLOCK_BYTES);
    assert_int_equal(share.handle_bytes, 4 * MIB);
    assert_int_equal(share.offset_bytes, 0);
    assert_int_equal(share.descriptor >= 0, type == FALLOW_HANDLE_FD);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t child = start_importer(sockets[1]);
    assert_true(child > 0);
    close(sockets[1]);
    if (type == FALLOW_HANDLE_FABRIC) {
        share.descriptor = sockets[0]; /* any descriptor to send */
    }
    assert_true(send_share(sockets[0], &share));
    assert_int_equal(read(sockets[0], &told, 1), 1);
    assert_int_equal(peek(&api, ptr, 8), WORD_BACK);
    free_beside_importer(&api, ptr, &share);
    assert_int_equal(write(sockets[0], "f", 1), 1);
    assert_int_equal(read(sockets[0], &told, 1), 1);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    close(sockets[0]);
    if (type == FALLOW_HANDLE_FD) {
        close(share.descriptor);
    }
    api_end(&api);
}

TEST(two_processes_see_the_same_bytes_through_a_descriptor)
{
    share_with_another_process(FALLOW_HANDLE_FD);
}

TEST(two_processes_see_the_same_bytes_through_a_fabric_handle)
{
    share_with_another_process(FALLOW_HANDLE_FABRIC);
}

/* ---- one process */

int main(int count, char **words)
{
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    own_path[length > 0 ? length : 0] = '\0';
    if (count == 3 && strcmp(words[1], "--import") == 0) {
        return import_from((int)strtol(words[2], NULL, 10));
    }
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}
