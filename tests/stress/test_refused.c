/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool on a kernel that accepts membarrier(2) at creation and refuses the call later, by a
 * seccomp filter, while threads allocate and free. No two blocks overlap, the pool stays whole,
 * and says once that calls are no longer hits.
 *
 *   test_refused [eperm|enomem] */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/random.h"
#include "fallow/fallow.h"
#include "support/overlap.h"
#include "support/sim.h"

#define SKIPPED       77
#define OWNERS        3
#define KEPT          16
#define DRAINS_BEFORE 100
#define DRAINS_AFTER  150
#define READ_APART    (2 * OWNERS) /* the counters of owners at work are not read at one moment */

static struct {
    struct flw_sim sim;
    fallow_pool *pool;
    struct flw_overlap *live;
    CUcontext context;
    CUstream streams[OWNERS];
    atomic_bool is_over;
    atomic_uint failures, lines;
    _Atomic uint64_t trades;
} bed;

static void expect(bool is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "stress.refused: %s\n", what);
        atomic_fetch_add(&bed.failures, 1);
    }
}

static void hear(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    (void)level;
    if (strstr(message, "membarrier") != NULL) {
        printf("log: %s\n", message);
        atomic_fetch_add(&bed.lines, 1);
    }
}

static void free_block(void *block, uint64_t bytes, CUstream stream)
{
    if (block != NULL) {
        flw_overlap_release(bed.live, (uint64_t)(uintptr_t)block, bytes);
        expect(fallow_free(bed.pool, block, stream) == FALLOW_OK, "a free was refused");
    }
}

static void *trade(void *argument)
{
    uintptr_t self = (uintptr_t)argument;
    CUstream stream = bed.streams[self];
    void *kept[KEPT] = {0};
    uint64_t bytes[KEPT] = {0}, random = self + 1;
    expect(bed.sim.cu.cuCtxSetCurrent(bed.context) == CUDA_SUCCESS, "no context");
    while (!atomic_load_explicit(&bed.is_over, memory_order_relaxed)) {
        uint64_t draw = flw_random_next(&random), i = draw % KEPT;
        free_block(kept[i], bytes[i], stream);
        kept[i] = NULL;
        bytes[i] = (draw >> 8) % 4 != 0 ? 1 + (draw >> 16) % 3000 : 1 + (draw >> 16) % (6u << 20);
        fallow_status status = fallow_alloc(bed.pool, bytes[i], stream, &kept[i]);
        expect(status == FALLOW_OK, "an allocation failed");
        if (status == FALLOW_OK) {
            expect(flw_overlap_claim(bed.live, (uint64_t)(uintptr_t)kept[i], bytes[i]),
                   "two blocks overlap");
        }
        atomic_fetch_add_explicit(&bed.trades, 1, memory_order_relaxed);
    }
    for (unsigned i = 0; i < KEPT; i++) {
        free_block(kept[i], bytes[i], stream);
    }
    return NULL;
}

/* The owners get on between two of them. */
static void drain(unsigned count)
{
    for (unsigned i = 0; i < count && atomic_load(&bed.failures) == 0; i++) {
        uint64_t seen = atomic_load(&bed.trades);
        expect(fallow_pool_trim(bed.pool, SIZE_MAX, 0, NULL) == FALLOW_OK, "trim failed");
        while (atomic_load(&bed.trades) < seen + 20) {
            sched_yield();
        }
    }
}

/* This thread's membarrier answers `error`, all others' as before. */
static bool refuse_membarrier(unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static fallow_stats read_stats(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    expect(fallow_pool_get_stats(bed.pool, &stats) == FALLOW_OK, "no statistics");
    return stats;
}

static bool begin(void)
{
    fallow_pool_config config;
    bed.live = flw_overlap_create();
    if (bed.live == NULL || !flw_sim_open(&bed.sim)) {
        return false;
    }
    bed.context = flw_sim_begin(&bed.sim, NULL);
    for (unsigned i = 0; i < OWNERS; i++) {
        if (bed.sim.cu.cuStreamCreate(&bed.streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            return false;
        }
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.log = hear;
    return fallow_pool_create(&config, &bed.pool) == FALLOW_OK;
}

/* Misses are read behind the allocations that they are of: a reader that is kept from going on between the two
 * counts too few hits, never too many. */
static fallow_stats read_most_hits(void)
{
    fallow_stats most = read_stats();
    for (int i = 0; i < 16; i++) {
        fallow_stats stats = read_stats();
        most = stats.hit_count > most.hit_count ? stats : most;
    }
    return most;
}

/* From the filter on. */
static void go_on_refused(unsigned error)
{
    fallow_stats before = read_stats();
    expect(before.hit_count > 0 && before.lost_membarrier == 0, "no hit before the filter");
    if (!refuse_membarrier(error)) {
        fprintf(stderr, "stress.refused: skipped: this kernel takes no seccomp filter\n");
        exit(SKIPPED);
    }
    drain(1);
    fallow_stats refused = read_most_hits();
    drain(DRAINS_AFTER);
    fallow_stats after = read_stats();
    expect(refused.uses_membarrier == 0 && refused.lost_membarrier == 1,
           "the statistics are silent");
    expect(atomic_load(&bed.lines) == 1, "the log has not one line of it");
    expect(after.hit_count <= refused.hit_count + READ_APART, "a call was a hit");
    expect(after.alloc_count > refused.alloc_count, "nobody has got on");
}

int main(int count, char **words)
{
    pthread_t owners[OWNERS];
    if (!begin()) {
        return 1;
    }
    if (read_stats().uses_membarrier == 0) {
        fprintf(stderr, "stress.refused: skipped: this kernel has no membarrier(2) to refuse\n");
        return SKIPPED;
    }
    for (uintptr_t i = 0; i < OWNERS; i++) {
        if (pthread_create(&owners[i], NULL, trade, (void *)i) != 0) {
            return 1;
        }
    }
    drain(DRAINS_BEFORE);
    go_on_refused(count > 1 && strcmp(words[1], "enomem") == 0 ? ENOMEM : EPERM);
    atomic_store(&bed.is_over, true);
    for (unsigned i = 0; i < OWNERS; i++) {
        pthread_join(owners[i], NULL);
    }
    fallow_stats end = read_stats();
    expect(end.live_count == 0 && end.requested_bytes == 0, "something is still allocated");
    expect(fallow_pool_validate(bed.pool) == FALLOW_OK, "the pool is broken");
    fallow_pool_destroy(bed.pool);
    printf("%llu trades, %u failures\n", (unsigned long long)atomic_load(&bed.trades),
           atomic_load(&bed.failures));
    flw_overlap_destroy(bed.live);
    return atomic_load(&bed.failures) == 0 ? 0 : 1;
}
