/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page of a sheet: it is whole, it is safe, it is bounded. The sheet here is made up and
 * as full as a sheet can be.
 */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "report/picture.h"
#include "report/svg.h"
#include "trace/trace/trace.h"

#define POLICIES 12
#define FRAMES   12

struct made {
    struct flw_trace trace;
    struct flw_sheet sheet;
    struct flw_sheet_policy policies[POLICIES];
    struct flw_run_result results[POLICIES];
    struct flw_policy policy;
    struct flw_sheet_frame frames[FRAMES];
    uint64_t first_op[FLW_SHEET_COLUMNS + 1], time_ns[FLW_SHEET_COLUMNS + 1];
    struct flw_sheet_range requested[FLW_SHEET_COLUMNS], block[FLW_SHEET_COLUMNS];
    struct flw_sheet_range reserved[FLW_SHEET_COLUMNS];
    struct flw_sheet_owner owners[FLW_SHEET_OWNERS];
    struct flw_sheet_left left[FLW_SHEET_OWNERS];
    uint64_t high[FLW_SHEET_CATEGORIES][FLW_SHEET_COLUMNS];
    struct flw_sheet_holes holes[FLW_SHEET_HOLE_COLUMNS];
    struct flw_sheet_segment segments[64];
    struct flw_sheet_block blocks[FLW_SHEET_RECTANGLES];
    struct flw_sheet_rectangle rectangles[FLW_SHEET_RECTANGLES];
    struct flw_sheet_mark marks[40];
};

static const struct flw_program program = {.max_live_bytes = UINT64_C(60000) << 20};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

#define MIB (1024ull * 1024)
static const char evil[] = "</style><script>alert('x')</script>&\"\xff\x01\xc3\xa9";

static void make_series(struct made *made, uint64_t *random)
{
    for (size_t i = 0; i <= FLW_SHEET_COLUMNS; i++) {
        made->first_op[i] = i * 5000;
        made->time_ns[i] = i * i * 1000;
    }
    for (size_t i = 0; i < FLW_SHEET_COLUMNS; i++) {
        uint64_t high = (1000 + next_random(random) % 60000) * MIB;
        made->requested[i] = (struct flw_sheet_range){high / 2, high};
        made->block[i] = (struct flw_sheet_range){high / 2, high + high / 16};
        made->reserved[i] = (struct flw_sheet_range){high, high + high / 8};
        for (size_t c = 0; c < FLW_SHEET_CATEGORIES; c++) {
            made->high[c][i] = next_random(random) % (9000 * MIB);
        }
    }
    for (size_t c = 0; c < FLW_SHEET_HOLE_COLUMNS; c++) {
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
            (struct flw_sheet_segment){.address = (i + 1) << 32, .bytes = 900 * MIB};
    }
    for (size_t i = 0; i < FLW_SHEET_RECTANGLES; i++) {
        uint64_t address = ((i * 64 / FLW_SHEET_RECTANGLES + 1) << 32) + (i % 312) * 2 * MIB;
        uint64_t bytes = 1 + next_random(random) % (2 * MIB);
        uint64_t begin = next_random(random) % 9000000;
        made->blocks[i] = (struct flw_sheet_block){.address = address,
                                                   .requested_bytes = bytes,
                                                   .block_bytes = bytes + bytes / 8,
                                                   .block = (uint32_t)i,
                                                   .is_pending = i % 50 == 0};
        made->rectangles[i] =
            (struct flw_sheet_rectangle){.address = address,
                                         .bytes = bytes << (i % 9),
                                         .begin_op = begin,
                                         .end_op = begin + 1 + next_random(random) % 900000,
                                         .block = (uint32_t)i};
    }
}

static void make_policies(struct made *made)
{
    for (size_t i = 0; i < FRAMES; i++) {
        made->frames[i] = (struct flw_sheet_frame){.op = i,
                                                   .requested_bytes = 1 << 30,
                                                   .reserved_bytes = 2u << 30,
                                                   .hole_count = 7,
                                                   .segments = made->segments,
                                                   .segment_count = 64,
                                                   .blocks = made->blocks,
                                                   .block_count = FLW_SHEET_RECTANGLES};
        snprintf(made->frames[i].name, FLW_SHEET_NAME_BYTES, "%zu/8", i);
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
        struct flw_sheet_policy *policy = &made->policies[i];
        *policy = (struct flw_sheet_policy){.result = &made->results[i],
                                            .has_series = true,
                                            .requested = made->requested,
                                            .block = made->block,
                                            .reserved = made->reserved,
                                            .block_at_peak_bytes = 62000 * MIB,
                                            .first_failure_op = 5,
                                            .first_failure_bytes = 77 * MIB,
                                            .latency_count = FLW_SHEET_LATENCIES,
                                            .hole_column_count = FLW_SHEET_HOLE_COLUMNS,
                                            .holes = made->holes,
                                            .frames = made->frames,
                                            .frame_count = FRAMES,
                                            .rectangles = made->rectangles,
                                            .rectangle_count = FLW_SHEET_RECTANGLES};
        snprintf(policy->label, sizeof policy->label, "policy %zu %.30s", i, evil);
        for (uint32_t q = 0; q < FLW_SHEET_LATENCIES; q++) {
            policy->latency_ns[q] = (float)(20 + q * q);
        }
    }
}

static void make_holdings(struct made *made)
{
    struct flw_sheet *sheet = &made->sheet;
    sheet->owner_rule = (char *)(uintptr_t)evil;
    sheet->stretch_count = FLW_SHEET_STRETCHES;
    for (size_t i = 0; i < FLW_SHEET_STRETCHES; i++) {
        sheet->stretches[i] = (struct flw_sheet_stretch){.end_op = (i + 1) * 1000000,
                                                         .left_bytes = FLW_SHEET_OWNERS * MIB};
        snprintf(sheet->stretches[i].name, FLW_SHEET_NAME_BYTES, "tenth %zu", i + 1);
    }
    for (size_t i = 0; i < FLW_SHEET_OWNERS; i++) {
        made->owners[i] = (struct flw_sheet_owner){.bytes = FLW_SHEET_STRETCHES * MIB, .count = 10};
        snprintf(made->owners[i].name, FLW_SHEET_NAME_BYTES, "%s", evil);
        for (size_t s = 0; s < FLW_SHEET_STRETCHES; s++) {
            made->left[i].bytes[s] = MIB;
        }
    }
    for (size_t moment = 0; moment < FLW_SHEET_MOMENT_COUNT; moment++) {
        sheet->holdings[moment] =
            (struct flw_sheet_holding){.bytes = FLW_SHEET_OWNERS * FLW_SHEET_STRETCHES * MIB,
                                       .count = FLW_SHEET_OWNERS * 10,
                                       .owners = made->owners,
                                       .owner_count = FLW_SHEET_OWNERS,
                                       .left = moment == FLW_SHEET_SURVIVORS ? made->left : NULL};
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
    struct flw_sheet *sheet = &made->sheet;
    *sheet = (struct flw_sheet){.trace = &made->trace,
                                .program = &program,
                                .is_sim = true,
                                .lag_units = 5000000,
                                .without_wait_bytes = 62000 * MIB,
                                .is_by_time = true,
                                .op_count = 10000000,
                                .has_times = true,
                                .columns = {.count = FLW_SHEET_COLUMNS,
                                            .first_op = made->first_op,
                                            .time_ns = made->time_ns},
                                .policies = made->policies,
                                .policy_count = POLICIES,
                                .marks = made->marks,
                                .mark_count = 40};
    snprintf(sheet->title, sizeof sheet->title, "%s", evil);
    snprintf(sheet->device_name, sizeof sheet->device_name, "%s", evil);
    snprintf(sheet->verdict, sizeof sheet->verdict, "%s", evil);
    for (size_t i = 0; i < 40; i++) {
        made->marks[i].begin_op = i * 250000;
        made->marks[i].end_op = i * 250000 + 200000;
        snprintf(made->marks[i].name, FLW_SHEET_NAME_BYTES, "%s", evil);
    }
    make_holdings(made);
    for (size_t kind = 0; kind < FLW_SHEET_KIND_COUNT; kind++) {
        sheet->category_count[kind] = FLW_SHEET_CATEGORIES;
        for (size_t c = 0; c < FLW_SHEET_CATEGORIES; c++) {
            sheet->categories[kind][c].held_bytes = made->high[c];
            snprintf(sheet->categories[kind][c].name, FLW_SHEET_NAME_BYTES, "%s", evil);
        }
    }
    for (size_t s = 0; s < FLW_SHEET_SIZE_BINS; s++) {
        sheet->size_count[s] = s;
        sheet->size_bytes[s] = s << s % 30;
        for (size_t l = 0; l < FLW_SHEET_LIFE_BINS; l++) {
            sheet->life_count[l] = l + 1;
            sheet->size_life[s][l] = (uint32_t)(s * l);
        }
    }
    return made;
}

static char *write_page(const struct flw_sheet *sheet, size_t *out_length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, out_length);
    assert_non_null(file);
    assert_true(flw_page_write(sheet, file));
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
    assert_int_equal(count_of(text, "<script"), 1); /* the page's own, which its policy names */
    assert_int_equal(count_of(text, "script-src 'sha256-"), 1);
    assert_int_equal(count_of(text, "alert('"), 0);
    assert_int_equal(count_of(text, "http://") + count_of(text, "https://"), 0);
    assert_int_equal(count_of(text, "</style>"), 1);
    assert_int_equal(count_of(text, "nan") - count_of(text, "nanosec"), 0);
    assert_int_equal(count_of(text, "inf "), 0);
    assert_int_equal(count_of(text, "\xff"), 0);
    static const char *const tags[] = {"svg",   "div",     "section", "main", "p",  "h2", "title",
                                       "table", "details", "tr",      "td",   "th", "g",  "text"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        char open[16], open_more[16], close[16];
        snprintf(open, sizeof open, "<%s>", tags[i]);
        snprintf(open_more, sizeof open_more, "<%s ", tags[i]);
        snprintf(close, sizeof close, "</%s>", tags[i]);
        assert_int_equal(count_of(text, open) + count_of(text, open_more), count_of(text, close));
    }
}

static void the_fullest_page_is_whole_safe_and_below_two_megabytes(void **state)
{
    (void)state;
    struct made *made = make_full();
    size_t length = 0;
    char *text = write_page(&made->sheet, &length);
    assert_safe(text);
    assert_int_equal(count_of(text, "class=none"), 0); /* every picture had something to show */
    assert_true(count_of(text, "<svg") >= 2 * POLICIES + 20);
    assert_true(count_of(text, "&lt;script&gt;alert(&#39;x&#39;)") >= 10);
    assert_true(count_of(text, "\xc3\xa9") >= 10);
    print_message("the fullest page has %zu bytes\n", length);
    assert_true(length < 2000000);
    free(text);
    free(made);
}

/* Twenty owners, then the rest; each with what each tenth left. */
static void survivors_have_a_row_each_and_the_rest_one(void **state)
{
    (void)state;
    struct made *made = make_full();
    size_t length = 0;
    char *text = write_page(&made->sheet, &length);
    const char *begin = strstr(text, "<h2 id=survivors>");
    assert_non_null(begin);
    char *section = strndup(begin, (size_t)(strstr(begin, "</section>") - begin));
    assert_int_equal(count_of(section, "<tr>"), 1 + 20 + 1);
    assert_int_equal(count_of(section, "<th scope=col>left by tenths</th>"), 1);
    assert_int_equal(count_of(section, "<rect "), 21 * FLW_SHEET_STRETCHES);
    assert_int_equal(count_of(section, "<title>tenth 3: 1 MiB</title>"), 20);
    assert_int_equal(count_of(section, "<title>tenth 3: 180 MiB</title>"), 1);
    assert_int_equal(count_of(section, " height=18.0 "), 21 * FLW_SHEET_STRETCHES);
    assert_int_equal(
        count_of(section, "<th scope=row>the rest</th><td data-of=\"bytes\">1.76 GiB</td>"), 1);
    assert_int_equal(count_of(section, "\">90.0 %</td>"), 1);
    assert_int_equal(count_of(section, "Owner: &lt;/style&gt;"), 1); /* the rule, escaped */
    free(section);
    free(text);
    free(made);
}

static void a_failure_says_how_much_was_asked(void **state)
{
    (void)state;
    struct made *made = make_full();
    size_t length = 0;
    made->policies[0].first_failure_bytes = FLW_UNKNOWN;
    char *text = write_page(&made->sheet, &length);
    assert_int_equal(count_of(text, "first at operation 5: 77 MiB were asked"), POLICIES - 1);
    assert_int_equal(count_of(text, "first at operation 5: it is not known how much was asked"), 1);
    free(text);
    free(made);
}

static char *write_strip(const struct made *made)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    flw_picture_strip(&made->sheet, &made->policies[0], file);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* The lengths of all lines of the first path of that class, M..h.. each, added up. */
static double painted_length(const char *text, const char *style)
{
    char begin[192];
    double sum = 0;
    snprintf(begin, sizeof begin, "<path class=\"%s\" d=\"", style);
    const char *at = strstr(text, begin);
    assert_non_null(at);
    const char *end = strstr(at, "/>");
    for (at = strchr(at, 'h'); at != NULL && at < end; at = strchr(at + 1, 'h')) {
        sum += strtod(at + 1, NULL);
    }
    return sum;
}

/* What is too small for a shape of its own is painted as cells, so many as it takes of the picture. */
static void thin_blocks_take_their_share_of_the_picture(void **state)
{
    (void)state;
    struct made *made = make_full();
    struct flw_sheet_rectangle *rectangles = made->rectangles;
    /* One over the lower half; in the upper half 4,096 short ones, of which one in four lives at any time. */
    rectangles[0] = (struct flw_sheet_rectangle){
        .address = 4096, .bytes = 1024 * MIB, .begin_op = 0, .end_op = 10000000};
    for (uint32_t i = 1; i <= 4096; i++) {
        uint64_t begin = (i - 1) * UINT64_C(10000000) / 4096;
        rectangles[i] = (struct flw_sheet_rectangle){.address = 4096 + 1024 * MIB,
                                                     .bytes = 1024 * MIB,
                                                     .begin_op = begin,
                                                     .end_op = begin + 10000000 / 4096 / 4,
                                                     .block = i};
    }
    made->policies[0].rectangle_count = 4097;
    char *text = write_strip(made);
    assert_int_equal(count_of(text, "area"), 0); /* outlined in the colour of the paper */
    const char *own = strstr(text, "M0.0 160.0H1000.0V320.0H0.0z");
    assert_non_null(own); /* the large one, at its place */
    const char *style = flw_picture_colour(30 % 8);
    char cells[128];
    snprintf(cells, sizeof cells, "row cell listed %s", style);
    double share = painted_length(text, cells) * 3 / (1000.0 * 160);
    print_message("one in four lives, %.3f are painted\n", share);
    assert_true(fabs(share - 0.25) < 0.01);
    assert_non_null(strstr(text, "1 block has a shape of its own; 4,096 blocks that are smaller"));
    free(text);
    free(made);
}

/* What has no rectangle is painted where its lanes lie, as densely as it does. */
static void merged_blocks_take_their_share_of_the_picture(void **state)
{
    (void)state;
    struct made *made = make_full();
    struct flw_sheet_policy *policy = &made->policies[0];
    double(*byte_ops)[FLW_SHEET_LANE_KINDS] = calloc(FLW_SHEET_LANE_COLUMNS, sizeof *byte_ops);
    double full = 512.0 * MIB * 10000000 / FLW_SHEET_LANE_COLUMNS; /* of one column of the lane */
    struct flw_sheet_lane lane = {
        .begin = 4096 + 1024 * MIB, .end = 4096 + 1536 * MIB, .byte_ops = byte_ops};
    assert_non_null(byte_ops);
    made->rectangles[0] = (struct flw_sheet_rectangle){
        .address = 4096, .bytes = 1024 * MIB, .begin_op = 0, .end_op = 10000000};
    for (size_t column = 0; column < FLW_SHEET_LANE_COLUMNS; column++) {
        byte_ops[column][3] = column < FLW_SHEET_LANE_COLUMNS / 2 ? full : 0.4 * full;
    }
    policy->rectangle_count = 1;
    policy->left_out_count = 123456;
    policy->lanes = &lane;
    policy->lane_count = 1;
    char *text = write_strip(made);
    assert_non_null(
        strstr(text, "M0.0 106.7H1000.0V320.0H0.0z")); /* two thirds: the lane is the rest */
    char cells[128];
    snprintf(cells, sizeof cells, "row cell merged %s", flw_picture_colour(3));
    double share = painted_length(text, cells) * 3 / (1000.0 * 320 / 3);
    print_message("0.7 live, %.3f are painted\n", share);
    assert_true(fabs(share - 0.7) < 0.02);
    assert_non_null(
        strstr(text, "1 block has a shape of its own; 123,456 blocks that are smaller"));
    assert_int_equal(count_of(text, "left out"), 0);
    free(text);
    policy->lane_count = 0;
    text = write_strip(made);
    assert_non_null(strstr(text, "; 123,456 blocks that weigh least are left out"));
    free(text);
    free(byte_ops);
    free(made);
}

/* The number behind `what` in the text at *at, which goes on behind it. */
static double next_number(const char **at, const char *what)
{
    char *end = NULL;
    *at = strstr(*at, what);
    assert_non_null(*at);
    double number = strtod(*at + strlen(what), &end);
    *at = end;
    return number;
}

/* Further right is more memory, further up are more waits, none are at the 0 of the axis; dots of the
 * library's settings are joined. */
static void memory_and_waits_are_drawn_to_scale(void **state)
{
    static const double ratios[] = {1, 1.25, 1.5, 2, 10};
    static const uint64_t waits[] = {500, 50, 0, 0, 1};
    struct made *made = make_full();
    static char text[16384];
    double x[5], y[5];
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        made->results[i].statistics.peak_reserved_bytes = (uint64_t)(60000 * ratios[i]) * MIB;
        made->results[i].all = (struct flw_run_counts){.alloc_count = 1000, .wait_count = waits[i]};
        snprintf(made->policies[i].label, FLW_SHEET_NAME_BYTES, "%s %zu",
                 i == 1 || i == 2 ? "fallow" : "an-other-of-a-long-name", i);
    }
    made->sheet.policy_count = 5;
    made->sheet.without_wait_bytes = 90000 * MIB;
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    flw_picture_waits(&made->sheet, file);
    assert_int_equal(fclose(file), 0);
    const char *at = text;
    double one_x = next_number(&at, "d=\"M"); /* the grid's first, and the bound */
    at = strstr(text, "grid limit");
    assert_true(next_number(&at, "d=\"M") == one_x);
    double limit_x = next_number(&at, "limit\" d=\"M");
    assert_non_null(strstr(text, ">bound</text>"));
    assert_non_null(strstr(text, ">without a wait</text>"));
    assert_int_equal(count_of(text, "class=\"line"), 1); /* from one fallow to the other */
    for (size_t i = 0; i < 5; i++) {
        x[i] = 10 * next_number(&at, "cx="); /* of a thousand: it is in percent */
        y[i] = next_number(&at, "cy=");
        assert_true(i == 0 || x[i] > x[i - 1]);
    }
    assert_true(fabs(x[0] - one_x) <= 0.1 && fabs(x[2] - limit_x) <= 0.1);
    assert_true(y[0] < y[1] && y[1] < y[4] && y[4] < y[2] && y[2] == y[3]);
    at = strstr(text, ">0</text>");
    assert_non_null(at);
    while (strncmp(at, " y=", 3) != 0) {
        at--;
    }
    assert_true(fabs(strtod(at + 3, NULL) - 4 - y[2]) < 0.2);
    assert_non_null(strstr(text, "fallow 1: 1.250 of live; 50.0 host waits and 0.0 stream waits"));
    at = strstr(text, ">an-other-of-a-long-name 4</text>"); /* left of its dot: right is no paper */
    assert_non_null(at);
    while (strncmp(at, "<text ", 6) != 0) {
        at--;
    }
    assert_true(strncmp(at, "<text class=\"note name end\"", 27) == 0);
    made->sheet.lag_units = 0;
    file = fmemopen(text, sizeof text, "w");
    flw_picture_waits(&made->sheet, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, "class=none"));
    assert_int_equal(count_of(text, "<svg"), 0);
    free(made);
}

/* In a dark scheme the strongest shade is the lightest. */
static void no_word_depends_on_the_colour_of_the_paper(void **state)
{
    (void)state;
    struct made *made = make_full();
    size_t length = 0;
    char *text = write_page(&made->sheet, &length);
    char *body = strstr(text, "<body class=column>");
    static const char *const words[] = {"arker", "arkness", "ighter", "pale", "White", "Black"};
    assert_non_null(body);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (count_of(body, words[i]) != 0) {
            fail_msg("the page says '%.40s'", strstr(body, words[i]) - 10);
        }
    }
    assert_true(count_of(body, "fewer <span class=\"key s1\">") >= 2);
    assert_int_equal(count_of(body, "<span class=\"key s5\"></span>more"),
                     count_of(body, "fewer <span class=\"key s1\">"));
    free(text);
    free(made);
}

static void the_same_sheet_makes_the_same_page(void **state)
{
    (void)state;
    struct made *made = make_full();
    size_t first_length = 0, second_length = 0;
    char *first = write_page(&made->sheet, &first_length);
    char *second = write_page(&made->sheet, &second_length);
    assert_int_equal(first_length, second_length);
    assert_memory_equal(first, second, first_length);
    free(first);
    free(second);
    free(made);
}

static void an_empty_sheet_says_what_is_missing(void **state)
{
    (void)state;
    struct flw_trace trace = {0};
    struct flw_sheet sheet = {.trace = &trace, .program = &program};
    size_t length = 0;
    char *text = write_page(&sheet, &length);
    assert_safe(text);
    assert_true(count_of(text, "class=none") >= 5);
    free(text);
}

static void a_policy_that_did_not_run_says_why(void **state)
{
    (void)state;
    struct flw_trace trace = {0};
    struct flw_policy none = {.name = "none"};
    struct flw_run_result result = {.policy = &none, .message = "policy none: <no> & never"};
    struct flw_sheet_policy policy = {
        .result = &result, .label = "none", .first_failure_op = FLW_UNKNOWN};
    struct flw_sheet sheet = {
        .trace = &trace, .program = &program, .policies = &policy, .policy_count = 1};
    size_t length = 0;
    char *text = write_page(&sheet, &length);
    assert_safe(text);
    assert_int_equal(count_of(text, "policy none: &lt;no&gt; &amp; never"), 1);
    free(text);
}

static void a_disk_that_is_full_is_noticed(void **state)
{
    (void)state;
    struct made *made = make_full();
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_false(flw_page_write(&made->sheet, full));
    assert_false(flw_page_write_landing(&made->sheet, 1, NULL, NULL, full));
    (void)fclose(full);
    free(made);
}

static void the_landing_page_links_to_each_trace(void **state)
{
    (void)state;
    struct made *made = make_full();
    const char *links[] = {"a b\".html"};
    char job[] = "rank 3 <b>\n 5 & 6";
    char source[] = "/a/folder/rank.pickle";
    made->trace.source = source;
    made->results[1].statistics.peak_reserved_bytes = 66023 * MIB;
    made->sheet.reference = &made->policies[0];
    made->sheet.best = &made->policies[1];
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    assert_true(flw_page_write_landing(&made->sheet, 1, links, job, file));
    assert_int_equal(fclose(file), 0);
    assert_safe(text);
    assert_int_equal(count_of(text, "href=\"a b&quot;.html\""), 1);
    assert_int_equal(count_of(text, "<pre>rank 3 &lt;b&gt;\n 5 &amp; 6</pre>"), 1);
    assert_int_equal(count_of(text, ">65.43<br><small>"), POLICIES - 1);
    assert_int_equal(count_of(text, "1.117</small></span></td>"), POLICIES - 1);
    assert_int_equal(count_of(text, "<span class=worst>65.43<br><small>worst 1.117</small>"), 1);
    assert_int_equal(
        count_of(text, "<th scope=row><a href=\"a b&quot;.html\">rank.pickle</a></th>"), 1);
    assert_int_equal(count_of(text, "can be saved\"><span>977 MiB<br><small>1.5 %<br>policy 1 "),
                     1);
    const char *bar = strstr(text, "<rect class=requested x=0.00");
    /* Of what is held: requested, what is reserved beyond that at best, what is saved. */
    assert_non_null(bar);
    assert_true(fabs(next_number(&bar, "width=") - 100.0 * 60000 / 67000) < 0.01);
    assert_true(fabs(next_number(&bar, "width=") - 100.0 * 6023 / 67000) < 0.01);
    assert_true(fabs(next_number(&bar, "width=") - 100.0 * 977 / 67000) < 0.01);
    free(text);
    free(made);
}

/* Names may be any bytes; a page is UTF-8: no half of a pair, no form longer than need be, nothing beyond the last. */
static void what_is_no_utf8_is_question_marks(void **state)
{
    (void)state;
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
        char *shown = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&shown, &bytes);
        assert_non_null(out);
        flw_svg_escape(out, rows[i].text);
        assert_int_equal(fclose(out), 0);
        assert_string_equal(shown, rows[i].shown);
        free(shown);
    }
}

static void numbers_have_three_figures_and_a_unit(void **state)
{
    (void)state;
    char out[FLW_SVG_NUMBER_BYTES];
    assert_string_equal(flw_svg_format(out, FLW_SVG_BYTES, 0), "0 B");
    assert_string_equal(flw_svg_format(out, FLW_SVG_BYTES, 1536), "1.50 KiB");
    assert_string_equal(flw_svg_format(out, FLW_SVG_BYTES, 23.25 * 1024 * 1024 * 1024), "23.2 GiB");
    assert_string_equal(flw_svg_format(out, FLW_SVG_COUNT, 1234567), "1,234,567");
    assert_string_equal(flw_svg_format(out, FLW_SVG_NS, 1300), "1.30 us");
    assert_string_equal(flw_svg_format(out, FLW_SVG_RATIO, 1.1144), "1.114");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fullest_page_is_whole_safe_and_below_two_megabytes),
        cmocka_unit_test(survivors_have_a_row_each_and_the_rest_one),
        cmocka_unit_test(a_failure_says_how_much_was_asked),
        cmocka_unit_test(thin_blocks_take_their_share_of_the_picture),
        cmocka_unit_test(merged_blocks_take_their_share_of_the_picture),
        cmocka_unit_test(memory_and_waits_are_drawn_to_scale),
        cmocka_unit_test(no_word_depends_on_the_colour_of_the_paper),
        cmocka_unit_test(the_same_sheet_makes_the_same_page),
        cmocka_unit_test(an_empty_sheet_says_what_is_missing),
        cmocka_unit_test(a_policy_that_did_not_run_says_why),
        cmocka_unit_test(a_disk_that_is_full_is_noticed),
        cmocka_unit_test(the_landing_page_links_to_each_trace),
        cmocka_unit_test(what_is_no_utf8_is_question_marks),
        cmocka_unit_test(numbers_have_three_figures_and_a_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
