/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the generators: sizes against those computed by hand and in the engines' own documents, schedules,
 * modes, plans, and the files of requests. A trace is named by generator and options, as in "train layers=2"; the value
 * of a choice is a word, the value of a file a path.
 */
#include "support/recording.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "fallow/model.h"
#include "trace/formats/formats.h"
#include "trace/formats/text.h"
#include "trace/gen/plan.h"
#include "trace/gen/requests.h"
#include "trace/trace/intern.h"

#define ROWS(array) (sizeof(array) / sizeof *(array))

static char message[FLW_TRACE_MESSAGE_BYTES];

/* ---- traces ---- */

static void set_option(const struct flw_gen_kind *kind, struct flw_gen_values *values, char *word)
{
    char *value = strchr(word, '=');
    size_t at = 0;
    assert_non_null(value);
    *value++ = '\0';
    while (at < kind->option_count && strcmp(kind->options[at].name, word) != 0) {
        at++;
    }
    assert_true(at < kind->option_count);
    const struct flw_gen_option *option = &kind->options[at];
    uint64_t *number = &values->numbers[(unsigned)option->letter];
    if (option->kind == FLW_GEN_FILE) {
        values->path = value;
    } else if (option->kind != FLW_GEN_CHOICE) {
        *number = strtoull(value, NULL, 10);
        assert_in_range(*number, option->low, option->high);
    } else {
        while (strcmp(option->words[*number], value) != 0) {
            assert_non_null(option->words[++*number]);
        }
    }
}

/* NULL and the message where the generator refuses. */
static struct flw_trace *try_make(const char *words, const char *more)
{
    char copy[512];
    struct flw_trace *trace;
    snprintf(copy, sizeof copy, "%s %s", words, more);
    const char *name = strtok(copy, " ");
    size_t index = 0;
    while (strcmp(flw_gen_get(index)->name, name) != 0) {
        assert_non_null(flw_gen_get(++index));
    }
    const struct flw_gen_kind *kind = flw_gen_get(index);
    struct flw_gen_values values = flw_gen_initial_values(kind);
    for (char *word; (word = strtok(NULL, " ")) != NULL;) {
        set_option(kind, &values, word);
    }
    flw_gen_generate(kind, &values, &trace, message);
    return trace;
}

/* The last four that were made stay. */
static struct flw_trace *made[4];
static size_t made_count;

static struct flw_trace *make_with(const char *words, const char *more)
{
    struct flw_trace **place = &made[made_count++ % ROWS(made)];
    flw_trace_destroy(*place);
    *place = try_make(words, more);
    if (*place == NULL) {
        fail_msg("%s %s: %s", words, more, message);
    }
    assert_true(flw_trace_is_valid(*place));
    return *place;
}

static struct flw_trace *make(const char *words)
{
    return make_with(words, "");
}

static char *print(const struct flw_trace *trace)
{
    static char *text; /* freed by the caller */
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_true(file != NULL && flw_text_print(trace, file) == NULL && fclose(file) == 0);
    return text;
}

/* Return the text after the header, which has the seed. */
static uint64_t checksum(const char *text)
{
    const char *events = strstr(text, "\nalive_at_end ");
    assert_non_null(events);
    return flw_intern_hash(events, strlen(events));
}

static size_t count_size(const struct flw_trace *trace, uint64_t size_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        count += trace->blocks[i].size_bytes == size_bytes;
    }
    return count;
}

static size_t count_live(const struct flw_trace *trace)
{
    return trace->alloc_count - flw_recording_count(trace, FLW_TRACE_FREE);
}

static uint64_t sum_live(const struct flw_trace *trace, size_t until_event)
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
static size_t find_op(const struct flw_trace *trace, enum flw_trace_op op, size_t nth)
{
    size_t i = 0;
    while (trace->events[i].op != op || nth-- > 0) {
        i++;
        assert_true(i < trace->event_count);
    }
    return i;
}

static char requests_path[] = "/tmp/fallow_gen_XXXXXX";

static void write_requests(const char *rows)
{
    FILE *file = fopen(requests_path, "w");
    assert_non_null(file);
    fprintf(file, "%s%s", rows[0] == '{' ? "" : "TIMESTAMP,ContextTokens,GeneratedTokens\n", rows);
    assert_int_equal(fclose(file), 0);
}

/* Generate with these requests, in this order, if there are any. */
static struct flw_trace *serve(const char *rows, const char *words)
{
    char more[64] = "";
    if (rows[0] != '\0') {
        write_requests(rows);
        snprintf(more, sizeof more, "speed=1 requests=%s", requests_path);
    }
    return make_with(words, more);
}

#define ONE_REQUEST "2023-11-16 18:17:03.0,1000,4\n" /* a step of 1000 tokens, three of one */

/* 2 layers, h 128, 2 heads, I 512, V 1000, 3 sequences of 96: T = 288. */
#define SMALL        "train layers=2 hidden=128 heads=2 vocab=1000 batch=3 seq=96 steps=2 "
#define SMALL_LAYER  (4 * 128 * 128 + 3 * 128 * 512 + 2 * 128)
#define SMALL_VALUES (UINT64_C(2) * SMALL_LAYER + 2 * 1000 * 128 + 128)

/* ---- plans ---- */

TEST(formulas_are_computed)
{
    static const struct {
        const char *formula;
        uint64_t value;
    } rows[] = {
        /* clang-format off */
        {"2Th", 60}, {"2T(h+2)", 84}, {"7-2*3", 1}, {"20/3*2", 12}, {"20%7", 6}, {"2^10", 1024}, {"9&4", 4},
        {"4|9", 9}, {"!T", 0}, {"!0h", 5}, {"[3,3]T", 18}, {"!!(T-1)", 1}, {"(T|8)-8", 0}, {"T/2^h", 0}, {"u.2", 11},
        {"u.(T-4)", 11}, {"u.2h", 55}, {"$none+1", 1}, {"8*5/(T+h)", 3},
        /* clang-format on */
    };
    static struct flw_gen gen;
    flw_plan_run(&gen, "T:6 h:5 i*3{u.i:9+i}");
    for (size_t i = 0; i < ROWS(rows); i++) {
        char plan[32];
        snprintf(plan, sizeof plan, "x:%s", rows[i].formula);
        flw_plan_run(&gen, plan);
        assert_int_equal(gen.numbers[0]['x'], rows[i].value);
    }
}

static const char *plan_text;

static void run_plan(struct flw_gen *gen)
{
    flw_gen_add_streams(gen, 2);
    flw_plan_run(gen, plan_text);
}

TEST(plans_allocate_use_and_free)
{
    static const struct flw_gen_option seed[] = {{"seed", "", FLW_GEN_COUNT, 1, 0, 9, NULL, 'Z'}};
    static const struct flw_gen_kind kind = {"plan", "", "", 1, seed, 1, NULL, NULL, run_plan};
    struct flw_gen_values values = flw_gen_initial_values(&kind);
    struct flw_trace *trace;
    plan_text =
        "in=64 out@1=7 in>1 none=0 i*2{row.i=32(2+i-i)} -row.0 kept<in -in ?0{-out} ?!0{-kept -none} -row.1";
    assert_true(flw_gen_generate(&kind, &values, &trace, message));
    char *text = print(trace);
    assert_non_null(strstr(text,
                           "A 0 0 64 0\nA 2000 1 7 1\nU 4000 0 1\nA 4000 2 64 0\nA 6000 3 64 0\n"
                           "F 8000 2 0\nF 8000 0 0\nF 8000 3 0\n"));
    free(text);
    flw_trace_destroy(trace);
    plan_text = "twice=1 twice=1";
    assert_false(flw_gen_generate(&kind, &values, &trace, message));
    assert_non_null(strstr(message, "two blocks one name"));
}

/* ---- all generators ---- */

TEST(every_option_starts_within_its_bounds)
{
    for (size_t i = 0; flw_gen_get(i) != NULL; i++) {
        const struct flw_gen_kind *kind = flw_gen_get(i);
        bool has_letter[FLW_GEN_LETTERS] = {false};
        assert_string_equal(kind->options[kind->option_count - 1].name, "seed");
        for (size_t j = 0; j < kind->option_count; j++) {
            const struct flw_gen_option *option = &kind->options[j];
            assert_in_range(option->initial, option->low, option->high);
            assert_false(has_letter[(unsigned)option->letter]);
            has_letter[(unsigned)option->letter] = true;
            assert_true(
                option->kind != FLW_GEN_CHOICE ||
                (option->words[option->high] != NULL && option->words[option->high + 1] == NULL));
        }
    }
    for (size_t i = 0; fallow_model_preset(i) != NULL; i++) {
        assert_string_equal(flw_gen_serve_kind.options[0].words[i], fallow_model_preset(i)->name);
    }
}

/* Another checksum is another trace, which needs another version. `other`: an option that changes the events. */
TEST(the_same_options_give_the_same_trace)
{
    static const struct {
        const char *words, *other;
        uint64_t checksum;
    } rows[] = {
        /* clang-format off */
        {"random pattern=rmm count=50", "seed=2", UINT64_C(0xeaa852879c3cfad8)},
        {"random pattern=multi-stream count=50", "seed=2", UINT64_C(0x2144be6b74bb940f)},
        {"random pattern=kernels count=50", "count=51", UINT64_C(0x7f4033430a17df82)},
        {"random pattern=query count=3", "seed=2", UINT64_C(0xdc7b19729ee86435)},
        {"adversarial scenario=sawtooth cycles=2", "jitter=10", UINT64_C(0x40da9f5305540c24)},
        {"adversarial scenario=pin-small-between-large cycles=2", "jitter=10", UINT64_C(0x089a82bbabe06075)},
        {"adversarial scenario=comb-free cycles=2", "jitter=10", UINT64_C(0xbf60a38af28d53da)},
        {"adversarial scenario=alternating-streams cycles=2 jitter=20", "seed=2", UINT64_C(0xede13ad643d8c273)},
        {"adversarial scenario=half-max cycles=2", "jitter=10", UINT64_C(0x1a615c014c1b3f74)},
        {"adversarial scenario=batch-size-change cycles=5", "jitter=10", UINT64_C(0xe4d087a8be338027)},
        {"streams workload=serving steps=40", "seed=2", UINT64_C(0x8b9161e2b3c0b005)},
        {"streams workload=offload steps=3", "seed=2", UINT64_C(0x8632ca23f3ff76e4)},
        {"streams workload=shard steps=3", "seed=2", UINT64_C(0xc3d9211dacc4d6de)},
        {"streams workload=images steps=20", "seed=2", UINT64_C(0x345e4cd683cb8680)},
        {"streams workload=experts steps=3", "seed=2", UINT64_C(0xa1d34c0f17d88f3f)},
        {SMALL, "vary=code seq=16384", UINT64_C(0xc263763ef63a66c2)},
        {SMALL "attention=flash precision=bf16-master recompute=full vary=code", "seed=2 seq=16384",
         UINT64_C(0xecc4baa04bcc9c1e)},
        {SMALL "zero3=3 prefetch=2", "precision=bf16", UINT64_C(0xc28c9d72593f9dce)},
        {SMALL "stages=2 rank=1 microbatches=3", "zero3=2 recompute=full", UINT64_C(0x6ab586fee33ec4ad)},
        {"serve model=llama-3-8b steps=5 kv=pages", "seed=2", UINT64_C(0x741c8d94b305c0ec)},
        {"serve model=llama-3-70b steps=3 tp=8 mode=graph max-seqs=8", "seed=2", UINT64_C(0x72347776004a1ee4)},
        {"serve model=qwen3-30b-a3b steps=4 traffic=code", "seed=2", UINT64_C(0x98408c2e0d69d391)},
        {"serve model=mixtral-8x7b steps=4 ep=4 expert-skew=100", "seed=2", UINT64_C(0x4e39e1b30910eca9)},
        {"serve model=deepseek-v3 steps=4 tp=8 mla=flashmla traffic=long", "seed=2", UINT64_C(0x8c04d1f2523d7b02)},
        /* clang-format on */
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        char line[64];
        struct flw_trace *trace = make(rows[i].words),
                         *other = make_with(rows[i].words, rows[i].other);
        struct flw_trace *read = NULL;
        char *text = print(trace), *other_text = print(other);
        if (checksum(text) != rows[i].checksum) {
            fail_msg("%s: the checksum is 0x%016" PRIx64, rows[i].words, checksum(text));
        }
        assert_true(checksum(text) != checksum(other_text));
        assert_true(flw_trace_read_bytes(text, strlen(text), "name", -1, &read, message));
        char *again = print(read);
        assert_string_equal(again, text);
        snprintf(line, sizeof line, "\nalive_at_end %zu blocks, ", count_live(trace));
        assert_non_null(strstr(text, line));
        assert_true(strncmp(rows[i].words, "serve", 5) == 0 ||
                    count_live(trace) + count_live(other) == 0);
        free(again);
        free(text);
        free(other_text);
        flw_trace_destroy(read);
    }
}

TEST(what_does_not_fit_together_is_refused)
{
    static const char *const rows[][2] = {
        /* clang-format off */
        {"serve model=llama-3-8b tp=3", "--tp 3"},
        {"serve model=llama-3-8b ep=2", "--ep 2"},
        {"serve model=mixtral-8x7b ep=3", "--ep 3"},
        {"serve kv-bytes=1048576", "--kv-bytes"},
        {"serve requests=/nowhere/at/all", "/nowhere/at/all"},
        {"train stages=2 rank=2", "--rank 2"},
        {"train stages=25 rank=0", "--layers 24"},
        {"train heads=15", "--heads"},
        {"train lengths=/nowhere/at/all", "/nowhere/at/all"},
        {"train hidden=65536 vocab=1048576 inner=1048576 batch=4096 seq=131072", "more than any device has"},
        {"streams workload=serving streams=5", "--streams 5: serving has 4; leave it out"},
        {"streams workload=images streams=1", "--streams 1: images needs 3 to 64"},
        /* clang-format on */
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        assert_null(try_make(rows[i][0], ""));
        assert_non_null(strstr(message, rows[i][1]));
    }
}

/* ---- sizes ---- */

/* Of a trace: the peak (0: not checked), and how often sizes are allocated. */
TEST(sizes_are_those_computed_by_hand)
{
    static const struct {
        const char *requests, *words;
        uint64_t peak_bytes;
        struct {
            uint64_t bytes;
            size_t count;
        } sizes[10];
    } rows[] = {
        /* clang-format off */
        /* qkv, gate and up, their product, sums; norm twice, attention out, projection, down and one embedding; qkv of a
         * token; sampling in fp32, three times more, in bf16; ids, positions, slots; the cache */
        {ONE_REQUEST, "serve model=llama-3-8b steps=4 kv-bytes=4294967296", 0,
         {{1000 * (32 + 16) * 128 * 2, 32}, {1000 * 2 * 14336 * 2, 32}, {1000 * 14336 * 2, 32}, {4 * 32 * 1000, 32},
          {1000 * 4096 * 2, 32 * 5 + 1}, {1 * (32 + 16) * 128 * 2, 3 * 32}, {128256 * 4, 4 * 4}, {128256 * 2, 4},
          {1000 * 8, 3}, {4 * FLW_GIB / 32, 32}}},
        /* ceil(3001 / 1024) = 3 splits */
        {"2023-11-16 18:17:03.0,3000,4\n", "serve model=llama-3-8b steps=4", 0,
         {{3 * 32 * 128 * 4, 3 * 32}, {3 * 32 * 4, 3 * 32}}},
        /* 8192 x 8 x 2048 x 2 and the workspace, 8192 x 8 x 768 x 2; blocks of 128 rows; one token: 8 blocks of 16 rows;
         * 8 x 2048 x 2; scores */
        {"2023-11-16 18:17:03.0,8192,2\n", "serve model=qwen3-30b-a3b steps=2", 0,
         {{268435456, 48 + 1}, {100663296, 48}, {81792 * 4, 48}, {639 * 4, 48}, {128 * 4, 48}, {32768, 48},
          {8192 * 128 * 2, 48}}},
        /* 512 x 2 x 28672 x 2 */
        {"2023-11-16 18:17:03.0,512,1\n", "serve model=mixtral-8x7b steps=1", 0,
         {{58720256, 32}, {29360128, 32}, {2040 * 4, 32}}},
        /* (1 + 66) x 128 x 512 x 4; 131072 x 576 x 2; keys and values; the absorbed query */
        {ONE_REQUEST, "serve model=deepseek-v3 mla=flashmla steps=2", 0,
         {{17563648, 61}, {34304, 61}, {2112, 61}, {150994944, 1}, {1000 * 128 * 256 * 2, 61}, {1 * 128 * 576 * 2, 61}}},
        /* (1 + 132) x 16 x 512 x 4 */
        {ONE_REQUEST, "serve model=deepseek-v3 mla=flashmla steps=2 tp=8", 0, {{4358144, 61}}},
        {ONE_REQUEST, "serve model=deepseek-v3 mla=triton steps=2", 0, {{128 * 4 * 513 * 4, 61}}},
        /* fp32 logits of more than max-seqs */
        {"", "serve steps=60 speed=100 max-seqs=4", 0, {{5 * 128256 * 4, 0}, {6 * 128256 * 4, 0}, {7 * 128256 * 4, 0}}},
        /* pages of 1030 tokens, then of 65 */
        {"2023-11-16 18:17:03.0,1000,30\n2023-11-16 18:18:03.0,64,1\n", "serve model=llama-3-8b kv=pages steps=31", 0,
         {{UINT64_C(64) * 32 * 2 * 8 * 128 * 2, 17 + 2}}},
        /* scores 2 b H s s: five forward, six backward; in fp32 three and seven; two layers, two steps; mask; loss; the
         * head's cast */
        {"", SMALL, 0,
         {{2 * 3 * 2 * 96 * 96, 2 * 2 * 11}, {4 * 3 * 2 * 96 * 96, 2 * 2 * 10}, {96 * 96, 2 * 2},
          {288 * 1000 * 4, 2 * (4 + 4)}, {1000 * 128 * 2, 2 * 2}}},
        {"", SMALL "attention=flash", 0, {{2 * 3 * 2 * 96 * 96, 0}, {96 * 96, 0}}},
        /* a layer's 4 n / 4: weights, gradients, 14 of each update; gathered in bf16, forward and backward */
        {"", SMALL "zero3=4", 0, {{SMALL_LAYER, 2 + 2 * 2 + 2 * 2 * 14}, {2 * SMALL_LAYER, 2 * 2 * 2 + 2 * 2}}},
        /* as reported; in each cycle two large blocks beside those left by earlier cycles */
        {"", "adversarial scenario=pin-small-between-large cycles=100 size=4293918720", 91 * FLW_MIB * 3 / 2 + 200 * FLW_MIB,
         {{91 * FLW_MIB, 100}, {91 * FLW_MIB / 2, 100}, {2 * FLW_MIB, 100}}},
        {"", "adversarial scenario=half-max cycles=3 size=1073741824", FLW_GIB,
         {{FLW_GIB, 3}, {FLW_GIB / 2, 3 * 4}, {FLW_GIB / 8, 3 * 8}}},
        {"", "adversarial scenario=comb-free cycles=2 size=1073741824", FLW_GIB,
         {{FLW_GIB / 64, 2 * 64}, {FLW_GIB / 32, 2 * 16}}},
        /* clang-format on */
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct flw_trace *trace = serve(rows[i].requests, rows[i].words);
        uint64_t peak_bytes = rows[i].peak_bytes;
        assert_true(peak_bytes == 0 || trace->peak_requested_bytes == peak_bytes);
        for (size_t s = 0; s < ROWS(rows[i].sizes) && rows[i].sizes[s].bytes > 0; s++) {
            uint64_t bytes = rows[i].sizes[s].bytes;
            size_t count = count_size(trace, bytes);
            if (count != rows[i].sizes[s].count) {
                fail_msg("%s: %zu blocks of %" PRIu64 " bytes", rows[i].words, count, bytes);
            }
        }
    }
}

/* ---- random ---- */

/* 2n steps, each an allocation or a free, with 73 allocations in a hundred until n are taken: the blocks that are live
 * grow to those that 0.46 n steps leave, then fall. */
TEST(random_blocks_are_as_many_as_asked_for)
{
    int64_t live = 0, peak = 0;
    struct flw_trace *trace = make("random pattern=rmm count=10000 max=1048576");
    assert_in_range(trace->alloc_count, 10000, 10010);
    assert_int_equal(trace->event_count, 2 * trace->alloc_count);
    for (size_t i = 0; i < trace->event_count; i++) {
        live += trace->events[i].op == FLW_TRACE_ALLOC ? 1 : -1;
        peak = live > peak ? live : peak;
        assert_in_range(trace->events[i].size_bytes, 1, FLW_MIB);
    }
    assert_in_range(peak, 6000, 6600); /* 10000 (1 - 27/73) = 6301 */
    trace = make("random pattern=rmm count=1000 max=1048576 cap=4194304");
    assert_in_range(trace->peak_requested_bytes, 3 * FLW_MIB, 4 * FLW_MIB - 1);
}

TEST(several_streams_share_blocks_and_queries_spill)
{
    struct flw_trace *none = make("random pattern=multi-stream count=4000 shared=0");
    struct flw_trace *half = make("random pattern=multi-stream count=4000 shared=50");
    assert_int_equal(none->stream_count, 4);
    assert_int_equal(flw_recording_count(none, FLW_TRACE_USE), 0);
    assert_in_range(flw_recording_count(half, FLW_TRACE_USE), 1600, 2200);
    struct flw_trace *roomy = make("random pattern=query count=100 cap=1099511627776");
    struct flw_trace *tight = make("random pattern=query count=100 cap=6442450944");
    assert_true(flw_recording_count(tight, FLW_TRACE_USE) >
                flw_recording_count(roomy, FLW_TRACE_USE));
    assert_true(tight->peak_requested_bytes < roomy->peak_requested_bytes);
}

/* ---- streams ---- */

#define STREAMS_MAX 64

/* "FROM>TO": some block of stream FROM is used on stream TO; '*' is every stream from 1 on. */
static const struct workload {
    const char *words;
    uint64_t streams, pace_ns;
    const char *hands;
} workloads[] = {
    {"streams workload=serving", 4, 20000, "2>0 0>1 0>3 1>3 3>2 0>2 2>1"},
    {"streams workload=offload", 10, 20000, "1>0 2>0 3>0 4>0 5>0 6>0 7>0 8>0 9>0"},
    {"streams workload=shard", 3, 300000, "1>0 0>2 2>0"},
    {"streams workload=images", 64, 20000, "*>0"},
    {"streams workload=experts", 3, 300000, "0>2 1>2 2>0 2>1"},
};

/* Exactly the workload's transfers, on all streams. */
TEST(blocks_go_from_stream_to_stream_as_the_workload_says)
{
    for (size_t i = 0; i < ROWS(workloads); i++) {
        bool is_handed[STREAMS_MAX][STREAMS_MAX] = {{false}}, has_blocks[STREAMS_MAX] = {false};
        struct flw_trace *trace = make(workloads[i].words);
        assert_int_equal(trace->stream_count, workloads[i].streams);
        assert_in_range(trace->peak_requested_bytes, FLW_GIB, 4 * FLW_GIB);
        for (size_t j = 0; j < trace->event_count; j++) {
            const struct flw_trace_event *event = &trace->events[j];
            has_blocks[event->stream] |= event->op == FLW_TRACE_ALLOC;
            if (event->op == FLW_TRACE_USE) {
                is_handed[trace->blocks[event->block].stream][event->stream] = true;
            }
        }
        for (uint64_t from = 0; from < workloads[i].streams; from++) {
            assert_true(has_blocks[from]);
            for (uint64_t to = 0; to < workloads[i].streams; to++) {
                char hand[64];
                bool is_any = workloads[i].hands[0] == '*' && from > 0 && to == 0;
                snprintf(hand, sizeof hand, "%" PRIu64 ">%" PRIu64, from, to);
                assert_int_equal(is_handed[from][to],
                                 is_any || strstr(workloads[i].hands, hand) != NULL);
            }
        }
    }
}

/* One or two launches separate events: the host waits for the device only at the end of a step, and only if the pace is
 * quick. --pace changes only times; the default is each workload's own. */
TEST(the_host_runs_ahead_within_a_step)
{
    for (size_t i = 0; i < ROWS(workloads); i++) {
        const uint64_t paces_ns[] = {workloads[i].pace_ns, 2500};
        struct flw_trace *traces[] = {make_with(workloads[i].words, "steps=50"),
                                      make_with(workloads[i].words, "steps=50 pace=2500")};
        for (size_t t = 0; t < 2; t++) {
            size_t waits = 0;
            uint64_t longest_ns = 0, most_ns = 2 * paces_ns[t] * 8 / 5;
            for (size_t j = 1; j < traces[t]->event_count; j++) {
                const struct flw_trace_event *event = &traces[t]->events[j];
                uint64_t gap_ns = event->time_ns - event[-1].time_ns;
                bool is_end = event->op == FLW_TRACE_PHASE_END;
                waits += is_end && gap_ns > most_ns;
                longest_ns = is_end ? longest_ns : flw_max(longest_ns, gap_ns);
                assert_int_equal(event->op, traces[0]->events[j].op);
                assert_int_equal(event->size_bytes, traces[0]->events[j].size_bytes);
            }
            assert_in_range(longest_ns, paces_ns[t], most_ns);
            assert_in_range(waits, t == 0 ? 0 : 25, 50);
        }
    }
}

/* ---- serve ---- */

TEST(weights_are_as_many_as_the_models_have)
{
    static const struct {
        const char *words;
        uint64_t values;
    } models[] = {
        /* clang-format off */
        {"serve model=llama-3-8b", UINT64_C(8030261248)},
        {"serve model=llama-3-70b", UINT64_C(70553706496)},
        {"serve model=qwen3-30b-a3b", UINT64_C(30532122624) - 48 * 256},
        /* less the heads' norms */
         {"serve model=mixtral-8x7b", UINT64_C(46702792704)},
        /* clang-format on */
    };
    for (size_t i = 0; i < ROWS(models); i++) {
        struct flw_trace *trace = make_with(models[i].words, "steps=1 kv=pages");
        size_t loaded = find_op(trace, FLW_TRACE_PHASE_END, 0);
        assert_int_equal(sum_live(trace, loaded),
                         models[i].values * 2 + 256 * FLW_MIB); /* and a workspace */
    }
}

/* The largest and the sum of the tokens of all steps, by the three inputs on the copying stream. */
static void expect_tokens(struct flw_trace *trace, uint64_t largest, uint64_t sum)
{
    uint64_t largest_bytes = 0, sum_bytes = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        uint64_t bytes = trace->blocks[i].stream == 1 ? trace->blocks[i].size_bytes : 0;
        largest_bytes = flw_max(largest_bytes, bytes);
        sum_bytes += bytes;
    }
    assert_int_equal(largest_bytes / 8, largest);
    assert_int_equal(sum_bytes / 24, sum);
}

TEST(a_step_takes_no_more_tokens_than_it_may)
{
    /* 2500 tokens of prompts and the first ones' two further tokens within five steps, then two steps of one request at
     * most; a minute later the last one: 7, and 1. */
    expect_tokens(
        serve(
            "2023-11-16 18:17:03.0,1000,3\n2023-11-16 18:17:03.0,1500,3\n2023-11-16 18:18:03.0,7,2\n",
            "serve model=llama-3-8b steps=9 max-tokens=512"),
        512, 2500 + 2 * 2 + 7 + 1);
    /* Cached prompt tokens are not computed again. */
    expect_tokens(
        serve(
            "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": [1, 2, 3]}\n"
            "{\"timestamp\": 60000, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": [1, 2, 4]}\n",
            "serve steps=2"),
        1100, 1100 + 1100 - 1024);
}

TEST(captured_blocks_are_in_a_pool_of_their_own)
{
    struct flw_trace_walk walk = {0};
    size_t in_pool = 0;
    bool is_open = false;
    struct flw_trace *trace = make("serve mode=graph steps=1 max-seqs=32");
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_POOL_BEGIN),
                     7); /* 32, 24, 16, 8, 4, 2, 1 */
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
    /* A replayed graph allocates only for sampling. */
    struct flw_trace *short_run = serve(ONE_REQUEST, "serve mode=graph steps=1");
    struct flw_trace *long_run = serve(ONE_REQUEST, "serve mode=graph steps=4");
    assert_int_equal(long_run->alloc_count - short_run->alloc_count, 3 * 7);
}

/* Even choices: an eighth of 8 x T x k, which is 8192, sigma 85. All by Zipf: the ranks with the favourites get
 * more. */
TEST(dealt_experts_get_irregular_shares)
{
    for (size_t skewed = 0; skewed < 2; skewed++) {
        struct flw_trace *trace =
            serve("2023-11-16 18:17:03.0,1024,1\n",
                  skewed ? "serve model=qwen3-30b-a3b ep=8 steps=1 expert-skew=100"
                         : "serve model=qwen3-30b-a3b ep=8 steps=1 expert-skew=0");
        uint64_t lowest = UINT64_MAX, highest = 0;
        for (size_t i = 0; i < trace->block_count; i++) {
            uint64_t size = trace->blocks[i].size_bytes;
            if (trace->blocks[i].stream == 1 && size != 1024 * 8) { /* received tokens */
                lowest = flw_min(lowest, size / 4096);
                highest = flw_max(highest, size / 4096);
            }
        }
        if (skewed) {
            assert_true(highest > 2 * lowest);
        } else {
            assert_in_range(lowest, 8192 - 6 * 85, 8191);
            assert_in_range(highest, 8193, 8192 + 6 * 85);
        }
    }
}

/* ---- train ---- */

TEST(parameters_and_state_are_as_many_bytes_as_the_model_has)
{
    static const struct {
        const char *words;
        uint64_t weight_bytes, state_bytes; /* a value, with gradients, two moments, masters */
    } rows[] = {
        /* clang-format off */
        {SMALL, 4, 16},
        {SMALL "precision=bf16", 2, 12},
        {SMALL "precision=bf16-master", 2, 16},
        /* clang-format on */
    };
    uint64_t standing = 2 * 8519680 + 2 * 96 * 64 * 2;       /* workspaces, tables of rotations */
    uint64_t ids = 2 * 288 * 8, output = 288 * 1000 * 2 + 4; /* logits and loss */
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct flw_trace *trace = make(rows[i].words);
        size_t begin = find_op(trace, FLW_TRACE_PHASE_BEGIN, 0);
        size_t end = find_op(trace, FLW_TRACE_PHASE_END, 3); /* of the first step */
        assert_int_equal(sum_live(trace, begin),
                         rows[i].weight_bytes * SMALL_VALUES + standing + ids);
        assert_int_equal(sum_live(trace, end),
                         rows[i].state_bytes * SMALL_VALUES + standing + ids + output);
    }
}

/* Of 4 stages the first one's peak has four microbatches in flight, the last one's has one. */
TEST(a_pipeline_holds_one_microbatch_for_each_stage_behind)
{
    uint64_t peaks[4];
    for (unsigned rank = 0; rank < 4; rank++) {
        char more[16];
        snprintf(more, sizeof more, "rank=%u", rank);
        struct flw_trace *trace =
            make_with("train layers=8 hidden=256 heads=4 vocab=64 seq=512 steps=1 stages=4", more);
        assert_int_equal(count_live(trace), 0);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_PHASE_END), 8 + 8 + 2);
        peaks[rank] = trace->peak_requested_bytes;
    }
    uint64_t one = peaks[1] - peaks[2]; /* bytes that a microbatch keeps */
    assert_true(peaks[1] > peaks[2] && peaks[2] > peaks[3]);
    assert_in_range(peaks[0] - peaks[1], one - one / 4, one + one / 4);
}

/* ---- requests ---- */

static bool read_text(const char *text, struct flw_requests *out)
{
    return flw_requests_read_bytes(text, strlen(text), "name", out, message);
}

TEST(files_of_requests_are_read)
{
    static const struct {
        const char *text;
        struct flw_request items[4];
    } rows[] = {
        /* clang-format off */
        {"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.9799600,4808,10\r\n"
        "2023-11-17 00:00:00.0319600,0,8\r\n"
        "2023-11-17 00:00:00,3,9999999", /* arrivals never fall */ {{0, 4808, 10, 0}, {52000, 1, 8, 0}, {52000, 3,
         FLW_REQUEST_TOKENS_MAX, 0}}},
        {"{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n"
        "{\"timestamp\": 27485, \"input_length\":6955,\"output_length\": 5, \"hash_ids\": [46, 47, 48]}\n"
        "{\"timestamp\": 27485, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [9, 47, 0, 7]}\n"
        "{\"timestamp\": 27485, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\":[0,7", /* one token is left
         */ {{0, 6955, 52, 0}, {3000, 6955, 5, 1024}, {3000, 1024, 5, 0}, {3000, 1024, 5, 1023}}},
        /* clang-format on */
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct flw_requests requests;
        assert_true(read_text(rows[i].text, &requests));
        assert_int_equal(requests.count, 3 + i);
        assert_memory_equal(requests.items, rows[i].items, requests.count * sizeof *requests.items);
        flw_requests_finish(&requests);
    }
}

TEST(broken_requests_are_named_with_their_line)
{
    static const char *const texts[] = {
        "",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "time,a,b\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:17:03.97,4808,1\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n1823-11-16 18:17:03.97,4808,1\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,99999999999999999999999,1\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,-3,1\n",
        "{\"timestamp\": 0, \"input_length\": 3}\n",
        "{\"timestamp\": 99999999999999999999, \"input_length\": 3, \"output_length\": 1}\n",
        "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [x]}\n",
    };
    struct flw_requests requests;
    for (size_t i = 0; i < ROWS(texts); i++) {
        assert_false(read_text(texts[i], &requests));
        assert_null(requests.items);
        assert_non_null(strstr(message, "name: line "));
    }
}

TEST(drawn_requests_look_like_the_tables)
{
    static struct flw_gen gen = {.random_state = 3};
    size_t short_count = 0;
    for (size_t i = 0; i < 10000; i++) {
        struct flw_request request = flw_requests_draw(&gen, 0);
        assert_in_range(request.prompt, 2, 14050);
        assert_in_range(request.output, 7, 1000);
        short_count += request.prompt < 1020; /* the median */
    }
    assert_in_range(short_count, 4800, 5200);
}

static int make_file(void **state)
{
    int file = mkstemp(requests_path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    for (size_t i = 0; i < ROWS(made); i++) {
        flw_trace_destroy(made[i]);
    }
    return unlink(requests_path);
}

FLW_TEST_MAIN(make_file, remove_file)
