/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page source of a pool: the probe of creation, features refused by the driver at
 * creation and later, the setting page_source. */
#include "unit/pool/test_api.h"

#include <unistd.h>

#include "fallow/sleep.h"

#define BOTH (FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC)

/* ---- a log that keeps every line */

struct lines {
    char text[4096];
    unsigned count;
};

/* Ignore the warning about few addresses, which is about the host. */
static void keep(void *context, fallow_log_level level, const char *message)
{
    struct lines *lines = context;
    size_t used = strlen(lines->text);
    (void)level;
    if (strstr(message, "the address space is limited") == message) {
        return;
    }
    snprintf(lines->text + used, sizeof lines->text - used, "%s\n", message);
    lines->count++;
}

static fallow_pool_config config_with(struct lines *lines)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    memset(lines, 0, sizeof *lines);
    config.driver = "sim";
    config.log = keep;
    config.log_context = lines;
    return config;
}

static void begin_plain(struct api *api)
{
    flw_sim_config world = flw_sim_config_default(11);
    api_begin(api, &world);
}

/* The first n calls of the entry point are refused. */
static void refuse(struct api *api, const char *entry, unsigned n, CUresult error)
{
    for (unsigned i = 1; i <= n; i++) {
        assert_int_equal((api->sim.fail)(entry, i, (int)error, 0), 1);
    }
}

static void refuse_nothing(struct api *api)
{
    assert_int_equal((api->sim.fail)(NULL, 0, 0, 0), 1);
}

/* It allocates from growth, releases, and validates. */
static void use_pool(struct api *api)
{
    void *small = api_alloc(api, 5000, api->stream), *large = api_alloc(api, 40 * MIB, api->stream);
    api_use(api, small, 5000, api->stream);
    api_use(api, large, 40 * MIB, api->stream);
    assert_int_equal(fallow_free(api->pool, small, api->stream), FALLOW_OK);
    assert_int_equal(fallow_free(api->pool, large, api->stream), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
}

static void destroy_pool(struct api *api)
{
    fallow_pool_destroy(api->pool);
    api->pool = NULL;
    flw_sim_ledger ledger = flw_sim_read_ledger(&api->sim);
    assert_int_equal(ledger.given_bytes, 0);
    assert_int_equal(ledger.handle_count + ledger.mapping_count, 0);
    assert_int_equal(ledger.reserved_address_bytes, 0);
}

/* ---- the probe */

static const char *const probe_calls[] = {
    "cuStreamCreate", "cuMemCreate",          "cuMemMap",
    "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemUnmap",     "cuMemRelease",         "cuStreamDestroy_v2"};

static void the_probe_makes_nine_calls_and_keeps_nothing(void **state)
{
    struct api api;
    struct lines lines;
    uint64_t before[sizeof probe_calls / sizeof *probe_calls];
    begin_plain(&api);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        before[i] = api.sim.call_count(probe_calls[i]);
    }
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        assert_int_equal(api.sim.call_count(probe_calls[i]) - before[i], 1);
    }
    flw_sim_ledger ledger = flw_sim_read_ledger(&api.sim);
    assert_int_equal(ledger.given_bytes, 0);
    assert_int_equal(ledger.peak_given_bytes, 2 * MIB);
    assert_int_equal(ledger.handle_count + ledger.mapping_count, 0);
    assert_int_equal(lines.count, 0);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.page_source, FALLOW_PAGES_HANDLES);
    assert_int_equal(stats.handle_types, BOTH);
    assert_int_equal(stats.allows_rdma, 1);
    assert_int_equal(stats.reserved_bytes + stats.peak_reserved_bytes, 0);
    api_end(&api);
}

/* Only the probe may exceed the limit, as the header permits. */
static void a_limit_below_a_handle_holds_but_for_the_probe(void **state)
{
    struct api api;
    struct lines lines;
    void *none = NULL;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    config.limit_bytes = 1;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_alloc(api.pool, 1, api.stream, &none), FALLOW_OUT_OF_MEMORY);
    flw_sim_ledger ledger = flw_sim_read_ledger(&api.sim);
    assert_int_equal(ledger.given_bytes, 0);
    assert_int_equal(ledger.peak_given_bytes, 2 * MIB);
    assert_int_equal(api_stats(&api).peak_reserved_bytes, 0);
    api_end(&api);
}

/* From the most that a handle can carry to none. */
static const struct {
    uint32_t types;
    uint8_t rdma, source;
    unsigned line_count;
} steps[] = {
    {BOTH, 1, FALLOW_PAGES_HANDLES, 0},
    {BOTH, 0, FALLOW_PAGES_HANDLES, 1},
    {FALLOW_HANDLE_FD, 1, FALLOW_PAGES_HANDLES, 1},
    {FALLOW_HANDLE_FD, 0, FALLOW_PAGES_HANDLES, 2},
    {0, 1, FALLOW_PAGES_HANDLES, 2},
    {0, 0, FALLOW_PAGES_HANDLES, 3},
    {0, 0, FALLOW_PAGES_SEGMENTS, 1},
};
#define STEPS (sizeof steps / sizeof *steps)

static const CUresult refusals[] = {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
                                    CUDA_ERROR_INVALID_VALUE, (CUresult)304 /* OPERATING_SYSTEM */,
                                    CUDA_ERROR_UNKNOWN};

static void create_refused(struct api *api, const char *entry, size_t n, CUresult error)
{
    struct lines lines;
    fallow_pool_config config = config_with(&lines);
    refuse(api, entry, (unsigned)n, error);
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    refuse_nothing(api);
    fallow_stats stats = api_stats(api);
    assert_int_equal(stats.handle_types, steps[n].types);
    assert_int_equal(stats.allows_rdma, steps[n].rdma);
    assert_int_equal(stats.page_source, steps[n].source);
    assert_int_equal(stats.uses_vmm, steps[n].source == FALLOW_PAGES_HANDLES);
    if (lines.count != steps[n].line_count) {
        fail_msg("%s refused %zu times: %u lines:\n%s", entry, n, lines.count, lines.text);
    }
    assert_true(n == 0 ||
                (strstr(lines.text, "no ") != NULL && strstr(lines.text, " answered ") != NULL));
    use_pool(api);
    destroy_pool(api);
}

static void what_the_driver_refuses_is_done_without_step_by_step(void **state)
{
    struct api api;
    begin_plain(&api);
    for (size_t call = 1; call < 6; call++) { /* from cuMemCreate to the copy back */
        for (size_t n = 0; n < STEPS; n++) {
            create_refused(&api, probe_calls[call], n, refusals[(n + call) % 5]);
        }
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        create_refused(&api, "cuMemCreate", 2, refusals[i]);
    }
    api_end(&api);
}

static void each_line_names_the_call_its_answer_and_what_follows(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    refuse(&api, "cuMemCreate", 2,
           CUDA_ERROR_NOT_PERMITTED); /* a machine without an IMEX channel */
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_non_null(strstr(lines.text, "no fabric handles: cuMemCreate answered "
                                       "CUDA_ERROR_NOT_PERMITTED: other nodes cannot"));
    destroy_pool(&api);
    config = config_with(&lines);
    refuse(&api, "cuMemMap", 6, CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_non_null(strstr(lines.text,
                           "no virtual memory management: cuMemMap answered "
                           "CUDA_ERROR_NOT_SUPPORTED: memory is allocated in segments"));
    api_end(&api);
}

/* Taking back is tried twice; a stream that is not to be had leaves the write out. */
static void a_way_back_that_fails_once_costs_nothing(void **state)
{
    static const char *const entries[] = {"cuMemUnmap", "cuMemRelease", "cuStreamCreate",
                                          "cuStreamDestroy_v2"};
    struct api api;
    begin_plain(&api);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        struct lines lines;
        fallow_pool_config config = config_with(&lines);
        refuse(&api, entries[i], 1, CUDA_ERROR_NOT_PERMITTED);
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        refuse_nothing(&api);
        assert_int_equal(lines.count, 0);
        assert_int_equal(api_stats(&api).handle_types, BOTH);
        use_pool(&api);
        destroy_pool(&api);
    }
    api_end(&api);
}

static void a_broken_context_is_no_refusal(void **state)
{
    struct api api;
    begin_plain(&api);
    for (size_t call = 1; call < 6; call++) {
        struct lines lines;
        fallow_pool_config config = config_with(&lines);
        refuse(&api, probe_calls[call], 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_DRIVER);
        refuse_nothing(&api);
        assert_non_null(strstr(lines.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_null(api.pool);
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
        assert_int_equal(flw_sim_read_ledger(&api.sim).reserved_address_bytes, 0);
    }
    api_end(&api);
}

static void a_full_device_is_believed(void **state)
{
    struct api api;
    struct lines lines;
    flw_sim_config world = flw_sim_config_default(11);
    world.device_bytes = 64 * MIB;
    CUdeviceptr all = 0;
    api_begin(&api, &world);
    assert_int_equal(api.sim.cu.cuMemAlloc_v2(&all, 64 * MIB), CUDA_SUCCESS);
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(lines.count, 0);
    assert_int_equal(api_stats(&api).handle_types, BOTH);
    assert_int_equal(api.sim.cu.cuMemFree_v2(all), CUDA_SUCCESS);
    use_pool(&api);
    api_end(&api);
}

static void addresses_that_are_refused_are_asked_for_less_then_not_needed(void **state)
{
    struct api api;
    begin_plain(&api);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        static const unsigned counts[] = {0, 1, 3, 4, 5, 60};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            unsigned n = counts[k];
            struct lines lines;
            fallow_pool_config config = config_with(&lines);
            refuse(&api, "cuMemAddressReserve", n, refusals[i]);
            assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
            refuse_nothing(&api);
            /* 640 GiB, with alignment and without; 320, 160, and 80, which one block may need. */
            bool has_handles = n < 5;
            assert_int_equal(api_stats(&api).uses_vmm, has_handles);
            assert_int_equal(lines.count, !has_handles);
            assert_true(has_handles || strstr(lines.text, "cuMemAddressReserve answered") != NULL);
            use_pool(&api);
            destroy_pool(&api);
        }
    }
    api_end(&api);
}

/* ---- required features */

static void expect_unsupported(struct api *api, const fallow_pool_config *config,
                               const struct lines *lines, const char *setting, const char *why)
{
    assert_int_equal(fallow_pool_create(config, &api->pool), FALLOW_NOT_SUPPORTED);
    refuse_nothing(api);
    assert_null(api->pool);
    if (lines->count != 1 || strstr(lines->text, setting) == NULL ||
        strstr(lines->text, why) == NULL) {
        fail_msg("instead of one line with '%s' and '%s':\n%s", setting, why, lines->text);
    }
    assert_int_equal(flw_sim_read_ledger(&api->sim).reserved_address_bytes, 0);
}

static void what_was_named_is_never_done_without(void **state)
{
    static const int peers[] = {1};
    struct api api;
    struct lines lines;
    flw_sim_config world = flw_sim_config_default(11);
    world.device_count = 2;
    api_begin(&api, &world);
    fallow_pool_config config = config_with(&lines);
    config.handle_types = BOTH;
    refuse(&api, "cuMemCreate", 2, CUDA_ERROR_NOT_PERMITTED);
    expect_unsupported(&api, &config, &lines, "handle_types",
                       "fabric handles: cuMemCreate answered CUDA_ERROR_NOT_PERMITTED");
    config = config_with(&lines);
    config.page_source = FALLOW_PAGES_HANDLES;
    refuse(&api, "cuMemSetAccess", 6, CUDA_ERROR_NOT_SUPPORTED);
    expect_unsupported(&api, &config, &lines, "page_source", "cuMemSetAccess answered");
    config = config_with(&lines);
    config.peer_devices = peers;
    config.peer_device_count = 1;
    refuse(&api, "cuMemSetAccess", 6, CUDA_ERROR_INVALID_DEVICE);
    expect_unsupported(&api, &config, &lines, "peer_devices", "cuMemSetAccess answered");
    /* Registration was not required: only it is dropped. */
    config = config_with(&lines);
    config.handle_types = FALLOW_HANDLE_FD;
    refuse(&api, "cuMemCreate", 1, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).handle_types, FALLOW_HANDLE_FD);
    assert_int_equal(api_stats(&api).allows_rdma, 0);
    destroy_pool(&api);
    world.without_vmm = 1;
    flw_sim_begin(&api.sim, &world);
    config = config_with(&lines);
    config.page_source = FALLOW_PAGES_HANDLES;
    expect_unsupported(&api, &config, &lines, "page_source", "lacks it");
    config = config_with(&lines);
    config.peer_devices = peers;
    config.peer_device_count = 1;
    expect_unsupported(&api, &config, &lines, "peer_devices", "lacks it");
    api_end(&api);
}

static void settings_that_exclude_each_other_are_named(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    config.page_source = (fallow_page_source)3;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_INVALID_ARGUMENT);
    assert_non_null(strstr(lines.text, "page_source"));
    config = config_with(&lines);
    config.page_source = FALLOW_PAGES_SEGMENTS;
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_INVALID_ARGUMENT);
    assert_non_null(strstr(lines.text, "FALLOW_PAGES_SEGMENTS"));
    config = config_with(&lines);
    config.page_source = FALLOW_PAGES_HANDLES;
    config.order = FALLOW_ORDER_CONTEXT;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_INVALID_ARGUMENT);
    assert_non_null(strstr(lines.text, "FALLOW_ORDER_CONTEXT"));
    config = config_with(&lines);
    config.page_source = FALLOW_PAGES_SEGMENTS;
    config.order = FALLOW_ORDER_CONTEXT;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    api_end(&api);
}

/* ---- later */

static void a_kind_that_is_refused_later_is_done_without_from_then_on(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *before = api_alloc(&api, 30 * MIB, api.stream);
    refuse(&api, "cuMemCreate", 2, CUDA_ERROR_NOT_PERMITTED);
    void *after = api_alloc(&api, 90 * MIB, api.stream);
    refuse_nothing(&api);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.handle_types, FALLOW_HANDLE_FD);
    assert_int_equal(stats.allows_rdma, 1);
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.text, "no fabric handles: cuMemCreate answered"));
    /* The handles of before serve on. */
    assert_int_equal(fallow_free(api.pool, before, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, after, api.stream), FALLOW_OK);
    use_pool(&api);
    assert_int_equal(lines.count, 1);
    api_end(&api);
}

static void a_refusal_of_everything_is_not_blamed_on_a_kind(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *ptr = NULL;
    refuse(&api, "cuMemCreate", 60, CUDA_ERROR_NOT_PERMITTED);
    assert_int_not_equal(fallow_alloc(api.pool, 30 * MIB, api.stream, &ptr), FALLOW_OK);
    refuse_nothing(&api);
    assert_int_equal(api_stats(&api).handle_types, BOTH);
    assert_int_equal(api_stats(&api).allows_rdma, 1);
    use_pool(&api);
    api_end(&api);
}

static void a_growth_does_not_do_without_what_was_named(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    config.handle_types = FALLOW_HANDLE_FABRIC;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *ptr = NULL;
    refuse(&api, "cuMemCreate", 60, CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fallow_alloc(api.pool, 30 * MIB, api.stream, &ptr), FALLOW_DRIVER);
    refuse_nothing(&api);
    assert_null(ptr);
    assert_int_equal(api_stats(&api).handle_types, FALLOW_HANDLE_FABRIC);
    if (lines.count != 2) { /* this one, and that of the request */
        fail_msg("%s", lines.text);
    }
    assert_non_null(strstr(lines.text, "handle_types"));
    assert_non_null(strstr(lines.text, "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED"));
    use_pool(&api);
    api_end(&api);
}

static void a_wake_does_without_too(void **state)
{
    struct api api;
    struct lines lines;
    begin_plain(&api);
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *ptr = api_alloc(&api, 30 * MIB, api.stream);
    fallow_sleep_request request = {.struct_size = sizeof request, .flags = FALLOW_SLEEP_WAIT};
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    refuse(&api, "cuMemCreate", 4, CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    refuse_nothing(&api);
    assert_int_equal(api_stats(&api).handle_types, 0);
    assert_int_equal(lines.count, 2);
    api_use(&api, ptr, 30 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    use_pool(&api);
    api_end(&api);
}

/* ---- beside captures */

/* Create a pool beside a capture: a blocking stream excludes the legacy one; the mode determines
 * the allowed calls. */
static void create_beside_capture(struct api *api, CUstreamCaptureMode mode, unsigned flags)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    struct lines lines;
    const struct flw_driver *cu = &api->sim.cu;
    fallow_pool_config config = config_with(&lines);
    assert_int_equal(cu->cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    assert_int_equal(cu->cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    assert_int_equal(lines.count, 0);
    assert_int_equal(api_stats(api).handle_types, BOTH);
    assert_int_equal(cu->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_non_null(graph);
    assert_int_equal(cu->cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cu->cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    destroy_pool(api);
}

static void the_probe_ends_no_capture(void **state)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    struct api api;
    begin_plain(&api);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        create_beside_capture(&api, modes[i], CU_STREAM_NON_BLOCKING);
        create_beside_capture(&api, modes[i], CU_STREAM_DEFAULT);
    }
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_probe_makes_nine_calls_and_keeps_nothing),
        cmocka_unit_test(a_limit_below_a_handle_holds_but_for_the_probe),
        cmocka_unit_test(what_the_driver_refuses_is_done_without_step_by_step),
        cmocka_unit_test(each_line_names_the_call_its_answer_and_what_follows),
        cmocka_unit_test(a_way_back_that_fails_once_costs_nothing),
        cmocka_unit_test(a_broken_context_is_no_refusal),
        cmocka_unit_test(a_full_device_is_believed),
        cmocka_unit_test(addresses_that_are_refused_are_asked_for_less_then_not_needed),
        cmocka_unit_test(what_was_named_is_never_done_without),
        cmocka_unit_test(settings_that_exclude_each_other_are_named),
        cmocka_unit_test(a_kind_that_is_refused_later_is_done_without_from_then_on),
        cmocka_unit_test(a_refusal_of_everything_is_not_blamed_on_a_kind),
        cmocka_unit_test(a_growth_does_not_do_without_what_was_named),
        cmocka_unit_test(a_wake_does_without_too),
        cmocka_unit_test(the_probe_ends_no_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
