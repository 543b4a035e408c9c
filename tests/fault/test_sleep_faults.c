/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: failures of every driver call of a sleep and of a wake, at every position, once or from
 * there on, with each of six errors of a refusing driver; once with refused undoing as well; once
 * with an error that breaks the context, the only one that may lose the pool, reported by name.
 * Afterwards the pool is awake with all contents, or asleep with the saved ones (all, if the
 * driver released nothing), and never in between. The same for exports, imports and peers, after
 * which nothing may remain. On a device without virtual memory management a sleep and an export
 * are refused without any change.
 *
 *   test_sleep_faults [--at N] [--every N]
 *
 * --every N tests every N-th position only, with another start for each error. FALLOW_TEST_ALL=1
 * tests all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fallow/fallow.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "support/sim.h"

#define MIB        ((size_t)1 << 20)
#define BLOCKS     6
#define SAVED_TAG  7u
#define MOST_CALLS 2000

static const struct {
    CUresult error;
    bool sticky;
    bool lasts;       /* and every later call of the pool's */
    const char *also; /* this entry fails too, from then on the first time */
} errors[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, false, false, NULL},
    {CUDA_ERROR_OUT_OF_MEMORY, false, true, NULL},
    {CUDA_ERROR_NOT_PERMITTED, false, false, NULL},
    {CUDA_ERROR_NOT_PERMITTED, false, true, NULL},
    {CUDA_ERROR_NOT_SUPPORTED, false, false, NULL},
    {CUDA_ERROR_NOT_SUPPORTED, false, true, NULL},
    {CUDA_ERROR_INVALID_VALUE, false, false, NULL},
    {CUDA_ERROR_INVALID_VALUE, false, true, NULL},
    {CUDA_ERROR_OPERATING_SYSTEM, false, false, NULL},
    {CUDA_ERROR_OPERATING_SYSTEM, false, true, NULL},
    {CUDA_ERROR_UNKNOWN, false, false, NULL},
    {CUDA_ERROR_UNKNOWN, false, true, NULL},
    {CUDA_ERROR_ILLEGAL_ADDRESS, true, false, NULL},
    {CUDA_ERROR_UNKNOWN, false, false, "cuMemMap"},
    {CUDA_ERROR_UNKNOWN, false, false, "cuMemUnmap"},
    {CUDA_ERROR_UNKNOWN, false, false, "cuMemSetAccess"},
};
#define ERRORS (sizeof errors / sizeof *errors)

static const struct {
    size_t bytes;
    uint32_t tag;
} blocks[BLOCKS] = {{5000, SAVED_TAG}, {1200000, SAVED_TAG}, {700, 0},
                    {2500000, 0},      {100000, 9},          {1100000, SAVED_TAG}};

struct bed {
    struct flw_sim *sim;
    fallow_pool *pool;
    CUstream stream;
    bool has_handles; /* virtual memory management */
    void *ptrs[BLOCKS];
    char log[512]; /* the last log line that reports a lost device */
    unsigned error;
    uint64_t fail_at;
    const char *step;
    unsigned broken;
    unsigned answers[3]; /* awake again, asleep, lost */
    void *import;        /* that could not be ended */
};

static void complain(struct bed *bed, const char *sentence, fallow_status status)
{
    bed->broken++;
    fprintf(stderr, "fault.sleep: %s, driver call %llu answers %s%s%s: %s (%s)\n", bed->step,
            (unsigned long long)bed->fail_at,
            flw_driver_error_name(&bed->sim->cu, errors[bed->error].error),
            errors[bed->error].also != NULL ? " and then fails "
            : errors[bed->error].lasts      ? ", and every later one"
                                            : "",
            errors[bed->error].also != NULL ? errors[bed->error].also : "", sentence,
            fallow_status_name(status));
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    struct bed *bed = context;
    if (level == FALLOW_LOG_ERROR && strstr(message, "the device is lost") != NULL) {
        snprintf(bed->log, sizeof bed->log, "%s", message);
    }
}

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "fault.sleep: the test's own driver call answered %d\n", (int)result);
        abort();
    }
}

static void begin(struct bed *bed)
{
    flw_sim_config world = flw_sim_config_default(bed->fail_at);
    world.device_bytes = 64 * MIB;
    world.device_count = 2;
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.mild = FLW_SIM_MILD_GARBAGE; /* zeros show a loss as well, and cost nothing */
    bed->pool = NULL;
    bed->import = NULL;
    bed->log[0] = '\0';
    flw_sim_begin(bed->sim, &world);
    must(bed->sim->cu.cuStreamCreate(&bed->stream, CU_STREAM_NON_BLOCKING));
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.log = log_line;
    config.handle_types = bed->has_handles ? FALLOW_HANDLE_FD : 0u;
    config.log_context = bed;
    if (fallow_pool_create(&config, &bed->pool) != FALLOW_OK) {
        abort();
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        fallow_request request;
        fallow_request_init(&request);
        request.size_bytes = blocks[i].bytes;
        request.tag = blocks[i].tag;
        request.flags = i == 1 ? FALLOW_REQUEST_DEDICATED : 0u;
        if (fallow_alloc_request(bed->pool, &request, bed->stream, &bed->ptrs[i]) != FALLOW_OK) {
            abort();
        }
        must(bed->sim->cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)bed->ptrs[i],
                                        (unsigned char)(0x10 + i), blocks[i].bytes));
    }
    void *idle = NULL; /* and something that is not allocated */
    if (fallow_alloc(bed->pool, 2 * MIB, bed->stream, &idle) != FALLOW_OK ||
        fallow_free(bed->pool, idle, bed->stream) != FALLOW_OK) {
        abort();
    }
    must(bed->sim->cu.cuCtxSynchronize());
}

static bool holds(struct bed *bed, unsigned i)
{
    static unsigned char copy[8 * MIB];
    must(bed->sim->cu.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)bed->ptrs[i], blocks[i].bytes));
    for (size_t b = 0; b < blocks[i].bytes; b++) {
        if (copy[b] != 0x10 + i) {
            return false;
        }
    }
    return true;
}

static fallow_stats stats_of(struct bed *bed)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(bed->pool, &stats) != FALLOW_OK) {
        complain(bed, "statistics are refused", FALLOW_OK);
    }
    return stats;
}

static void arm(struct bed *bed)
{
    bed->sim->fail(NULL, bed->fail_at, errors[bed->error].error,
                   errors[bed->error].lasts ? 2 : errors[bed->error].sticky);
}

/* Remove the planned failure. True if it occurred. */
static bool disarm(struct bed *bed, uint64_t before)
{
    bed->sim->fail(NULL, 0, 0, 0);
    return flw_sim_read_ledger(bed->sim).call_count - before >= bed->fail_at;
}

/* Check an awake pool: the contents, `all` or the saved ones, and that it allocates. */
static void check_awake(struct bed *bed, bool all)
{
    void *ptr = NULL;
    bed->answers[0]++;
    if (fallow_pool_poll(bed->pool) != FALLOW_OK) { /* releases the rest, if any */
        complain(bed, "a poll fails", FALLOW_DRIVER);
    }
    fallow_stats stats = stats_of(bed);
    flw_sim_ledger ledger = flw_sim_read_ledger(bed->sim);
    if (stats.is_asleep || stats.reserved_bytes != ledger.given_bytes || stats.asleep_bytes != 0) {
        complain(bed, "awake, and the statistics say something else", FALLOW_OK);
    }
    if (stats.saved_bytes != 0) {
        complain(bed, "copies are kept of what is awake", FALLOW_OK);
    }
    fallow_status status = fallow_pool_validate(bed->pool);
    if (status != FALLOW_OK) {
        complain(bed, "an invariant is broken", status);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if ((all || blocks[i].tag == SAVED_TAG) && !holds(bed, i)) {
            complain(bed, "contents were lost", FALLOW_OK);
        }
    }
    status = fallow_alloc(bed->pool, 5 * MIB, bed->stream, &ptr);
    if (status != FALLOW_OK || fallow_free(bed->pool, ptr, bed->stream) != FALLOW_OK) {
        complain(bed, "awake, and it does not allocate", status);
    }
}

static void check_asleep(struct bed *bed)
{
    fallow_stats stats = stats_of(bed);
    flw_sim_ledger ledger = flw_sim_read_ledger(bed->sim);
    void *ptr = NULL;
    bed->answers[1]++;
    bool may_stay_mapped = errors[bed->error].lasts || errors[bed->error].also != NULL;
    if (!stats.is_asleep || stats.reserved_bytes != ledger.given_bytes ||
        (ledger.mapping_count != 0 && !may_stay_mapped)) {
        complain(bed, "asleep, and the statistics say something else", FALLOW_OK);
    }
    fallow_status status = fallow_pool_validate(bed->pool);
    if (status != FALLOW_OK) {
        complain(bed, "an invariant is broken", status);
    }
    status = fallow_alloc(bed->pool, 100, bed->stream, &ptr);
    if (status != FALLOW_ASLEEP || ptr != NULL) {
        complain(bed, "asleep, and it allocates", status);
    }
}

static void check_lost(struct bed *bed)
{
    void *ptr = NULL;
    bed->answers[2]++;
    if (bed->log[0] == '\0' || strstr(bed->log, "cu") == NULL) {
        complain(bed, "lost, and the log does not name the call", FALLOW_OK);
    }
    fallow_status status = fallow_alloc(bed->pool, 100, bed->stream, &ptr);
    if (status != FALLOW_DEVICE_LOST) {
        complain(bed, "lost, and it allocates", status);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        status = fallow_free(bed->pool, bed->ptrs[i], bed->stream);
        if (status != FALLOW_OK) {
            complain(bed, "a free of a lost pool is refused", status);
        }
    }
}

static bool is_documented(const struct bed *bed, fallow_status status, bool of_wake)
{
    bool is_oom = errors[bed->error].error == CUDA_ERROR_OUT_OF_MEMORY;
    bool is_twice = errors[bed->error].lasts || errors[bed->error].also != NULL;
    return status == FALLOW_OK || status == FALLOW_DRIVER ||
           (status == FALLOW_DEVICE_LOST && errors[bed->error].sticky) ||
           (status == FALLOW_ASLEEP && is_twice && !of_wake) ||
           (is_oom && status == (of_wake ? FALLOW_OUT_OF_MEMORY : FALLOW_OUT_OF_HOST_MEMORY));
}

static void end(struct bed *bed, bool is_lost)
{
    fallow_pool_destroy(bed->pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(bed->sim);
    if (!is_lost && !errors[bed->error].sticky &&
        (ledger.given_bytes != 0 || ledger.mapping_count != 0 || ledger.event_count != 0 ||
         ledger.handle_count != 0 || ledger.reserved_address_bytes != 0)) {
        complain(bed, "destroy left something behind", FALLOW_OK);
    }
    if (flw_sim_print_violations(bed->sim) != 0) {
        complain(bed, "a rule of the device is broken", FALLOW_OK);
    }
}

static fallow_status put_to_sleep(struct bed *bed)
{
    static const uint32_t tag = SAVED_TAG;
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    request.saved_tags = &tag;
    request.saved_tag_count = 1;
    return fallow_pool_sleep(bed->pool, &request);
}

/* Plan a second failure for the first call that undoing needs: for a sleep, the first such call
 * after the planned failure. */
static fallow_status call(struct bed *bed, fallow_status (*function)(struct bed *bed),
                          bool *out_fired)
{
    uint64_t before = flw_sim_read_ledger(bed->sim).call_count;
    arm(bed);
    if (errors[bed->error].also != NULL) {
        bed->sim->fail(errors[bed->error].also, 1, CUDA_ERROR_UNKNOWN, 0);
    }
    fallow_status status = function(bed);
    *out_fired = disarm(bed, before);
    return status;
}

static bool sweep_sleep(struct bed *bed)
{
    bool has_fired;
    begin(bed);
    bed->step = "sleep";
    fallow_status status = call(bed, put_to_sleep, &has_fired);
    bool is_lost = status == FALLOW_DEVICE_LOST;
    bool works = !errors[bed->error].sticky || !has_fired;
    if (!is_documented(bed, status, false)) {
        complain(bed, "an answer that is not documented for it", status);
    }
    if (is_lost) {
        check_lost(bed);
    } else if (status == FALLOW_ASLEEP &&
               works) { /* the way back was refused: nothing was given up */
        check_asleep(bed);
        bed->step = "wake after a sleep that kept all";
        if ((status = fallow_pool_wake(bed->pool)) != FALLOW_OK) {
            complain(bed, "the wake fails", status);
        }
        status = FALLOW_DRIVER;
    }
    if (!is_lost && status != FALLOW_OK && works) {
        check_awake(bed, true);
        bed->step = "sleep after a failure";
        if ((status = put_to_sleep(bed)) != FALLOW_OK) {
            complain(bed, "the next sleep fails too", status);
        }
    }
    if (status == FALLOW_OK && works) {
        check_asleep(bed);
        bed->step = "wake";
        if ((status = fallow_pool_wake(bed->pool)) != FALLOW_OK) {
            complain(bed, "the wake fails", status);
        }
        check_awake(bed, false);
    }
    end(bed, is_lost);
    return has_fired;
}

static fallow_status wake(struct bed *bed)
{
    return fallow_pool_wake(bed->pool);
}

static bool sweep_wake(struct bed *bed)
{
    bool has_fired;
    begin(bed);
    bed->step = "sleep";
    fallow_status status = put_to_sleep(bed);
    if (status != FALLOW_OK) {
        complain(bed, "the sleep fails", status);
    }
    bed->step = "wake";
    status = call(bed, wake, &has_fired);
    bool is_lost = status == FALLOW_DEVICE_LOST;
    bool works = !errors[bed->error].sticky || !has_fired;
    if (!is_documented(bed, status, true)) {
        complain(bed, "an answer that is not documented for it", status);
    }
    if (is_lost) {
        check_lost(bed);
    } else if (status != FALLOW_OK && works) {
        check_asleep(bed);
        bed->step = "wake after a failure";
        if ((status = fallow_pool_wake(bed->pool)) != FALLOW_OK) {
            complain(bed, "the next wake fails too", status);
        }
    }
    if (status == FALLOW_OK && works) {
        check_awake(bed, false);
    }
    end(bed, is_lost);
    return has_fired;
}

static fallow_status first_of(fallow_status status, fallow_status next)
{
    return status == FALLOW_OK || next == FALLOW_DEVICE_LOST ? next : status;
}

/* Export and import a block, allow and deny a peer; return the first status that is not OK. */
static fallow_status share(struct bed *bed)
{
    fallow_request request;
    fallow_share share;
    void *ptr = NULL, *seen = NULL;
    fallow_request_init(&request);
    fallow_share_init(&share);
    request.size_bytes = 5000;
    request.flags = FALLOW_REQUEST_EXPORT_FD;
    fallow_status status = fallow_alloc_request(bed->pool, &request, bed->stream, &ptr), ended;
    if (status == FALLOW_OK) {
        status = fallow_export(bed->pool, ptr, FALLOW_HANDLE_FD, &share);
        if (status == FALLOW_OK) {
            status = fallow_import(bed->pool, &share, &seen);
            close(share.descriptor);
        }
    }
    ended = fallow_pool_allow_peer(bed->pool, 1);
    status = first_of(status, ended);
    ended = fallow_pool_deny_peer(bed->pool, 1);
    status = first_of(status, ended);
    ended = fallow_unimport(bed->pool, seen);
    status = first_of(status, ended);
    bed->import = ended == FALLOW_OK ? NULL : seen;
    ended = fallow_free(bed->pool, ptr, bed->stream);
    if (ended != FALLOW_OK) {
        complain(bed, "a good free is refused", ended);
    }
    ended = fallow_pool_poll(bed->pool);
    return first_of(status, ended);
}

static bool sweep_share(struct bed *bed)
{
    bool has_fired;
    begin(bed);
    bed->step = "share";
    fallow_status status = call(bed, share, &has_fired);
    bool is_oom = errors[bed->error].error == CUDA_ERROR_OUT_OF_MEMORY;
    bool works = !errors[bed->error].sticky || !has_fired;
    bool is_lost = status == FALLOW_DEVICE_LOST;
    if (status != FALLOW_OK && status != FALLOW_DRIVER && status != FALLOW_NOT_SUPPORTED &&
        !(is_lost && errors[bed->error].sticky) && !(is_oom && status == FALLOW_OUT_OF_MEMORY)) {
        complain(bed, "an answer that is not documented for it", status);
    }
    if (is_lost) {
        check_lost(bed);
    } else if (works) {
        bed->step = "the same again";
        if (bed->import != NULL &&
            (status = fallow_unimport(bed->pool, bed->import)) != FALLOW_OK) {
            complain(bed, "an import cannot be ended", status);
        }
        if ((status = fallow_pool_allow_peer(bed->pool, 1)) != FALLOW_OK ||
            (status = fallow_pool_deny_peer(bed->pool, 1)) != FALLOW_OK) {
            complain(bed, "peers cannot be changed afterwards", status);
        }
        for (int i = 0; i < 2; i++) { /* record the missing events, then the work they cover */
            bed->step = "poll";
            if ((status = fallow_pool_poll(bed->pool)) != FALLOW_OK) {
                complain(bed, "a poll fails afterwards", status);
            }
            must(bed->sim->cu.cuCtxSynchronize());
        }
        status = fallow_pool_poll(bed->pool);
        fallow_stats stats = stats_of(bed);
        if (stats.exported_bytes != 0 || stats.imported_bytes != 0) {
            complain(bed, "something stays exported or imported", FALLOW_OK);
        }
        check_awake(bed, true);
    }
    end(bed, is_lost);
    return has_fired;
}

static void sweep(struct bed *bed, const char *name, bool (*once)(struct bed *bed), uint64_t only,
                  uint64_t step)
{
    for (bed->error = 0; bed->error < ERRORS && bed->broken < 20; bed->error++) {
        memset(bed->answers, 0, sizeof bed->answers);
        uint64_t count = 0;
        bed->fail_at = only != 0 ? only : 1 + bed->error % step;
        while (once(bed) && only == 0 && bed->fail_at < MOST_CALLS && bed->broken < 20) {
            bed->fail_at += step;
            count++;
        }
        if (only == 0 && bed->fail_at < 10) {
            fprintf(stderr, "fault.sleep: %s made %llu driver calls only: nothing was tested\n",
                    name, (unsigned long long)bed->fail_at);
            bed->broken++;
        }
        printf("%s, %s%s%s: %llu driver calls failed in turn; then awake %u, asleep %u, lost %u "
               "times\n",
               name, flw_driver_error_name(&bed->sim->cu, errors[bed->error].error),
               errors[bed->error].also != NULL ? " and "
               : errors[bed->error].lasts      ? " from there on"
                                               : "",
               errors[bed->error].also != NULL ? errors[bed->error].also : "",
               (unsigned long long)count, bed->answers[0], bed->answers[1], bed->answers[2]);
    }
}

/* Whatever call would fail: none is made. */
static void be_refused(struct bed *bed)
{
    bed->step = "without handles";
    bed->fail_at = 1;
    for (bed->error = 0; bed->error < ERRORS; bed->error++) {
        begin(bed);
        bool has_fired;
        fallow_share share;
        fallow_share_init(&share);
        fallow_status status = call(bed, put_to_sleep, &has_fired);
        if (status != FALLOW_NOT_SUPPORTED || has_fired) {
            complain(bed, "a sleep is not refused at once", status);
        }
        status = fallow_export(bed->pool, bed->ptrs[1], FALLOW_HANDLE_FD, &share);
        if (status != FALLOW_NOT_SUPPORTED) {
            complain(bed, "an export is not refused", status);
        }
        check_awake(bed, true);
        end(bed, false);
    }
    printf("without handles: refused %u times\n", bed->answers[0]);
}

static bool has_handles(const struct flw_sim *sim)
{
    int value = 0;
    flw_sim_begin(sim, NULL);
    must(sim->cu.cuDeviceGetAttribute(&value,
                                      CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    return value != 0;
}

int main(int count, char **words)
{
    struct flw_sim sim;
    struct bed bed = {.sim = &sim};
    uint64_t only = count == 3 && strcmp(words[1], "--at") == 0 ? strtoull(words[2], NULL, 0) : 0;
    uint64_t step =
        count == 3 && strcmp(words[1], "--every") == 0 ? strtoull(words[2], NULL, 0) : 1;
    step = flw_sim_step_of_sample(step);
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    bed.has_handles = has_handles(&sim);
    if (bed.has_handles) {
        sweep(&bed, "sleep", sweep_sleep, only, step);
        sweep(&bed, "wake", sweep_wake, only, step);
        sweep(&bed, "share", sweep_share, only, step);
    } else {
        be_refused(&bed);
    }
    flw_sim_close(&sim);
    return bed.broken != 0;
}
