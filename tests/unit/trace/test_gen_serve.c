/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the generator `serve`: its blocks against sizes computed by hand and in the
 * engines' own documents, its schedule, its captures.
 */
#include "unit/trace/test_gen_bed.h"

#include <unistd.h>

#include "base/bits.h"
#include "trace/gen/gen_serve.h"

static char folder[] = "/tmp/fallow_gen_serve_XXXXXX";
static char requests_path[64];

/* Row by row: a second apart, so that no two run at once. */
static void write_requests(const char *rows)
{
    FILE *file = fopen(requests_path, "w");
    assert_non_null(file);
    fprintf(file, "TIMESTAMP,ContextTokens,GeneratedTokens\n%s", rows);
    assert_int_equal(fclose(file), 0);
}

static struct flw_trace *serve(const char *words)
{
    char all[512];
    snprintf(all, sizeof(all), "%s speed=1 requests=%s", words, requests_path);
    return bed_make("serve", all);
}

static void models_are_named_as_the_presets_are(void **state)
{
    size_t count = 0;
    (void)state;
    while (flw_serve_model_names[count] != NULL) {
        assert_non_null(fallow_model_preset(count));
        assert_string_equal(flw_serve_model_names[count], fallow_model_preset(count)->name);
        count++;
    }
    assert_null(fallow_model_preset(count));
}

/* A prompt of 1000 tokens in one step, and three steps of one token each. */
#define ONE_REQUEST "2023-11-16 18:17:03.0,1000,4\n"

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(requests_path, sizeof(requests_path), "%s/requests.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(requests_path);
    return rmdir(folder);
}

/* ---- sizes ---- */

/* Bytes of the blocks taken before the first event of an op behind `from`. */
static uint64_t sum_until(const struct flw_trace *trace, uint8_t op)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->event_count && trace->events[i].op != op; i++) {
        bytes += trace->events[i].op == FLW_TRACE_ALLOC ? trace->events[i].size_bytes : 0;
    }
    return bytes;
}

static void weights_are_as_many_as_the_models_have(void **state)
{
    static const struct {
        const char *words;
        uint64_t values;
    } models[] = {
        {"model=llama-3-8b", UINT64_C(8030261248)},
        {"model=llama-3-70b", UINT64_C(70553706496)},
        {"model=qwen3-30b-a3b", UINT64_C(30532122624) - 48 * 256}, /* less the heads' norms */
        {"model=mixtral-8x7b", UINT64_C(46702792704)},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char words[128];
        snprintf(words, sizeof(words), "%s steps=1 kv=pages", models[i].words);
        struct flw_trace *trace = bed_make("serve", words);
        assert_true(sum_until(trace, FLW_TRACE_PHASE_END) ==
                    models[i].values * 2 + 256 * FLW_MIB); /* and a workspace */
        flw_trace_destroy(trace);
    }
}

static void a_dense_layer_has_the_sizes_computed_by_hand(void **state)
{
    (void)state;
    write_requests(ONE_REQUEST);
    struct flw_trace *trace = serve("model=llama-3-8b steps=4 kv-bytes=4294967296");
    assert_int_equal(bed_count_size(trace, 1000 * (32 + 16) * 128 * 2), 32); /* qkv */
    assert_int_equal(bed_count_size(trace, 1000 * 2 * 14336 * 2), 32);       /* gate and up */
    assert_int_equal(bed_count_size(trace, 1000 * 14336 * 2), 32);           /* their product */
    assert_int_equal(bed_count_size(trace, 4 * 32 * 1000), 32);              /* sums */
    /* norm twice, attention out, projection, down; one embedding */
    assert_int_equal(bed_count_size(trace, 1000 * 4096 * 2), 32 * 5 + 1);
    assert_int_equal(bed_count_size(trace, 1 * (32 + 16) * 128 * 2), 3 * 32);
    assert_int_equal(bed_count_size(trace, 128256 * 4),
                     4 * 4); /* sampling: fp32, three times more */
    assert_int_equal(bed_count_size(trace, 128256 * 2), 4);
    assert_int_equal(bed_count_size(trace, 1000 * 8), 3); /* ids, positions, slots */
    assert_int_equal(bed_count_size(trace, 4 * FLW_GIB / 32), 32);
    flw_trace_destroy(trace);
}

static void long_contexts_are_split(void **state)
{
    (void)state;
    write_requests("2023-11-16 18:17:03.0,3000,4\n");
    struct flw_trace *trace = serve("model=llama-3-8b steps=4");
    assert_int_equal(bed_count_size(trace, 3 * 32 * 128 * 4), 3 * 32); /* ceil(3001 / 1024) = 3 */
    assert_int_equal(bed_count_size(trace, 3 * 32 * 4), 3 * 32);
    flw_trace_destroy(trace);
}

static void experts_have_the_sizes_of_the_fused_kernels(void **state)
{
    (void)state;
    write_requests("2023-11-16 18:17:03.0,8192,2\n");
    struct flw_trace *trace = serve("model=qwen3-30b-a3b steps=2");
    assert_int_equal(bed_count_size(trace, 268435456), 48 + 1); /* 8192 x 8 x 2048 x 2; workspace */
    assert_int_equal(bed_count_size(trace, 100663296), 48);     /* 8192 x 8 x 768 x 2 */
    assert_int_equal(bed_count_size(trace, 81792 * 4), 48);     /* blocks of 128 rows */
    assert_int_equal(bed_count_size(trace, 639 * 4), 48);       /* 81792 / 128 */
    assert_int_equal(bed_count_size(trace, 128 * 4), 48);       /* one token: 8 blocks of 16 rows */
    assert_int_equal(bed_count_size(trace, 32768), 48);         /* 8 x 2048 x 2 */
    assert_int_equal(bed_count_size(trace, 8192 * 128 * 2), 48);
    flw_trace_destroy(trace);
    write_requests("2023-11-16 18:17:03.0,512,1\n");
    trace = serve("model=mixtral-8x7b steps=1");
    assert_int_equal(bed_count_size(trace, 58720256), 32); /* 512 x 2 x 28672 x 2 */
    assert_int_equal(bed_count_size(trace, 29360128), 32);
    assert_int_equal(bed_count_size(trace, 2040 * 4), 32);
    flw_trace_destroy(trace);
}

static void latent_attention_has_the_sizes_of_its_kernels(void **state)
{
    (void)state;
    write_requests(ONE_REQUEST);
    struct flw_trace *trace = serve("model=deepseek-v3 mla=flashmla steps=2");
    assert_int_equal(bed_count_size(trace, 17563648), 61); /* (1 + 66) x 128 x 512 x 4 */
    assert_int_equal(bed_count_size(trace, 34304), 61);
    assert_int_equal(bed_count_size(trace, 2112), 61);
    assert_int_equal(bed_count_size(trace, 150994944), 1);             /* 131072 x 576 x 2 */
    assert_int_equal(bed_count_size(trace, 1000 * 128 * 256 * 2), 61); /* keys and values */
    assert_int_equal(bed_count_size(trace, 1 * 128 * 576 * 2), 61);    /* the absorbed query */
    flw_trace_destroy(trace);
    trace = serve("model=deepseek-v3 mla=flashmla steps=2 tp=8");
    assert_int_equal(bed_count_size(trace, 4358144), 61); /* (1 + 132) x 16 x 512 x 4 */
    flw_trace_destroy(trace);
    trace = serve("model=deepseek-v3 mla=triton steps=2");
    assert_int_equal(bed_count_size(trace, 128 * 4 * 513 * 4), 61);
    flw_trace_destroy(trace);
}

/* ---- schedule ---- */

/* The largest and the sum of the tokens of all steps, told by the inputs on the copying stream. */
static void measure_steps(const struct flw_trace *trace, uint64_t *out_largest, uint64_t *out_sum)
{
    *out_largest = *out_sum = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        if (trace->blocks[i].stream == 1) {
            *out_largest = flw_max(*out_largest, trace->blocks[i].size_bytes / 8);
            *out_sum += trace->blocks[i].size_bytes / 8;
        }
    }
    *out_sum /= 3;
}

static void a_step_takes_no_more_tokens_than_it_may(void **state)
{
    uint64_t largest;
    uint64_t sum;
    (void)state;
    write_requests("2023-11-16 18:17:03.0,1000,3\n"
                   "2023-11-16 18:17:03.0,1500,3\n"
                   "2023-11-16 18:18:03.0,7,2\n");
    struct flw_trace *trace = serve("model=llama-3-8b steps=9 max-tokens=512");
    measure_steps(trace, &largest, &sum);
    assert_int_equal(largest, 512);
    /* 2500 tokens of prompts and the first ones' two further tokens within five steps, then two steps
     * of one request at most; a minute later the last one: 7, and 1 */
    assert_int_equal(sum, 2500 + 2 * 2 + 7 + 1);
    flw_trace_destroy(trace);
}

static void fewer_requests_run_where_fewer_may(void **state)
{
    (void)state;
    struct flw_trace *many = bed_make("serve", "steps=60 speed=100");
    struct flw_trace *few = bed_make("serve", "steps=60 speed=100 max-seqs=4");
    uint64_t largest_many = 0;
    uint64_t largest_few = 0;
    for (size_t i = 0; i < many->block_count; i++) { /* fp32 logits */
        uint64_t rows = many->blocks[i].size_bytes / (128256 * 4);
        bool is_logits = many->blocks[i].size_bytes == rows * 128256 * 4 && rows < 1000;
        largest_many = is_logits ? flw_max(largest_many, rows) : largest_many;
    }
    for (size_t i = 0; i < few->block_count; i++) {
        uint64_t rows = few->blocks[i].size_bytes / (128256 * 4);
        bool is_logits = few->blocks[i].size_bytes == rows * 128256 * 4 && rows < 1000;
        largest_few = is_logits ? flw_max(largest_few, rows) : largest_few;
    }
    assert_int_equal(largest_few, 4);
    assert_true(largest_many > 8);
    flw_trace_destroy(many);
    flw_trace_destroy(few);
}

static void pages_come_with_tokens_and_go_with_requests(void **state)
{
    uint64_t page = UINT64_C(64) * 32 * 2 * 8 * 128 * 2; /* 8 MiB */
    (void)state;
    write_requests("2023-11-16 18:17:03.0,1000,30\n2023-11-16 18:18:03.0,64,1\n");
    struct flw_trace *trace = serve("model=llama-3-8b kv=pages steps=31");
    assert_int_equal(bed_count_size(trace, page), 17 + 2); /* 1030 tokens, then 65 */
    for (size_t i = 0; i < trace->block_count; i++) {
        assert_true(trace->blocks[i].size_bytes != page || trace->blocks[i].freed);
    }
    flw_trace_destroy(trace);
}

static void known_beginnings_of_prompts_are_not_computed_again(void **state)
{
    uint64_t largest;
    uint64_t sum;
    char words[256];
    (void)state;
    FILE *file = fopen(requests_path, "w");
    assert_non_null(file);
    for (int i = 0; i < 2; i++) {
        fprintf(file,
                "{\"timestamp\": %d, \"input_length\": 1100, \"output_length\": 1, "
                "\"hash_ids\": [1, 2, %d]}\n",
                60000 * i, 3 + i);
    }
    fclose(file);
    snprintf(words, sizeof(words), "steps=2 speed=1 requests=%s", requests_path);
    struct flw_trace *trace = bed_make("serve", words);
    measure_steps(trace, &largest, &sum);
    assert_int_equal(sum, 1100 + 1100 - 1024);
    flw_trace_destroy(trace);
}

/* ---- modes ---- */

static void captured_blocks_are_in_a_pool_of_their_own(void **state)
{
    struct flw_trace_walk walk = {0};
    size_t in_pool = 0;
    bool is_open = false;
    (void)state;
    struct flw_trace *trace = bed_make("serve", "mode=graph steps=1 max-seqs=32");
    /* 32, 24, 16, 8, 4, 2, 1 */
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_POOL_BEGIN), 7);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_POOL_END), 7);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        uint32_t pool = flw_trace_walk_context(trace, &walk, i)->pool;
        is_open = event->op == FLW_TRACE_POOL_BEGIN || (is_open && event->op != FLW_TRACE_POOL_END);
        if (event->op == FLW_TRACE_ALLOC) {
            assert_int_equal(pool, is_open ? 1 : 0);
            in_pool += is_open;
            assert_true(!is_open || trace->blocks[event->block].freed);
        }
    }
    assert_int_equal(in_pool, 7 * (1 + 32 * (9 + 2))); /* contexts of 32768 are split */
    flw_trace_destroy(trace);
}

static void a_replayed_graph_takes_only_what_samples(void **state)
{
    (void)state;
    write_requests(ONE_REQUEST);
    struct flw_trace *short_run = serve("model=llama-3-8b mode=graph steps=1");
    struct flw_trace *long_run = serve("model=llama-3-8b mode=graph steps=4");
    assert_int_equal(long_run->alloc_count - short_run->alloc_count, 3 * 7);
    flw_trace_destroy(short_run);
    flw_trace_destroy(long_run);
}

/* Even choices: an eighth of 8 x T x k. All by Zipf: whoever has the favourites gets more. */
static void dealt_experts_get_irregular_shares(void **state)
{
    uint64_t bytes[2] = {0, 0};
    (void)state;
    for (size_t skewed = 0; skewed < 2; skewed++) {
        write_requests("2023-11-16 18:17:03.0,1024,1\n");
        struct flw_trace *trace = serve(skewed ? "model=qwen3-30b-a3b ep=8 steps=1 expert-skew=100"
                                               : "model=qwen3-30b-a3b ep=8 steps=1 expert-skew=0");
        uint64_t lowest = UINT64_MAX;
        uint64_t highest = 0;
        for (size_t i = 0; i < trace->block_count; i++) {
            uint64_t size = trace->blocks[i].size_bytes;
            if (trace->blocks[i].stream == 1 && size != 1024 * 8) { /* received tokens */
                lowest = flw_min(lowest, size / 4096);
                highest = flw_max(highest, size / 4096);
            }
        }
        if (skewed) {
            assert_true(highest > 2 * lowest);
        } else { /* 8192 in the mean, sigma 85 */
            assert_in_range(lowest, 8192 - 6 * 85, 8191);
            assert_in_range(highest, 8193, 8192 + 6 * 85);
        }
        bytes[skewed] = trace->peak_requested_bytes;
        flw_trace_destroy(trace);
    }
    assert_true(bytes[1] != bytes[0]);
}

static void every_mode_is_reproducible_and_says_what_stays(void **state)
{
    static const char *const modes[] = {
        "model=llama-3-8b steps=20",
        "model=llama-3-8b steps=20 mode=graph max-seqs=16",
        "model=llama-3-70b steps=10 tp=8 kv=pages traffic=code",
        "model=qwen3-30b-a3b steps=10 ep=8",
        "model=deepseek-v3 steps=6 tp=8 ep=32 mla=flashmla traffic=long",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char other[128];
        snprintf(other, sizeof(other), "%s seed=2", modes[i]);
        bed_expect_reproducible("serve", modes[i], other);
        struct flw_trace *trace = bed_make("serve", modes[i]);
        char line[64];
        snprintf(line, sizeof(line), "alive_at_end %zu blocks, ", bed_count_live_at_end(trace));
        assert_non_null(strstr(trace->notes, line));
        flw_trace_destroy(trace);
    }
}

static void what_does_not_fit_together_is_refused(void **state)
{
    (void)state;
    assert_null(bed_try("serve", "model=llama-3-8b tp=3"));
    assert_non_null(strstr(bed_message, "--tp 3"));
    assert_null(bed_try("serve", "model=llama-3-8b ep=2"));
    assert_null(bed_try("serve", "model=mixtral-8x7b ep=3"));
    assert_non_null(strstr(bed_message, "--ep 3"));
    assert_null(bed_try("serve", "kv-bytes=1048576"));
    assert_non_null(strstr(bed_message, "--kv-bytes"));
    assert_null(bed_try("serve", "requests=/nowhere/at/all"));
    assert_non_null(strstr(bed_message, "/nowhere/at/all"));
}

/* ---- golden ---- */

static void outputs_are_those_of_version_1(void **state)
{
    static const struct bed_golden golden[] = {
        {"serve", "model=llama-3-8b steps=5 kv=pages", UINT64_C(0x741c8d94b305c0ec)},
        {"serve", "model=llama-3-70b steps=3 tp=8 mode=graph max-seqs=8",
         UINT64_C(0x72347776004a1ee4)},
        {"serve", "model=qwen3-30b-a3b steps=4 traffic=code", UINT64_C(0x98408c2e0d69d391)},
        {"serve", "model=mixtral-8x7b steps=4 ep=4 expert-skew=100", UINT64_C(0x4e39e1b30910eca9)},
        {"serve", "model=deepseek-v3 steps=4 tp=8 mla=flashmla traffic=long",
         UINT64_C(0x8c04d1f2523d7b02)},
    };
    (void)state;
    bed_expect_golden(golden, sizeof(golden) / sizeof(golden[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_named_as_the_presets_are),
        cmocka_unit_test(weights_are_as_many_as_the_models_have),
        cmocka_unit_test(a_dense_layer_has_the_sizes_computed_by_hand),
        cmocka_unit_test(long_contexts_are_split),
        cmocka_unit_test(experts_have_the_sizes_of_the_fused_kernels),
        cmocka_unit_test(latent_attention_has_the_sizes_of_its_kernels),
        cmocka_unit_test(a_step_takes_no_more_tokens_than_it_may),
        cmocka_unit_test(fewer_requests_run_where_fewer_may),
        cmocka_unit_test(pages_come_with_tokens_and_go_with_requests),
        cmocka_unit_test(known_beginnings_of_prompts_are_not_computed_again),
        cmocka_unit_test(captured_blocks_are_in_a_pool_of_their_own),
        cmocka_unit_test(a_replayed_graph_takes_only_what_samples),
        cmocka_unit_test(dealt_experts_get_irregular_shares),
        cmocka_unit_test(every_mode_is_reproducible_and_says_what_stays),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(outputs_are_those_of_version_1),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
