/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of what a snapshot says beside its events: annotations, private pools, the free
 * bytes of an out-of-memory; read, and written back.
 */
#include "support/test.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "test_pickle_writer.h"
#include "trace/formats/formats.h"
#include "trace/trace/phases.h"
#include "trace/trace/trace.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7F0000000000)

static char message[FLW_TRACE_MESSAGE_BYTES];

static struct flw_trace *import(struct writer *w)
{
    struct flw_trace *trace;
    bool is_read = flw_trace_read_bytes(w->bytes, w->count, "name", -1, &trace, message);
    free(w->bytes);
    if (!is_read) {
        print_error("%s\n", message);
    }
    assert_true(is_read);
    assert_true(flw_trace_is_valid(trace));
    return trace;
}

/* What is written as a snapshot and read again. */
static struct flw_trace *write_and_read(const struct flw_trace *trace)
{
    char path[] = "/tmp/fallow_annotations_XXXXXX";
    struct flw_trace *again;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(flw_trace_write_pytorch(trace, path, message));
    assert_true(flw_trace_read(path, -1, &again, message));
    unlink(path);
    assert_true(flw_trace_is_valid(again));
    return again;
}

static void put_time(struct writer *w, int64_t time_us)
{
    if (time_us >= 0) {
        put_pair(w, "time_us", (uint64_t)time_us);
    }
}

static void put_timed(struct writer *w, const char *action, uint64_t address, int64_t time_us)
{
    begin_dict(w);
    put_word_pair(w, "action", action);
    put_pair(w, "addr", address);
    put_pair(w, "size", MIB);
    put_pair(w, "stream", 0);
    put_time(w, time_us);
    end_dict(w);
}

static void put_annotation(struct writer *w, const char *stage, const char *name, uint64_t device,
                           int64_t time_us)
{
    begin_dict(w);
    put_word_pair(w, "name", name);
    put_word_pair(w, "stage", stage);
    put_pair(w, "device", device);
    put_time(w, time_us);
    end_dict(w);
}

/* ]], external_annotations: [ */
static void begin_annotations(struct writer *w)
{
    end_list(w);
    end_list(w);
    put_string(w, "external_annotations");
    begin_list(w);
}

/* ]} */
static void end_annotations(struct writer *w)
{
    end_list(w);
    end_dict(w);
    end_pickle(w);
}

/* The events as text: A an allocation, F a free, m a mark, (x and )x phases by the first letter. */
static const char *shape_of(const struct flw_trace *trace)
{
    static char text[256];
    struct flw_trace_walk walk = {0};
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count && count < sizeof text - 3; i++) {
        uint8_t op = trace->events[i].op;
        const char *name = flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, i));
        if (op == FLW_TRACE_PHASE_BEGIN || op == FLW_TRACE_PHASE_END) {
            assert_non_null(name);
            text[count++] = op == FLW_TRACE_PHASE_BEGIN ? '(' : ')';
            text[count++] = name[0];
        } else {
            text[count++] = op == FLW_TRACE_ALLOC ? 'A' : op == FLW_TRACE_FREE ? 'F' : 'm';
        }
    }
    text[count] = '\0';
    return text;
}

static void expect_shape(struct writer *w, const char *shape)
{
    struct flw_trace *trace = import(w);
    assert_string_equal(shape_of(trace), shape);
    if (trace->has_times) {
        struct flw_trace *again = write_and_read(trace);
        assert_string_equal(shape_of(again), shape);
        for (size_t i = 0; i < trace->event_count; i++) {
            assert_int_equal(again->events[i].time_ns, trace->events[i].time_ns);
        }
        flw_trace_destroy(again);
    }
    flw_trace_destroy(trace);
}

static struct writer begin_timed(uint8_t protocol)
{
    struct writer w = begin_pickle(protocol);
    begin_snapshot(&w);
    begin_events(&w);
    put_timed(&w, "alloc", BASE, 100);
    put_timed(&w, "alloc", BASE + MIB, 200);
    put_timed(&w, "alloc", BASE + 2 * MIB, 200);
    put_timed(&w, "alloc", BASE + 3 * MIB, 300);
    begin_annotations(&w);
    return w;
}

static void phases_lie_where_their_times_say_in_every_protocol(void **state)
{
    (void)state;
    for (uint8_t protocol = 2; protocol <= 5; protocol++) {
        struct writer w = begin_timed(protocol);
        put_annotation(&w, "START", "step", 0, 150);
        put_annotation(&w, "START", "alloc", 0, 160); /* a word of the reader's own */
        put_annotation(&w, "END", "alloc", 0, 250);
        put_annotation(&w, "END", "step", 0, 400);
        end_annotations(&w);
        expect_shape(&w, "A(s(aAA)aA)s");
    }
}

static void of_one_microsecond_a_phase_covers_the_events(void **state)
{
    (void)state;
    struct writer w = begin_timed(4);
    put_annotation(&w, "START", "x", 0, 200);
    put_annotation(&w, "END", "x", 0, 200);
    put_annotation(&w, "START", "y", 0, 200);
    put_annotation(&w, "END", "y", 0, 300);
    end_annotations(&w);
    expect_shape(&w, "A(xAA)x(yA)y");
}

static void annotations_out_of_order_are_put_in_order(void **state)
{
    (void)state;
    struct writer w = begin_timed(4);
    put_annotation(&w, "END", "x", 0, 250);
    put_annotation(&w, "START", "x", 0, 150);
    end_annotations(&w);
    expect_shape(&w, "A(xAA)xA");
}

static void what_is_under_way_at_the_first_event_begins_with_it(void **state)
{
    (void)state;
    struct writer w = begin_timed(4);
    put_annotation(&w, "START", "over", 0, 10);
    put_annotation(&w, "END", "over", 0, 20);
    put_annotation(&w, "END", "lost", 0, 30); /* its begin is nowhere, and it is over too */
    put_annotation(&w, "START", "x", 0, 40);
    put_annotation(&w, "END", "x", 0, 150);
    put_annotation(&w, "END", "inner", 0, 250); /* both began before anything on record */
    put_annotation(&w, "END", "outer", 0, 260);
    put_annotation(&w, "START", "never ends", 0, 270);
    end_annotations(&w);
    struct writer copy = {malloc(w.count), w.count};
    assert_non_null(copy.bytes);
    memcpy(copy.bytes, w.bytes, w.count);
    expect_shape(&w, "(o(i(xA)xAA)i)o(nA");
    struct flw_trace *trace = import(&copy);
    assert_non_null(strstr(trace->notes, "annotations_before_the_events 3\n"));
    assert_null(strstr(trace->notes, "annotations_without_a_place"));
    flw_trace_destroy(trace);
}

static void an_end_closes_the_innermost_phase_of_its_name(void **state)
{
    (void)state;
    struct writer w = begin_timed(4);
    put_annotation(&w, "START", "x", 0, 50);
    put_annotation(&w, "START", "x", 0, 60);
    put_annotation(&w, "END", "x", 0, 70);
    put_annotation(&w, "END", "x", 0, 250);
    end_annotations(&w);
    expect_shape(&w, "(xAAA)xA");
}

/* `steps`: (x and )x phases by their letter; `wanted`: the row of each as a digit, - for none. */
static void expect_rows(const char *steps, const char *wanted)
{
    char text[512];
    struct flw_trace *trace;
    int bytes = snprintf(text, sizeof text, "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n");
    for (const char *step = steps; *step != '\0'; step += 2) {
        bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%c 0 \"%c\"\n",
                          *step == '(' ? 'B' : 'E', step[1]);
    }
    assert_true(flw_trace_read_bytes(text, (size_t)bytes, "name", -1, &trace, message));
    struct flw_phase_rows rows;
    assert_true(flw_phases_find_rows(trace, &rows));
    for (size_t i = 0; wanted[i] != '\0'; i++) {
        uint32_t row = wanted[i] == '-' ? FLW_PHASES_NO_ROW : (uint32_t)(wanted[i] - '0');
        assert_int_equal(rows.of_event[i], row);
    }
    free(rows.of_event);
    flw_trace_destroy(trace);
}

static void in_a_row_phases_lie_within_one_another(void **state)
{
    (void)state;
    expect_rows("", "");
    expect_rows("(a(b)b(c(d)d)c)a(e)e", "0000000000");
    expect_rows("(a(b)a)b(c)c", "010100");
    expect_rows("(a(b(c)a)c)b", "011011");
    expect_rows("(a(b)a(c)b)c", "010010");
    expect_rows("(a(a)a)a", "0000");
    expect_rows(")a(a)a)a", "-00-");
    expect_rows("(a(b)a(c", "0100"); /* b and c never end */
}

static void each_phase_has_a_row(void **state)
{
    (void)state;
    enum {
        COUNT = 1000
    };
    char *text = NULL;
    size_t bytes;
    struct flw_trace *trace;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", file);
    for (int i = 0; i < 2 * COUNT;
         i++) { /* the first to begin ends first: all overlap, none lies in another */
        fprintf(file, "%c 0 \"%d\"\n", i < COUNT ? 'B' : 'E', i % COUNT);
    }
    assert_int_equal(fclose(file), 0);
    assert_true(flw_trace_read_bytes(text, bytes, "name", -1, &trace, message));
    struct flw_phase_rows rows;
    assert_true(flw_phases_find_rows(trace, &rows));
    for (uint32_t i = 0; i < 2 * COUNT; i++) {
        assert_int_equal(rows.of_event[i], i % COUNT);
    }
    assert_int_equal(rows.count, COUNT);
    free(rows.of_event);
    free(text);
    flw_trace_destroy(trace);
}

static void other_devices_and_other_stages_are_of_no_phase(void **state)
{
    (void)state;
    struct writer w = begin_timed(4);
    put_annotation(&w, "START", "x", 1, 150);
    put_annotation(&w, "END", "x", 1, 250);
    put_annotation(&w, "MIDDLE", "y", 0, 150);
    end_annotations(&w);
    expect_shape(&w, "AAAA");
}

static void without_times_nothing_says_where_a_phase_is(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_timed(&w, "alloc", BASE, -1);
    begin_annotations(&w);
    put_annotation(&w, "START", "x", 0, 150);
    put_annotation(&w, "END", "x", 0, -1);
    end_annotations(&w);
    struct flw_trace *trace = import(&w);
    assert_string_equal(shape_of(trace), "A");
    assert_false(trace->has_times);
    assert_non_null(strstr(trace->notes, "annotations_without_a_place 2\n"));
    flw_trace_destroy(trace);
}

static void events_without_a_time_stay_where_they_are(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_timed(&w, "snapshot", 0, -1);
    put_timed(&w, "alloc", BASE, 100);
    put_timed(&w, "snapshot", 0, -1);
    put_timed(&w, "alloc", BASE + MIB, 200);
    begin_annotations(&w);
    put_annotation(&w, "START", "x", 0, 150);
    put_annotation(&w, "END", "x", 0, 150);
    end_annotations(&w);
    struct flw_trace *trace = import(&w);
    assert_string_equal(shape_of(trace), "mAm(x)xA");
    flw_trace_destroy(trace);
}

static void names_are_made_printable_and_short(void **state)
{
    char longer[1200];
    (void)state;
    memset(longer, 'z', sizeof longer);
    memcpy(longer + 999, "\xc3\xa9", 2); /* a character that the cut would halve */
    longer[sizeof longer - 1] = '\0';
    struct writer w = begin_timed(4);
    put_annotation(&w, "START", "two\nlines", 0, 150);
    put_annotation(&w, "START", "", 0, 160);
    put_annotation(&w, "START", longer, 0, 170);
    end_annotations(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->name_count, 3);
    assert_string_equal(trace->names[0], "two?lines");
    assert_string_equal(trace->names[1], "unnamed");
    assert_int_equal(strlen(trace->names[2]), 999);
    flw_trace_destroy(trace);
}

/* ---- pools ---- */

static void put_pool(struct writer *w, const char *key, uint64_t first, uint64_t second)
{
    put_string(w, key);
    put_number(w, first);
    put_number(w, second);
    put_code(w, 0x86);
}

static void put_pooled(struct writer *w, const char *action, uint64_t address, uint64_t first,
                       uint64_t second)
{
    begin_dict(w);
    put_word_pair(w, "action", action);
    put_pair(w, "addr", address);
    put_pair(w, "size", MIB);
    put_pair(w, "stream", 0);
    put_pool(w, "pool_id", first, second);
    end_dict(w);
}

static void put_pooled_segment(struct writer *w, uint64_t address, uint64_t first, uint64_t second,
                               const char *state)
{
    begin_dict(w);
    put_pair(w, "device", 0);
    put_pair(w, "address", address);
    put_pair(w, "total_size", MIB);
    put_pair(w, "stream", 0);
    put_word_pair(w, "segment_type", "small");
    put_pool(w, "segment_pool_id", first, second);
    put_string(w, "blocks");
    begin_list(w);
    put_block(w, address, MIB, state);
    end_list(w);
    end_dict(w);
}

static uint32_t pool_of(const struct flw_trace *trace, size_t record)
{
    struct flw_trace_walk walk = {0};
    return flw_trace_walk_context(trace, &walk, record)->pool;
}

static void expect_pools(const struct flw_trace *trace, const uint32_t *pools, size_t count)
{
    assert_int_equal(trace->initial_count + trace->event_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pool_of(trace, i), pools[i]);
    }
}

static void pools_are_numbered_in_the_order_of_their_pairs(void **state)
{
    static const uint32_t pools[] = {0, 2, 3, 1, 0, 2};
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    put_pooled_segment(&w, BASE, 0, 0, "active_allocated");
    put_pooled_segment(&w, BASE + 4 * MIB, 1, 0, "active_allocated");
    begin_events(&w);
    put_pooled(&w, "alloc", BASE + 8 * MIB, 3, 0);
    put_pooled(&w, "alloc", BASE + 12 * MIB, 0, 7);
    put_pooled(&w, "alloc", BASE + 16 * MIB, 0, 0);
    put_pooled(&w, "free_requested", BASE + 4 * MIB, 1, 0);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    expect_pools(trace, pools, 6);
    assert_int_equal(trace->segments[0].pool, 0);
    assert_int_equal(trace->segments[1].pool, 2);
    flw_trace_destroy(trace);
}

static void a_free_says_the_pool_of_a_block_of_the_start(void **state)
{
    static const uint32_t pools[] = {1, 1, 0};
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_pooled(&w, "free_completed", BASE, 0, 1);
    put_pooled(&w, "segment_free", BASE, 0, 0);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    expect_pools(trace, pools, 3);
    flw_trace_destroy(trace);
}

static void events_that_say_no_pool_have_that_of_the_segment_around_them(void **state)
{
    static const uint32_t pools[] = {0, 0, 0, 1, 1};
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    put_pooled_segment(&w, BASE, 2, 0, "active_allocated");
    begin_events(&w);
    put_event(&w, "free_completed", BASE, MIB); /* of a segment that lay there before */
    put_event(&w, "segment_free", BASE, MIB);
    put_event(&w, "segment_alloc", BASE, MIB);
    put_event(&w, "alloc", BASE, MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    expect_pools(trace, pools, 5);
    assert_int_equal(trace->segment_count, 1);
    assert_int_equal(trace->segments[0].pool, 0);
    flw_trace_destroy(trace);
}

static void pools_come_back_from_what_was_written(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    put_pooled_segment(&w, BASE, 0, 0, "inactive");
    put_pooled_segment(&w, BASE + 4 * MIB, 1, 0, "active_allocated");
    put_pooled_segment(&w, BASE + 8 * MIB, 2, 0, "active_allocated");
    begin_events(&w);
    put_pooled(&w, "free_requested", BASE, 0, 0);
    put_pooled(&w, "free_completed", BASE, 0, 0);
    put_pooled(&w, "segment_alloc", BASE + 8 * MIB, 2, 0);
    put_pooled(&w, "alloc", BASE + 8 * MIB, 2, 0);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    struct flw_trace *again = write_and_read(trace);
    assert_int_equal(again->context_count, trace->context_count);
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        assert_int_equal(pool_of(again, i), pool_of(trace, i));
    }
    assert_int_equal(again->segment_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(again->segments[i].pool, trace->segments[i].pool);
        assert_int_equal(again->segments[i].address, trace->segments[i].address);
    }
    flw_trace_destroy(again);
    flw_trace_destroy(trace);
}

static char *write_chrome(const struct flw_trace *trace)
{
    char path[] = "/tmp/fallow_annotations_XXXXXX";
    char *text = calloc(1, 65536);
    int fd = mkstemp(path);
    assert_non_null(text);
    assert_true(fd >= 0);
    assert_true(flw_trace_write_chrome(trace, path, message));
    close(fd);
    fd = open(path, O_RDONLY); /* another file: it was put in place */
    assert_true(read(fd, text, 65535) > 0);
    close(fd);
    assert_int_equal(unlink(path), 0);
    return text;
}

static void an_out_of_memory_says_what_was_free(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    begin_dict(&w);
    put_word_pair(&w, "action", "oom");
    put_pair(&w, "device_free", 12345);
    put_pair(&w, "size", 5 * MIB);
    put_pair(&w, "stream", 0);
    end_dict(&w);
    put_event(&w, "oom", 0, MIB); /* does not say */
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->detail_count, 1);
    assert_int_equal(trace->details[0].event, 0);
    assert_int_equal(trace->details[0].free_bytes, 12345);
    assert_true(trace->details[0].largest_bytes == FLW_TRACE_UNKNOWN);
    assert_int_equal(trace->events[0].size_bytes, 5 * MIB);
    struct flw_trace *again = write_and_read(trace);
    assert_int_equal(again->detail_count, 1); /* what nobody knew is not known now */
    assert_int_equal(again->details[0].event, 0);
    assert_int_equal(again->details[0].free_bytes, 12345);
    flw_trace_destroy(again);
    char *chrome = write_chrome(trace);
    const char *first = strstr(chrome, "\"oom\""), *second = strstr(first + 1, "\"oom\"");
    const char *said = strstr(chrome, ",\"device_free\":12345}");
    assert_non_null(second);
    assert_true(said > first && said < second);
    assert_null(strstr(second, "device_free"));
    assert_null(strstr(chrome, "largest_free"));
    free(chrome);
    flw_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_lie_where_their_times_say_in_every_protocol),
        cmocka_unit_test(of_one_microsecond_a_phase_covers_the_events),
        cmocka_unit_test(annotations_out_of_order_are_put_in_order),
        cmocka_unit_test(what_is_under_way_at_the_first_event_begins_with_it),
        cmocka_unit_test(an_end_closes_the_innermost_phase_of_its_name),
        cmocka_unit_test(in_a_row_phases_lie_within_one_another),
        cmocka_unit_test(each_phase_has_a_row),
        cmocka_unit_test(other_devices_and_other_stages_are_of_no_phase),
        cmocka_unit_test(without_times_nothing_says_where_a_phase_is),
        cmocka_unit_test(events_without_a_time_stay_where_they_are),
        cmocka_unit_test(names_are_made_printable_and_short),
        cmocka_unit_test(pools_are_numbered_in_the_order_of_their_pairs),
        cmocka_unit_test(a_free_says_the_pool_of_a_block_of_the_start),
        cmocka_unit_test(events_that_say_no_pool_have_that_of_the_segment_around_them),
        cmocka_unit_test(pools_come_back_from_what_was_written),
        cmocka_unit_test(an_out_of_memory_says_what_was_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
