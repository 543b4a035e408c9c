/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the generator `train`, and of the requests whose lengths it takes.
 */
#include "unit/trace/test_gen_bed.h"

#include "base/bits.h"
#include "trace/gen/requests.h"

/* 2 layers, h 128, 2 heads, I 512, V 1000, 3 sequences of 96: T = 288. */
#define SMALL "layers=2 hidden=128 heads=2 vocab=1000 batch=3 seq=96 steps=2 "

static uint64_t sum_live_bytes(const struct flw_trace *trace, size_t until_event)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < until_event; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        bytes += event->op == FLW_TRACE_ALLOC ? event->size_bytes : 0;
        bytes -= event->op == FLW_TRACE_FREE ? event->size_bytes : 0;
    }
    return bytes;
}

/* The index of the nth event of an op, from 0. */
static size_t find_op(const struct flw_trace *trace, uint8_t op, size_t nth)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == op && nth-- == 0) {
            return i;
        }
    }
    fail_msg("too few events of kind %d", op);
    return 0;
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

static void sizes_are_those_computed_by_hand(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("train", SMALL);
    /* scores 2 b H s s: five forward, six backward; in fp32 three and seven; two layers, two steps */
    assert_int_equal(bed_count_size(trace, 2 * 3 * 2 * 96 * 96), 2 * 2 * 11);
    assert_int_equal(bed_count_size(trace, 4 * 3 * 2 * 96 * 96), 2 * 2 * 10);
    assert_int_equal(bed_count_size(trace, 96 * 96), 2 * 2);              /* the mask */
    assert_int_equal(bed_count_size(trace, 288 * 1000 * 4), 2 * (4 + 4)); /* the loss */
    assert_int_equal(bed_count_size(trace, 1000 * 128 * 2), 2 * 2);       /* the head, cast */
    flw_trace_destroy(trace);
}

static void parameters_and_state_are_as_many_bytes_as_the_model_has(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("train", SMALL);
    uint64_t values = 2 * (4 * 128 * 128 + 3 * 128 * 512 + 2 * 128) + 2 * 1000 * 128 + 128;
    uint64_t standing = 2 * 8519680 + 2 * 96 * 64 * 2; /* workspaces, tables of rotations */
    uint64_t ids = 2 * 288 * 8;
    size_t first = find_op(trace, FLW_TRACE_PHASE_BEGIN, 0); /* of the first step */
    assert_int_equal(sum_live_bytes(trace, first), 4 * values + standing + ids);
    size_t end = find_op(trace, FLW_TRACE_PHASE_END, 3); /* weights, gradients, two moments */
    assert_string_equal(flw_trace_name(trace, &trace->details[7]), "step");
    assert_int_equal(trace->details[7].event, end);
    uint64_t output = 288 * 1000 * 2 + 4; /* logits and loss are still held */
    assert_int_equal(sum_live_bytes(trace, end), 16 * values + standing + ids + output);
    flw_trace_destroy(trace);
}

static void masters_are_beside_weights_of_two_bytes(void **state)
{
    (void)state;
    struct flw_trace *half = bed_make("train", SMALL "precision=bf16");
    struct flw_trace *both = bed_make("train", SMALL "precision=bf16-master");
    uint64_t values = 2 * (4 * 128 * 128 + 3 * 128 * 512 + 2 * 128) + 2 * 1000 * 128 + 128;
    size_t end_half = find_op(half, FLW_TRACE_PHASE_END, 3);
    size_t end_both = find_op(both, FLW_TRACE_PHASE_END, 3);
    assert_int_equal(sum_live_bytes(both, end_both) - sum_live_bytes(half, end_half), 4 * values);
    flw_trace_destroy(half);
    flw_trace_destroy(both);
}

/* ---- modes ------------------------------------------------------------------------------------
 */

static void a_repeated_step_takes_the_same_sizes_in_the_same_order(void **state)
{
    (void)state;
    struct flw_trace *trace =
        bed_make("train", "layers=3 hidden=128 heads=2 batch=2 seq=64 steps=3");
    size_t begin[2];
    size_t end[2];
    for (size_t i = 0; i < 2; i++) { /* phases: step, forward, backward, optimizer */
        begin[i] = find_op(trace, FLW_TRACE_PHASE_BEGIN, 4 * (i + 1));
        end[i] = find_op(trace, FLW_TRACE_PHASE_END, 4 * (i + 2) - 1);
    }
    assert_int_equal(end[0] - begin[0], end[1] - begin[1]);
    for (size_t i = 0; i < end[0] - begin[0]; i++) {
        assert_int_equal(trace->events[begin[0] + i].op, trace->events[begin[1] + i].op);
        assert_int_equal(trace->events[begin[0] + i].size_bytes,
                         trace->events[begin[1] + i].size_bytes);
    }
    flw_trace_destroy(trace);
}

static void recomputing_holds_less_and_takes_more(void **state)
{
    (void)state;
    struct flw_trace *kept = bed_make("train", "layers=12 steps=1");
    struct flw_trace *again = bed_make("train", "layers=12 steps=1 recompute=full");
    assert_true(again->peak_requested_bytes < kept->peak_requested_bytes / 2);
    assert_true(again->alloc_count > kept->alloc_count);
    flw_trace_destroy(kept);
    flw_trace_destroy(again);
}

static void flash_attention_takes_no_scores(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("train", SMALL "attention=flash");
    for (size_t i = 0; i < trace->block_count; i++) {
        assert_int_not_equal(trace->blocks[i].size_bytes, 2 * 3 * 2 * 96 * 96);
        assert_int_not_equal(trace->blocks[i].size_bytes, 96 * 96);
    }
    flw_trace_destroy(trace);
}

/* What a layer has, in bf16, on the second stream, used by the first; its own part of the gradients. */
static void shards_are_gathered_and_reduced_on_the_second_stream(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("train", SMALL "zero3=4");
    uint64_t layer = 4 * 128 * 128 + 3 * 128 * 512 + 2 * 128;
    assert_int_equal(trace->stream_count, 2);
    size_t gathers = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        gathers += block->size_bytes == 2 * layer && block->stream == 1;
    }
    assert_int_equal(gathers, 2 * 2 * 2); /* two layers, two steps, forward and backward */
    /* 4 n / 4: weights, gradients, 14 of each update */
    assert_int_equal(bed_count_size(trace, layer), 2 + 2 * 2 + 2 * 2 * 14);
    assert_true(flw_recording_count(trace, FLW_TRACE_USE) >= 2 * gathers);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        assert_true(event->op != FLW_TRACE_USE ||
                    event->stream != trace->blocks[event->block].stream);
    }
    flw_trace_destroy(trace);
}

/* Of 4 stages the first one's peak has four microbatches in flight, the last one's has one. */
static void a_pipeline_holds_one_microbatch_for_each_stage_behind(void **state)
{
    (void)state;
    uint64_t peaks[4];
    for (unsigned rank = 0; rank < 4; rank++) {
        char words[160];
        snprintf(words, sizeof(words),
                 "layers=8 hidden=256 heads=4 vocab=64 seq=512 steps=1 stages=4 rank=%u", rank);
        struct flw_trace *trace = bed_make("train", words);
        assert_int_equal(bed_count_live_at_end(trace), 0);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_PHASE_END), 8 + 8 + 2);
        peaks[rank] = trace->peak_requested_bytes;
        flw_trace_destroy(trace);
    }
    assert_true(peaks[0] > peaks[1] && peaks[1] > peaks[2] && peaks[2] > peaks[3]);
    uint64_t one = peaks[1] - peaks[2]; /* what a microbatch keeps */
    assert_in_range(peaks[0] - peaks[1], one - one / 4, one + one / 4);
}

static void every_mode_is_balanced_and_reproducible(void **state)
{
    static const char *const modes[] = {
        SMALL "vary=conversation ",
        SMALL "vary=code attention=flash recompute=full ",
        SMALL "vary=conversation precision=bf16 zero3=8 prefetch=2 ",
        SMALL "vary=conversation stages=2 rank=1 microbatches=3 zero3=2 recompute=full ",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char words[256];
        char other[256];
        snprintf(other, sizeof(other), "%s seed=2 seq=16384", modes[i]);
        snprintf(words, sizeof(words), "%s seed=1 seq=16384", modes[i]);
        bed_expect_reproducible("train", words, other);
        struct flw_trace *trace = bed_make("train", words);
        assert_int_equal(bed_count_live_at_end(trace), 0);
        flw_trace_destroy(trace);
    }
}

static void what_does_not_fit_together_is_refused(void **state)
{
    (void)state;
    assert_null(bed_try("train", "stages=2 rank=2"));
    assert_non_null(strstr(bed_message, "--rank 2"));
    assert_null(bed_try("train", "layers=3 stages=4"));
    assert_null(bed_try("train", "hidden=100 heads=16"));
    assert_non_null(strstr(bed_message, "--hidden"));
    assert_null(bed_try("train", "lengths=/nowhere/at/all"));
    assert_non_null(strstr(bed_message, "/nowhere/at/all"));
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static char message[FLW_TRACE_MESSAGE_BYTES];

static bool read_text(const char *text, struct flw_requests *out)
{
    return flw_requests_read_bytes(text, strlen(text), "name", out, message);
}

static void azure_rows_are_read(void **state)
{
    struct flw_requests requests;
    (void)state;
    assert_true(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                          "2023-11-16 23:59:59.9799600,4808,10\r\n"
                          "2023-11-17 00:00:00.0319600,0,8\r\n"
                          "2023-11-17 00:00:00,3,9999999",
                          &requests));
    assert_int_equal(requests.count, 3);
    assert_int_equal(requests.items[0].arrival_us, 0);
    assert_int_equal(requests.items[0].prompt, 4808);
    assert_int_equal(requests.items[1].arrival_us, 52000);
    assert_int_equal(requests.items[1].prompt, 1);
    assert_int_equal(requests.items[2].arrival_us, 52000); /* never falls */
    assert_int_equal(requests.items[2].output, FLW_REQUEST_TOKENS_MAX);
    flw_requests_finish(&requests);
}

static void mooncake_lines_know_what_earlier_prompts_began_with(void **state)
{
    struct flw_requests requests;
    (void)state;
    assert_true(read_text(
        "{\"timestamp\": 1000, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [0, 7, 8]}\n"
        "{\"timestamp\": 1003, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [0, 7, 9]}\n"
        "{\"timestamp\": 1003, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [3, 7, 9]}\n"
        "{\"timestamp\": 1004, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\":[0,7]}\n",
        &requests));
    assert_int_equal(requests.count, 4);
    assert_int_equal(requests.items[1].arrival_us, 3000);
    assert_int_equal(requests.items[0].known, 0);
    assert_int_equal(requests.items[1].known, 1024);
    assert_int_equal(requests.items[2].known, 0);
    assert_int_equal(requests.items[3].known, 1023); /* one token is left to compute */
    flw_requests_finish(&requests);
}

static void broken_requests_are_named_with_their_line(void **state)
{
    static const char *const texts[] = {
        "",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "time,a,b\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:17:03.97,4808,1\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,99999999999999999999999,1\n",
        "{\"timestamp\": 0, \"input_length\": 3}\n",
        "{\"timestamp\": 99999999999999999999, \"input_length\": 3, \"output_length\": 1}\n",
        "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [x]}\n",
        "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1",
    };
    (void)state;
    struct flw_requests requests;
    for (size_t i = 0; i + 1 < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(read_text(texts[i], &requests));
        assert_null(requests.items);
        assert_non_null(strstr(message, "name: line "));
    }
    /* a list that ends with its line holds what it held */
    assert_true(read_text(texts[sizeof(texts) / sizeof(texts[0]) - 1], &requests));
    flw_requests_finish(&requests);
}

static void drawn_requests_look_like_the_tables(void **state)
{
    struct flw_gen gen = {0};
    size_t short_count = 0;
    (void)state;
    flw_gen_seed(&gen, 3);
    for (size_t i = 0; i < 10000; i++) {
        struct flw_request request = flw_requests_draw(&gen, 0);
        assert_in_range(request.prompt, 2, 14050);
        assert_in_range(request.output, 7, 1000);
        short_count += request.prompt < 1020; /* the median */
    }
    assert_in_range(short_count, 4800, 5200);
}

/* ---- golden -----------------------------------------------------------------------------------
 */

static void outputs_are_those_of_version_1(void **state)
{
    static const struct bed_golden golden[] = {
        {"train", SMALL, UINT64_C(0xc263763ef63a66c2)},
        {"train", SMALL "attention=flash precision=bf16-master recompute=full vary=code",
         UINT64_C(0xecc4baa04bcc9c1e)},
        {"train", SMALL "zero3=3 prefetch=2", UINT64_C(0xc28c9d72593f9dce)},
        {"train", SMALL "stages=2 rank=1 microbatches=3", UINT64_C(0x6ab586fee33ec4ad)},
    };
    (void)state;
    bed_expect_golden(golden, sizeof(golden) / sizeof(golden[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_computed_by_hand),
        cmocka_unit_test(parameters_and_state_are_as_many_bytes_as_the_model_has),
        cmocka_unit_test(masters_are_beside_weights_of_two_bytes),
        cmocka_unit_test(a_repeated_step_takes_the_same_sizes_in_the_same_order),
        cmocka_unit_test(recomputing_holds_less_and_takes_more),
        cmocka_unit_test(flash_attention_takes_no_scores),
        cmocka_unit_test(shards_are_gathered_and_reduced_on_the_second_stream),
        cmocka_unit_test(a_pipeline_holds_one_microbatch_for_each_stage_behind),
        cmocka_unit_test(every_mode_is_balanced_and_reproducible),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(azure_rows_are_read),
        cmocka_unit_test(mooncake_lines_know_what_earlier_prompts_began_with),
        cmocka_unit_test(broken_requests_are_named_with_their_line),
        cmocka_unit_test(drawn_requests_look_like_the_tables),
        cmocka_unit_test(outputs_are_those_of_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
