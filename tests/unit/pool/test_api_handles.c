/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: handles of captures and recorders: wild ones, a full table, the child of a fork.
 */
#include "unit/pool/test_api.h"

#include <sys/wait.h>
#include <unistd.h>

#include "fallow/trace.h"

#define CAPTURES   5000
#define RECORDINGS 600
#define POOLS      200

TEST(every_place_of_the_table_can_be_captured_in)
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

TEST(a_stopped_recorder_stays_refused_after_hundreds_of_others)
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

/* No pointer is a handle. */
TEST(handles_of_other_kinds_and_wild_ones_are_refused)
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

TEST(the_child_of_a_fork_has_no_handles)
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
