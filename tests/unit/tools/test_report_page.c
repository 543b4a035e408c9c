/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page of an analysis: complete, safe and bounded. The analysis here is made up and as full as possible.
 */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/plan.h"
#include "report/job.h"
#include "report/page.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#define POLICIES 12
#define FRAMES   5

struct made {
    struct flw_trace trace;
    struct flw_analysis analysis;
    struct flw_analysis_policy policies[POLICIES];
    struct flw_run_result results[POLICIES];
    struct flw_policy policy;
    struct flw_analysis_frame frames[FRAMES];
    uint64_t first_op[FLW_ANALYSIS_COLUMNS + 1], time_ns[FLW_ANALYSIS_COLUMNS + 1];
    struct flw_analysis_range requested[FLW_ANALYSIS_COLUMNS], block[FLW_ANALYSIS_COLUMNS];
    struct flw_analysis_range reserved[FLW_ANALYSIS_COLUMNS];
    struct flw_analysis_owner owners[FLW_ANALYSIS_OWNERS];
    struct flw_analysis_left left[FLW_ANALYSIS_OWNERS];
    uint64_t high[FLW_ANALYSIS_BANDS][FLW_ANALYSIS_COLUMNS];
    struct flw_analysis_holes holes[FLW_ANALYSIS_HOLE_COLUMNS];
    struct flw_analysis_segment segments[64];
    struct flw_analysis_block blocks[FLW_ANALYSIS_RECTANGLES];
    struct flw_analysis_rectangle rectangles[FLW_ANALYSIS_RECTANGLES];
    struct flw_analysis_mark marks[40];
};

static struct flw_program program = {.max_live_bytes = UINT64_C(60000) << 20};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

#define MIB (1024ull * 1024)
static const char evil[] = "</style><script>alert('x')</script>&\"\xff\x01\xc3\xa9";

static void make_series(struct made *made, uint64_t *random)
{
    for (size_t i = 0; i <= FLW_ANALYSIS_COLUMNS; i++) {
        made->first_op[i] = i * 5000;
        made->time_ns[i] = i * i * 1000;
    }
    for (size_t i = 0; i < FLW_ANALYSIS_COLUMNS; i++) {
        uint64_t high = (1000 + next_random(random) % 60000) * MIB;
        made->requested[i] = (struct flw_analysis_range){high / 2, high};
        made->block[i] = (struct flw_analysis_range){high / 2, high + high / 16};
        made->reserved[i] = (struct flw_analysis_range){high, high + high / 8};
        for (size_t c = 0; c < FLW_ANALYSIS_BANDS; c++) {
            made->high[c][i] = next_random(random) % (9000 * MIB);
        }
    }
    for (size_t c = 0; c < FLW_ANALYSIS_HOLE_COLUMNS; c++) {
        for (size_t bin = 9; bin < 40; bin++) {
            made->holes[c].bytes[bin] = next_random(random) % (100 * MIB);
        }
        made->holes[c].largest_request = next_random(random) % (900 * MIB);
    }
}

static void make_blocks(struct made *made, uint64_t *random)
{
    for (size_t i = 0; i < 64; i++) {
        made->segments[i] =
            (struct flw_analysis_segment){.address = (i + 1) << 32, .bytes = 900 * MIB};
    }
    for (size_t i = 0; i < FLW_ANALYSIS_RECTANGLES; i++) {
        uint64_t address = ((i * 64 / FLW_ANALYSIS_RECTANGLES + 1) << 32) + (i % 312) * 2 * MIB;
        uint64_t bytes = 1 + next_random(random) % (2 * MIB);
        uint64_t begin = next_random(random) % 9000000;
        made->blocks[i] = (struct flw_analysis_block){.address = address,
                                                      .requested_bytes = bytes,
                                                      .block_bytes = bytes + bytes / 8,
                                                      .block = (uint32_t)i,
                                                      .is_pending = i % 50 == 0};
        made->rectangles[i] =
            (struct flw_analysis_rectangle){.address = address,
                                            .bytes = bytes << (i % 9),
                                            .begin_op = begin,
                                            .end_op = begin + 1 + next_random(random) % 900000,
                                            .block = (uint32_t)i};
    }
}

static void make_policies(struct made *made)
{
    for (size_t i = 0; i < FRAMES; i++) {
        made->frames[i] = (struct flw_analysis_frame){.op = i,
                                                      .requested_bytes = 1 << 30,
                                                      .reserved_bytes = 2u << 30,
                                                      .hole_count = 7,
                                                      .segments = made->segments,
                                                      .segment_count = 64,
                                                      .blocks = made->blocks,
                                                      .block_count = FLW_ANALYSIS_RECTANGLES};
        snprintf(made->frames[i].name, FLW_ANALYSIS_NAME_BYTES, "moment %zu", i);
    }
    for (size_t i = 0; i < POLICIES; i++) {
        made->results[i] =
            (struct flw_run_result){.policy = &made->policy,
                                    .has_run = true,
                                    .has_times = true,
                                    .all_times = {.p50_ns = 40 + (double)i},
                                    .peak_requested_bytes = 60000 * MIB,
                                    .statistics = {.peak_reserved_bytes = 67000 * MIB},
                                    .all = {.alloc_count = 1000, .wait_count = i},
                                    .failure_count = 3};
        struct flw_analysis_policy *policy = &made->policies[i];
        *policy = (struct flw_analysis_policy){.result = &made->results[i],
                                               .has_series = true,
                                               .requested = made->requested,
                                               .block = made->block,
                                               .reserved = made->reserved,
                                               .block_at_peak_bytes = 62000 * MIB,
                                               .first_failure_op = 5,
                                               .first_failure_bytes = 77 * MIB,
                                               .latency_count = FLW_ANALYSIS_LATENCIES,
                                               .hole_column_count = FLW_ANALYSIS_HOLE_COLUMNS,
                                               .holes = made->holes,
                                               .frames = made->frames,
                                               .frame_count = FRAMES,
                                               .rectangles = made->rectangles,
                                               .rectangle_count = FLW_ANALYSIS_RECTANGLES};
        snprintf(policy->label, sizeof policy->label, "policy %zu %.30s", i, evil);
        for (uint32_t q = 0; q < FLW_ANALYSIS_LATENCIES; q++) {
            policy->latency_ns[q] = (float)(20 + q * q);
        }
    }
}

static void make_holdings(struct made *made)
{
    struct flw_analysis *analysis = &made->analysis;
    analysis->owner_rule = (char *)(uintptr_t)evil;
    analysis->stretch_count = FLW_ANALYSIS_STRETCHES;
    for (size_t i = 0; i < FLW_ANALYSIS_STRETCHES; i++) {
        analysis->stretches[i] = (struct flw_analysis_stretch){
            .end_op = (i + 1) * 1000000, .left_bytes = FLW_ANALYSIS_OWNERS * MIB};
        snprintf(analysis->stretches[i].name, FLW_ANALYSIS_NAME_BYTES, "tenth %zu", i + 1);
    }
    for (size_t i = 0; i < FLW_ANALYSIS_OWNERS; i++) {
        made->owners[i] =
            (struct flw_analysis_owner){.bytes = FLW_ANALYSIS_STRETCHES * MIB, .count = 10};
        snprintf(made->owners[i].name, FLW_ANALYSIS_NAME_BYTES, "%s", evil);
        for (size_t s = 0; s < FLW_ANALYSIS_STRETCHES; s++) {
            made->left[i].bytes[s] = MIB;
        }
    }
    for (size_t moment = 0; moment < FLW_ANALYSIS_MOMENT_COUNT; moment++) {
        analysis->holdings[moment] = (struct flw_analysis_holding){
            .bytes = FLW_ANALYSIS_OWNERS * FLW_ANALYSIS_STRETCHES * MIB,
            .count = FLW_ANALYSIS_OWNERS * 10,
            .owners = made->owners,
            .owner_count = FLW_ANALYSIS_OWNERS,
            .left = moment == FLW_ANALYSIS_SURVIVORS ? made->left : NULL};
    }
}

static struct made *make_full(void)
{
    struct made *made = calloc(1, sizeof *made);
    uint64_t random = 1;
    assert_non_null(made);
    made->trace = (struct flw_trace){.format = (char *)(uintptr_t)evil,
                                     .event_count = 10000000,
                                     .stream_count = 2,
                                     .peak_requested_bytes = 60000 * MIB};
    make_series(made, &random);
    make_blocks(made, &random);
    make_policies(made);
    made->policy.name = "made";
    made->policy.allocates = true;
    struct flw_analysis *analysis = &made->analysis;
    *analysis = (struct flw_analysis){.trace = &made->trace,
                                      .program = &program,
                                      .lag_units = 5000000,
                                      .without_wait_bytes = 62000 * MIB,
                                      .is_by_time = true,
                                      .op_count = 10000000,
                                      .has_times = true,
                                      .columns = {.count = FLW_ANALYSIS_COLUMNS,
                                                  .first_op = made->first_op,
                                                  .time_ns = made->time_ns},
                                      .policies = made->policies,
                                      .policy_count = POLICIES,
                                      .marks = made->marks,
                                      .mark_count = 40};
    snprintf(analysis->title, sizeof analysis->title, "%s", evil);
    snprintf(analysis->verdict, sizeof analysis->verdict, "%s", evil);
    for (size_t i = 0; i < 40; i++) {
        made->marks[i].begin_op = i * 250000;
        made->marks[i].end_op = i * 250000 + 200000;
        snprintf(made->marks[i].name, FLW_ANALYSIS_NAME_BYTES, "%s", evil);
    }
    make_holdings(made);
    for (size_t kind = 0; kind < FLW_ANALYSIS_KIND_COUNT; kind++) {
        analysis->category_count[kind] = FLW_ANALYSIS_CATEGORIES;
        analysis->band_count[kind] = FLW_ANALYSIS_BANDS;
        for (size_t b = 0; b < FLW_ANALYSIS_BANDS; b++) {
            analysis->bands[kind][b].held_bytes = made->high[b];
            snprintf(analysis->bands[kind][b].name, FLW_ANALYSIS_NAME_BYTES, "%s", evil);
        }
    }
    for (size_t s = 0; s < FLW_ANALYSIS_SIZE_BINS; s++) {
        analysis->size_count[s] = s;
        analysis->size_bytes[s] = s << s % 30;
        for (size_t l = 0; l < FLW_ANALYSIS_LIFE_BINS; l++) {
            analysis->life_count[l] = l + 1;
            analysis->size_life[s][l] = (uint32_t)(s * l);
        }
    }
    return made;
}

static char *write_page(const struct flw_analysis *analysis, size_t *out_length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, out_length);
    assert_non_null(file);
    assert_true(flw_page_write(analysis, "", file));
    assert_int_equal(fclose(file), 0);
    return text;
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        count++;
    }
    return count;
}

static void assert_safe(const char *text)
{
    assert_int_equal(count_of(text, "<script"),
                     2); /* the data, and the script that the page's policy names */
    assert_int_equal(count_of(text, "</script"), 2);
    assert_int_equal(count_of(text, "script-src 'sha256-"), 1);
    assert_int_equal(count_of(text, "<script>alert("), 0);
    assert_int_equal(count_of(text, "http://") + count_of(text, "https://"), 1); /* SVG's name */
    assert_int_equal(count_of(text, "</style>"), 1);
    assert_int_equal(count_of(text, "{{"), 0);
    assert_int_equal(count_of(text, "\xff"), 0);
    const char *data = strstr(text, "id=data>"), *end = strstr(data, "</script>");
    assert_non_null(end);
    assert_true(memchr(data + 8, '<', (size_t)(end - data - 8)) == NULL);
    static const char *const tags[] = {"div",   "section", "main", "p",  "h2",
                                       "title", "table",   "tr",   "td", "th"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        char open[16], open_more[16], close[16];
        snprintf(open, sizeof open, "<%s>", tags[i]);
        snprintf(open_more, sizeof open_more, "<%s ", tags[i]);
        snprintf(close, sizeof close, "</%s>", tags[i]);
        assert_int_equal(count_of(text, open) + count_of(text, open_more), count_of(text, close));
    }
}

TEST(the_fullest_page_is_whole_safe_and_bounded)
{
    struct made *made = make_full();
    size_t length = 0;
    char *text = write_page(&made->analysis, &length);
    assert_safe(text);
    assert_true(count_of(text, "&lt;script&gt;alert(&#39;x&#39;)") >= 10); /* in the tables */
    assert_true(count_of(text, "\\u003cscript>alert(") >= 10);             /* in the data */
    assert_true(count_of(text, "\xc3\xa9") >= 10);
    print_message("the fullest page has %zu bytes\n", length);
    assert_true(length < 1500000);
    free(text);
    free(made);
}

/* Return the part of the picture that merged blocks take: rows of cells and their level, of which 35 is full. */
static double merged_share(const struct flw_analysis *analysis)
{
    size_t length = 0;
    char *text = write_page(analysis, &length);
    char *at = strstr(text, "\"dots\":\"");
    double cells = 0, full = 0;
    assert_non_null(at);
    for (at += strlen("\"dots\":"); *at != '"' || at[-1] == ':';) {
        double run = (double)strtoul(at + 1, &at, 36);
        cells += run;
        full += run * (double)strtoul(at, &at, 36) / 35;
    }
    free(text);
    return cells == 0 ? 0 : full / cells;
}

/* Blocks without a rectangle are drawn at their lanes, with their density. */
TEST(merged_blocks_take_their_share_of_the_picture)
{
    struct made *made = make_full();
    struct flw_analysis_policy *policy = &made->policies[0];
    double *byte_ops = calloc(FLW_ANALYSIS_LANE_COLUMNS, sizeof *byte_ops);
    double full =
        512.0 * MIB * 10000000 / FLW_ANALYSIS_LANE_COLUMNS; /* of one column of the lane */
    struct flw_analysis_lane lane = {
        .begin = 4096 + 1024 * MIB, .end = 4096 + 1536 * MIB, .byte_ops = byte_ops};
    assert_non_null(byte_ops);
    made->rectangles[0] = (struct flw_analysis_rectangle){
        .address = 4096, .bytes = 1024 * MIB, .begin_op = 0, .end_op = 10000000};
    for (size_t column = 0; column < FLW_ANALYSIS_LANE_COLUMNS; column++) {
        byte_ops[column] = column < FLW_ANALYSIS_LANE_COLUMNS / 2 ? full : 0.4 * full;
    }
    policy->rectangle_count = 1;
    policy->left_out_count = 123456;
    policy->lanes = &lane;
    policy->lane_count = 1;
    double share = merged_share(&made->analysis);
    print_message("0.7 of the upper third live, %.3f of all are shown\n", share);
    assert_true(fabs(share - 0.7 / 3) < 0.005);
    policy->lane_count = 0;
    assert_true(merged_share(&made->analysis) == 0);
    free(byte_ops);
    free(made);
}

TEST(the_same_analysis_makes_the_same_page)
{
    struct made *made = make_full();
    size_t first_length = 0, second_length = 0;
    char *first = write_page(&made->analysis, &first_length);
    char *second = write_page(&made->analysis, &second_length);
    assert_int_equal(first_length, second_length);
    assert_memory_equal(first, second, first_length);
    free(first);
    free(second);
    free(made);
}

TEST(an_empty_analysis_has_a_page)
{
    struct flw_trace trace = {0};
    struct flw_analysis analysis = {.trace = &trace, .program = &program};
    size_t length = 0;
    char *text = write_page(&analysis, &length);
    assert_safe(text);
    free(text);
}

TEST(a_policy_that_did_not_run_says_why)
{
    struct flw_trace trace = {0};
    struct flw_policy none = {.name = "none"};
    struct flw_run_result result = {.policy = &none, .message = "policy none: <no> & never"};
    struct flw_analysis_policy policy = {
        .result = &result, .label = "none", .first_failure_op = FLW_UNKNOWN};
    struct flw_analysis analysis = {
        .trace = &trace, .program = &program, .policies = &policy, .policy_count = 1};
    size_t length = 0;
    char *text = write_page(&analysis, &length);
    assert_safe(text);
    assert_int_equal(count_of(text, "policy none: \\u003cno> & never"), 1);
    free(text);
}

TEST(a_disk_that_is_full_is_noticed)
{
    struct made *made = make_full();
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_false(flw_page_write(&made->analysis, "", full));
    assert_false(flw_page_write_landing(&made->analysis, 1, (const char *[]){NULL}, NULL, full));
    (void)fclose(full);
    free(made);
}

TEST(the_landing_page_links_to_each_trace)
{
    struct made *made = make_full();
    const char *links[] = {"a b\".html", NULL}; /* the second trace has no page of its own */
    struct flw_analysis *analyses = calloc(2, sizeof *analyses);
    char job[] = "rank 3 <b>\n 5 & 6";
    char source[] = "/a/folder/rank.pickle";
    made->trace.source = source;
    made->results[1].statistics.peak_reserved_bytes = 66023 * MIB;
    made->analysis.reference = &made->policies[0];
    made->analysis.best = &made->policies[1];
    assert_non_null(analyses);
    analyses[0] = analyses[1] = made->analysis;
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    assert_true(flw_page_write_landing(analyses, 2, links, job, file));
    assert_int_equal(fclose(file), 0);
    assert_safe(text);
    assert_int_equal(count_of(text, "<a href=\"a b&quot;.html\">"), 1); /* without scripts */
    assert_int_equal(count_of(text, "<p>&lt;/style&gt;"), 1);
    assert_int_equal(count_of(text, "\"job\":\"rank 3 \\u003cb>\\u000a 5 & 6\""), 1);
    assert_int_equal(
        count_of(text,
                 "{\"name\":\"rank.pickle\",\"link\":\"a b\\\".html\",\"requested\":62914560000,"
                 "\"held\":70254592000,\"compared\":70254592000,\"saved\":1024458752,"),
        1);
    assert_int_equal(count_of(text, "[70254592000,1.116667]"), 2 * (POLICIES - 1));
    free(text);
    free(analyses);
    free(made);
}

/* Names may be any bytes; a page is UTF-8: no half of a pair, no form longer than need be, nothing beyond the last. */
TEST(what_is_no_utf8_is_question_marks)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5"},
        {"<\xed\x9f\xbf>&", "&lt;\xed\x9f\xbf&gt;&amp;"},
        {"\xed\xa0\x80", "???"},
        {"\xe0\x80\xaf", "???"},
        {"\xf0\x80\x80\xaf", "????"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xff\x01\x7f\n", "????"},
        {"\xe2\x82", "??"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct flw_trace trace = {0};
        struct flw_analysis analysis = {.trace = &trace, .program = &program};
        char title[64];
        size_t length = 0;
        snprintf(analysis.title, sizeof analysis.title, "%s", rows[i].text);
        char *text = write_page(&analysis, &length);
        snprintf(title, sizeof title, "<title>%s - fallow", rows[i].shown);
        assert_non_null(strstr(text, title));
        free(text);
    }
}

/* Stand-ins for functions of other files that add to the JSON. */
void flw_plan_print_quarter(const struct flw_run_result *result, struct flw_json_writer *out)
{
    (void)result;
    flw_json_null(out, "last_quarter");
}

void flw_job_print_json(const struct flw_job *job, struct flw_json_writer *out)
{
    (void)job;
    (void)out;
}

FLW_TEST_MAIN(NULL, NULL)
