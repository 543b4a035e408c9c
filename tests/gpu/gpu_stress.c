/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a random program of several streams over a pool on a real device, judged by contents: every
 * block holds a value of its own until it is freed. What was lent twice at a time, or too early,
 * shows as a foreign value. Runs on the simulated device too, with memory behind it. No test
 * framework.
 *
 *   gpu_stress [--device N|sim] [--seed N] [--ops N] [--capture]
 *
 * Prints one JSON object. Exit: 0 no foreign value, 1 one, 2 bad usage, 77 no such device. Does
 * not: measure time.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "support/sim.h"

#include "fallow/fallow.h"

#define STREAMS 4
#define BLOCKS  256
#define CHECKS  2048 /* words on their way back */
#define EDGE    4096 /* bytes written and read at both ends of a block */

struct block {
    CUdeviceptr address;
    size_t bytes;
    uint32_t value;
    unsigned home; /* the stream whose work on it is the latest */
};

struct run {
    struct flw_sim sim;
    const struct flw_driver *cu;
    fallow_pool *pool;
    bool is_sim;
    uint64_t random, seed, ops, done, allocs, mismatches, refusals;
    CUstream stream[STREAMS];
    CUevent event;
    struct block block[BLOCKS];
    unsigned count;
    uint32_t *words; /* pinned: what came back */
    uint32_t expected[CHECKS];
    unsigned check_count;
};

static void must(const struct run *run, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "gpu_stress: %s: %s (seed %llu)\n", call,
                flw_driver_error_name(run->cu, result), (unsigned long long)run->seed);
        exit(1);
    }
}
#define MUST(call) must(run, run->cu->call, #call)

static void must_status(const struct run *run, fallow_status status, const char *call)
{
    if (status != FALLOW_OK) {
        fprintf(stderr, "gpu_stress: %s: %s (seed %llu)\n", call, fallow_status_name(status),
                (unsigned long long)run->seed);
        exit(1);
    }
}

static uint64_t below(struct run *run, uint64_t bound)
{
    return flw_random_next(&run->random) % bound;
}

static void compare(struct run *run)
{
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < run->check_count; i++) {
        if (run->words[i] != run->expected[i] && run->mismatches++ < 5) {
            fprintf(stderr, "gpu_stress: a block holds %08x instead of %08x (seed %llu)\n",
                    run->words[i], run->expected[i], (unsigned long long)run->seed);
        }
    }
    run->check_count = 0;
}

static void order(struct run *run, unsigned from, unsigned to)
{
    if (from != to) {
        MUST(cuEventRecord(run->event, run->stream[from]));
        MUST(cuStreamWaitEvent(run->stream[to], run->event, 0));
    }
}

static void fill(struct run *run, const struct block *block, CUstream stream)
{
    size_t head = block->bytes < EDGE ? block->bytes : EDGE;
    MUST(cuMemsetD32Async(block->address, block->value, head / 4, stream));
    if (block->bytes > EDGE) {
        CUdeviceptr tail = block->address + (block->bytes / 4 * 4) - EDGE;
        MUST(cuMemsetD32Async(tail, block->value, EDGE / 4, stream));
    }
}

static void read_word(struct run *run, CUdeviceptr address, uint32_t value, CUstream stream)
{
    run->expected[run->check_count] = value;
    MUST(cuMemcpyDtoHAsync_v2(&run->words[run->check_count++], address, 4, stream));
}

/* First and last word, in the stream's order. */
static void verify(struct run *run, const struct block *block, CUstream stream)
{
    if (run->check_count + 2 > CHECKS) {
        compare(run);
    }
    read_word(run, block->address, block->value, stream);
    read_word(run, block->address + block->bytes / 4 * 4 - 4, block->value, stream);
}

static size_t pick_bytes(struct run *run)
{
    uint64_t kind = below(run, 10);
    uint64_t top = kind < 5 ? 4096 : kind < 8 ? 1u << 20 : 24u << 20;
    return 4 + below(run, top);
}

static bool lend(struct run *run, unsigned stream, struct block *block)
{
    void *ptr = NULL;
    *block = (struct block){
        .bytes = pick_bytes(run), .value = (uint32_t)below(run, UINT32_MAX), .home = stream};
    fallow_status status = fallow_alloc(run->pool, block->bytes, run->stream[stream], &ptr);
    if (status == FALLOW_OUT_OF_MEMORY) {
        run->refusals++;
        return false;
    }
    must_status(run, status, "fallow_alloc");
    run->allocs++;
    block->address = (CUdeviceptr)(uintptr_t)ptr;
    return true;
}

static void give_back(struct run *run, unsigned index)
{
    struct block block = run->block[index];
    unsigned to = below(run, 3) == 0 ? (unsigned)below(run, STREAMS) : block.home;
    unsigned reader = (unsigned)below(run, STREAMS);
    verify(run, &block, run->stream[block.home]);
    if (reader != block.home) { /* read elsewhere too; announced, or ordered before the free */
        order(run, block.home, reader);
        verify(run, &block, run->stream[reader]);
        if (below(run, 2) == 0) {
            must_status(
                run,
                fallow_record_use(run->pool, (void *)(uintptr_t)block.address, run->stream[reader]),
                "fallow_record_use");
        } else {
            order(run, reader, to);
        }
    }
    order(run, block.home, to);
    must_status(run, fallow_free(run->pool, (void *)(uintptr_t)block.address, run->stream[to]),
                "fallow_free");
    run->block[index] = run->block[--run->count];
}

static void move_home(struct run *run, struct block *block)
{
    unsigned to = (unsigned)below(run, STREAMS);
    verify(run, block, run->stream[block->home]);
    order(run, block->home, to);
    block->home = to;
    block->value = (uint32_t)below(run, UINT32_MAX);
    fill(run, block, run->stream[to]);
}

static void renew_stream(struct run *run)
{
    unsigned old = (unsigned)below(run, STREAMS), heir = (old + 1) % STREAMS;
    order(run, old, heir);
    for (unsigned i = 0; i < run->count; i++) {
        run->block[i].home = run->block[i].home == old ? heir : run->block[i].home;
    }
    must_status(run, fallow_stream_retire(run->pool, run->stream[old]), "fallow_stream_retire");
    MUST(cuStreamDestroy_v2(run->stream[old]));
    MUST(cuStreamCreate(&run->stream[old], CU_STREAM_NON_BLOCKING));
}

static void step(struct run *run)
{
    uint64_t kind = below(run, 1000);
    run->done++;
    if (kind < 2) {
        renew_stream(run);
    } else if (kind < 4) {
        must_status(run, fallow_pool_trim(run->pool, below(run, 256u << 20)), "fallow_pool_trim");
    } else if (kind < 100 && run->count > 0) {
        move_home(run, &run->block[below(run, run->count)]);
    } else if ((kind < 560 && run->count < BLOCKS) || run->count == 0) {
        struct block *block = &run->block[run->count];
        if (lend(run, (unsigned)below(run, STREAMS), block)) {
            fill(run, block, run->stream[block->home]);
            run->count++;
        } else if (run->count > 0) {
            give_back(run, (unsigned)below(run, run->count));
        }
    } else {
        give_back(run, (unsigned)below(run, run->count));
    }
}

/* Capture on stream 0, launch twice beside eager work on the others, look at what it left. */
static void capture_round(struct run *run)
{
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    struct block kept, passing;
    CUstream stream = run->stream[0];
    for (unsigned i = run->count; i-- > 0;) {
        if (run->block[i].home == 0) {
            give_back(run, i);
        }
    }
    compare(run);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    must_status(run, fallow_capture_begin(run->pool, stream, &capture), "fallow_capture_begin");
    if (!lend(run, 0, &kept) || !lend(run, 0, &passing)) {
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
        } else { /* renewed meanwhile: the launch came before its heir's present end */
            stream = run->stream[0];
            order(run, 1, 0);
        }
    }
    must_status(run, fallow_free(run->pool, (void *)(uintptr_t)kept.address, stream),
                "fallow_free after a capture");
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
    must_status(run, fallow_capture_release(capture), "fallow_capture_release");
}

static bool begin(struct run *run, const char *device)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    CUcontext context = NULL;
    CUdevice ordinal = 0;
    fallow_pool_config config;
    void *pinned = NULL;
    run->is_sim = strcmp(device, "sim") == 0;
    run->cu = &run->sim.cu;
    if (flw_driver_open(&run->sim.cu, run->is_sim ? "sim" : NULL, message) != FALLOW_OK) {
        fprintf(stderr, "gpu_stress: %s\n", message);
        return false;
    }
    fallow_pool_config_init(&config);
    if (run->is_sim) {
        flw_sim_config world = flw_sim_config_default(run->seed);
        world.backed = 1;
        world.check = 1; /* beside the contents, the order of all accesses */
        world.device_bytes = 2ull << 30;
        if (!flw_sim_find_controls(&run->sim)) {
            return false;
        }
        (void)flw_sim_begin(&run->sim, &world);
        config.driver = "sim";
    } else {
        char *end = NULL;
        config.device = (int)strtol(device, &end, 10);
        if (end == device || *end != '\0' ||
            run->cu->cuDeviceGet(&ordinal, config.device) != CUDA_SUCCESS) {
            return false;
        }
        MUST(cuDevicePrimaryCtxRetain(&context, ordinal));
        MUST(cuCtxSetCurrent(context));
    }
    config.limit_bytes = 1500u << 20;
    must_status(run, fallow_pool_create(&config, &run->pool), "fallow_pool_create");
    for (unsigned i = 0; i < STREAMS; i++) {
        MUST(cuStreamCreate(&run->stream[i], CU_STREAM_NON_BLOCKING));
    }
    MUST(cuEventCreate(&run->event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemHostAlloc(&pinned, CHECKS * sizeof(uint32_t), 0));
    run->words = pinned;
    return true;
}

static bool parse(struct run *run, int count, char **words, const char **device, bool *captures)
{
    for (int i = 1; i < count; i++) {
        bool has_value = i + 1 < count;
        if (strcmp(words[i], "--capture") == 0) {
            *captures = true;
        } else if (has_value && strcmp(words[i], "--device") == 0) {
            *device = words[++i];
        } else if (has_value && strcmp(words[i], "--seed") == 0) {
            run->seed = strtoull(words[++i], NULL, 0);
        } else if (has_value && strcmp(words[i], "--ops") == 0) {
            run->ops = strtoull(words[++i], NULL, 0);
        } else {
            fprintf(stderr, "gpu_stress: '%s' is not understood; see the head of the source\n",
                    words[i]);
            return false;
        }
    }
    return true;
}

int main(int count, char **words)
{
    static struct run state;
    struct run *run = &state;
    const char *device = "0";
    bool captures = false;
    fallow_stats stats;
    run->seed = (uint64_t)time(NULL);
    run->ops = 20000;
    if (!parse(run, count, words, &device, &captures)) {
        return 2;
    }
    run->random = run->seed;
    if (!begin(run, device)) {
        return 77;
    }
    while (run->done < run->ops) {
        step(run);
        if (captures && run->done % 1000 < 2) {
            capture_round(run);
        }
    }
    while (run->count > 0) {
        give_back(run, run->count - 1);
    }
    compare(run);
    fallow_stats_init(&stats);
    must_status(run, fallow_pool_get_stats(run->pool, &stats), "fallow_pool_get_stats");
    printf(
        "{\"simulated\":%s,\"seed\":%llu,\"operations\":%llu,\"captures\":%s,\"allocations\":%llu,"
        "\"foreign_values\":%llu,\"refusals\":%llu,\"steals\":%llu,\"remaps\":%llu,"
        "\"peak_reserved_bytes\":%llu,\"peak_requested_bytes\":%llu}\n",
        run->is_sim ? "true" : "false", (unsigned long long)run->seed,
        (unsigned long long)run->done, captures ? "true" : "false", (unsigned long long)run->allocs,
        (unsigned long long)run->mismatches, (unsigned long long)run->refusals,
        (unsigned long long)stats.steal_count, (unsigned long long)stats.remap_count,
        (unsigned long long)stats.peak_reserved_bytes,
        (unsigned long long)stats.peak_requested_bytes);
    bool is_clean = run->mismatches == 0 && stats.live_count == 0;
    fallow_pool_destroy(run->pool);
    is_clean &= !run->is_sim || flw_sim_print_violations(&run->sim) == 0;
    return is_clean ? 0 : 1;
}
