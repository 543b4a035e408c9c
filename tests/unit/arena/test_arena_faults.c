/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a life of an arena in which every driver call of the arena, or of the pool for it, fails
 * once, at every position: each call returns a status of the contract, a refused call succeeds
 * when repeated, no rule is broken and nothing remains. FALLOW_TEST_ALL=1 tests every position;
 * otherwise every ninth, with another start for each error. */
#include "unit/arena/test_arena.h"

#define MOST_CALLS 1000

struct fault {
    fallow_arena *arena;
    fallow_layout *small, *large;
    uint64_t position;   /* of the call that fails; 0 none */
    uint64_t call_count; /* of the arena's so far */
    int error, sticky;
    bool has_fired, is_lost;
};

/* Between these two the arena calls the driver; the test's own calls never fail. */
static uint64_t arm(struct fault *fault)
{
    uint64_t before = flw_sim_read_ledger(&api.sim).call_count;
    if (fault->position > fault->call_count && !fault->has_fired) {
        assert_int_equal(
            (api.sim.fail)(NULL, fault->position - fault->call_count, fault->error, fault->sticky),
            1);
    }
    return before;
}

static void disarm(struct fault *fault, uint64_t before)
{
    fault->call_count += flw_sim_read_ledger(&api.sim).call_count - before;
    fault->has_fired |= fault->position != 0 && fault->call_count >= fault->position;
    (void)(api.sim.fail)(NULL, 0, 0, 0);
    fault->is_lost |= fault->sticky && fault->has_fired;
}

static void expect_legal(struct fault *fault, fallow_status status)
{
    if (status == FALLOW_DEVICE_LOST && !fault->is_lost) {
        fail_msg("call %llu answered %d, and a device that is well was lost",
                 (unsigned long long)fault->position, fault->error);
    }
    if (status != FALLOW_OK && !fault->is_lost && status != FALLOW_OUT_OF_MEMORY &&
        status != FALLOW_DRIVER && status != FALLOW_INVALID_STREAM && status != FALLOW_CAPTURING) {
        fail_msg("call %llu failed with %d: %s", (unsigned long long)fault->position, fault->error,
                 fallow_status_message(status));
    }
    if (status != FALLOW_OK) {
        assert_true(fault->has_fired);
    }
}

static bool works(const struct fault *fault)
{
    return !fault->is_lost && !(fault->sticky && fault->has_fired);
}

static fallow_lease *begin(struct fault *fault, const fallow_layout *layout, CUstream stream)
{
    fallow_lease *lease = NULL;
    uint64_t before = arm(fault);
    fallow_status status = fallow_lease_begin(fault->arena, layout, stream, &lease);
    disarm(fault, before);
    expect_legal(fault, status);
    assert_true((status == FALLOW_OK) == (lease != NULL));
    if (status != FALLOW_OK && works(fault)) { /* a refusal has broken nothing */
        status = fallow_lease_begin(fault->arena, layout, stream, &lease);
        assert_ok(status);
    }
    return lease;
}

static void lease_by(struct fault *fault, const fallow_layout *layout, CUstream stream,
                     CUstream end)
{
    fallow_lease *lease = begin(fault, layout, stream);
    if (lease == NULL) {
        return;
    }
    if (works(fault)) {
        touch_lease(lease, layout, stream);
    }
    if (works(fault) && end != stream) {
        wait_for(end, stream);
    }
    uint64_t before = arm(fault);
    fallow_status status = fallow_lease_end(lease, end);
    disarm(fault, before);
    expect_legal(fault, status);
    assert_int_not_equal(status, FALLOW_DEVICE_LOST);
    if (status != FALLOW_OK) { /* open still */
        assert_ok(fallow_lease_end(lease, end));
    }
}

static void capture_once(struct fault *fault)
{
    fallow_capture *capture = NULL;
    if (!works(fault) || fallow_capture_begin(api.pool, api.stream, &capture) != FALLOW_OK) {
        assert_true(fault->has_fired);
        return;
    }
    api_begin_capturing(&api, api.stream);
    lease_by(fault, fault->small, api.stream, api.stream);
    if (!works(fault)) {
        return;
    }
    CUgraphExec executable = end_capturing(api.stream, capture);
    for (int i = 0; i < 2; i++) {
        CUstream stream = i == 0 ? api.stream : api.other;
        uint64_t before = arm(fault);
        fallow_status status = fallow_lease_guard(fault->arena, stream);
        disarm(fault, before);
        expect_legal(fault, status);
        if (works(fault)) {
            if (status != FALLOW_OK) {
                assert_ok(fallow_lease_guard(fault->arena, stream));
            }
            assert_ok(api.sim.cu.cuGraphLaunch(executable, stream));
        }
        if (works(fault)) { /* growth in place, then a trim */
            lease_by(fault, fault->large, stream, stream);
            before = arm(fault);
            status = fallow_arena_trim(fault->arena);
            disarm(fault, before);
            expect_legal(fault, status == FALLOW_BUSY ? FALLOW_OK : status);
        }
    }
    if (works(fault)) {
        assert_ok(fallow_lease_guard(fault->arena, api.stream));
        assert_ok(api.sim.cu.cuGraphExecDestroy(executable));
        assert_ok(fallow_capture_release(capture));
    }
}

static void live(struct fault *fault, uint32_t checks)
{
    fault->arena = make_arena(checks);
    lease_by(fault, fault->small, api.stream, api.stream);
    lease_by(fault, fault->small, api.other, api.stream);
    lease_by(fault, fault->large, api.other, api.other);
    capture_once(fault);
    lease_by(fault, fault->small, api.other, api.other);
    if (works(fault)) {
        assert_ok(fallow_arena_lose_contents(fault->arena));
    }
    lease_by(fault, fault->small, api.stream, api.stream);
    uint64_t before = arm(fault);
    fallow_status status = fallow_arena_trim(fault->arena);
    disarm(fault, before);
    expect_legal(fault, status);
    lease_by(fault, fault->large, api.stream, api.other);
    before = arm(fault);
    destroy_arena(fault->arena);
    disarm(fault, before);
}

/* Run one life; return the number of the calls. */
static uint64_t live_with(uint64_t position, int error, int sticky, uint32_t checks)
{
    const fallow_region regions[] = {{.name = "x", .size_bytes = MIB},
                                     {.name = "table",
                                      .size_bytes = 90000,
                                      .init = FALLOW_INIT_ONCE,
                                      .init_step = 1,
                                      .flags = FALLOW_REGION_PERSISTENT},
                                     {.name = "counter",
                                      .size_bytes = 256,
                                      .init = FALLOW_INIT_COUNTER,
                                      .flags = FALLOW_REGION_PERSISTENT}};
    struct fault fault = {.position = position, .error = error, .sticky = sticky};
    bed_begin_with(24 * MIB);
    fault.small = make_layout(regions, 3);
    fault.large = make_plain_layout(6 * MIB);
    live(&fault, checks);
    destroy_layout(fault.small);
    destroy_layout(fault.large);
    if (works(&fault)) {
        assert_int_equal(api_stats(&api).live_count, 0);
        bed_end();
    } else { /* nothing is released to a lost device */
        expect_silence();
        fallow_pool_destroy(api.pool);
        flw_sim_close(&api.sim);
    }
    return fault.call_count;
}

static void fail_everywhere(uint32_t checks)
{
    static const struct {
        int error, sticky;
    } kinds[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, 0}, {CUDA_ERROR_UNKNOWN, 0}, {CUDA_ERROR_ILLEGAL_ADDRESS, 1}};
    uint64_t calls = live_with(0, 0, 0, checks);
    assert_true(calls > 30 && calls < MOST_CALLS);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (uint64_t position = 1 + kind; position <= calls;
             position += flw_sim_step_of_sample(9)) {
            (void)live_with(position, kinds[kind].error, kinds[kind].sticky, checks);
        }
    }
}

TEST(a_driver_call_that_fails_leaves_nothing_broken)
{
    fail_everywhere(0);
}

TEST(the_checks_own_calls_neither)
{
    fail_everywhere(FALLOW_ARENA_CHECK_POISON | FALLOW_ARENA_CHECK_RED_ZONES |
                    FALLOW_ARENA_CHECK_WRITTEN);
}

FLW_TEST_MAIN(NULL, NULL)
