/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.host: every driver call of a host pool fails, at every position, once or from there on,
 * with each of six errors of a refusing driver; and once with one that breaks the context, the
 * only one that may lose the pool. Each time every status must be one that the header allows, no
 * block may be allocated twice or too early, the pool must work again when the driver does, and
 * nothing may remain at the end.
 *
 *   test_host_faults [--error N --at N] [--every N]
 *
 * --every N tests every N-th position only; FALLOW_TEST_ALL=1 tests all. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fallow/host.h"
#include "support/sim.h"

#define MIB        ((size_t)1 << 20)
#define BLOCKS     64
#define MOST_CALLS 5000

struct run {
    struct flw_sim sim;
    fallow_pool *pool;
    fallow_host *host;
    CUstream streams[2];
    CUresult error;
    bool is_sticky, lasts, is_lost, has_fired;
    bool has_recovered; /* the driver serves again */
    uint64_t left;      /* calls of the host pool until one fails; 0 none */
    uint64_t call_count;
    unsigned broken;
    unsigned char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
};

static void complain(struct run *run, const char *what, fallow_status status)
{
    char text[256];
    fallow_host_last_error(run->host, text, sizeof text);
    fprintf(stderr, "error %d at %llu: %s: %s (%s)\n", (int)run->error,
            (unsigned long long)run->left, what, fallow_status_name(status), text);
    run->broken++;
}

/* ---- the planned failure, around each call of the pool and none of the test's */

static uint64_t calls_of(struct run *run)
{
    return flw_sim_read_ledger(&run->sim).call_count;
}

static void arm(struct run *run, uint64_t *before)
{
    *before = calls_of(run);
    int kind = run->lasts ? 2 : run->is_sticky;
    if (run->lasts && run->has_fired && !run->has_recovered) {
        run->sim.fail(NULL, 1, (int)run->error, kind);
    } else if (!run->has_fired && run->left > 0) {
        run->sim.fail(NULL, run->left, (int)run->error, kind);
    }
}

static void disarm(struct run *run, uint64_t before)
{
    uint64_t made = calls_of(run) - before;
    run->call_count += made;
    if (!run->has_fired && run->left > 0) {
        run->has_fired = made >= run->left;
        run->left -= run->has_fired ? 0 : made;
    }
    if (!run->has_fired || !run->is_sticky) {
        run->sim.fail(NULL, 0, 0, 0);
    }
}

static bool device_works(const struct run *run)
{
    return !run->has_fired || !run->is_sticky;
}

static void judge(struct run *run, const char *what, fallow_status status, bool is_refusable)
{
    run->is_lost |= status == FALLOW_DEVICE_LOST;
    bool is_fine = status == FALLOW_OK || (run->has_fired && is_refusable && !run->has_recovered);
    if (status == FALLOW_DEVICE_LOST && !run->is_sticky) {
        complain(run, "a device that is well was lost", status);
    }
    if (!is_fine || (run->has_fired && status == FALLOW_INVALID_POINTER)) {
        complain(run, what, status);
    }
    if (fallow_host_validate(run->host) != FALLOW_OK) {
        complain(run, "validate", FALLOW_DRIVER);
    }
}

/* ---- verbs */

static void allocate(struct run *run, unsigned index, size_t bytes)
{
    void *block = NULL;
    uint64_t before;
    arm(run, &before);
    fallow_status status = fallow_host_alloc(run->host, bytes, &block);
    disarm(run, before);
    judge(run, "alloc", status, true);
    if ((status == FALLOW_OK) != (block != NULL)) {
        complain(run, "alloc and its pointer do not agree", status);
    }
    run->blocks[index] = block;
    run->bytes[index] = bytes;
    if (block != NULL) {
        run->blocks[index][0] = run->blocks[index][bytes - 1] = (unsigned char)(index + 1);
    }
}

static void use(struct run *run, unsigned index, unsigned stream, bool is_write)
{
    flw_sim_range range = {
        .address = (uintptr_t)run->blocks[index], .bytes = run->bytes[index], .is_write = is_write};
    if (run->blocks[index] != NULL && device_works(run) &&
        run->sim.touch(run->streams[stream], &range, 1) != 0) {
        complain(run, "touch", FALLOW_DRIVER);
    }
}

static void free_block(struct run *run, unsigned index, unsigned stream)
{
    unsigned char *block = run->blocks[index];
    if (block == NULL) {
        return;
    }
    if (block[0] != index + 1 || block[run->bytes[index] - 1] != index + 1) {
        complain(run, "a block has another's bytes", FALLOW_OK);
    }
    uint64_t before;
    use(run, index, stream, index != 1);
    arm(run, &before);
    fallow_status status = fallow_host_free(run->host, block, run->streams[stream]);
    disarm(run, before);
    judge(run, "free", status, true);
    if (status != FALLOW_OK) { /* unchanged on failure */
        status = fallow_host_free(run->host, block, run->streams[stream]);
        judge(run, "free again", status, false);
    }
    run->blocks[index] = NULL;
}

static void verb(struct run *run, const char *what, fallow_status (*call)(struct run *run))
{
    uint64_t before;
    arm(run, &before);
    fallow_status status = call(run);
    disarm(run, before);
    judge(run, what, status, true);
}

static fallow_status poll_host(struct run *run)
{
    return fallow_host_poll(run->host);
}

static fallow_status trim_all(struct run *run)
{
    return fallow_host_trim(run->host, 0, UINT64_MAX, NULL);
}

static fallow_status trim_some(struct run *run)
{
    return fallow_host_trim(run->host, 4 * MIB, 0, NULL);
}

static fallow_status retire_first(struct run *run)
{
    return fallow_host_stream_retire(run->host, run->streams[0]);
}

static fallow_status announce(struct run *run)
{
    return run->blocks[1] != NULL
               ? fallow_host_record_use(run->host, run->blocks[1], run->streams[0])
               : FALLOW_OK;
}

/* ---- the scenario */

static void play(struct run *run)
{
    for (unsigned i = 0; i < 40; i++) {
        allocate(run, i, i % 4 == 0 ? (i + 1) * 30000 : (i + 1) * 100);
    }
    for (unsigned i = 0; i < 40; i += 2) {
        free_block(run, i, i / 2 % 2);
    }
    verb(run, "poll", poll_host);
    use(run, 1, 0, false);
    verb(run, "record_use", announce);
    free_block(run, 1, 1);
    allocate(run, 0, 9 * MIB);
    free_block(run, 0, 0);
    allocate(run, 2, 12 * MIB);
    allocate(run, 4, 14 * MIB); /* within the limit only when the first is freed, or is done */
    free_block(run, 2, 1);
    verb(run, "trim some", trim_some);
    allocate(run, 6, 11 * MIB);
    verb(run, "retire", retire_first);
    for (unsigned i = 0; i < 40; i++) {
        free_block(run, i, 1);
    }
    verb(run, "trim", trim_all);
    allocate(run, 3, 300);
    free_block(run, 3, 0);
    verb(run, "poll", poll_host); /* a free does not report a lost device */
}

/* Check that the pool allocates again after refusals, and free everything. */
static void check_service(struct run *run)
{
    fallow_host_stats stats;
    run->has_recovered = true;
    /* With `lasts` waits end after 1 ms: too short for earlier copies on a loaded machine. */
    if (run->lasts && run->sim.cu.cuCtxSynchronize() != CUDA_SUCCESS) {
        complain(run, "synchronise after it", FALLOW_DRIVER);
    }
    verb(run, "poll after it", poll_host);
    allocate(run, 5, 9 * MIB);
    if (run->blocks[5] == NULL) {
        complain(run, "the driver serves again, and the pool does not", FALLOW_OK);
    }
    free_block(run, 5, 0);
    verb(run, "trim after it", trim_all);
    fallow_host_stats_init(&stats);
    if (fallow_host_get_stats(run->host, &stats) != FALLOW_OK || stats.reserved_bytes != 0 ||
        stats.deferred_bytes != 0) {
        complain(run, "memory stays that nobody uses", FALLOW_OK);
    }
}

static void begin(struct run *run, CUresult error, bool is_sticky, uint64_t at)
{
    flw_sim_config world = flw_sim_config_default(at);
    world.schedule = FLW_SIM_RANDOM;
    world.check = 1;
    struct flw_sim sim = run->sim;
    *run = (struct run){.sim = sim, .error = error, .is_sticky = is_sticky, .left = at};
    flw_sim_begin(&run->sim, &world);
    for (unsigned i = 0; i < 2; i++) {
        if (run->sim.cu.cuStreamCreate(&run->streams[i], CU_STREAM_NON_BLOCKING) != 0) {
            abort();
        }
    }
    fallow_pool_config device = {.struct_size = sizeof device, .driver = "sim"};
    if (fallow_pool_create(&device, &run->pool) != FALLOW_OK) {
        abort();
    }
}

struct kind {
    CUresult error;
    bool is_sticky;
    bool lasts; /* and every later call of the pool's */
};

/* True if the failure was reached. */
static bool one_run(struct run *run, const struct kind *kind, uint64_t at,
                    fallow_host_placement placement)
{
    fallow_host_config config = {.struct_size = sizeof config,
                                 .limit_bytes = 32 * MIB,
                                 .wait_ms = kind->lasts ? 1 : 10000,
                                 .placement = placement}; /* a node: number 0 */
    uint64_t before;
    begin(run, kind->error, kind->is_sticky, at);
    run->lasts = kind->lasts;
    arm(run, &before);
    fallow_status status = fallow_host_create(run->pool, &config, &run->host);
    disarm(run, before);
    if (status == FALLOW_OK) {
        play(run);
        if (run->has_fired && !run->is_sticky) {
            check_service(run);
        }
    } else if (!run->has_fired || run->host != NULL) {
        complain(run, "create", status);
    }
    bool had_fired = run->has_fired;
    arm(run, &before);
    fallow_host_destroy(run->host);
    disarm(run, before);
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    bool may_leave = run->is_sticky || (run->lasts && had_fired != run->has_fired);
    if (!may_leave && (ledger.pinned_bytes != 0 || ledger.event_count != 0)) {
        fprintf(stderr, "%llu bytes and %llu events are left\n",
                (unsigned long long)ledger.pinned_bytes, (unsigned long long)ledger.event_count);
        complain(run, "destroy", FALLOW_OK);
    }
    if (flw_sim_print_violations(&run->sim) != 0) {
        complain(run, "a block was allocated too early", FALLOW_OK);
    }
    fallow_pool_destroy(run->pool);
    return run->has_fired;
}

/* Containers often forbid binding. */
static bool can_place(struct run *run, fallow_host_placement placement)
{
    fallow_host_config config = {.struct_size = sizeof config, .placement = placement};
    begin(run, CUDA_SUCCESS, false, 0);
    bool can = fallow_host_create(run->pool, &config, &run->host) == FALLOW_OK;
    fallow_host_destroy(run->host);
    fallow_pool_destroy(run->pool);
    if (!can) {
        printf("this machine does not let a process bind memory: left out\n");
    }
    return can;
}

int main(int argc, char **argv)
{
    static const struct kind errors[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, false, false},    {CUDA_ERROR_OUT_OF_MEMORY, false, true},
        {CUDA_ERROR_NOT_PERMITTED, false, false},    {CUDA_ERROR_NOT_PERMITTED, false, true},
        {CUDA_ERROR_NOT_SUPPORTED, false, false},    {CUDA_ERROR_NOT_SUPPORTED, false, true},
        {CUDA_ERROR_INVALID_VALUE, false, false},    {CUDA_ERROR_INVALID_VALUE, false, true},
        {CUDA_ERROR_OPERATING_SYSTEM, false, false}, {CUDA_ERROR_OPERATING_SYSTEM, false, true},
        {CUDA_ERROR_UNKNOWN, false, false},          {CUDA_ERROR_UNKNOWN, false, true},
        {CUDA_ERROR_ILLEGAL_ADDRESS, true, false}};
    static struct run run;
    unsigned broken = 0;
    uint64_t total = 0;
    if (!flw_sim_open(&run.sim)) {
        return 1;
    }
    bool is_one = argc == 5 && strcmp(argv[1], "--error") == 0 && strcmp(argv[3], "--at") == 0;
    bool is_sample = argc == 3 && strcmp(argv[1], "--every") == 0;
    uint64_t step = flw_sim_step_of_sample(is_sample ? strtoull(argv[2], NULL, 0) : 1);
    if (argc != 1 && !is_one && !is_sample) {
        fprintf(stderr, "usage: test_host_faults [--error 0..25 --at N] [--every N]\n");
        return 2;
    }
    unsigned count = sizeof errors / sizeof *errors;
    for (unsigned e = 0; e < 2 * count; e++) { /* then again with memory bound to a node */
        fallow_host_placement placement = e < count ? FALLOW_HOST_ANYWHERE : FALLOW_HOST_ON_NODE;
        if ((is_one && strtoul(argv[2], NULL, 0) != e) || !can_place(&run, placement)) {
            continue;
        }
        uint64_t at = is_one ? strtoull(argv[4], NULL, 0) : 1 + e % step, runs = 0;
        bool was_reached = true;
        for (; was_reached && at < MOST_CALLS; at += step, runs++) {
            was_reached = one_run(&run, &errors[e % count], at, placement);
            if (run.broken > 0) {
                fprintf(stderr, "  repeat with --error %u --at %llu\n", e, (unsigned long long)at);
            }
            broken += run.broken;
            if (is_one || broken > 20) {
                break;
            }
        }
        if (!is_one && broken <= 20 && (runs < 100 / step || at >= MOST_CALLS)) {
            fprintf(stderr, "error %u: the failure was reached %llu times\n", e,
                    (unsigned long long)runs);
            return 1;
        }
        total += runs;
    }
    printf("%llu runs, %u broken answers\n", (unsigned long long)total, broken);
    return broken > 0;
}
