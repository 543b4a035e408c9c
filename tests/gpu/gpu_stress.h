/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: shared and private state of the threads of gpu_stress. */
#ifndef FLW_TESTS_GPU_STRESS_H
#define FLW_TESTS_GPU_STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/sim.h"

#include "fallow/fallow.h"

#define STREAMS      4
#define BLOCKS       256  /* of all threads */
#define CHECKS       2048 /* words on their way back */
#define EDGE         4096 /* bytes written and read at both ends of a block */
#define MOST_THREADS 64

struct block {
    CUdeviceptr address;
    size_t bytes;
    uint32_t value;
    unsigned home; /* the stream of the latest work */
};

struct world {
    struct flw_sim sim;
    const struct flw_driver *cu; /* &sim.cu */
    CUcontext context;
    fallow_pool *pool;
    bool is_sim;
    const char *device, *program; /* program: argv[0], to run an importing process */
    uint64_t seed, ops;           /* ops: of each thread */
    bool captures, sleeps, shares, uses_segments;
    unsigned thread_count;
    struct run *runs;
    pthread_rwlock_t
        quiet; /* held for writing: no other thread is in a step, nothing is captured */
    atomic_uint capture_count, sleep_count, share_count, unshared_count;
};

/* A thread's program. Invariant: a block's bytes at both ends are the value, once the work of the
 * home stream is done. */
struct run {
    struct world *world;
    const struct flw_driver *cu;
    fallow_pool *pool;
    pthread_t thread;
    uint64_t random, done, allocs, mismatches, refusals;
    CUstream stream[STREAMS];
    CUevent event;
    struct block block[BLOCKS];
    unsigned count;
    uint32_t *words; /* pinned: values read back */
    uint32_t expected[CHECKS];
    unsigned check_count;
};

/* End the program: a call that had to work did not. */
void must(const struct run *run, CUresult result, const char *call);
#define MUST(call) must(run, run->cu->call, #call)
void must_status(const struct run *run, fallow_status status, const char *call);

uint64_t below(struct run *run, uint64_t bound);
/* Finish all work of the run's streams and check the values read back. */
void compare(struct run *run);
/* Order later work of `to` after the current work of `from`. */
void order(struct run *run, unsigned from, unsigned to);
/* Write the block's value to both the ends, in stream order. */
void fill(struct run *run, const struct block *block, CUstream stream);
/* Read a word back for compare(), which expects `value`. There is room for CHECKS. */
void read_word(struct run *run, CUdeviceptr address, uint32_t value, CUstream stream);
/* A block of a drawn size, not filled; false: out of memory. */
bool allocate(struct run *run, unsigned stream, struct block *block);
void free_block(struct run *run, unsigned index);
/* One operation of the random program. */
void step(struct run *run);

/* Capture on stream 0, launch twice during eager work, check the result. */
void capture_round(struct run *run);
/* With the world quiet: the pool sleeps and wakes, with contents saved or dropped. */
void sleep_round(struct run *run);
/* With the world quiet: a block is imported here and by another process. */
void share_round(struct run *run);
/* That other process: exit status 0, the bytes are there. words: descriptor, handle bytes, offset, size, value. */
int import_child(struct world *world, char **words);

/* The driver and the pool, from world's options; false: no such device. */
bool open_world(struct world *world);

#endif
