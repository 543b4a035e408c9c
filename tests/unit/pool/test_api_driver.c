/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: errors of creation on unsuitable drivers and devices, reactions to a refusing driver, and
 * pools destroyed while others request their memory. */
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <stdatomic.h>

static void a_driver_that_is_too_old_is_refused_by_name(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(1);
    api_begin(&api, NULL);
    world.driver_version = 11030;
    flw_sim_begin(&api.sim, &world);
    fallow_pool_config config = api_config(&api);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_VERSION);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "11.4"));
    world.driver_version = 11040;
    flw_sim_begin(&api.sim, &world);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    api_end(&api);
}

static void a_library_that_is_no_driver_is_named(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.driver = "libm.so.6";
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_VERSION);
    assert_non_null(strstr(api.log, "cuInit"));
    config.driver = "/proc/self/status";
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_FOUND);
    assert_non_null(strstr(api.log, "/proc/self/status"));
    assert_null(strstr(api.log, "install the NVIDIA driver")); /* that would not help */
    assert_null(api.pool);
    api_end(&api);
}

/* An optional call may fail unnoticed; every other failure returns a status with a line that names
 * the call or a remedy, and leaves nothing behind. */
static void every_failing_call_of_create_is_explained_and_leaves_nothing(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    unsigned failed = 0, fired = 1;
    for (unsigned n = 1; fired != 0; n++) {
        uint64_t before = flw_sim_read_ledger(&api.sim).call_count;
        api.log[0] = '\0';
        assert_int_equal((api.sim.fail)(NULL, n, CUDA_ERROR_NOT_PERMITTED, 0), 1);
        fallow_status status = fallow_pool_create(&config, &api.pool);
        uint64_t calls = flw_sim_read_ledger(&api.sim).call_count - before;
        fired = calls >= n;
        assert_int_equal((api.sim.fail)(NULL, 0, 0, 0), 1);
        if (status == FALLOW_OK) {
            fallow_pool_destroy(api.pool);
        } else {
            failed++;
            assert_null(api.pool);
            assert_int_equal(status, FALLOW_DRIVER);
            assert_true(strlen(api.log) > 0);
            assert_null(strstr(api.log, "fallow_pool_last_driver_error")); /* of which pool? */
            assert_null(strstr(api.log, "does not exist"));
        }
        flw_sim_ledger ledger = flw_sim_read_ledger(&api.sim);
        assert_int_equal(ledger.given_bytes, 0);
        assert_int_equal(ledger.reserved_address_bytes, 0);
    }
    assert_true(failed >= 5);
    api.pool = NULL;
    api_end(&api);
}

static void a_peer_that_cannot_be_one_is_refused(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(1);
    static const struct {
        int peer;
        fallow_status status;
    } cases[] = {{1, FALLOW_OK},
                 {0, FALLOW_INVALID_ARGUMENT},
                 {2, FALLOW_NOT_FOUND},
                 {-1, FALLOW_NOT_FOUND}};
    api_begin(&api, NULL);
    world.device_count = 2;
    flw_sim_begin(&api.sim, &world);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_pool_config config = api_config(&api);
        config.peer_devices = &cases[i].peer;
        config.peer_device_count = 1;
        api.log[0] = '\0';
        assert_int_equal(fallow_pool_create(&config, &api.pool), cases[i].status);
        if (cases[i].status == FALLOW_OK) {
            void *ptr = api_alloc(&api, MIB, NULL);
            assert_int_equal(fallow_free(api.pool, ptr, NULL), FALLOW_OK);
            fallow_pool_destroy(api.pool);
        } else {
            assert_null(api.pool);
            assert_non_null(strstr(api.log, "peer device"));
        }
    }
    api.pool = NULL;
    api_end(&api);
}

struct neighbour {
    atomic_bool stops;
};

/* Create and destroy a pool of the same device with idle memory. */
static void *come_and_go(void *argument)
{
    struct neighbour *neighbour = argument;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    while (!atomic_load(&neighbour->stops)) {
        fallow_pool *pool = NULL;
        void *ptr = NULL;
        if (fallow_pool_create(&config, &pool) != FALLOW_OK ||
            fallow_alloc(pool, 4 * MIB, NULL, &ptr) != FALLOW_OK ||
            fallow_free(pool, ptr, NULL) != FALLOW_OK) {
            return neighbour; /* a call failed */
        }
        fallow_pool_destroy(pool);
    }
    return NULL;
}

static void a_pool_may_end_while_another_asks_it_for_memory(void **state)
{
    struct api api;
    struct neighbour neighbour = {.stops = false};
    pthread_t thread;
    void *problem = NULL, *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 32 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &neighbour), 0);
    for (unsigned i = 0; i < 2000; i++) {
        assert_int_equal(fallow_alloc(api.pool, 64 * MIB, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    }
    atomic_store(&neighbour.stops, true);
    assert_int_equal(pthread_join(thread, &problem), 0);
    assert_null(problem);
    api_end(&api);
}

/* Errors of drivers for unsupported or forbidden features (vGPU, containers, confidential
 * computing, fabric without the daemon): each fails one request, once. */
static const CUresult refusals[] = {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
                                    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OPERATING_SYSTEM,
                                    CUDA_ERROR_UNKNOWN};

/* Check that a pool with a working device allocates whatever fits, and free everything. */
static void expect_service(struct api *api)
{
    fallow_stats stats;
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
    void *ptr = api_alloc(api, 90 * MIB, api->stream);
    api_use(api, ptr, 90 * MIB, api->stream);
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    api->sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_trim(api->pool, 0, 0, NULL), FALLOW_OK);
    api->sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_trim(api->pool, 0, 0, NULL), FALLOW_OK);
    stats = api_stats(api);
    assert_int_equal(stats.reserved_bytes, flw_sim_read_ledger(&api->sim).given_bytes);
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
}

static void refuse_from_now_on(struct api *api, const char *entry, CUresult error)
{
    assert_int_equal((api->sim.fail)(entry, 1, (int)error, 2), 1);
}

static void a_refused_growth_costs_the_request_and_names_the_call(void **state)
{
    static const char *const entries[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    for (size_t i = 0; i < 3 * sizeof refusals / sizeof *refusals; i++) {
        const char *entry = entries[i % 3], *call = NULL;
        CUresult error = refusals[i / 3];
        struct api api;
        void *ptr = &api;
        api_begin_with_pool(&api);
        void *kept = api_alloc(&api, 30 * MIB, api.stream);
        api_use(&api, kept, 30 * MIB, api.stream);
        refuse_from_now_on(&api, entry, error);
        fallow_status status = fallow_alloc(api.pool, 90 * MIB, api.stream, &ptr);
        assert_int_equal(status,
                         error == CUDA_ERROR_NOT_SUPPORTED ? FALLOW_NOT_SUPPORTED : FALLOW_DRIVER);
        assert_null(ptr);
        assert_int_equal(fallow_pool_last_driver_error(api.pool, &call), error);
        assert_string_equal(call, entry);
        assert_non_null(strstr(api.log, entry));
        assert_non_null(strstr(api.log, flw_driver_error_name(&api.sim.cu, error)));
        (void)(api.sim.fail)(NULL, 0, 0, 0);
        expect_service(&api);
        api_use(&api, kept, 30 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
        api_end(&api);
    }
}

/* ---- a refusal that lasts */

#define FAILING_REQUESTS 100
#define MOST_CALLS       12 /* of one: the frame of a section, the question for a capture, the growth */

static const struct {
    const char *entry;
    fallow_page_source source;
    fallow_order order;
} lasting[] = {{"cuMemCreate", FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM},
               {"cuMemMap", FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM},
               {"cuMemSetAccess", FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM},
               {"cuMemAlloc_v2", FALLOW_PAGES_SEGMENTS, FALLOW_ORDER_STREAM},
               {"cuMemAlloc_v2", FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_CONTEXT}};
#define LASTING (sizeof lasting / sizeof *lasting)

/* Idle bytes, few enough to grow beside them, with a driver that refuses more. */
#define IDLE_BYTES (12 * MIB)

static void begin_refused(struct api *api, size_t i)
{
    api_begin(api, NULL);
    fallow_pool_config config = api_config(api);
    config.page_source = lasting[i].source;
    config.order = lasting[i].order;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    void *idle = api_alloc(api, IDLE_BYTES, api->stream);
    assert_int_equal(fallow_free(api->pool, idle, api->stream), FALLOW_OK);
    refuse_from_now_on(api, lasting[i].entry, CUDA_ERROR_NOT_PERMITTED);
}

static void expect_refused(struct api *api, size_t bytes)
{
    void *ptr = api;
    assert_int_equal(fallow_alloc(api->pool, bytes, api->stream, &ptr), FALLOW_DRIVER);
    assert_null(ptr);
}

/* Calls are counted, not timed. Every failing request queries the driver, so the first after the
 * end succeeds. */
static void a_lasting_refusal_costs_each_request_one_question(void **state)
{
    for (size_t i = 0; i < LASTING; i++) {
        struct api api;
        begin_refused(&api, i);
        for (unsigned n = 0; n < FAILING_REQUESTS; n++) {
            expect_refused(&api, 33 * MIB);
        }
        uint64_t calls = api.sim.call_count(NULL), asked = api.sim.call_count(lasting[i].entry);
        for (unsigned n = 0; n < FAILING_REQUESTS; n++) {
            uint64_t before = api.sim.call_count(lasting[i].entry);
            expect_refused(&api, 33 * MIB);
            assert_true(api.sim.call_count(lasting[i].entry) > before);
        }
        calls = api.sim.call_count(NULL) - calls;
        asked = api.sim.call_count(lasting[i].entry) - asked;
        printf("%s refused: %.2f driver calls a request, %.2f of them this one\n", lasting[i].entry,
               (double)calls / FAILING_REQUESTS, (double)asked / FAILING_REQUESTS);
        assert_in_range(calls, FAILING_REQUESTS, MOST_CALLS * FAILING_REQUESTS);
        (void)(api.sim.fail)(NULL, 0, 0, 0);
        void *ptr = api_alloc(&api, 33 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        expect_service(&api);
        api_end(&api);
    }
}

/* Memory released to make room for another size would not return. */
static void a_refused_pool_allocates_what_it_has(void **state)
{
    for (size_t i = 0; i < LASTING; i++) {
        struct api api;
        begin_refused(&api, i);
        for (unsigned n = 0; n < 20; n++) {
            expect_refused(&api, 90 * MIB);
        }
        assert_true(api_stats(&api).reserved_bytes >= IDLE_BYTES);
        void *ptr = api_alloc(&api, IDLE_BYTES, api.stream);
        api_use(&api, ptr, IDLE_BYTES, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        (void)(api.sim.fail)(NULL, 0, 0, 0);
        expect_service(&api);
        api_end(&api);
    }
}

/* A handle that was unmapped for a failed larger request is mapped again for a smaller one. */
static void a_handle_that_was_moved_in_vain_serves_what_is_smaller(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_must_alloc(&api, IDLE_BYTES, 0, FALLOW_REQUEST_DEDICATED);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    refuse_from_now_on(&api, "cuMemCreate", CUDA_ERROR_NOT_PERMITTED);
    for (unsigned n = 0; n < 3; n++) {
        expect_refused(&api, 33 * MIB);
    }
    assert_int_equal(flw_sim_read_ledger(&api.sim).mapping_count, 0);
    for (unsigned n = 0; n < IDLE_BYTES / (3 * MIB); n++) {
        ptr = api_alloc(&api, 3 * MIB, api.stream);
        api_use(&api, ptr, 3 * MIB, api.stream);
    }
    (void)(api.sim.fail)(NULL, 0, 0, 0);
    expect_service(&api);
    api_end(&api);
}

/* ---- a past refusal, with the pool at the limit or the device full: no driver call before some
 * memory was released */

static const struct {
    fallow_page_source source;
    fallow_order order;
    uint32_t flags; /* of the requests */
} over[] = {{FALLOW_PAGES_SEGMENTS, FALLOW_ORDER_STREAM, 0},
            {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REQUEST_DEDICATED},
            {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_CONTEXT, 0}};
#define OVER        (sizeof over / sizeof *over)
#define PIECE_BYTES (10 * MIB)
#define PIECES      6

static fallow_status alloc_over(struct api *api, size_t i, size_t bytes, void **out_ptr)
{
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = over[i].flags;
    return fallow_alloc_request(api->pool, &request, api->stream, out_ptr);
}

/* A request of 40 MiB was refused; then this many pieces of 10 MiB were allocated. */
static void begin_over(struct api *api, size_t i, size_t limit_bytes, void **pieces, size_t count)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.check = 1;
    world.device_bytes = 100 * MIB;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.page_source = over[i].source;
    config.order = over[i].order;
    config.limit_bytes = limit_bytes;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    bool is_segment = over[i].flags == 0;
    refuse_from_now_on(api, is_segment ? "cuMemAlloc_v2" : "cuMemCreate", CUDA_ERROR_UNKNOWN);
    assert_int_equal(alloc_over(api, i, 40 * MIB, pieces), FALLOW_DRIVER);
    (void)(api->sim.fail)(NULL, 0, 0, 0);
    for (size_t n = 0; n < count; n++) {
        assert_int_equal(alloc_over(api, i, PIECE_BYTES, &pieces[n]), FALLOW_OK);
    }
}

/* The second size resembles the refused one: one request may fail before idle memory is released
 * for it. */
static void what_was_refused_once_is_exchanged_for_what_idles(void **state)
{
    static const size_t sizes[] = {30 * MIB, 45 * MIB};
    for (size_t n = 0; n < 2 * OVER; n++) {
        struct api api;
        void *pieces[PIECES], *ptr = NULL;
        begin_over(&api, n % OVER, PIECES * PIECE_BYTES + 4 * MIB, pieces, PIECES);
        for (size_t k = 0; k < PIECES; k++) {
            assert_int_equal(fallow_free(api.pool, pieces[k], api.stream), FALLOW_OK);
        }
        fallow_status status = alloc_over(&api, n % OVER, sizes[n / OVER], &ptr);
        if (status == FALLOW_OUT_OF_MEMORY && n >= OVER) {
            status = alloc_over(&api, n % OVER, sizes[n / OVER], &ptr);
        }
        assert_int_equal(status, FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        api_end(&api);
    }
}

/* Large handles are refused, and smaller ones not any more. */
static void a_block_without_a_handle_of_its_own_asks_for_several(void **state)
{
    struct api api;
    void *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    refuse_from_now_on(&api, "cuMemCreate", CUDA_ERROR_NOT_SUPPORTED);
    for (unsigned n = 0; n < FAILING_REQUESTS; n++) {
        assert_int_equal(fallow_alloc(api.pool, 3 * MIB, api.stream, &ptr), FALLOW_NOT_SUPPORTED);
    }
    (void)(api.sim.fail)(NULL, 0, 0, 0);
    uint64_t asked = api.sim.call_count("cuMemCreate");
    assert_int_equal((api.sim.fail)("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED, 0), 1);
    assert_int_equal((api.sim.fail)("cuMemCreate", 2, CUDA_ERROR_NOT_SUPPORTED, 0), 1); /* least */
    ptr = api_alloc(&api, 1100 * MIB, api.stream);
    assert_true(api.sim.call_count("cuMemCreate") - asked > 2); /* several, after the refused one */
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    expect_service(&api);
    api_end(&api);
}

static void what_idles_in_another_pool_serves_one_that_was_refused(void **state)
{
    for (size_t i = 0; i < OVER; i++) {
        struct api api;
        void *pieces[PIECES], *ptr = NULL;
        begin_over(&api, i, 0, pieces, 3);
        fallow_pool *other = api_create(&api);
        assert_int_equal(fallow_alloc(other, 60 * MIB, api.stream, &ptr), FALLOW_OK);
        assert_int_equal(fallow_free(other, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_pool_trim(other, SIZE_MAX, 0, NULL),
                         FALLOW_OK); /* records the fence */
        assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
        assert_int_equal(fallow_pool_poll(other), FALLOW_OK);
        assert_int_equal(alloc_over(&api, i, 35 * MIB, &ptr), FALLOW_OK);
        fallow_pool_destroy(other);
        api_end(&api);
    }
}

/* Neither undoing a growth nor removing idle memory: memory that stays mapped is tracked, and
 * released once the driver allows. */
static void what_cannot_be_unmapped_is_kept_until_it_can(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct api api;
        void *ptr = &api;
        api_begin_with_pool(&api);
        void *idle = api_alloc(&api, 30 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, idle, api.stream), FALLOW_OK);
        refuse_from_now_on(&api, "cuMemUnmap", refusals[i]);
        refuse_from_now_on(&api, "cuMemSetAccess", refusals[i]);
        assert_int_not_equal(fallow_alloc(api.pool, 90 * MIB, api.stream, &ptr), FALLOW_OK);
        assert_null(ptr);
        assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        assert_int_equal(api_stats(&api).reserved_bytes, flw_sim_read_ledger(&api.sim).given_bytes);
        assert_true(flw_sim_read_ledger(&api.sim).mapping_count > 1); /* of both */
        (void)(api.sim.fail)(NULL, 0, 0, 0);
        expect_service(&api);
        assert_int_equal(api_stats(&api).reserved_bytes, 0);
        api_end(&api);
    }
}

/* The last line of a pool reports the bytes that the driver kept, and the call that it refused. */
static void destroy_says_what_stays_with_the_driver(void **state)
{
    static const struct {
        const char *entry;
        fallow_page_source source;
        bool keeps_memory;
    } refused[] = {{"cuMemUnmap", FALLOW_PAGES_AUTOMATIC, true},
                   {"cuMemRelease", FALLOW_PAGES_AUTOMATIC, true},
                   {"cuMemFree", FALLOW_PAGES_SEGMENTS, true},
                   {"cuMemAddressFree", FALLOW_PAGES_AUTOMATIC, false}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct api api;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.page_source = refused[i].source;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        void *ptr = api_alloc(&api, 30 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        bool is_segment = refused[i].source == FALLOW_PAGES_SEGMENTS;
        refuse_from_now_on(&api, is_segment ? "cuMemFree_v2" : refused[i].entry,
                           CUDA_ERROR_UNKNOWN);
        fallow_pool_destroy(api.pool);
        flw_sim_ledger ledger = flw_sim_read_ledger(&api.sim);
        /* (without the byte that destroy itself frees to wait for the device) */
        assert_int_equal(ledger.given_bytes / MIB, refused[i].keeps_memory ? 30 : 0);
        assert_int_equal(strtoull(api.log, NULL, 10), ledger.given_bytes / MIB * MIB);
        assert_non_null(strstr(api.log, refused[i].entry));
        flw_sim_close(&api.sim);
    }
}

/* No freed memory is considered complete, and all of it returns in the end. */
static void refused_events_leave_memory_to_a_synchronisation(void **state)
{
    static const char *const entries[] = {"cuEventRecord", "cuEventQuery", "cuEventCreate",
                                          "cuStreamWaitEvent"};
    for (size_t i = 0; i < 4 * sizeof refusals / sizeof *refusals; i++) {
        struct api api;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.limit_bytes = 64 * MIB;
        config.wait_ms = 1;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        void *first = api_alloc(&api, 50 * MIB, api.stream), *ptr = NULL;
        api_use(&api, first, 50 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, first, api.stream), FALLOW_OK);
        refuse_from_now_on(&api, entries[i % 4], refusals[i / 4]);
        fallow_status status = fallow_alloc(api.pool, 50 * MIB, api.other, &ptr);
        (void)(api.sim.fail)(NULL, 0, 0, 0);
        if (status == FALLOW_OK) { /* by waiting for the context: the access is checked */
            api_use(&api, ptr, 50 * MIB, api.other);
            assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        } else {
            assert_true(status == FALLOW_OUT_OF_MEMORY || status == FALLOW_DRIVER);
        }
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
        api.sim.step(UINT64_MAX);
        ptr = api_alloc(&api, 50 * MIB, api.other);
        api_use(&api, ptr, 50 * MIB, api.other);
        assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_growth_costs_the_request_and_names_the_call),
        cmocka_unit_test(a_lasting_refusal_costs_each_request_one_question),
        cmocka_unit_test(a_refused_pool_allocates_what_it_has),
        cmocka_unit_test(a_handle_that_was_moved_in_vain_serves_what_is_smaller),
        cmocka_unit_test(what_was_refused_once_is_exchanged_for_what_idles),
        cmocka_unit_test(a_block_without_a_handle_of_its_own_asks_for_several),
        cmocka_unit_test(what_idles_in_another_pool_serves_one_that_was_refused),
        cmocka_unit_test(what_cannot_be_unmapped_is_kept_until_it_can),
        cmocka_unit_test(destroy_says_what_stays_with_the_driver),
        cmocka_unit_test(refused_events_leave_memory_to_a_synchronisation),
        cmocka_unit_test(a_driver_that_is_too_old_is_refused_by_name),
        cmocka_unit_test(a_library_that_is_no_driver_is_named),
        cmocka_unit_test(every_failing_call_of_create_is_explained_and_leaves_nothing),
        cmocka_unit_test(a_peer_that_cannot_be_one_is_refused),
        cmocka_unit_test(a_pool_may_end_while_another_asks_it_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
