/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table "Captures that a call meets" of include/fallow/README.md, cell by cell.
 */
#include "fallow/extend.h"
#include "fallow/sleep.h"
#include "unit/pool/test_api_share.h"

#include <unistd.h>

enum kind {
    TOLD_POOL,    /* fallow_capture_begin */
    TOLD_PROCESS, /* fallow_context_capture_begin */
    KNOWN,        /* not announced, on a stream that the pool has seen */
    UNKNOWN,      /* not announced, on a stream that is new to the pool */
    KINDS
};

struct cell {
    fallow_status status;
    bool survives;
};

static const struct cell sleep_cells[2][KINDS] = {{{FALLOW_BUSY, true},
                                                   {FALLOW_CAPTURING, true},
                                                   {FALLOW_CAPTURING, true},
                                                   {FALLOW_CAPTURING, false}},
                                                  {{FALLOW_BUSY, true},
                                                   {FALLOW_CAPTURING, true},
                                                   {FALLOW_CAPTURING, false},
                                                   {FALLOW_CAPTURING, false}}};
static const struct cell unimport_cells[2][KINDS] = {{{FALLOW_CAPTURING, true},
                                                      {FALLOW_CAPTURING, true},
                                                      {FALLOW_CAPTURING, true},
                                                      {FALLOW_CAPTURING, false}},
                                                     {{FALLOW_CAPTURING, true},
                                                      {FALLOW_CAPTURING, true},
                                                      {FALLOW_CAPTURING, false},
                                                      {FALLOW_CAPTURING, false}}};

static void begin_with_streams(struct api *api, bool streams_may_die)
{
    begin_sharing(api, FALLOW_HANDLE_FD);
    fallow_pool_destroy(api->pool);
    fallow_pool_config config = api_config(api);
    config.handle_types = FALLOW_HANDLE_FD;
    config.streams_may_die = streams_may_die;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void expect_cell(bool is_sleep, bool streams_may_die, enum kind kind)
{
    struct api api;
    void *seen = NULL;
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    const struct cell *cell =
        &(is_sleep ? sleep_cells : unimport_cells)[streams_may_die ? 1 : 0][kind];
    begin_with_streams(&api, streams_may_die);
    CUstream stream = kind == UNKNOWN ? api.other : api.stream;
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(api.pool, &share, &seen), FALLOW_OK);
    close(share.descriptor);
    assert_int_equal(fallow_free(api.pool, api_alloc(&api, 5000, api.stream), api.stream),
                     FALLOW_OK);
    if (kind == TOLD_POOL) {
        assert_int_equal(fallow_capture_begin(api.pool, stream, &capture), FALLOW_OK);
    } else if (kind == TOLD_PROCESS) {
        fallow_context_capture_begin();
    }
    api_begin_capturing(&api, stream);
    fallow_status status =
        is_sleep ? fallow_pool_sleep(api.pool, NULL) : fallow_unimport(api.pool, seen);
    assert_int_equal(status, cell->status);
    CUresult result = api.sim.cu.cuStreamEndCapture(stream, &graph);
    assert_int_equal(result, cell->survives ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(graph != NULL ? api.sim.cu.cuGraphDestroy(graph) : 0, 0);
    if (kind == TOLD_POOL) {
        assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
        assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    } else if (kind == TOLD_PROCESS) {
        fallow_context_capture_end();
    }
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_OK); /* the import is still valid */
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void calls_answer_captures_as_the_table_says(void **state)
{
    for (unsigned i = 0; i < 4 * KINDS; i++) {
        expect_cell(i & 1, i & 2, (enum kind)(i / 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_answer_captures_as_the_table_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
