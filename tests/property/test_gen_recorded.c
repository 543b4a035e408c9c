/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the generated training step against a recorded one of the same model: the same sizes, as often,
 * in the same order, and the same peak. FALLOW_TRACE_DIR names the folder of recorded traces; skipped
 * without.
 */
#include "support/test.h"

#include <inttypes.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/gen/gen.h"

#define RECORDED "cs336_medium_train_ctx1024.pickle.xz"

static struct flw_trace *recorded, *generated;
static size_t step_begin, step_end; /* events of the generated trace's second step */

/* An operation of a step; frees without sizes, because the order among equal sizes is random. */
struct operation {
    uint8_t op;
    uint64_t size_bytes;
};

static size_t list_operations(const struct flw_trace *trace, size_t begin, size_t end,
                              struct operation *out)
{
    size_t count = 0;
    for (size_t i = begin; i < end; i++) {
        uint8_t op = trace->events[i].op;
        if (op == FLW_TRACE_ALLOC || op == FLW_TRACE_FREE) {
            out[count++] = (struct operation){op, trace->events[i].size_bytes};
        }
    }
    return count;
}

static int compare_sizes(const void *a, const void *b)
{
    uint64_t left = ((const struct operation *)a)->size_bytes;
    uint64_t right = ((const struct operation *)b)->size_bytes;
    return (left > right) - (left < right);
}

static uint64_t peak_of_step(void)
{
    uint64_t live_bytes = 0;
    uint64_t peak_bytes = 0;
    for (size_t i = 0; i < step_end; i++) {
        const struct flw_trace_event *event = &generated->events[i];
        live_bytes += event->op == FLW_TRACE_ALLOC ? event->size_bytes : 0;
        live_bytes -= event->op == FLW_TRACE_FREE ? event->size_bytes : 0;
        if (i > step_begin && live_bytes > peak_bytes) {
            peak_bytes = live_bytes;
        }
    }
    return peak_bytes;
}

static void find_second_step(void)
{
    struct flw_trace_walk walk = {0};
    size_t seen = 0;
    for (size_t i = 0; i < generated->event_count && step_end == 0; i++) {
        const char *name = flw_trace_name(generated, flw_trace_walk_detail(generated, &walk, i));
        uint8_t op = generated->events[i].op;
        if (name == NULL || strcmp(name, "step") != 0) {
            continue;
        }
        seen += op == FLW_TRACE_PHASE_BEGIN;
        step_begin = op == FLW_TRACE_PHASE_BEGIN ? i : step_begin;
        step_end = op == FLW_TRACE_PHASE_END && seen == 2 ? i : 0;
    }
}

static void a_generated_step_takes_the_sizes_that_were_recorded(void **state)
{
    struct operation *real = calloc(recorded->event_count, sizeof(*real));
    struct operation *made = calloc(generated->event_count, sizeof(*made));
    if (real == NULL || made == NULL) {
        free(real);
        free(made);
        fail_msg("no memory for the operations");
        return;
    }
    size_t real_count = list_operations(recorded, 0, recorded->event_count, real);
    size_t made_count = list_operations(generated, step_begin, step_end, made);
    assert_int_equal(made_count, real_count);
    assert_true(real_count > 10000);
    size_t same = 0;
    for (size_t i = 0; i < real_count; i++) {
        bool is_alloc = real[i].op == FLW_TRACE_ALLOC;
        same += real[i].op == made[i].op && (!is_alloc || real[i].size_bytes == made[i].size_bytes);
    }
    print_message("%zu of %zu operations are the recorded ones\n", same, real_count);
    assert_int_equal(same, real_count);
    qsort(real, real_count, sizeof(*real), compare_sizes);
    qsort(made, made_count, sizeof(*made), compare_sizes);
    for (size_t i = 0; i < real_count; i++) { /* the histogram */
        assert_int_equal(real[i].size_bytes, made[i].size_bytes);
    }
    free(real);
    free(made);
}

static void its_peak_is_within_two_per_cent_of_the_recorded_one(void **state)
{
    uint64_t peak_bytes = peak_of_step();
    uint64_t real_bytes = recorded->peak_requested_bytes;
    print_message("peak %" PRIu64 ", recorded %" PRIu64 "\n", peak_bytes, real_bytes);
    assert_in_range(peak_bytes, real_bytes / 100 * 98, real_bytes / 100 * 102);
    assert_int_equal(generated->peak_requested_bytes, peak_bytes);
}

static int make_traces(void **state)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    const struct flw_gen_kind *kind = &flw_gen_train_kind;
    struct flw_gen_values values = flw_gen_initial_values(kind);
    values.numbers['N'] = 2; /* steps */
    if (!flw_gen_generate(kind, &values, &generated, message)) {
        print_error("%s\n", message);
        return -1;
    }
    find_second_step();
    return step_end > 0 ? 0 : -1;
}

static int free_traces(void **state)
{
    flw_trace_destroy(recorded);
    flw_trace_destroy(generated);
    return 0;
}

int main(void)
{
    char path[1024];
    char message[FLW_TRACE_MESSAGE_BYTES];
    const char *folder = getenv("FALLOW_TRACE_DIR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generated_step_takes_the_sizes_that_were_recorded),
        cmocka_unit_test(its_peak_is_within_two_per_cent_of_the_recorded_one),
    };
    snprintf(path, sizeof(path), "%s/%s", folder == NULL ? "" : folder, RECORDED);
    if (!flw_trace_read(path, -1, &recorded, message)) {
        fprintf(stderr, "no recorded trace to compare with: %s\n", message);
        return FLW_TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, make_traces, free_traces);
}
