/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.refusals: a driver refuses one of the calls, from the n-th on for good, with each of six
 * errors that do not concern the device: every call that creates or releases memory in turn, for
 * every n. The pool must continue without the feature or return the error; blocks keep their
 * contents, cached memory is reused, a working device is never reported lost, and only memory that
 * could not be released remains at the end.
 *
 *   test_refusals [--call NAME] [--at N] [--every N]
 *
 * --every N tests every N-th position only, with another start for each error. FALLOW_TEST_ALL=1
 * tests all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fallow/fallow.h"
#include "support/sim.h"
#include "support/trim.h"

#define MIB         ((size_t)1 << 20)
#define BLOCKS      8
#define MOST_BROKEN 20
#define MOST_CALLS  400

static const char *const answers[] = {"NOT_PERMITTED",    "NOT_SUPPORTED", "INVALID_VALUE",
                                      "OPERATING_SYSTEM", "UNKNOWN",       "OUT_OF_MEMORY"};

static const struct {
    const char *name;
    bool takes_back; /* when refused, the driver keeps the memory to be released */
    fallow_page_source source;
} calls[] = {{"cuMemAddressReserve", false, FALLOW_PAGES_AUTOMATIC},
             {"cuMemCreate", false, FALLOW_PAGES_AUTOMATIC},
             {"cuMemMap", false, FALLOW_PAGES_AUTOMATIC},
             {"cuMemSetAccess", false, FALLOW_PAGES_AUTOMATIC},
             {"cuMemUnmap", true, FALLOW_PAGES_AUTOMATIC},
             {"cuMemRelease", true, FALLOW_PAGES_AUTOMATIC},
             {"cuMemAddressFree", true, FALLOW_PAGES_AUTOMATIC},
             {"cuMemAlloc_v2", false, FALLOW_PAGES_SEGMENTS},
             {"cuMemFree_v2", true, FALLOW_PAGES_SEGMENTS}};
#define CALLS (sizeof calls / sizeof *calls)

struct run {
    struct flw_sim sim;
    const char *profile;
    fallow_pool *pool;
    CUstream streams[2];
    unsigned char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    unsigned broken;
};

static void complain(struct run *run, const char *what, fallow_status status)
{
    fprintf(stderr, "%s: %s (%s)\n", run->profile, what, fallow_status_name(status));
    run->broken++;
}

static bool was_struck(const struct run *run, const char *call, uint64_t from)
{
    return run->sim.call_count(call) >= from;
}

/* Judge the status of a refused call: it must name the refusal, and never a lost device. */
static void judge(struct run *run, const char *what, fallow_status status)
{
    if (status != FALLOW_OK && status != FALLOW_DRIVER && status != FALLOW_NOT_SUPPORTED &&
        status != FALLOW_OUT_OF_MEMORY) {
        complain(run, what, status);
    }
}

static void allocate(struct run *run, unsigned i, size_t bytes)
{
    void *block = NULL;
    fallow_status status = fallow_alloc(run->pool, bytes, run->streams[i % 2], &block);
    judge(run, "alloc", status);
    if ((status == FALLOW_OK) != (block != NULL)) {
        complain(run, "alloc and its pointer do not agree", status);
    }
    run->blocks[i] = block;
    run->bytes[i] = bytes;
    if (block != NULL && run->sim.cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)block,
                                                   (unsigned char)(i + 1), bytes) != CUDA_SUCCESS) {
        complain(run, "a live block cannot be written", FALLOW_OK);
    }
}

static void free_block(struct run *run, unsigned i)
{
    static unsigned char copy[12 * MIB];
    unsigned char *block = run->blocks[i];
    if (block == NULL) {
        return;
    }
    run->blocks[i] = NULL;
    if (run->sim.cu.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)block, run->bytes[i]) !=
            CUDA_SUCCESS ||
        copy[0] != i + 1 || memcmp(copy, copy + 1, run->bytes[i] - 1) != 0) {
        complain(run, "a live block lost its contents", FALLOW_OK);
    }
    fallow_status status = fallow_free(run->pool, block, run->streams[i % 2]);
    if (status != FALLOW_OK) {
        complain(run, "a good free failed", status);
    }
}

/* Allocate again what was just freed, which no refusal may prevent. */
static void alloc_again(struct run *run, unsigned i)
{
    bool is_held = run->blocks[i] != NULL;
    free_block(run, i);
    allocate(run, i, run->bytes[i]);
    if (is_held && run->blocks[i] == NULL) {
        complain(run, "a block that lay idle was not allocated again", FALLOW_OK);
    }
}

static void live(struct run *run)
{
    allocate(run, 0, 4096);
    allocate(run, 1, 2 * MIB);
    allocate(run, 2, 8 * MIB);
    alloc_again(run, 2);
    allocate(run, 3, 5 * MIB);
    allocate(run, 4, 700);
    free_block(run, 2);
    judge(run, "trim", flw_test_trim(run->pool, 0));
    allocate(run, 5, 9 * MIB); /* more than the idle memory */
    allocate(run, 6, 3 * MIB);
    free_block(run, 5);
    allocate(run, 7, 12 * MIB);
    alloc_again(run, 0);
    alloc_again(run, 1);
    alloc_again(run, 3);
    for (unsigned i = 0; i < BLOCKS; i++) {
        free_block(run, i);
    }
    judge(run, "the last trim", flw_test_trim(run->pool, 0));
    fallow_status status = fallow_pool_validate(run->pool);
    if (status != FALLOW_OK) {
        complain(run, "an invariant is broken", status);
    }
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    struct run *run = context;
    if (level == FALLOW_LOG_ERROR && strstr(message, "lost") != NULL) {
        complain(run, message, FALLOW_OK);
    }
}

static void expect_nothing_left(struct run *run)
{
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    if (ledger.given_bytes != 0 || ledger.handle_count != 0 || ledger.mapping_count != 0 ||
        ledger.reserved_address_bytes != 0) {
        fprintf(stderr, "left: %llu bytes, %llu handles, %llu mappings, %llu addresses\n",
                (unsigned long long)ledger.given_bytes, (unsigned long long)ledger.handle_count,
                (unsigned long long)ledger.mapping_count,
                (unsigned long long)ledger.reserved_address_bytes);
        complain(run, "destroy left something behind", FALLOW_OK);
    }
}

/* Run one world. True if the refusal occurred. */
static bool play(struct run *run, size_t call, uint64_t from, bool has_no_room)
{
    flw_sim_config world = flw_sim_config_default(from);
    fallow_pool_config config;
    world.device_bytes = 64 * MIB;
    world.backed = 1;
    world.check = 1;
    world.mild = FLW_SIM_MILD_GARBAGE;
    flw_sim_begin(&run->sim, &world);
    for (unsigned i = 0; i < 2; i++) {
        if (run->sim.cu.cuStreamCreate(&run->streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            abort();
        }
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.log = log_line;
    config.log_context = run;
    config.page_source = calls[call].source;
    run->pool = NULL;
    fallow_status status = fallow_pool_create(&config, &run->pool);
    judge(run, "create", status);
    if (status == FALLOW_OK) {
        live(run);
        fallow_pool_destroy(run->pool);
    } else if (strcmp(calls[call].name, "cuMemAlloc_v2") != 0 && !has_no_room) {
        complain(run, "there is another source of memory, and no pool", status);
    }
    bool is_struck = was_struck(run, calls[call].name, from);
    if (!(is_struck && calls[call].takes_back)) {
        expect_nothing_left(run);
    }
    if (flw_sim_print_violations(&run->sim) != 0) {
        complain(run, "a rule of the device is broken", FALLOW_OK);
    }
    return is_struck;
}

static void play_all(struct run *run, size_t call, size_t a, uint64_t only_at, uint64_t step)
{
    uint64_t n = only_at != 0 ? only_at : 1, count = 0;
    const char *answer = answers[a];
    char profile[128];
    bool is_struck = true;
    run->profile = profile;
    while (is_struck && run->broken < MOST_BROKEN) {
        snprintf(profile, sizeof profile, "refusing:%s@%llu=%s", calls[call].name,
                 (unsigned long long)n, answer);
        if (run->sim.play(profile, NULL, 0) == 0 || n > MOST_CALLS) {
            complain(run, "no such profile, or no end of calls", FALLOW_OK);
        }
        bool has_no_room = strcmp(answer, "OUT_OF_MEMORY") == 0; /* and no other source has any */
        is_struck = play(run, call, n, has_no_room);
        count += is_struck;
        n += n == 1 ? 1 + a % step : step; /* the first call is taken with each answer */
        if (only_at != 0) {
            break;
        }
    }
    if (count == 0) {
        complain(run, "it was never called so often: nothing was tested", FALLOW_OK);
    }
    printf("%s, %s: refused from each of %llu calls on\n", calls[call].name, answer,
           (unsigned long long)count);
}

int main(int count, char **words)
{
    static struct run run;
    const char *only = NULL;
    uint64_t at = 0, step = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        only = strcmp(words[i], "--call") == 0 ? words[i + 1] : only;
        at = strcmp(words[i], "--at") == 0 ? strtoull(words[i + 1], NULL, 0) : at;
        step = strcmp(words[i], "--every") == 0 ? strtoull(words[i + 1], NULL, 0) : step;
    }
    step = flw_sim_step_of_sample(step);
    if (!flw_sim_open(&run.sim)) {
        return 1;
    }
    for (size_t call = 0; call < CALLS; call++) {
        for (size_t a = 0; a < sizeof answers / sizeof *answers && run.broken < MOST_BROKEN; a++) {
            if (only == NULL || strcmp(only, calls[call].name) == 0) {
                play_all(&run, call, a, at, step);
            }
        }
    }
    flw_sim_close(&run.sim);
    return run.broken != 0;
}
