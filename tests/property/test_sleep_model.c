/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random programs that put a pool to sleep, compared with a list of their blocks: statuses,
 * addresses, contents by tag, the device's ledger, the pool's own invariants, under the rule
 * checker.
 *
 *   test_sleep_model [--seed N] [--rounds N] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "fallow/fallow.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "support/sim.h"
#include "support/trim.h"

#define MIB     ((size_t)1 << 20)
#define STREAMS 3
#define MOST    60
#define TAGS    4 /* 0: none */
#define STEPS   300

struct block {
    unsigned char *ptr;
    size_t bytes;
    uint32_t tag;
    unsigned stream;
    unsigned char value; /* value of the first and last byte; 0: unknown */
    bool is_exported;
};

struct program {
    struct flw_sim *sim;
    fallow_pool *pool;
    CUstream streams[STREAMS];
    struct block blocks[MOST];
    unsigned count, broken, step;
    bool is_asleep;
    uint64_t seed, state;
    unsigned sleeps, busy, fails;
};

static uint64_t draw(struct program *p, uint64_t below)
{
    return flw_random_next(&p->state) % below;
}

static void expect(struct program *p, bool holds, const char *sentence, fallow_status status)
{
    if (!holds) {
        fprintf(stderr, "sleep_model: seed %llu, step %u: %s (%s)\n", (unsigned long long)p->seed,
                p->step, sentence, fallow_status_name(status));
        p->broken++;
    }
}

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "sleep_model: the test's own driver call answered %d\n", (int)result);
        abort();
    }
}

static CUdeviceptr at(const struct block *block, bool is_last)
{
    return (CUdeviceptr)(uintptr_t)block->ptr + (is_last ? block->bytes - 1 : 0);
}

/* Write the whole block, so that a save reads nothing unwritten; on the stream. */
static void write_block(struct program *p, struct block *block)
{
    block->value = (unsigned char)(1 + draw(p, 255));
    must(p->sim->cu.cuMemsetD8Async(at(block, false), block->value, block->bytes,
                                    p->streams[block->stream]));
}

static void check_contents(struct program *p, const struct block *block)
{
    unsigned char first = 0, last = 0;
    if (block->value == 0) {
        return;
    }
    must(p->sim->cu.cuStreamSynchronize(p->streams[block->stream]));
    must(p->sim->cu.cuMemcpyDtoH_v2(&first, at(block, false), 1));
    must(p->sim->cu.cuMemcpyDtoH_v2(&last, at(block, true), 1));
    expect(p, first == block->value && last == block->value, "a block lost its contents",
           FALLOW_OK);
}

static void step_alloc(struct program *p)
{
    static const size_t sizes[] = {300, 5000, 70000, 400000, MIB + 1, 2 * MIB, 5 * MIB};
    fallow_request request;
    void *ptr = p;
    if (p->count == MOST) {
        return;
    }
    struct block *block = &p->blocks[p->count];
    *block = (struct block){.bytes = sizes[draw(p, sizeof sizes / sizeof *sizes)],
                            .tag = (uint32_t)draw(p, TAGS),
                            .stream = (unsigned)draw(p, STREAMS)};
    bool is_shared = draw(p, 12) == 0;
    fallow_request_init(&request);
    request.size_bytes = block->bytes;
    request.tag = block->tag;
    request.flags = is_shared ? FALLOW_REQUEST_EXPORT_FD : 0u;
    CUstream stream = p->streams[block->stream];
    fallow_status status = block->tag == 0 && !is_shared
                               ? fallow_alloc(p->pool, block->bytes, stream, &ptr)
                               : fallow_alloc_request(p->pool, &request, stream, &ptr);
    if (p->is_asleep) {
        expect(p, status == FALLOW_ASLEEP && ptr == NULL, "a sleeping pool allocates", status);
        return;
    }
    if (status == FALLOW_OUT_OF_MEMORY) {
        p->fails++;
        return;
    }
    expect(p, status == FALLOW_OK && ptr != NULL, "an allocation is refused", status);
    if (status != FALLOW_OK) {
        return;
    }
    block->ptr = ptr;
    if (is_shared && draw(p, 2) == 0) {
        fallow_share share;
        fallow_share_init(&share);
        status = fallow_export(p->pool, ptr, FALLOW_HANDLE_FD, &share);
        expect(p, status == FALLOW_OK, "an export is refused", status);
        close(share.descriptor);
        block->is_exported = true;
    }
    write_block(p, block);
    p->count++;
}

static void step_free(struct program *p)
{
    if (p->count == 0) {
        return;
    }
    unsigned i = (unsigned)draw(p, p->count);
    struct block gone = p->blocks[i];
    bool is_used = !p->is_asleep && draw(p, 4) == 0;
    unsigned other = (unsigned)draw(p, STREAMS);
    if (is_used) {
        CUstream stream = p->streams[other];
        must(p->sim->cu.cuStreamSynchronize(p->streams[gone.stream]));
        must(p->sim->cu.cuMemsetD8Async(at(&gone, false), 1, gone.bytes, stream));
        fallow_status used = fallow_record_use(p->pool, gone.ptr, stream);
        expect(p, used == FALLOW_OK, "an announced use is refused", used);
    }
    fallow_status status = fallow_free(p->pool, gone.ptr, p->streams[gone.stream]);
    expect(p, status == FALLOW_OK, "a free is refused", status);
    if (draw(p, 8) == 0) {
        status = fallow_free(p->pool, gone.ptr, p->streams[gone.stream]);
        expect(p, status == FALLOW_INVALID_POINTER, "a double free is accepted", status);
    }
    p->blocks[i] = p->blocks[--p->count];
}

static void check_books(struct program *p)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    fallow_status status = fallow_pool_get_stats(p->pool, &stats);
    uint64_t given = flw_sim_read_ledger(p->sim).given_bytes, requested = 0, kept = 0;
    for (unsigned i = 0; i < p->count; i++) {
        requested += p->blocks[i].bytes;
        kept += p->blocks[i].is_exported;
    }
    expect(p, status == FALLOW_OK && stats.requested_bytes == requested,
           "requested bytes are wrong", status);
    expect(p, stats.reserved_bytes == given, "reserved is not what the driver has given",
           FALLOW_OK);
    expect(p, stats.is_asleep == p->is_asleep, "asleep or awake?", FALLOW_OK);
    expect(p, !p->is_asleep || stats.reserved_bytes == stats.exported_bytes,
           "a sleeping pool holds more than what is exported", FALLOW_OK);
    expect(p, (stats.exported_bytes != 0) >= (kept != 0), "exported bytes are wrong", FALLOW_OK);
    status = fallow_pool_validate(p->pool);
    expect(p, status == FALLOW_OK, "an invariant is broken", status);
}

/* What is not saved, and not shared, holds nothing known afterwards. */
static void note_dropped(struct program *p, const fallow_sleep_request *request)
{
    for (unsigned i = 0; i < p->count; i++) {
        bool is_kept = p->blocks[i].is_exported || (request->flags & FALLOW_SLEEP_SAVE_ALL) != 0;
        for (size_t t = 0; t < request->saved_tag_count; t++) {
            is_kept |= request->saved_tags[t] == p->blocks[i].tag;
        }
        p->blocks[i].value = is_kept ? p->blocks[i].value : 0;
    }
}

static void rewrite_dropped(struct program *p)
{
    for (unsigned i = 0; i < p->count; i++) {
        check_contents(p, &p->blocks[i]);
        if (p->blocks[i].value == 0) {
            write_block(p, &p->blocks[i]);
        }
    }
}

static void step_sleep(struct program *p)
{
    uint32_t tags[TAGS];
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    request.saved_tags = tags;
    for (uint32_t t = 0; t < TAGS; t++) {
        if (draw(p, 2) == 0) {
            tags[request.saved_tag_count++] = t;
        }
    }
    if (!p->is_asleep && p->count > 0 && draw(p, 2) == 0) { /* work under way */
        write_block(p, &p->blocks[draw(p, p->count)]);
    }
    bool waits = draw(p, 3) != 0;
    request.flags =
        (waits ? FALLOW_SLEEP_WAIT : 0u) | (draw(p, 6) == 0 ? FALLOW_SLEEP_SAVE_ALL : 0u);
    fallow_status status = fallow_pool_sleep(p->pool, &request);
    if (p->is_asleep) {
        expect(p, status == FALLOW_ASLEEP, "a sleeping pool goes to sleep", status);
    } else if (status == FALLOW_BUSY) {
        expect(p, !waits, "a sleep that waits is refused", status);
        p->busy++;
    } else {
        expect(p, status == FALLOW_OK, "a sleep is refused", status);
        p->is_asleep = status == FALLOW_OK;
        p->sleeps += p->is_asleep;
        note_dropped(p, &request);
        check_books(p);
    }
}

/* Now and then something else has taken the memory. */
static void step_wake(struct program *p)
{
    CUdeviceptr other = 0;
    size_t free_bytes = 0, total_bytes = 0;
    if (p->is_asleep && draw(p, 4) == 0) {
        fallow_stats stats;
        fallow_stats_init(&stats);
        must(p->sim->cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
        (void)!fallow_pool_get_stats(p->pool, &stats);
        must(p->sim->cu.cuMemAlloc_v2(&other, free_bytes));
        fallow_status status = fallow_pool_wake(p->pool);
        expect(p, status == (stats.asleep_bytes == 0 ? FALLOW_OK : FALLOW_OUT_OF_MEMORY),
               "a wake without memory", status);
        must(p->sim->cu.cuMemFree_v2(other));
        p->is_asleep &= status != FALLOW_OK;
        check_books(p);
    }
    fallow_status status = fallow_pool_wake(p->pool);
    expect(p, status == FALLOW_OK, "a wake is refused", status);
    if (p->is_asleep) {
        p->is_asleep = false;
        check_books(p);
    }
    rewrite_dropped(p);
}

static void step(struct program *p)
{
    switch (draw(p, 24)) {
    case 0:
        step_sleep(p);
        break;
    case 1:
    case 2:
        step_wake(p);
        break;
    case 3:
        expect(p, fallow_pool_poll(p->pool) == FALLOW_OK, "a poll is refused", FALLOW_OK);
        break;
    case 4:
        expect(p, flw_test_trim(p->pool, 0) == FALLOW_OK, "a trim is refused", FALLOW_OK);
        break;
    case 5:
        must(p->sim->cu.cuCtxSynchronize());
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
        step_free(p);
        break;
    default:
        step_alloc(p);
        break;
    }
}

static void run(struct program *p)
{
    flw_sim_config world = flw_sim_config_default(p->seed);
    fallow_pool_config config;
    world.device_bytes = 128 * MIB;
    world.schedule = p->seed % 2 == 0 ? FLW_SIM_HELD : FLW_SIM_RANDOM;
    world.check = 1;
    world.backed = 1;
    world.mild = FLW_SIM_MILD_GARBAGE;
    world.reserve_most_bytes = p->seed % 3 == 1 ? 64 * MIB : 0; /* several ranges, neighbours */
    p->state = p->seed;
    p->count = 0;
    p->is_asleep = false;
    flw_sim_begin(p->sim, &world);
    for (unsigned i = 0; i < STREAMS; i++) {
        must(p->sim->cu.cuStreamCreate(&p->streams[i], CU_STREAM_NON_BLOCKING));
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.handle_types = FALLOW_HANDLE_FD;
    config.limit_bytes = draw(p, 2) == 0 ? 0 : 60 * MIB;
    config.wait_ms = 1; /* a held device does nothing by itself */
    config.economy = (fallow_economy)draw(p, 3);
    config.reuse_policy = (fallow_reuse_policy)draw(p, 3);
    if (fallow_pool_create(&config, &p->pool) != FALLOW_OK) {
        abort();
    }
    for (p->step = 0; p->step < STEPS && p->broken < 5; p->step++) {
        step(p);
    }
    if (!p->is_asleep || draw(p, 2) == 0) { /* else it ends asleep, with copies */
        step_wake(p);
        while (p->count > 0) {
            step_free(p);
        }
        check_books(p);
    }
    fallow_pool_destroy(p->pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(p->sim);
    expect(p,
           ledger.given_bytes == 0 && ledger.pinned_bytes == 0 && ledger.mapping_count == 0 &&
               ledger.event_count == 0 && ledger.reserved_address_bytes == 0,
           "destroy left something behind", FALLOW_OK);
    expect(p, flw_sim_print_violations(p->sim) == 0, "a rule of the device is broken", FALLOW_OK);
}

int main(int count, char **words)
{
    struct flw_sim sim;
    uint64_t seed = 1, rounds = 8;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) {
            seed = strtoull(words[i + 1], NULL, 0);
        } else if (strcmp(words[i], "--rounds") == 0) {
            rounds = strtoull(words[i + 1], NULL, 0);
        }
    }
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    struct program program = {.sim = &sim};
    for (uint64_t i = 0; i < rounds && program.broken == 0; i++) {
        program.seed = seed + i;
        run(&program);
    }
    printf("seeds %llu to %llu: %u sleeps, %u refused as busy, %u allocations without room\n",
           (unsigned long long)seed, (unsigned long long)program.seed, program.sleeps, program.busy,
           program.fails);
    flw_sim_close(&sim);
    bool is_vacuous = rounds >= 8 && (program.sleeps < rounds * 3 || program.busy == 0);
    if (is_vacuous) {
        fprintf(stderr, "sleep_model: too few sleeps: nothing was tested\n");
    }
    return program.broken != 0 || is_vacuous;
}
