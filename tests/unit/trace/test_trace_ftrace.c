/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the trace file: nothing is lost on the way through it, and damage is seen.
 */
#include "support/test.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/frame.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/text.h"

#include "test_trace_ftrace.h"
#include "test_trace_random.h"
#include "trace/formats/formats.h"

static void assert_same(const struct flw_trace *trace, const struct flw_trace *again)
{
    struct bytes text = print_text(trace);
    struct bytes other = print_text(again);
    assert_int_equal(text.count, other.count);
    assert_memory_equal(text.at, other.at, text.count);
    free(text.at);
    free(other.at);
}

static const char small[] = "#fallow-trace 1\n"
                            "device 2\n"
                            "stream 0\n"
                            "stream 77\n"
                            "fields times addresses segments\n"
                            "gaps 1 0\n"
                            "begin_ns 1700000000000000001\n"
                            "origin here\n"
                            "L 1 \"init\" \"a.py\"\n"
                            "W 0 0\n"
                            "S 0 2097152 0 small @4096 stack=1\n"
                            "P 0 0 512 0 @4096 thread=1\n"
                            "L 2 \"step\" \"a.py\"\n"
                            "W 1 0\n"
                            "A 1000 1 512 0 @5000 tag=3 stack=2\n"
                            "B 2000 \"step\"\n"
                            "U 2000 1 1\n"
                            "V \"0/1\" -\n"
                            "F 3000 1 0 stack=1\n"
                            "V \"0/1\" \"step 3\"\n"
                            "C 3000 1 0\n"
                            "A 4000 2 512 0 @5000\n"
                            "O 5000 99 1 free=7\n"
                            "Y 5000 wait 0 1\n"
                            "E 6000 \"step\"\n"
                            "D 7000 5\n"
                            "F 8000 0 0\n";

static void numbers_survive_as_bytes(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int64_t near = -1; near <= 1; near++) {
            unsigned char bytes[3 * FLW_WIRE_VARINT_BYTES];
            struct flw_wire_out out = {bytes};
            uint64_t number = (UINT64_C(1) << shift) + (uint64_t)near;
            flw_wire_put_varint(&out, number);
            flw_wire_put_tagged(&out, true, number);
            flw_wire_put_tagged(&out, false, flw_wire_zigzag(number));
            struct flw_wire_in in = {bytes, out.at};
            uint64_t back;
            bool tag;
            assert_true(flw_wire_get_varint(&in, &back) && back == number);
            assert_true(flw_wire_get_tagged(&in, &tag, &back) && back == number && tag);
            assert_true(flw_wire_get_tagged(&in, &tag, &back) && !tag);
            assert_true(flw_wire_unzigzag(back) == number && in.at == in.end);
            assert_false(flw_wire_get_varint(&in, &back));
        }
    }
    static const unsigned char long_one[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                             0xFF, 0xFF, 0xFF, 0xFF, 0x02};
    struct flw_wire_in in = {long_one, long_one + sizeof(long_one)};
    uint64_t back;
    assert_false(flw_wire_get_varint(&in, &back));
}

static void any_trace_comes_back_the_same(void **state)
{
    uint64_t seed = *(uint64_t *)*state;
    for (unsigned i = 0; i < 60; i++) {
        struct flw_trace *trace = random_trace(seed + i, i < 50 ? 40 * i : 20000);
        for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
            struct bytes bytes = print_file(trace, (enum flw_record_codec)codec);
            struct flw_trace *again = read_bytes(bytes.at, bytes.count);
            assert_non_null(again);
            assert_null(again->truncation);
            assert_true(flw_trace_is_valid(again));
            assert_same(trace, again);
            flw_trace_destroy(again);
            free(bytes.at);
        }
        flw_trace_destroy(trace);
    }
}

/* As a program wrote it that did not know this line of a text. */
static void a_note_of_when_it_began_is_when_it_began(void **state)
{
    (void)state;
    struct flw_trace *trace = read_bytes(small, strlen(small));
    uint64_t begin_ns = trace->begin_ns;
    trace->begin_ns = 0;
    free(trace->notes);
    trace->notes = strdup("begin_ns 1700000000000000001\norigin here\n");
    struct bytes bytes = print_file(trace, FLW_RECORD_PACKED);
    struct flw_trace *again = read_bytes(bytes.at, bytes.count);
    assert_null(again->truncation);
    assert_true(begin_ns != 0 && again->begin_ns == begin_ns);
    assert_string_equal(again->notes, "origin here\n");
    flw_trace_destroy(again);
    free(bytes.at);
    flw_trace_destroy(trace);
}

/* What was read of a part of a file is a beginning of the whole. */
static void assert_begins(const struct flw_trace *part, const struct flw_trace *whole)
{
    assert_true(flw_trace_is_valid(part));
    assert_true(part->event_count <= whole->event_count);
    assert_true(part->event_count == 0 || memcmp(part->events, whole->events,
                                                 part->event_count * sizeof(*whole->events)) == 0);
    assert_true(part->initial_count <= whole->initial_count);
}

static void a_file_cut_anywhere_is_read_up_to_there(void **state)
{
    (void)state;
    struct flw_trace *whole = read_bytes(small, strlen(small));
    for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
        struct bytes bytes = print_file(whole, (enum flw_record_codec)codec);
        size_t most = 0;
        for (size_t i = 0; i < bytes.count; i++) {
            char *exact = malloc(i + 1);
            memcpy(exact, bytes.at, i);
            struct flw_trace *part = read_bytes(exact, i);
            free(exact);
            if (part == NULL) {
                assert_true(i < FLW_FRAME_BYTES);
                continue;
            }
            assert_true(i >= FLW_FRAME_BYTES);
            assert_non_null(part->truncation);
            assert_non_null(strstr(part->truncation, "truncated after event "));
            assert_non_null(strstr(part->notes, "truncated_after_event "));
            assert_begins(part, whole);
            assert_true(part->event_count >= most);
            most = part->event_count;
            flw_trace_destroy(part);
        }
        assert_int_equal(most, whole->event_count);
        free(bytes.at);
    }
    flw_trace_destroy(whole);
}

static void every_changed_bit_is_seen(void **state)
{
    (void)state;
    struct flw_trace *whole = read_bytes(small, strlen(small));
    for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
        struct bytes bytes = print_file(whole, (enum flw_record_codec)codec);
        for (size_t i = 0; i < 8 * bytes.count; i++) {
            bytes.at[i / 8] ^= (char)(1 << i % 8);
            struct flw_trace *part = read_bytes(bytes.at, bytes.count);
            if (part != NULL) {
                assert_non_null(part->truncation);
                assert_begins(part, whole);
                flw_trace_destroy(part);
            }
            part = read_on(bytes.at, bytes.count);
            if (part != NULL) {
                assert_non_null(part->truncation);
                assert_true(flw_trace_is_valid(part));
                flw_trace_destroy(part);
            }
            bytes.at[i / 8] ^= (char)(1 << i % 8);
        }
        free(bytes.at);
    }
    flw_trace_destroy(whole);
}

static void what_follows_a_damaged_chunk_can_be_read(void **state)
{
    uint64_t seed = *(uint64_t *)*state;
    for (unsigned i = 0; i < 8; i++) {
        struct flw_trace *whole = random_trace(seed + i, 60000);
        struct bytes bytes = print_file(whole, FLW_RECORD_PACKED);
        size_t damaged = find_chunk(&bytes, FLW_FTRACE_EVENTS, 1);
        bytes.at[damaged + 20 + 60 * (i % 2)] ^= 4; /* the header, the payload */
        struct flw_trace *part = read_bytes(bytes.at, bytes.count);
        struct flw_trace *rest = read_on(bytes.at, bytes.count);
        assert_non_null(part);
        assert_non_null(rest);
        assert_begins(part, whole);
        assert_true(flw_trace_is_valid(rest));
        assert_non_null(strstr(part->truncation, "checksum"));
        assert_non_null(strstr(rest->truncation, "damaged after event"));
        assert_true(rest->event_count > part->event_count + 1000);
        assert_int_equal(rest->events[part->event_count].op, FLW_TRACE_DROP);
        struct flw_trace_walk walk = {0};
        uint64_t lost = flw_trace_walk_detail(rest, &walk, part->event_count)->lost_count;
        assert_true(lost > 0 && part->event_count + lost < whole->event_count);
        /* the last event is the whole's, its block found again */
        const struct flw_trace_event *last = &whole->events[whole->event_count - 1];
        const struct flw_trace_event *end = &rest->events[rest->event_count - 1];
        if (last->op == FLW_TRACE_ALLOC) {
            assert_true(end->size_bytes == last->size_bytes && end->time_ns == last->time_ns);
        }
        flw_trace_destroy(part);
        flw_trace_destroy(rest);
        flw_trace_destroy(whole);
        free(bytes.at);
    }
}

/* ---- later versions ---- */

static void another_major_version_is_refused_and_a_minor_one_read(void **state)
{
    (void)state;
    struct piece piece;
    add_header(&piece, 2, 0, 1, 1000000000);
    assert_null(read_bytes(piece.bytes, piece.count));
    assert_non_null(strstr(message, "version 2.0 of the trace file; this reads version 1"));
    add_header(&piece, 1, 9, UINT64_C(1) << 40, 1000000000);
    assert_null(read_bytes(piece.bytes, piece.count));
    add_header(&piece, 1, 9, 1, 0);
    assert_null(read_bytes(piece.bytes, piece.count));
    add_header(&piece, 1, 9, 1 | 1 << 20, 1000000000);
    struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
    assert_non_null(trace);
    flw_trace_destroy(trace);
}

static void unknown_chunks_records_and_entries_are_passed_over(void **state)
{
    (void)state;
    static const unsigned char dictionary[] = {9, 3, 1, 2, 3, 1, 2, 0, 5};
    static const unsigned char events[] = {
        0x0F,        200, 1,  6, 2, 0xAA, 0xBB, /* long record 200, step 6, two bytes */
        0x10,        2,   16,                   /* ALLOC, same stream, step 2, 8 units */
        0x8F,        36,  4,  3, 9, 9,    9,    /* DROP of 3, with three bytes more than known */
        0x91 | 0x60, /* FREE of block 0: the last freed, as at the start */
    };
    struct piece piece;
    add_header(&piece, 1, 9, 1, 1000000000);
    add_chunk(&piece, (struct flw_frame_chunk){.type = 200, .codec = 7}, "anything", 8);
    add_chunk(&piece, (struct flw_frame_chunk){.type = FLW_FTRACE_DICT, .record_count = 2},
              dictionary, sizeof(dictionary));
    add_chunk(&piece,
              (struct flw_frame_chunk){.type = FLW_FTRACE_EVENTS,
                                       .codec = 1,
                                       .record_count = 4,
                                       .base_ns = 100,
                                       .time_scale = 10},
              events, sizeof(events));
    struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
    assert_non_null(trace);
    assert_non_null(strstr(trace->truncation, "ends without its end chunk"));
    assert_int_equal(trace->event_count, 3);
    assert_int_equal(trace->events[0].op, FLW_TRACE_ALLOC);
    assert_int_equal(trace->events[0].time_ns, 180);
    assert_int_equal(trace->events[0].size_bytes, 4096);
    assert_int_equal(trace->details[0].lost_count, 3);
    assert_int_equal(trace->events[2].op, FLW_TRACE_FREE);
    flw_trace_destroy(trace);
}

static void ticks_become_nanoseconds(void **state)
{
    (void)state;
    static const unsigned char marks[] = {0x0F, 25, 3, 1, 0, 0x0F, 25, 7, 1, 0};
    struct flw_frame_chunk frame = {.type = FLW_FTRACE_EVENTS,
                                    .codec = 1,
                                    .record_count = 2,
                                    .base_ns = 1000,
                                    .time_scale = 16};
    struct piece piece;
    add_header(&piece, 1, 0, 1, 3000000000);
    add_chunk(&piece, frame, marks, sizeof(marks));
    frame.first_event = 2;
    frame.base_ns = 1010; /* this chunk's clock is a little behind */
    add_chunk(&piece, frame, marks, sizeof(marks));
    struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
    assert_int_equal(trace->event_count, 4);
    assert_int_equal(trace->events[0].time_ns, 1000 + 48 / 3);
    assert_int_equal(trace->events[1].time_ns, 1000 + 160 / 3);
    assert_int_equal(trace->events[2].time_ns, 1000 + 160 / 3);
    assert_int_equal(trace->events[3].time_ns, 1010 + 160 / 3);
    flw_trace_destroy(trace);
}

/* Whole chunks whose records cannot follow those before. */
static void records_that_make_no_sense_end_the_trace_there(void **state)
{
    (void)state;
    static const struct {
        const char *records;
        size_t count;
        uint32_t record_count;
        const char *wanted;
    } cases[] = {
        {"\xB0", 1, 1, NULL}, /* ALLOC of 0 bytes on stream 0: the others begin with it */
        {"\xB0\xF1\xF1", 3, 3, "block 0 is already freed"},
        {"\xB0\xF2", 2, 2, "block 0 is not freed yet"},
        {"\xB0\x91\x05", 3, 2, "record 1 of a chunk is none"},
        {"\xB0\x91", 2, 2, "record 1 of a chunk is none"},
        {"\xA0\x01", 2, 1, "names a stream that is not in the dictionary"},
        {"\x0B", 1, 1, "record 0 of a chunk is none"},
        {"\x38", 1, 1, "a record of the other kind"},
        {"\x8F\x1A\x01\x00", 4, 1, "has a name that is not in the dictionary"},
        {"\x8F\x1A\x01\x01", 4, 1, "has a name that is not in the dictionary"},
        {"\x8F\x1A\x7F\x01", 4, 1, "record 0 of a chunk is none"},
        {"\x8F\x24\x01\x00", 4, 1, "no event is missing"},
        {"\xB3", 1, 1, "a segment, but the header says there are none"},
        {"\xF0", 1, 1, "record 0 of a chunk is none"}, /* a guess, but no addresses */
        {"\xB0", 1, 2, "a chunk has 1 records, its header says 2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const unsigned char stream[] = {1, 2, 0, 0};
        struct piece piece;
        add_header(&piece, 1, 0, 1, 1000000000);
        add_chunk(&piece, (struct flw_frame_chunk){.type = FLW_FTRACE_DICT, .record_count = 1},
                  stream, sizeof(stream));
        add_chunk(&piece,
                  (struct flw_frame_chunk){.type = FLW_FTRACE_EVENTS,
                                           .codec = 1,
                                           .record_count = cases[i].record_count,
                                           .time_scale = 1},
                  cases[i].records, cases[i].count);
        struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
        const char *wanted = cases[i].wanted != NULL ? cases[i].wanted : "without its end chunk";
        assert_non_null(trace);
        assert_true(flw_trace_is_valid(trace));
        if (strstr(trace->truncation, wanted) == NULL) {
            print_error("case %zu: \"%s\" lacks \"%s\"\n", i, trace->truncation, wanted);
        }
        assert_non_null(strstr(trace->truncation, wanted));
        flw_trace_destroy(trace);
    }
}

/* ---- stacks ---- */

static void a_file_without_stacks_is_of_the_version_before_them(void **state)
{
    (void)state;
    static const char plain[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 8 0\n";
    static const char made_before[] = /* by the version before */
        "FALLOWTR\1\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    struct flw_trace *trace = read_bytes(plain, strlen(plain));
    struct bytes bytes = print_file(trace, FLW_RECORD_PACKED);
    assert_memory_equal(bytes.at, made_before, sizeof made_before - 1);
    free(bytes.at);
    flw_trace_destroy(trace);
    trace = read_bytes(small, strlen(small));
    bytes = print_file(trace, FLW_RECORD_PACKED);
    assert_int_equal(bytes.at[10], FLW_FTRACE_MINOR);
    assert_int_equal(bytes.at[16], 1 | 2 | 4 | FLW_FTRACE_HAS_STACKS | FLW_FTRACE_HAS_REMARKS);
    free(bytes.at);
    flw_trace_destroy(trace);
}

/* ---- writing ---- */

static void what_was_flushed_can_be_read_while_writing_goes_on(void **state)
{
    (void)state;
    struct flw_trace *whole = read_bytes(small, strlen(small));
    struct flw_ftrace_settings settings = {.has_times = true, .device = 2, .step_ns = 1000};
    struct bytes bytes = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = flw_ftrace_writer_create(&sink, &settings);
    struct flw_trace_context context = {.thread = 4};
    assert_non_null(w);
    assert_true(flw_ftrace_writer_add_stream(w, 9));
    for (uint32_t i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "phase %u", i);
        struct flw_trace_event event = {.time_ns = 1000 * i + i / 50, /* no longer on the step */
                                        .size_bytes = 64,
                                        .block = i};
        struct flw_trace_event mark = {
            .time_ns = event.time_ns, .block = UINT32_MAX, .op = FLW_TRACE_MARK};
        struct flw_trace_detail detail = {
            .free_bytes = UINT64_MAX, .largest_bytes = UINT64_MAX, .name = i};
        context.tag = i / 10;
        assert_true(flw_ftrace_writer_add_name(w, name));
        assert_true(flw_ftrace_writer_add_event(w, &event, NULL, &context));
        assert_true(flw_ftrace_writer_add_event(w, &mark, &detail, &context));
        assert_true(flw_ftrace_writer_flush(w));
        struct flw_trace *part = read_bytes(bytes.at, bytes.count);
        assert_non_null(strstr(part->truncation, "without its end chunk"));
        assert_int_equal(part->event_count, 2 * (i + 1));
        assert_true(part->events[2 * i].time_ns == event.time_ns);
        struct flw_trace_walk walk = {0};
        assert_string_equal(flw_trace_name(part, flw_trace_walk_detail(part, &walk, 2 * i + 1)),
                            name);
        assert_int_equal(flw_trace_walk_context(part, &walk, 2 * i)->thread, 4);
        assert_int_equal(flw_trace_walk_context(part, &walk, 2 * i)->tag, i / 10);
        flw_trace_destroy(part);
    }
    struct flw_trace_event early = {.time_ns = 5, .block = UINT32_MAX, .op = FLW_TRACE_EMPTY_CACHE};
    assert_true(flw_ftrace_writer_add_event(w, &early, NULL, &context));
    assert_true(flw_ftrace_writer_end(w));
    flw_ftrace_writer_destroy(w);
    assert_int_equal(fclose(file), 0);
    struct flw_trace *trace = read_bytes(bytes.at, bytes.count);
    assert_null(trace->truncation);
    assert_int_equal(trace->event_count, 201);
    assert_true(trace->events[200].time_ns == trace->events[199].time_ns);
    flw_trace_destroy(trace);
    flw_trace_destroy(whole);
    free(bytes.at);
}

/* Writes until it is killed; tells `report` how many events are safe. */
static void write_without_end(const char *path, int report)
{
    struct flw_ftrace_settings settings = {.has_times = true, .step_ns = 1};
    struct flw_trace_context context = {.tag = 1};
    FILE *file = fopen(path, "wx");
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = file != NULL ? flw_ftrace_writer_create(&sink, &settings) : NULL;
    bool goes_on = w != NULL && flw_ftrace_writer_add_stream(w, 0);
    for (uint32_t i = 0; goes_on; i++) {
        struct flw_trace_event event = {
            .time_ns = i, .size_bytes = 64, .block = i / 2, .op = i % 2 ? FLW_TRACE_FREE : 0};
        uint64_t safe_count = i + 1;
        goes_on = flw_ftrace_writer_add_event(w, &event, NULL, &context) &&
                  (i % 1000 != 0 ||
                   (flw_ftrace_writer_flush(w) &&
                    write(report, &safe_count, sizeof(safe_count)) == (ssize_t)sizeof(safe_count)));
    }
    _exit(1);
}

static void a_killed_writer_loses_only_what_it_had_not_flushed(void **state)
{
    (void)state;
    char path[] = "/tmp/fallow_killed_XXXXXX";
    int pipe_ends[2];
    uint64_t safe_count = 0;
    struct flw_trace *trace;
    assert_non_null(mkdtemp(path));
    assert_int_equal(chdir(path), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipe_ends[0]);
        write_without_end("killed.ftrace", pipe_ends[1]);
    }
    close(pipe_ends[1]);
    while (safe_count < 100000 && read(pipe_ends[0], &safe_count, sizeof(safe_count)) > 0) {
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(pipe_ends[0], &safe_count, sizeof(safe_count)) > 0) {
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(pipe_ends[0]);
    assert_true(WIFSIGNALED(status) && safe_count >= 100000);
    assert_true(flw_trace_read("killed.ftrace", -1, &trace, message));
    assert_true(trace->event_count >= safe_count);
    assert_non_null(strstr(trace->truncation, "the file ends"));
    assert_true(flw_trace_is_valid(trace));
    flw_trace_destroy(trace);
    assert_int_equal(unlink("killed.ftrace"), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(path), 0);
}

static void a_full_disk_is_told_in_one_line(void **state)
{
    (void)state;
    struct flw_trace *trace = read_bytes(small, strlen(small));
    if (access("/dev/full", W_OK) == 0) {
        assert_false(flw_trace_write_ftrace(trace, "/dev/full", message));
        assert_non_null(strstr(message, "/dev/full: cannot write: "));
        assert_null(strchr(message, '\n'));
    }
    assert_false(flw_trace_write_ftrace(trace, "/nowhere/at/all", message));
    assert_non_null(strstr(message, "/nowhere/at/all: cannot"));
    flw_trace_destroy(trace);
}

int main(void)
{
    uint64_t seed = flw_test_seed("unit.trace_ftrace");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_survive_as_bytes),
        cmocka_unit_test_prestate(any_trace_comes_back_the_same, &seed),
        cmocka_unit_test(a_note_of_when_it_began_is_when_it_began),
        cmocka_unit_test(a_file_cut_anywhere_is_read_up_to_there),
        cmocka_unit_test(every_changed_bit_is_seen),
        cmocka_unit_test_prestate(what_follows_a_damaged_chunk_can_be_read, &seed),
        cmocka_unit_test(another_major_version_is_refused_and_a_minor_one_read),
        cmocka_unit_test(unknown_chunks_records_and_entries_are_passed_over),
        cmocka_unit_test(ticks_become_nanoseconds),
        cmocka_unit_test(records_that_make_no_sense_end_the_trace_there),
        cmocka_unit_test(a_file_without_stacks_is_of_the_version_before_them),
        cmocka_unit_test(what_was_flushed_can_be_read_while_writing_goes_on),
        cmocka_unit_test(a_killed_writer_loses_only_what_it_had_not_flushed),
        cmocka_unit_test(a_full_disk_is_told_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
