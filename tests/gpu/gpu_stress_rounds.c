/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the occasional rounds of gpu_stress: captures, sleeps, blocks shared with another process. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_stress.h"

#include "fallow/share.h"
#include "fallow/sleep.h"

void capture_round(struct run *run)
{
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    struct block kept, passing;
    CUstream stream = run->stream[0];
    for (unsigned i = run->count; i-- > 0;) {
        if (run->block[i].home == 0) {
            free_block(run, i);
        }
    }
    compare(run);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    must_status(run, fallow_capture_begin(run->pool, stream, &capture), "fallow_capture_begin");
    if (!allocate(run, 0, &kept) || !allocate(run, 0, &passing)) {
        fprintf(stderr, "gpu_stress: no room for a capture\n");
        exit(1);
    }
    fill(run, &passing, stream);
    MUST(cuMemcpyDtoDAsync_v2(kept.address, passing.address, 4, stream));
    must_status(run, fallow_free(run->pool, (void *)(uintptr_t)passing.address, stream),
                "fallow_free in a capture");
    MUST(cuStreamEndCapture(stream, &graph));
    must_status(run, fallow_capture_end(capture), "fallow_capture_end");
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int launch = 0; launch < 2; launch++) {
        MUST(cuGraphLaunch(executable, stream));
        for (int i = 0; i < 100; i++) {
            step(run);
        }
        if (run->check_count == CHECKS) {
            compare(run);
        }
        if (run->stream[0] == stream) {
            read_word(run, kept.address, passing.value, stream);
        } else { /* the stream was renewed: the launch precedes the current end of the
                     successor */
            stream = run->stream[0];
            order(run, 1, 0);
        }
    }
    must_status(run, fallow_free(run->pool, (void *)(uintptr_t)kept.address, stream),
                "fallow_free after a capture");
    compare(run);
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
    must_status(run, fallow_capture_release(capture), "fallow_capture_release");
    atomic_fetch_add(&run->world->capture_count, 1);
}

/* ---- sleep ---- */

static void refill(struct run *run)
{
    for (unsigned i = 0; i < run->count; i++) {
        struct block *block = &run->block[i];
        block->value = (uint32_t)below(run, UINT32_MAX);
        fill(run, block, run->stream[block->home]);
    }
}

void sleep_round(struct run *run)
{
    struct world *world = run->world;
    fallow_sleep_request request;
    bool is_saved = below(run, 2) == 0;
    void *nothing = NULL;
    for (unsigned i = 0; i < world->thread_count; i++) {
        compare(&world->runs[i]);
    }
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT | (is_saved ? FALLOW_SLEEP_SAVE_ALL : 0);
    must_status(run, fallow_pool_sleep(run->pool, &request), "fallow_pool_sleep");
    fallow_status status = fallow_alloc(run->pool, 4096, run->stream[0], &nothing);
    if (status != FALLOW_ASLEEP) {
        fprintf(stderr, "gpu_stress: a sleeping pool answers %s\n", fallow_status_name(status));
        exit(1);
    }
    must_status(run, fallow_pool_wake(run->pool), "fallow_pool_wake");
    for (unsigned i = 0; i < world->thread_count && !is_saved; i++) {
        refill(&world->runs[i]);
    }
    atomic_fetch_add(&world->sleep_count, 1);
}

/* ---- share ---- */

extern char **environ;

/* The exit status of this program as the importing process. */
static int run_importer(const struct run *run, const fallow_share *share, uint32_t value)
{
    char words[5][32];
    char *arguments[10] = {(char *)(uintptr_t)run->world->program, (char *)(uintptr_t) "--device",
                           (char *)(uintptr_t)run->world->device, (char *)(uintptr_t) "--import"};
    const unsigned long long numbers[5] = {(unsigned long long)share->descriptor,
                                           share->handle_bytes, share->offset_bytes,
                                           share->size_bytes, value};
    for (int i = 0; i < 5; i++) {
        snprintf(words[i], sizeof words[i], "%llu", numbers[i]);
        arguments[4 + i] = words[i];
    }
    pid_t child;
    int state = 0;
    if (fcntl(share->descriptor, F_SETFD, 0) != 0) { /* some drivers export with close-on-exec */
        return -1;
    }
    if (posix_spawn(&child, run->world->program, NULL, NULL, arguments, environ) != 0 ||
        waitpid(child, &state, 0) != child) {
        return -1;
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static void look_at(struct run *run, const void *shared, size_t bytes, uint32_t value)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)shared;
    read_word(run, address, value, run->stream[0]);
    read_word(run, address + bytes / 4 * 4 - 4, value, run->stream[0]);
    compare(run);
}

void share_round(struct run *run)
{
    fallow_request request;
    fallow_share share;
    void *ptr = NULL, *again = NULL;
    compare(run);
    fallow_request_init(&request);
    request.size_bytes = EDGE + below(run, 6u << 20);
    request.flags = FALLOW_REQUEST_EXPORT_FD;
    fallow_status status = fallow_alloc_request(run->pool, &request, run->stream[0], &ptr);
    if (status == FALLOW_NOT_SUPPORTED || status == FALLOW_OUT_OF_MEMORY) {
        atomic_fetch_add(&run->world->unshared_count, 1);
        return;
    }
    must_status(run, status, "fallow_alloc_request");
    struct block block = {.address = (CUdeviceptr)(uintptr_t)ptr,
                          .bytes = request.size_bytes,
                          .value = (uint32_t)below(run, UINT32_MAX)};
    fill(run, &block, run->stream[0]);
    compare(run);
    fallow_share_init(&share);
    must_status(run, fallow_export(run->pool, ptr, FALLOW_HANDLE_FD, &share), "fallow_export");
    must_status(run, fallow_import(run->pool, &share, &again), "fallow_import");
    look_at(run, again, block.bytes, block.value);
    must_status(run, fallow_unimport(run->pool, again), "fallow_unimport");
    int code = run_importer(run, &share, block.value);
    if (code != 0) {
        fprintf(stderr, "gpu_stress: the importing process ended with %d\n", code);
        run->mismatches++;
    }
    close(share.descriptor);
    must_status(run, fallow_free(run->pool, ptr, run->stream[0]), "fallow_free");
    atomic_fetch_add(&run->world->share_count, 1);
}

int import_child(struct world *world, char **words)
{
    fallow_share share;
    void *ptr = NULL;
    uint32_t first = 0, last = 0;
    fallow_share_init(&share);
    share.type = FALLOW_HANDLE_FD;
    share.descriptor = (int)strtol(words[0], NULL, 10);
    share.handle_bytes = strtoull(words[1], NULL, 10);
    share.offset_bytes = strtoull(words[2], NULL, 10);
    share.size_bytes = strtoull(words[3], NULL, 10);
    uint32_t value = (uint32_t)strtoull(words[4], NULL, 10);
    if (!open_world(world)) {
        return 2;
    }
    struct run child = {.world = world, .cu = world->cu, .pool = world->pool}, *run = &child;
    must_status(run, fallow_import(run->pool, &share, &ptr), "fallow_import in another process");
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
    MUST(cuMemcpyDtoH_v2(&first, address, sizeof first));
    MUST(cuMemcpyDtoH_v2(&last, address + share.size_bytes / 4 * 4 - 4, sizeof last));
    must_status(run, fallow_unimport(run->pool, ptr), "fallow_unimport in another process");
    fallow_pool_destroy(run->pool);
    if (first != value || last != value) {
        fprintf(stderr, "gpu_stress: an import holds %08x and %08x instead of %08x\n", first, last,
                value);
    }
    return first == value && last == value ? 0 : 1;
}
