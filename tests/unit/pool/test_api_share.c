/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: export and import: two processes that share memory, exported blocks that are freed,
 * refused requests. */
#include "unit/pool/test_api_share.h"

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
    begin_sharing(&api, 0);
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
    begin_sharing(&api, FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC);
    void *ptr = api_must_alloc(&api, BLOCK_BYTES, 0,
                               type == FALLOW_HANDLE_FD ? FALLOW_REQUEST_EXPORT_FD
                                                        : FALLOW_REQUEST_EXPORT_FABRIC);
    poke(&api, ptr, 8, WORD_OUT);
    poke(&api, ptr, BLOCK_BYTES - 4, WORD_OUT);
    fallow_share share = exported(&api, ptr, type);
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

static void two_processes_see_the_same_bytes_through_a_descriptor(void **state)
{
    share_with_another_process(FALLOW_HANDLE_FD);
}

static void two_processes_see_the_same_bytes_through_a_fabric_handle(void **state)
{
    share_with_another_process(FALLOW_HANDLE_FABRIC);
}

/* ---- one process */

static void an_import_of_ones_own_export_is_the_same_memory(void **state)
{
    struct api api;
    fallow_pool *importer = NULL;
    void *seen[2] = {NULL, NULL};
    begin_sharing(&api, FALLOW_HANDLE_FD);
    importer = api_create(&api);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share first = exported(&api, ptr, FALLOW_HANDLE_FD);
    fallow_share second = exported(&api, ptr, FALLOW_HANDLE_FD); /* as often as one likes */
    assert_int_equal(api_stats(&api).exported_bytes, first.handle_bytes);
    assert_int_equal(fallow_import(importer, &first, &seen[0]), FALLOW_OK);
    assert_int_equal(fallow_import(importer, &second, &seen[1]), FALLOW_OK);
    close(first.descriptor);
    close(second.descriptor);
    poke(&api, ptr, 100, 77);
    assert_int_equal(peek(&api, seen[0], 100), 77);
    poke(&api, seen[1], 104, 78);
    assert_int_equal(peek(&api, ptr, 104), 78);
    assert_int_equal(fallow_free(importer, seen[0], api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_unimport(api.pool, seen[0]), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_unimport(importer, seen[0]), FALLOW_OK);
    assert_int_equal(fallow_unimport(importer, NULL), FALLOW_OK);
    fallow_pool_destroy(importer); /* takes the other import along */
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* Kept addresses do not hold the exporter's memory, and the memory of a mapping is reported. */
static void an_import_that_is_not_given_up_is_told_and_holds_no_handle(void **state)
{
    static const char *const entries[] = {"cuMemAddressFree", "cuMemUnmap"};
    for (unsigned i = 0; i < 2; i++) {
        struct api api;
        void *seen = NULL;
        begin_sharing(&api, FALLOW_HANDLE_FD);
        fallow_pool *importer = api_create(&api);
        void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
        fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
        assert_int_equal(fallow_import(importer, &share, &seen), FALLOW_OK);
        close(share.descriptor);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        fallow_pool_destroy(api.pool);
        assert_int_equal((api.sim.fail)(entries[i], 1, CUDA_ERROR_NOT_PERMITTED, 2), 1);
        assert_int_equal(fallow_unimport(importer, seen), FALLOW_OK);
        uint64_t kept = flw_sim_read_ledger(&api.sim).given_bytes;
        assert_int_equal(kept, i == 0 ? 0 : share.handle_bytes);
        api.log[0] = '\0';
        (void)(api.sim.fail)("cuMemAddressFree", 1, CUDA_ERROR_NOT_PERMITTED, 2);
        fallow_pool_destroy(importer);
        assert_non_null(strstr(api.log, "stay with the driver"));
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, kept);
        flw_sim_close(&api.sim);
    }
}

static void an_unimport_waits_for_work_and_leaves_captures_alone(void **state)
{
    struct api api;
    void *seen = NULL;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(api.pool, &share, &seen), FALLOW_OK);
    assert_int_equal(api_stats(&api).imported_bytes, share.handle_bytes);
    close(share.descriptor);
    api_use(&api, seen, 5000, api.stream);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_CAPTURING);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_OK);
    assert_int_equal(api_stats(&api).imported_bytes, 0);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_end(&api);
}

/* Freed while in use, on another stream than it was allocated on, with an announced use on a
 * third. */
static void exported_memory_goes_when_its_work_is_complete(void **state)
{
    struct api api;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, BLOCK_BYTES, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    api_use(&api, ptr, BLOCK_BYTES, api.stream);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(api_stats(&api).exported_bytes, share.handle_bytes);
    for (int i = 0; i < 4; i++) { /* not even the freeing stream reuses it */
        void *other = api_alloc(&api, BLOCK_BYTES, api.stream);
        assert_true((char *)other + BLOCK_BYTES <= (char *)ptr ||
                    (char *)ptr + share.handle_bytes <= (char *)other);
    }
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).exported_bytes, share.handle_bytes);
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).exported_bytes, 0);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    close(share.descriptor);
    api_end(&api);
}

static void a_growth_takes_what_exports_have_left(void **state)
{
    struct api api;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, 150 * MIB, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    close(share.descriptor);
    api_use(&api, ptr, 150 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    ptr = api_alloc(&api, 200 * MIB, api.other); /* waits for the work, then has room */
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void what_cannot_be_exported_is_refused_by_name(void **state)
{
    struct api api;
    fallow_share share;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    fallow_share_init(&share);
    void *plain = api_alloc(&api, 5000, api.stream), *large = api_alloc(&api, 3 * MIB, api.stream);
    void *good = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    assert_int_equal(fallow_export(api.pool, plain, FALLOW_HANDLE_FD, &share),
                     FALLOW_INVALID_ARGUMENT);
    assert_non_null(strstr(api.log, "FALLOW_REQUEST_EXPORT_FD"));
    assert_int_equal(fallow_export(api.pool, large, FALLOW_HANDLE_FD, &share),
                     FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_export(api.pool, (char *)good + 512, FALLOW_HANDLE_FD, &share),
                     FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_export(api.pool, good, FALLOW_HANDLE_FABRIC, &share),
                     FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(api.log, "handle_types"));
    assert_int_equal(fallow_export(api.pool, good, 64, &share), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_export(api.pool, good, FALLOW_HANDLE_FD, NULL),
                     FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_export(NULL, good, FALLOW_HANDLE_FD, &share), FALLOW_INVALID_POOL);
    (api.sim.fail)("cuMemExportToShareableHandle", 1, CUDA_ERROR_UNKNOWN, 0);
    assert_int_equal(fallow_export(api.pool, good, FALLOW_HANDLE_FD, &share), FALLOW_DRIVER);
    assert_non_null(strstr(api.log, "cuMemExportToShareableHandle"));
    assert_int_equal(api_stats(&api).exported_bytes, 0);
    assert_int_equal(fallow_free(api.pool, good, api.stream), FALLOW_OK);
    assert_int_equal(fallow_export(api.pool, good, FALLOW_HANDLE_FD, &share),
                     FALLOW_INVALID_POINTER);
    api_end(&api);
}

static void what_cannot_be_imported_leaves_nothing(void **state)
{
    struct api api;
    static const char *const calls[] = {"cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                        "cuMemMap", "cuMemSetAccess"};
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD), *seen = &api;
    fallow_share good = exported(&api, ptr, FALLOW_HANDLE_FD), bad = good;
    bad.type = FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC;
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_INVALID_ARGUMENT);
    assert_null(seen);
    bad = good;
    bad.offset_bytes = good.handle_bytes;
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.handle_bytes += 1;
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.descriptor = -1;
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.struct_size = 3;
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_VERSION);
    bad = good;
    bad.handle_bytes *= 2; /* more than the handle has: the driver checks */
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_DRIVER);
    bad = good;
    bad.descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(fallow_import(api.pool, &bad, &seen), FALLOW_DRIVER);
    assert_non_null(strstr(api.log, "cuMemImportFromShareableHandle"));
    close(bad.descriptor);
    flw_sim_ledger before = flw_sim_read_ledger(&api.sim);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        (api.sim.fail)(calls[i], 1, CUDA_ERROR_UNKNOWN, 0);
        assert_int_equal(fallow_import(api.pool, &good, &seen), FALLOW_DRIVER);
        assert_null(seen);
        flw_sim_ledger after = flw_sim_read_ledger(&api.sim);
        assert_int_equal(after.mapping_count, before.mapping_count);
        assert_int_equal(after.handle_count, before.handle_count);
        assert_int_equal(after.reserved_address_bytes, before.reserved_address_bytes);
    }
    assert_int_equal(fallow_import(api.pool, &good, &seen), FALLOW_OK);
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_OK);
    close(good.descriptor);
    api_end(&api);
}

static void without_virtual_memory_management_nothing_is_shared(void **state)
{
    struct api api;
    fallow_share share = {.struct_size = sizeof share, .type = FALLOW_HANDLE_FD};
    flw_sim_config world = flw_sim_config_default(3);
    world.without_vmm = 1;
    world.device_count = 2;
    void *seen;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    void *ptr = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(fallow_export(api.pool, ptr, FALLOW_HANDLE_FD, &share), FALLOW_NOT_SUPPORTED);
    assert_int_equal(fallow_import(api.pool, &share, &seen), FALLOW_NOT_SUPPORTED);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(api.log, "cuCtxEnablePeerAccess"));
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

/* The importer has never heard of the stream. */
static void an_unimport_leaves_captures_of_other_pools_alone(void **state)
{
    struct api api;
    fallow_pool *importer = NULL;
    fallow_capture *capture = NULL;
    void *seen = NULL;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    importer = api_create(&api);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(importer, &share, &seen), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_unimport(importer, seen), FALLOW_CAPTURING);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_unimport(importer, seen), FALLOW_OK);
    fallow_pool_destroy(importer);
    close(share.descriptor);
    api_end(&api);
}

static void a_sleeping_pool_imports_and_unimports(void **state)
{
    struct api api;
    fallow_pool *importer = NULL;
    void *seen[2] = {NULL, NULL};
    begin_sharing(&api, FALLOW_HANDLE_FD);
    importer = api_create(&api);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    poke(&api, ptr, 0, 5);
    assert_int_equal(fallow_import(importer, &share, &seen[0]), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(fallow_pool_sleep(importer, NULL), FALLOW_OK);
    assert_int_equal(peek(&api, seen[0], 0), 5); /* an import is not the pool's to release */
    assert_int_equal(fallow_import(importer, &share, &seen[1]), FALLOW_OK);
    assert_int_equal(peek(&api, seen[1], 0), 5);
    assert_int_equal(fallow_unimport(importer, seen[0]), FALLOW_OK);
    assert_int_equal(fallow_pool_allow_peer(importer, 1), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(importer), FALLOW_OK);
    assert_int_equal(fallow_unimport(importer, seen[1]), FALLOW_OK);
    fallow_pool_destroy(importer);
    close(share.descriptor);
    api_end(&api);
}

/* Export a block between red zones: the block and the offset in the handle, where the zone before
 * an aligned block may be. */
static void export_between_zones(uint64_t align_bytes)
{
    struct api api;
    fallow_request request;
    void *seen = NULL, *ptr = NULL;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    fallow_pool_destroy(api.pool);
    fallow_pool_config config = api_config(&api);
    config.handle_types = FALLOW_HANDLE_FD;
    config.checks = FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_POISON;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    fallow_request_init(&request);
    request.size_bytes = 5000;
    request.align_bytes = align_bytes;
    request.flags = FALLOW_REQUEST_EXPORT_FD;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_OK);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    assert_true(share.offset_bytes >= align_bytes && share.offset_bytes > 0);
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0); /* the poison is there */
    poke(&api, ptr, 0, 55);
    assert_int_equal(fallow_import(api.pool, &share, &seen), FALLOW_OK);
    close(share.descriptor);
    assert_int_equal(peek(&api, seen, 0), 55);
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).exported_bytes, 0);
    assert_int_equal(api_stats(&api).damage_count, 0);
    api_end(&api);
}

static void a_checked_pool_exports_blocks_between_their_zones(void **state)
{
    export_between_zones(0);
    export_between_zones(2 * MIB);
}

struct racer {
    struct api *api;
    void *ptr;
    pthread_barrier_t *start;
    fallow_status status;
    fallow_share share;
};

static void *export_once(void *context)
{
    struct racer *racer = context;
    pthread_barrier_wait(racer->start);
    racer->status = fallow_export(racer->api->pool, racer->ptr, FALLOW_HANDLE_FD, &racer->share);
    return NULL;
}

static void an_export_that_fails_takes_none_away_from_another(void **state)
{
    struct api api;
    pthread_barrier_t start;
    unsigned taken = 0, one_each = 0;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
    for (unsigned i = 0; i < 400; i++) {
        struct racer racers[2] = {{.api = &api, .start = &start}, {.api = &api, .start = &start}};
        pthread_t thread;
        racers[0].ptr = racers[1].ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
        fallow_share_init(&racers[0].share);
        fallow_share_init(&racers[1].share);
        (api.sim.fail)("cuMemExportToShareableHandle", 1, CUDA_ERROR_UNKNOWN, 0);
        assert_int_equal(pthread_create(&thread, NULL, export_once, &racers[0]), 0);
        (void)export_once(&racers[1]);
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (unsigned j = 0; j < 2; j++) {
            if (racers[j].status == FALLOW_OK) {
                one_each++;
                close(racers[j].share.descriptor);
            }
        }
        taken += api_stats(&api).exported_bytes == 0;
        assert_int_equal(fallow_free(api.pool, racers[0].ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    }
    assert_int_equal(pthread_barrier_destroy(&start), 0);
    assert_int_equal(one_each, 400);
    assert_int_equal(taken, 0);
    api_end(&api);
}

int main(int count, char **words)
{
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    own_path[length > 0 ? length : 0] = '\0';
    if (count == 3 && strcmp(words[1], "--import") == 0) {
        return import_from((int)strtol(words[2], NULL, 10));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_see_the_same_bytes_through_a_descriptor),
        cmocka_unit_test(two_processes_see_the_same_bytes_through_a_fabric_handle),
        cmocka_unit_test(an_import_of_ones_own_export_is_the_same_memory),
        cmocka_unit_test(an_import_that_is_not_given_up_is_told_and_holds_no_handle),
        cmocka_unit_test(an_unimport_waits_for_work_and_leaves_captures_alone),
        cmocka_unit_test(exported_memory_goes_when_its_work_is_complete),
        cmocka_unit_test(a_growth_takes_what_exports_have_left),
        cmocka_unit_test(what_cannot_be_exported_is_refused_by_name),
        cmocka_unit_test(what_cannot_be_imported_leaves_nothing),
        cmocka_unit_test(without_virtual_memory_management_nothing_is_shared),
        cmocka_unit_test(an_unimport_leaves_captures_of_other_pools_alone),
        cmocka_unit_test(a_sleeping_pool_imports_and_unimports),
        cmocka_unit_test(a_checked_pool_exports_blocks_between_their_zones),
        cmocka_unit_test(an_export_that_fails_takes_none_away_from_another),
    };
    return cmocka_run_group_tests_name("api_share", tests, NULL, NULL);
}
