/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the model: the work queued and completed on every stream, the owner of each byte, and the
 * work that each freed byte waits for. Does not: call the allocator under test.
 *
 * The work of a stream is numbered in the order of submission, with an event after each piece; the
 * driver's answer about that event is the only evidence of completion. A freed block keeps the
 * current numbers of all streams; the bytes may be allocated again once every stream has reached
 * the number.
 *
 * Synchronization: `lock` around everything here. */
#ifndef FLW_TESTS_STRESS_QUIESCENCE_MODEL_H
#define FLW_TESTS_STRESS_QUIESCENCE_MODEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/sim.h"

#define MODEL_STREAMS 36
#define MODEL_RING    32 /* pieces of a stream that may be under way */
#define MODEL_PAGES   (1u << 16)

struct model_stream {
    CUcontext context;
    CUstream stream;
    uint64_t given, done;
    CUevent events[MODEL_RING];
};

/* A stretch of a block within one page of 2 MiB: allocated, or freed and waiting. */
struct model_node {
    struct model_node *next;
    uint64_t begin, end, base;
    bool is_live;
    uint64_t awaits[MODEL_STREAMS];
};

struct model {
    pthread_mutex_t lock;
    const struct flw_sim *sim;
    struct model_stream streams[MODEL_STREAMS];
    unsigned stream_count;
    struct model_node *pages[MODEL_PAGES], *unused;
    uint64_t allocated_count, reused_count, broken_count;
};

/* A piece of work for a stream: an operation, or (graph not NULL) the launch of a graph. False: as much
 * as may be under way is. */
bool model_give(struct model *model, unsigned stream, CUgraphExec graph);
/* Record an allocation. Returns false if it breaks a rule, which is reported. */
bool model_alloc(struct model *model, uint64_t base, uint64_t bytes);
/* A block is about to be freed. */
void model_free(struct model *model, uint64_t base, uint64_t bytes);

#endif
