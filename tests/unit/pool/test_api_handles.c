/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: handles of destroyed objects: refused for good, however many others followed, without any
 * effect. */
#include "unit/pool/test_api.h"

#include <sys/wait.h>
#include <unistd.h>

#include "fallow/trace.h"

#define CAPTURES   5000
#define RECORDINGS 600
#define POOLS      200

static void a_released_capture_stays_refused_after_thousands_of_others(void **state)
{
    struct api api;
    fallow_capture *first = NULL, *open = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &first), FALLOW_OK);
    assert_int_equal(fallow_capture_end(first), FALLOW_OK);
    assert_int_equal(fallow_capture_release(first), FALLOW_OK);
    for (unsigned i = 0; i < CAPTURES; i++) {
        assert_int_equal(fallow_capture_begin(api.pool, api.stream, &open), FALLOW_OK);
        assert_int_equal(fallow_capture_join(first, api.other), FALLOW_INVALID_CAPTURE);
        assert_int_equal(fallow_capture_end(first), FALLOW_INVALID_CAPTURE);
        void *inside = i % 256 == 0 ? api_alloc(&api, 5000, api.stream) : NULL;
        assert_int_equal(fallow_capture_end(open), FALLOW_OK);
        assert_int_equal(fallow_capture_release(first), FALLOW_INVALID_CAPTURE);
        assert_int_equal(fallow_free(api.pool, inside, api.stream), FALLOW_OK);
        assert_int_equal(fallow_capture_release(open), FALLOW_OK);
    }
    /* The one that is open lives on. */
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &open), FALLOW_OK);
    assert_int_equal(fallow_capture_end(first), FALLOW_INVALID_CAPTURE);
    fallow_block info;
    fallow_block_init(&info);
    void *captured = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_block_info(api.pool, captured, &info), FALLOW_OK);
    assert_int_equal(info.state, FALLOW_BLOCK_CAPTURED);
    assert_int_equal(fallow_free(api.pool, captured, api.stream), FALLOW_OK);
    assert_int_equal(fallow_capture_end(open), FALLOW_OK);
    assert_int_equal(fallow_capture_release(open), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).captured_bytes, 0);
    api_end(&api);
}

static void a_capture_is_refused_once_its_pool_is_gone(void **state)
{
    struct api api;
    fallow_capture *capture = NULL, *others = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    api.pool = api_create(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &others), FALLOW_OK);
    assert_int_equal(fallow_capture_join(capture, api.other), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_release(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_end(others), FALLOW_OK);
    assert_int_equal(fallow_capture_release(others), FALLOW_OK);
    api_end(&api);
}

static void every_place_of_the_table_can_be_captured_in(void **state)
{
    enum {
        MOST = 4096
    };
    static fallow_capture *captures[MOST];
    struct api api;
    fallow_capture *one_more = NULL;
    api_begin_with_pool(&api);
    for (unsigned i = 0; i < MOST; i++) { /* begun, ended, not released */
        fallow_status status = fallow_capture_begin(api.pool, api.stream, &captures[i]);
        if (status == FALLOW_OUT_OF_HOST_MEMORY) { /* no domain: an earlier limit */
            captures[i] = NULL;
            break;
        }
        assert_int_equal(status, FALLOW_OK);
        assert_int_equal(fallow_capture_end(captures[i]), FALLOW_OK);
    }
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &one_more),
                     FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(one_more);
    for (unsigned i = 0; i < MOST && captures[i] != NULL; i++) {
        assert_int_equal(fallow_capture_release(captures[i]), FALLOW_OK);
    }
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &one_more), FALLOW_OK);
    assert_int_equal(fallow_capture_end(one_more), FALLOW_OK);
    assert_int_equal(fallow_capture_release(one_more), FALLOW_OK);
    api_end(&api);
}

static fallow_recorder *start(struct api *api)
{
    fallow_record_config config;
    fallow_recorder *recorder = NULL;
    fallow_record_config_init(&config);
    config.ring_bytes = 4096;
    assert_int_equal(fallow_record_start(api->pool, &config, &recorder), FALLOW_OK);
    return recorder;
}

static void a_stopped_recorder_stays_refused_after_hundreds_of_others(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    fallow_recorder *first = start(&api);
    assert_int_equal(fallow_record_stop(first), FALLOW_OK);
    for (unsigned i = 0; i < RECORDINGS; i++) {
        fallow_recorder *open = start(&api);
        assert_int_equal(fallow_record_mark(first, "x"), FALLOW_INVALID_RECORDER);
        assert_int_equal(fallow_record_dump(first, "/nowhere"), FALLOW_INVALID_RECORDER);
        assert_int_equal(fallow_record_stop(first), FALLOW_INVALID_RECORDER);
        assert_int_equal(fallow_record_mark(open, "x"), FALLOW_OK);
        assert_int_equal(fallow_record_stop(open), FALLOW_OK);
    }
    api_end(&api);
}

static void a_destroyed_pool_stays_refused_after_hundreds_of_others(void **state)
{
    struct api api;
    void *ptr = NULL;
    api_begin_with_pool(&api);
    fallow_pool *first = api.pool;
    fallow_pool_destroy(first);
    for (unsigned i = 0; i < POOLS; i++) {
        api.pool = api_create(&api);
        assert_int_equal(fallow_alloc(first, 5000, api.stream, &ptr), FALLOW_INVALID_POOL);
        fallow_pool_destroy(first);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        fallow_pool_destroy(api.pool);
    }
    api.pool = NULL;
    api_end(&api);
}

/* No pointer is a handle. */
static void handles_of_other_kinds_and_wild_ones_are_refused(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    void *ptr = NULL;
    api_begin_with_pool(&api);
    fallow_recorder *recorder = start(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    void *wild[] = {
        NULL,     &api,    (void *)1,       (void *)UINTPTR_MAX, (void *)(uintptr_t)4096,
        api.pool, capture, (void *)recorder};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        if (wild[i] != (void *)api.pool) {
            assert_int_equal(fallow_alloc(wild[i], 5000, api.stream, &ptr), FALLOW_INVALID_POOL);
            fallow_pool_destroy(wild[i]);
        }
        if (wild[i] != (void *)capture) {
            assert_int_equal(fallow_capture_end(wild[i]), FALLOW_INVALID_CAPTURE);
            assert_int_equal(fallow_capture_release(wild[i]), FALLOW_INVALID_CAPTURE);
        }
        if (wild[i] != (void *)recorder) {
            assert_int_equal(fallow_record_stop(wild[i]), FALLOW_INVALID_RECORDER);
        }
    }
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_record_stop(recorder), FALLOW_OK);
    api_end(&api);
}

static void the_child_of_a_fork_has_no_handles(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    int status = -1;
    api_begin_with_pool(&api);
    fallow_recorder *recorder = start(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit((fallow_capture_join(capture, api.other) != FALLOW_INVALID_CAPTURE) |
              (fallow_capture_end(capture) != FALLOW_INVALID_CAPTURE) << 1 |
              (fallow_capture_release(capture) != FALLOW_INVALID_CAPTURE) << 2 |
              (fallow_record_stop(recorder) != FALLOW_INVALID_RECORDER) << 3 |
              (fallow_pool_validate(api.pool) != FALLOW_INVALID_POOL) << 4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(fallow_record_stop(recorder), FALLOW_OK);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_released_capture_stays_refused_after_thousands_of_others),
        cmocka_unit_test(a_capture_is_refused_once_its_pool_is_gone),
        cmocka_unit_test(every_place_of_the_table_can_be_captured_in),
        cmocka_unit_test(a_stopped_recorder_stays_refused_after_hundreds_of_others),
        cmocka_unit_test(a_destroyed_pool_stays_refused_after_hundreds_of_others),
        cmocka_unit_test(handles_of_other_kinds_and_wild_ones_are_refused),
        cmocka_unit_test(the_child_of_a_fork_has_no_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
