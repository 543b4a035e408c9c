/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of recording tests: a pool, a file in its own folder, reading it back. */
#ifndef FLW_TESTS_UNIT_TEST_RECORDER_H
#define FLW_TESTS_UNIT_TEST_RECORDER_H

#include "unit/pool/test_api.h"

#include <stdlib.h>
#include <unistd.h>

#include "fallow/trace.h"
#include "support/recording.h"

struct bed {
    struct api api;
    char path[64], folder[40];
    fallow_recorder *recorder;
    struct flw_trace *trace; /* that was read last */
};

/* The bed of the running test. */
static struct bed bed;

static inline void make_folder(void)
{
    memset(&bed, 0, sizeof bed);
    snprintf(bed.folder, sizeof bed.folder, "/tmp/fallow-recorder-XXXXXX");
    assert_non_null(mkdtemp(bed.folder));
    snprintf(bed.path, sizeof bed.path, "%s/a.ftrace", bed.folder);
}

static inline void drop_folder(void)
{
    flw_trace_destroy(bed.trace);
    bed.trace = NULL;
    (void)unlink(bed.path);
    assert_int_equal(rmdir(bed.folder), 0); /* nothing else was left there */
}

static inline void begin_bed(void)
{
    make_folder();
    api_begin_with_pool(&bed.api);
}

static inline void end_bed(void)
{
    drop_folder();
    api_end(&bed.api);
}

static inline fallow_record_config file_config(void)
{
    fallow_record_config config;
    fallow_record_config_init(&config);
    config.path = bed.path;
    return config;
}

static inline void start(uint32_t flags, size_t ring_bytes)
{
    fallow_record_config config = file_config();
    config.flags = flags;
    config.ring_bytes = ring_bytes;
    assert_ok(fallow_record_start(bed.api.pool, &config, &bed.recorder));
    assert_non_null(bed.recorder);
}

/* Read the file. The trace lasts until the next one is read, or until the end of the test. */
static inline struct flw_trace *read_trace(void)
{
    flw_trace_destroy(bed.trace);
    bed.trace = NULL;
    return bed.trace = flw_recording_read_file(bed.path);
}

/* Return the whole trace with nothing missing. */
static inline struct flw_trace *stop_and_read(void)
{
    assert_ok(fallow_record_stop(bed.recorder));
    struct flw_trace *trace = read_trace();
    if (trace->truncation != NULL) {
        print_error("%s\n", trace->truncation);
    }
    assert_null(trace->truncation);
    assert_int_equal(trace->unknown_free_count, 0);
    assert_int_equal(trace->lost_free_count, 0);
    return trace;
}

static inline const struct flw_trace_event *event_of(const struct flw_trace *trace,
                                                     enum flw_trace_op op, const void *address,
                                                     size_t *out_index)
{
    *out_index = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == op &&
            (address == NULL || trace->events[i].address == (uint64_t)(uintptr_t)address)) {
            *out_index = i;
            return &trace->events[i];
        }
    }
    fail_msg("no event %d at %p", (int)op, address);
    return NULL;
}

static inline void free_block(void *ptr, CUstream stream)
{
    assert_ok(fallow_free(bed.api.pool, ptr, stream));
}

#endif
