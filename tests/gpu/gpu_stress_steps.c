/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the random program of one thread: blocks that are allocated, filled, handed between
 * streams, read and released; streams that are renewed; trims.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "gpu_stress.h"
#include "support/trim.h"

void must(const struct run *run, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "gpu_stress: %s: %s (seed %llu)\n", call,
                flw_driver_error_name(run->cu, result), (unsigned long long)run->world->seed);
        exit(1);
    }
}
void must_status(const struct run *run, fallow_status status, const char *call)
{
    if (status != FALLOW_OK) {
        fprintf(stderr, "gpu_stress: %s: %s (seed %llu)\n", call, fallow_status_name(status),
                (unsigned long long)run->world->seed);
        exit(1);
    }
}

uint64_t below(struct run *run, uint64_t bound)
{
    return flw_random_next(&run->random) % bound;
}

void compare(struct run *run)
{
    for (unsigned i = 0; i < STREAMS; i++) { /* not the context: another thread may capture */
        MUST(cuStreamSynchronize(run->stream[i]));
    }
    for (unsigned i = 0; i < run->check_count; i++) {
        if (run->words[i] != run->expected[i] && run->mismatches++ < 5) {
            fprintf(stderr, "gpu_stress: a block holds %08x instead of %08x (seed %llu)\n",
                    run->words[i], run->expected[i], (unsigned long long)run->world->seed);
        }
    }
    run->check_count = 0;
}

void order(struct run *run, unsigned from, unsigned to)
{
    if (from != to) {
        MUST(cuEventRecord(run->event, run->stream[from]));
        MUST(cuStreamWaitEvent(run->stream[to], run->event, 0));
    }
}

void fill(struct run *run, const struct block *block, CUstream stream)
{
    size_t words = block->bytes / 4, edge = EDGE / 4;
    if (words <= 2 * edge || run->world->sleeps) { /* a sleep may save, and so read, all of it */
        MUST(cuMemsetD32Async(block->address, block->value, words, stream));
        return;
    }
    MUST(cuMemsetD32Async(block->address, block->value, edge, stream));
    MUST(cuMemsetD32Async(block->address + (words - edge) * 4, block->value, edge, stream));
}

void read_word(struct run *run, CUdeviceptr address, uint32_t value, CUstream stream)
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

/* For a pool that sleeps pick whole words, because all saved bytes must be written; on the
 * simulated device fewer, because saves use this machine's memory. */
static size_t pick_bytes(struct run *run)
{
    bool is_small = run->world->sleeps && run->world->is_sim;
    uint64_t kind = below(run, 10);
    uint64_t top = kind < 5 ? 4096 : kind < 8 ? 1u << 20 : (is_small ? 2u : 24u) << 20;
    size_t bytes = 4 + below(run, top);
    return run->world->sleeps ? bytes / 4 * 4 : bytes;
}

bool allocate(struct run *run, unsigned stream, struct block *block)
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

void free_block(struct run *run, unsigned index)
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

void step(struct run *run)
{
    uint64_t kind = below(run, 1000);
    run->done++;
    if (kind < 2) {
        renew_stream(run);
    } else if (kind < 4) {
        must_status(run, flw_test_trim(run->pool, below(run, 256u << 20)), "fallow_pool_trim");
    } else if (kind < 100 && run->count > 0) {
        move_home(run, &run->block[below(run, run->count)]);
    } else if ((kind < 560 && run->count < BLOCKS / run->world->thread_count) || run->count == 0) {
        struct block *block = &run->block[run->count];
        if (allocate(run, (unsigned)below(run, STREAMS), block)) {
            fill(run, block, run->stream[block->home]);
            run->count++;
        } else if (run->count > 0) {
            free_block(run, (unsigned)below(run, run->count));
        }
    } else {
        free_block(run, (unsigned)below(run, run->count));
    }
}
