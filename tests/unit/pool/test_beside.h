/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a world of two devices in which every group of cases runs beside another thread's GLOBAL
 * capture, in each place; checks after each call.
 *
 * Every public function of the library appears in the program that includes this:
 * tests/support/beside.sh compares the symbols with the exported ones. */
#ifndef FLW_TESTS_UNIT_TEST_BESIDE_H
#define FLW_TESTS_UNIT_TEST_BESIDE_H

#include "support/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "fallow/extend.h"
#include "support/beside.h"
#include "unit/pool/test_api.h"

struct bed {
    struct api api;
    CUcontext context;
    CUstream known; /* used by the pool; in FLW_BESIDE_KNOWN it is captured */
    struct flw_beside beside;
};

/* The capture is as good as before the call. */
#define SURVIVES(bed, what)                                                                     \
    do {                                                                                        \
        if (!flw_beside_is_good(&(bed)->beside)) {                                              \
            fail_msg("%s ended the capture on %s", what, flw_beside_name((bed)->beside.place)); \
        }                                                                                       \
    } while (0)
/* A call without a status. */
#define DO(bed, call)         \
    do {                      \
        call;                 \
        SURVIVES(bed, #call); \
    } while (0)
#define ANSWERS(bed, call, expected)                                                    \
    do {                                                                                \
        fallow_status status_ = (call);                                                 \
        if (status_ != (expected)) {                                                    \
            fail_msg("%s answered %s beside a capture on %s: %s", #call,                \
                     fallow_status_name(status_), flw_beside_name((bed)->beside.place), \
                     (bed)->api.log);                                                   \
        }                                                                               \
        SURVIVES(bed, #call);                                                           \
    } while (0)
#define WORKS(bed, call) ANSWERS(bed, call, FALLOW_OK)

/* Is the capture in the pool's own context? */
static inline bool is_near(const struct bed *bed)
{
    return bed->beside.place <= FLW_BESIDE_KNOWN;
}

static inline void begin_bed(struct bed *bed, enum flw_beside_place place)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_count = 2;
    world.device_bytes = 256 * MIB;
    memset(bed, 0, sizeof *bed);
    api_begin(&bed->api, &world);
    const struct flw_driver *cu = &bed->api.sim.cu;
    assert_int_equal(cu->cuCtxGetCurrent(&bed->context), 0);
    assert_int_equal(cu->cuStreamCreate(&bed->known, CU_STREAM_NON_BLOCKING), 0);
    bed->beside.place = place;
}

static inline void begin_capture(struct bed *bed)
{
    flw_beside_begin(&bed->beside, &bed->api.sim, bed->beside.place, bed->known);
}

/* Begin the capture, and create a pool beside it, or before it if the pool has to know
 * the stream. */
static inline void begin_capture_and_pool(struct bed *bed, const fallow_pool_config *config)
{
    void *block = NULL;
    bool is_known = bed->beside.place == FLW_BESIDE_KNOWN;
    if (!is_known) {
        begin_capture(bed);
    }
    assert_int_equal(fallow_pool_create(config, &bed->api.pool), FALLOW_OK);
    assert_int_equal(fallow_alloc(bed->api.pool, 1000, bed->known, &block), FALLOW_OK);
    assert_int_equal(fallow_free(bed->api.pool, block, bed->known), FALLOW_OK);
    if (is_known) {
        begin_capture(bed);
    }
    SURVIVES(bed, "fallow_pool_create");
}

static inline void begin_usual(struct bed *bed, enum flw_beside_place place)
{
    begin_bed(bed, place);
    fallow_pool_config config = api_config(&bed->api);
    config.handle_types = FALLOW_HANDLE_FD;
    begin_capture_and_pool(bed, &config);
}

/* End the pool beside the capture, which still yields the graph; nothing remains. */
static inline void end_bed(struct bed *bed)
{
    CUcontext current = NULL;
    fallow_pool *pool = bed->api.pool;
    bed->api.pool = NULL;
    DO(bed, fallow_pool_destroy(pool));
    assert_int_equal(bed->api.sim.cu.cuCtxGetCurrent(&current), 0);
    assert_ptr_equal(current, bed->context);
    assert_true(flw_beside_end(&bed->beside));
    api_end(&bed->api);
}

/* ---- the groups, in every place: each in its own process, because a failure leaves the capture
 * open */

struct group {
    const char *name;
    void (*run)(enum flw_beside_place place);
};

struct group_at {
    const struct group *group;
    enum flw_beside_place place;
};

static void run_group(void **state)
{
    const struct group_at *at = *state;
    at->group->run(at->place);
}

#define GROUP(function)     \
    {                       \
#function, function \
    }

static inline int run_at(const struct group_at *at)
{
    struct group_at copy = *at;
    char name[128];
    int status = 0;
    snprintf(name, sizeof name, "%s, %s", at->group->name, flw_beside_name(at->place));
    const struct CMUnitTest test = {.name = name, .test_func = run_group, .initial_state = &copy};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        exit(_cmocka_run_group_tests(name, &test, 1, NULL, NULL) != 0);
    }
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

/* How many failed. */
static inline int run_groups(const struct group *groups, size_t count)
{
    int failures = 0;
    for (size_t i = 0; i < count; i++) {
        for (enum flw_beside_place place = 0; place < FLW_BESIDE_PLACES; place++) {
            failures += run_at(&(struct group_at){.group = &groups[i], .place = place});
        }
    }
    printf("%d of %zu failed\n", failures, count * FLW_BESIDE_PLACES);
    return failures != 0;
}

#endif
