/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the trace file: writing and reading loses nothing, damage is detected, invalid records are
 * reported, and a loss takes nothing else away.
 */
#include "test_trace_bed.h"

#include "record/frame.h"
#include "test_trace_random.h"
#include "trace/formats/ftrace.h"

struct bytes {
    char *at;
    size_t count;
};

static struct bytes print_file(const struct flw_trace *trace, enum flw_record_codec codec)
{
    struct bytes bytes = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    assert_non_null(file);
    assert_true(flw_ftrace_print(trace, codec, file));
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static struct flw_trace *read_on(const void *bytes, size_t count)
{
    struct flw_input input;
    struct flw_trace *trace;
    assert_true(flw_input_open_bytes(&input, bytes, count, "name", message));
    input.reads_on = true;
    flw_trace_read_open(&input, -1, &trace);
    flw_input_close(&input);
    return trace;
}

/* Offset of the header of the chunk of that type, number `skip` among them. */
static size_t find_chunk(const struct bytes *bytes, uint8_t type, size_t skip)
{
    struct flw_crc32c crc;
    struct flw_frame_chunk frame;
    size_t at = FLW_FRAME_BYTES;
    flw_crc32c_init(&crc);
    while (at < bytes->count) {
        assert_true(flw_frame_get_chunk(&crc, (const unsigned char *)bytes->at + at, &frame));
        if (frame.type == type && skip-- == 0) {
            return at;
        }
        at += FLW_FRAME_BYTES + frame.payload_bytes;
    }
    fail_msg("no chunk of type %d", type);
    return 0;
}

static const char small[] = "#fallow-trace 1\ndevice 2\nstream 0\nstream 77\n"
                            "fields times addresses segments\ngaps 1 0\n"
                            "begin_ns 1700000000000000001\norigin here\nL 1 \"init\" \"a.py\"\n"
                            "W 0 0\nS 0 2097152 0 small @4096 stack=1\nP 0 0 512 0 @4096 thread=1\n"
                            "L 2 \"step\" \"a.py\"\nW 1 0\nA 1000 1 512 0 @5000 tag=3 stack=2\n"
                            "B 2000 \"step\"\nU 2000 1 1\nV \"0/1\" -\nF 3000 1 0 stack=1\n"
                            "V \"0/1\" \"step 3\"\nC 3000 1 0\nA 4000 2 512 0 @5000\n"
                            "O 5000 99 1 free=7\nY 5000 wait 0 1\nE 6000 \"step\"\nD 7000 5\n"
                            "F 8000 0 0\n";

TEST(numbers_survive_as_bytes)
{
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

TEST(any_trace_comes_back_the_same)
{
    uint64_t seed = flw_test_seed("unit.trace_ftrace");
    for (unsigned i = 0; i < 60; i++) {
        struct flw_trace *trace = random_trace(seed + i, i < 50 ? 40 * i : 20000);
        char *text = print_text(trace);
        for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
            struct bytes bytes = print_file(trace, (enum flw_record_codec)codec);
            struct flw_trace *again = read_good(bytes.at, bytes.count);
            assert_null(again->truncation);
            expect_text(again, text);
            free(bytes.at);
        }
        free(text);
        flw_trace_destroy(trace);
    }
}

/* As written by a program that did not support this line of a text. */
TEST(a_note_of_when_it_began_is_when_it_began)
{
    struct flw_trace *trace = read_text(small);
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

/* The trace read from a part of a file is a beginning of the whole trace. */
static void assert_begins(const struct flw_trace *part, const struct flw_trace *whole)
{
    assert_true(flw_trace_is_valid(part));
    assert_true(part->event_count <= whole->event_count);
    assert_true(part->event_count == 0 || memcmp(part->events, whole->events,
                                                 part->event_count * sizeof(*whole->events)) == 0);
    assert_true(part->initial_count <= whole->initial_count);
}

TEST(a_file_cut_anywhere_is_read_up_to_there)
{
    struct flw_trace *whole = read_text(small);
    for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
        struct bytes bytes = print_file(whole, (enum flw_record_codec)codec);
        size_t most = 0;
        for (size_t i = 0; i < bytes.count; i++) {
            struct flw_trace *part = read_bytes(bytes.at, i);
            assert_int_equal(part != NULL, i >= FLW_FRAME_BYTES);
            if (part != NULL) {
                flw_test_expect_in(part->truncation, "truncated after event ");
                flw_test_expect_in(part->notes, "truncated_after_event ");
                assert_begins(part, whole);
                assert_true(part->event_count >= most);
                most = part->event_count;
                flw_trace_destroy(part);
            }
        }
        assert_int_equal(most, whole->event_count);
        free(bytes.at);
    }
    flw_trace_destroy(whole);
}

TEST(every_changed_bit_is_seen)
{
    struct flw_trace *whole = read_text(small);
    for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
        struct bytes bytes = print_file(whole, (enum flw_record_codec)codec);
        for (size_t i = 0; i < 8 * bytes.count; i++) {
            bytes.at[i / 8] ^= (char)(1 << i % 8);
            for (int goes_on = 0; goes_on < 2; goes_on++) {
                struct flw_trace *part = (goes_on ? read_on : read_bytes)(bytes.at, bytes.count);
                if (part != NULL) {
                    assert_non_null(part->truncation);
                    if (!goes_on) {
                        assert_begins(part, whole);
                    }
                    flw_trace_destroy(part);
                }
            }
            bytes.at[i / 8] ^= (char)(1 << i % 8);
        }
        free(bytes.at);
    }
    flw_trace_destroy(whole);
}

TEST(what_follows_a_damaged_chunk_can_be_read)
{
    uint64_t seed = flw_test_seed("unit.trace_ftrace");
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
        flw_test_expect_in(part->truncation, "checksum");
        flw_test_expect_in(rest->truncation, "damaged after event");
        assert_true(rest->event_count > part->event_count + 1000);
        assert_int_equal(rest->events[part->event_count].op, FLW_TRACE_DROP);
        struct flw_trace_walk walk = {0};
        uint64_t lost = flw_trace_walk_detail(rest, &walk, part->event_count)->lost_count;
        assert_true(lost > 0 && part->event_count + lost < whole->event_count);
        /* the last event is the whole trace's, with the block found again */
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

/* ---- files put together chunk by chunk ---- */

struct piece {
    unsigned char bytes[4096];
    size_t count;
};

static void add_header(struct piece *piece, uint16_t major, uint16_t minor, uint64_t flags,
                       uint64_t ticks_per_second)
{
    struct flw_crc32c crc;
    flw_crc32c_init(&crc);
    struct flw_frame_file file = {.major = major,
                                  .minor = minor,
                                  .header_bytes = FLW_FRAME_BYTES + 8,
                                  .flags = flags,
                                  .ticks_per_second = ticks_per_second};
    flw_frame_put_file(&crc, &file, piece->bytes);
    memset(piece->bytes + FLW_FRAME_BYTES, 7, 8);
    piece->count = FLW_FRAME_BYTES + 8;
}

static void add_chunk(struct piece *piece, struct flw_frame_chunk frame, const void *payload,
                      size_t count)
{
    struct flw_crc32c crc;
    flw_crc32c_init(&crc);
    frame.payload_bytes = (uint32_t)count;
    frame.unpacked_bytes = (uint32_t)count;
    frame.payload_crc = flw_crc32c_add(&crc, 0, payload, count);
    flw_frame_put_chunk(&crc, &frame, piece->bytes + piece->count);
    memcpy(piece->bytes + piece->count + FLW_FRAME_BYTES, payload, count);
    piece->count += FLW_FRAME_BYTES + count;
}

TEST(another_major_version_is_refused_and_a_minor_one_read)
{
    struct piece piece;
    add_header(&piece, 2, 0, 1, 1000000000);
    assert_null(read_bytes(piece.bytes, piece.count));
    flw_test_expect_in(message, "version 2.0 of the trace file; this reads version 1");
    add_header(&piece, 1, 9, UINT64_C(1) << 40, 1000000000);
    assert_null(read_bytes(piece.bytes, piece.count));
    add_header(&piece, 1, 9, 1, 0);
    assert_null(read_bytes(piece.bytes, piece.count));
    add_header(&piece, 1, 9, 1 | 1 << 20, 1000000000);
    struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
    assert_non_null(trace);
    flw_trace_destroy(trace);
}

TEST(unknown_chunks_records_and_entries_are_passed_over)
{
    static const unsigned char dictionary[] = {9, 3, 1, 2, 3, 1, 2, 0, 5};
    static const unsigned char events[] = {
        0x0F,        200, 1,  6, 2, 0xAA, 0xBB, /* long record 200, step 6, two bytes */
        0x10,        2,   16,                   /* ALLOC, same stream, step 2, 8 units */
        0x8F,        36,  4,  3, 9, 9,    9,    /* DROP of 3, with three more bytes than defined */
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
    struct flw_trace *trace = read_good(piece.bytes, piece.count);
    flw_test_expect_in(trace->truncation, "ends without its end chunk");
    expect_records(trace, "A 180 0 4096 0\nD 180 3\nF 180 0 0\n");
}

TEST(ticks_become_nanoseconds)
{
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
    expect_records(read_good(piece.bytes, piece.count), "N 1016\nN 1053\nN 1053\nN 1063\n");
}

/* A text "f", a frame f (f:5), a stack of two such frames. */
#define STACK_ENTRIES \
    "\3\2\0f"         \
    "\4\4\0\0\0\5"    \
    "\5\4\1\0\0\0"

/* Whole chunks with records that cannot follow the previous ones. */
TEST(what_makes_no_sense_ends_the_trace_there)
{
#define CHUNK(bytes, count, type)             \
    {                                         \
        bytes, sizeof(bytes) - 1, count, type \
    }
#define ROW(entries, entry_count, items, count, type, records, record_count, wanted, is_kept)    \
    {                                                                                            \
        {CHUNK("\1\2\0\0" entries, 1 + entry_count, FLW_FTRACE_DICT), CHUNK(items, count, type), \
         CHUNK(records, record_count, FLW_FTRACE_EVENTS)},                                       \
            wanted, is_kept                                                                      \
    }
#define RECORDS(records, count, wanted) ROW("", 0, "", 0, 0, records, count, wanted, false)
#define STACKS(entries, entry_count, numbers, count, wanted, is_kept) \
    ROW(entries, entry_count, numbers, count, FLW_FTRACE_STACKS, "\xB0", 1, wanted, is_kept)
#define REMARKS(items, count, wanted, is_kept) \
    ROW("\3\2\0c", 1, items, count, FLW_FTRACE_REMARKS, "\xB0", 1, wanted, is_kept)
#define ENTRIES(entries, count, wanted) STACKS(entries, count, "", 0, wanted, false)
#define NUMBERS(numbers, count, wanted) STACKS(STACK_ENTRIES, 3, numbers, count, wanted, false)
    static const struct {
        struct {
            const char *bytes;
            size_t byte_count;
            uint32_t count;
            uint8_t type; /* 0: there is none */
        } chunks[3];
        const char *wanted;
        bool is_kept; /* the stack or the remark of the first record */
    } rows[] = {
        /* the first of each kind makes sense: ALLOC of 0 bytes on stream 0 */
        RECORDS("\xB0", 1, "without its end chunk"),
        RECORDS("\xB0\xF1\xF1", 3, "block 0 is already freed"),
        RECORDS("\xB0\xF2", 2, "block 0 is not freed yet"),
        RECORDS("\xB0\x91\x05", 2, "record 1 of a chunk is none"),
        RECORDS("\xB0\x91", 2, "record 1 of a chunk is none"),
        RECORDS("\xA0\x01", 1, "names a stream that is not in the dictionary"),
        RECORDS("\x0B", 1, "record 0 of a chunk is none"),
        RECORDS("\x38", 1, "a record of the start is among events"),
        RECORDS("\x8F\x1A\x01\x00", 1, "has a name that is not in the dictionary"),
        RECORDS("\x8F\x1A\x01\x01", 1, "has a name that is not in the dictionary"),
        RECORDS("\x8F\x1A\x7F\x01", 1, "record 0 of a chunk is none"),
        RECORDS("\x8F\x24\x01\x00", 1, "no event is missing"),
        RECORDS("\xB3", 1, "a segment, but the header says there are none"),
        RECORDS("\xF0", 1, "record 0 of a chunk is none"), /* a guess, but no addresses */
        RECORDS("\xB0", 2, "a chunk has 1 records, 2 in its header"),
        STACKS(STACK_ENTRIES, 3, "\3", 1, "without its end chunk", true),
        NUMBERS("\5", 1, "stack 1 is not in the dictionary"),
        NUMBERS("\2", 1, "without its end chunk"), /* guessed: 0 */
        NUMBERS("\0", 1, "the number of stacks differs"),
        NUMBERS("\4", 1, "the number of stacks differs"),
        NUMBERS("\3", 2, "the number of stacks differs"),
        NUMBERS("\3\3", 1, "the number of stacks differs"),
        STACKS(STACK_ENTRIES, 3, "\3\3", 2, "more stacks or remarks than records", true),
        NUMBERS("\x83", 1, "the number of stacks differs"),
        NUMBERS("\xFF\xFF\xFF\xFF\xFF\1", 1, "the number of stacks differs"),
        STACKS(STACK_ENTRIES, 3, "\3", 1u << 30, "more records than a chunk can have", false),
        ENTRIES("\3\2\1f", 1, "text 1 where 0 is next"),
        ENTRIES("\3\3\0f\0", 1, "a zero byte"),
        ENTRIES("\3\0", 1, "has no number"),
        ENTRIES("\4\4\0\0\0\5", 1, "text 0 is not in the dictionary"),
        ENTRIES("\3\2\0f\4\3\0\0\0", 2, "a frame lacks"),
        ENTRIES("\3\2\0f\4\1\0", 2, "a frame lacks"),
        ENTRIES("\3\2\0f\4\x8\0\0\0\xFF\xFF\xFF\xFF\x1F", 2, "a frame lacks"),
        ENTRIES("\5\1\1", 1, "a stack is not 1 to 1000 frames"),
        ENTRIES("\3\2\0f\4\4\1\0\0\5", 2, "frame 1 where 0 is next"),
        ENTRIES("\5\3\1\0\0", 1, "frame 0 is not in the dictionary"),
        ENTRIES("\5\2\1\0", 1, "a stack is not 1 to 1000 frames"),
        ENTRIES("\5\3\1\1\0", 1, "a stack is not 1 to 1000 frames"),
        ENTRIES("\5\3\0\0\0", 1, "a stack has no number"),
        ENTRIES(STACK_ENTRIES "\5\3\2\3\0", 4, "a stack is not 1 to 1000 frames"),
        STACKS(STACK_ENTRIES "\5\2\2\2", 4, "\3", 1, "without its end chunk", true),
        ENTRIES(STACK_ENTRIES "\5\2\1\2", 4, "stack 0 where 1 is next"),
        REMARKS("\1\1\0", 1, "without its end chunk", true),
        REMARKS("\1\2\0", 1, "text 1 is not in the dictionary", false),
        REMARKS("\1\0\2", 1, "text 1 is not in the dictionary", false),
        REMARKS("\1\1\0", 2, "number of records with remarks is wrong", false),
        REMARKS("\2\1\0", 1, "number of records with remarks is wrong", false),
        REMARKS("\0\1\0\1\1\0", 1, "number of records with remarks is wrong", false),
        REMARKS("\1\1", 1, "number of records with remarks is wrong", false),
        REMARKS("", 1, "number of records with remarks is wrong", false),
        REMARKS("\1\1\xFF\xFF\xFF\xFF\x1F", 1, "number of records with remarks is wrong", false),
        REMARKS("\1\1\0\1\0\0", 2, "more stacks or remarks than records", true),
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct piece piece;
        add_header(&piece, 1, 1, 1, 1000000000);
        for (size_t c = 0; c < 3; c++) {
            struct flw_frame_chunk frame = {.type = rows[i].chunks[c].type,
                                            .codec = c == 2,
                                            .record_count = rows[i].chunks[c].count,
                                            .time_scale = c == 2};
            if (frame.type != 0) {
                add_chunk(&piece, frame, rows[i].chunks[c].bytes, rows[i].chunks[c].byte_count);
            }
        }
        struct flw_trace *trace = read_good(piece.bytes, piece.count);
        flw_test_expect_in(trace->truncation, rows[i].wanted);
        assert_int_equal(flw_trace_stack(trace, 0) + trace->remark_count, rows[i].is_kept);
        flw_trace_destroy(trace);
    }
}

/* ---- stacks ---- */

TEST(a_file_without_stacks_is_of_the_version_before_them)
{
    static const char plain[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 8 0\n";
    static const char made_before[] = /* by the version before */
        "FALLOWTR\1\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    struct flw_trace *trace = read_text(plain);
    struct bytes bytes = print_file(trace, FLW_RECORD_PACKED);
    assert_memory_equal(bytes.at, made_before, sizeof made_before - 1);
    free(bytes.at);
    flw_trace_destroy(trace);
    trace = read_text(small);
    bytes = print_file(trace, FLW_RECORD_PACKED);
    assert_int_equal(bytes.at[10], FLW_FTRACE_MINOR);
    assert_int_equal(bytes.at[16], 1 | 2 | 4 | FLW_FTRACE_HAS_STACKS | FLW_FTRACE_HAS_REMARKS);
    free(bytes.at);
    flw_trace_destroy(trace);
}

/* ---- writing ---- */

TEST(what_was_flushed_can_be_read_while_writing_goes_on)
{
    struct flw_ftrace_settings settings = {.has_times = true, .device = 2, .step_ns = 1000};
    struct bytes bytes = {NULL, 0}, text = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    FILE *wanted = open_memstream(&text.at, &text.count);
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = flw_ftrace_writer_create(&sink, &settings);
    assert_true(w != NULL && flw_ftrace_writer_add_stream(w, 9));
    for (uint32_t i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "phase %u", i);
        struct flw_record event = {.time = 1000 * i + i / 50, /* no longer on the step */
                                   .size_bytes = 64,
                                   .block = i,
                                   .thread = 4,
                                   .tag = 1 + i / 10,
                                   FLW_RECORD_UNSET};
        struct flw_record mark = {.op = flw_record_op_of(FLW_TRACE_MARK),
                                  .time = event.time,
                                  .thread = 4,
                                  .tag = event.tag,
                                  FLW_RECORD_UNSET};
        mark.name = i;
        assert_true(flw_ftrace_writer_add_name(w, name) && flw_ftrace_writer_add(w, event) &&
                    flw_ftrace_writer_add(w, mark) && flw_ftrace_writer_flush(w));
        struct flw_trace *part = read_good(bytes.at, bytes.count);
        flw_test_expect_in(part->truncation, "without its end chunk");
        fprintf(wanted, "A %u %u 64 0 thread=4 tag=%u\n", 1000 * i + i / 50, i, 1 + i / 10);
        fprintf(wanted, "N %u thread=4 tag=%u \"%s\"\n", 1000 * i + i / 50, 1 + i / 10, name);
        fflush(wanted);
        expect_records(part, text.at);
    }
    struct flw_record early = {.op = flw_record_op_of(FLW_TRACE_EMPTY_CACHE),
                               .time = 5,
                               .thread = 4,
                               .tag = 10,
                               FLW_RECORD_UNSET};
    assert_true(flw_ftrace_writer_add(w, early) && flw_ftrace_writer_end(w));
    flw_ftrace_writer_destroy(w);
    fputs("X 99001 thread=4 tag=10\n", wanted);
    assert_true(fclose(file) == 0 && fclose(wanted) == 0);
    struct flw_trace *trace = read_good(bytes.at, bytes.count);
    assert_null(trace->truncation);
    expect_records(trace, text.at);
    free(bytes.at);
    free(text.at);
}

/* ---- lost stacks ---- */

/* Enough stacks to fill several chunks; each event has the stack of the event's number, from 1. */
#define MANY 40000

static struct bytes print_many_stacks(void)
{
    struct bytes text = {NULL, 0};
    FILE *file = open_memstream(&text.at, &text.count);
    assert_non_null(file);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", file);
    for (uint32_t i = 0; i < MANY; i++) {
        fprintf(file, "L %u \"f%u\" \"a.py\"\nW %u\nA 0 %u 64 0 stack=%u\n", i, i / 2, i, i, i + 1);
    }
    assert_int_equal(fclose(file), 0);
    struct flw_trace *trace = read_good(text.at, text.count);
    free(text.at);
    text = print_file(trace, FLW_RECORD_PACKED);
    flw_trace_destroy(trace);
    return text;
}

/* An event has the original stack, or none if that is lost; never another. */
static size_t count_kept(const struct flw_trace *trace)
{
    size_t kept = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, i));
        uint32_t frame;
        if (flw_stacks_next(&walk, &frame)) {
            assert_int_equal(flw_stacks_frame(&trace->stacks, frame)->line, i);
            assert_false(flw_stacks_next(&walk, &frame));
            kept++;
        }
    }
    return kept;
}

TEST(lost_stacks_take_no_event_away)
{
    struct bytes bytes = print_many_stacks();
    size_t kept_before = MANY;
    for (size_t skip = 0; skip < 5;
         skip++) { /* numbers of stacks, then dictionaries: the first two are others' */
        bool is_whole = skip == 0;
        size_t at =
            find_chunk(&bytes, skip < 2 ? FLW_FTRACE_STACKS : FLW_FTRACE_DICT, skip < 2 ? 1 : skip);
        bytes.at[at + FLW_FRAME_BYTES + 5] ^= is_whole ? 0 : 1;
        struct flw_trace *rest = read_on(bytes.at, bytes.count);
        size_t kept = count_kept(rest);
        assert_int_equal(rest->event_count, MANY);
        assert_true(is_whole ? rest->truncation == NULL && kept == MANY
                             : kept > 0 && kept < kept_before);
        if (is_whole) { /* also through as long a snapshot */
            struct flw_trace *again = write_and_read(rest, "pytorch");
            assert_int_equal(count_kept(again), MANY);
            flw_trace_destroy(again);
        }
        kept_before = kept;
        flw_trace_destroy(rest);
    }
    free(bytes.at);
}

FLW_TEST_MAIN(NULL, NULL)
