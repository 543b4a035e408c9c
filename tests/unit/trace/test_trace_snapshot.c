/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of PyTorch's snapshots: the traces that are read (as text), reading back the snapshots written from
 * these traces, and the errors of bad ones.
 */
#include "test_trace_bed.h"

#include "test_pickle_writer.h"

#define MIB (UINT64_C(1) << 20)

/* Release the writer. NULL: refused. */
static struct flw_trace *import_device(struct writer w, int device)
{
    struct flw_trace *trace = read_device(w.bytes, w.count, device);
    free(w.bytes);
    return trace;
}

static struct flw_trace *import(struct writer w)
{
    struct flw_trace *trace = import_device(w, -1);
    if (trace == NULL) {
        fail_msg("%s", message);
    }
    return trace;
}

static struct writer write_any(const char *text)
{
    return strchr("{[", *text) != NULL ? write_value(4, text) : write_snapshot(4, text);
}

/* ---- rows ---- */

#define HEAD(fields) "#fallow-trace 1\ndevice 0\nstream 0\nfields " fields "addresses segments\n"
#define NOTES        "origin pytorch snapshot\n"
#define PLAIN        HEAD("") NOTES

struct row {
    const char *snapshot, *text;
    bool lacks; /* segments or ends of frees, which are made up on the way back */
};

/* Without the lines of segments of the start and of ends of frees. */
static void leave_out(char *text)
{
    char *out = text;
    for (const char *line = text, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n') + 1;
        if (strncmp(line, "S ", 2) != 0 && *line != 'C') {
            memmove(out, line, (size_t)(next - line));
            out += next - line;
        }
    }
    *out = '\0';
}

static void expect_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct flw_trace *trace = import(write_any(rows[i].snapshot));
        struct flw_trace *again = write_and_read(trace, "pytorch");
        char *text = print_text(trace), *other = print_text(again);
        assert_string_equal(text, rows[i].text);
        if (rows[i].lacks) {
            leave_out(text);
            leave_out(other);
        }
        assert_string_equal(records_of(other), records_of(text));
        free(text);
        free(other);
        flw_trace_destroy(again);
        flw_trace_destroy(trace);
    }
}

TEST(blocks_are_followed_through_heap_and_events)
{
    static const struct row rows[] = {
        /* freed but never allocated: there at the start */
        {"segment 16M 20M large\nblock 16M 1M inactive\n"
         "block 17M 3M active_allocated requested_size 3145700\nblock 20M 16M inactive\n"
         "free_requested 24M 100\nfree_completed 24M 100\nalloc 16M 1M\nfree_requested 16M 1M\n"
         "free_completed 16M 1M\n",
         PLAIN "S 0 20971520 0 large @16777216\nP 0 0 3145700 0 @17825792\nP 0 1 100 0 @25165824\n"
               "F 0 1 0\nC 0 1 0\nA 0 2 1048576 0 @16777216\nF 0 2 0\nC 0 2 0\n",
         false},
        /* a completion without a request */
        {"free_completed 16M 1M\nalloc 16M 2M\n",
         PLAIN "P 0 0 1048576 0 @16777216\nF 0 0 0\nA 0 1 2097152 0 @16777216\n", true},
        /* blocks waiting at the end were freed in the recording, or at the start */
        {"segment 16M 4M large\nblock 16M 1M active_pending_free\n"
         "block 17M 3M active_awaiting_free\nalloc 16M 1M\nfree_requested 16M 1M\n",
         PLAIN "S 0 4194304 0 large @16777216\nP 0 0 3145728 0 @17825792\n"
               "A 0 1 1048576 0 @16777216\nF 0 1 0\n",
         true},
        /* gaps: the free of the first is lost, the last was allocated meanwhile, off the record */
        {"segment 16M 4M large\nblock 16M 2M active_allocated\nalloc 16M 1M\nalloc 16M 2M\n"
         "free_requested 19M 7\nfree_completed 19M 7\nfree_requested 19M 9\nfree_completed 19M 9\n",
         "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\ngaps 2 1\n"
         "origin pytorch snapshot\nS 0 4194304 0 large @16777216\nP 0 0 7 0 @19922944\n"
         "A 0 1 1048576 0 @16777216\nF 0 1 0\nA 0 2 2097152 0 @16777216\nF 0 0 0\nC 0 0 0\n",
         false},
        /* a block listed twice; torch before 2.0: a bare list, no addresses, requested sizes in a history */
        {"segment 16M 1M large\nblock 16M 512 active_allocated\nblock 16M 1024 active_allocated\n",
         PLAIN "blocks_of_the_end_given_twice 1\nS 0 1048576 0 large @16777216\n"
               "P 0 0 1024 0 @16777216\n",
         false},
        {"[{address 16M total_size 2M segment_type small blocks ["
         "{size 1024 state active_allocated history [{real_size 1000}]}"
         "{size 1024 state active_allocated history [{real_size 1001}]}]}]",
         PLAIN "S 0 2097152 0 small @16777216\nP 0 0 1000 0 @16777216\nP 0 1 1001 0 @16778240\n",
         false},
        /* times begin at zero and never fall; an out-of-memory may have the free bytes */
        {"snapshot 0 9 time_us 1700000000000000 stream 0x7700\n"
         "oom 0 9 time_us 1700000000000007 stream 0x7700\n"
         "oom 0 9 time_us 1700000000000005 device_free 12345\n",
         "#fallow-trace 1\ndevice 0\nstream 30464\nstream 0\nfields times addresses segments\n"
         "begin_ns 1700000000000000000\norigin pytorch snapshot\nN 0\nO 7000 9 0\n"
         "O 7000 9 1 free=12345\n",
         false},
    };
    expect_rows(rows, COUNT_OF(rows));
}

TEST(segments_of_the_start_are_those_of_the_end_with_events_undone)
{
    static const struct row rows[] = {
        {"segment 16M 2M small\n"
         "segment 64M 20M large\n" /* mapped during the recording */
         "segment_alloc 64M 20M\nsegment_free 128M 30M\nsegment_free 256M 2M\n"
         "segment_alloc 256M 1M\nsegment_free 256M 1M\n",
         PLAIN "S 0 2097152 0 small @16777216\nS 0 2097152 0 small @268435456\n"
               "S 0 31457280 0 large @134217728\nS+ 0 20971520 0 @67108864\n"
               "S- 0 31457280 0 @134217728\nS- 0 2097152 0 @268435456\nS+ 0 1048576 0 @268435456\n"
               "S- 0 1048576 0 @268435456\n",
         false},
        /* expandable: [16, 36) at the end, [16, 20) and [26, 46) at the start; a small one that a large one adjoins */
        {"segment 528M 20M large is_expandable True\nsegment 16M 20M large is_expandable True\n"
         "segment 524M 4M small is_expandable True\nsegment_unmap 36M 10M\nsegment_map 20M 6M\n"
         "segment_map 524M 2M\n",
         PLAIN "S 0 4194304 0 large expandable @16777216\n"
               "S 0 20971520 0 large expandable @27262976\n"
               "S 0 2097152 0 small expandable @551550976\n"
               "S 0 20971520 0 large expandable @553648128\nM- 0 10485760 0 @37748736\n"
               "M+ 0 6291456 0 @20971520\nM+ 0 2097152 0 @549453824\n",
         false},
    };
    expect_rows(rows, COUNT_OF(rows));
}

TEST(pools_are_numbered_in_the_order_of_their_pairs)
{
#define POOLED(address, id)                                   \
    "segment " address " 1M small segment_pool_id (" id ")\n" \
    "block " address " 1M active_allocated\n"
    static const struct row rows[] = {
        {POOLED("16M", "0 0")
             POOLED("20M", "1 0") "alloc 24M 1M pool_id (3 0)\nalloc 28M 1M pool_id (0 7)\n"
                                  "alloc 32M 1M pool_id (0 0)\nalloc 36M 1M pool_id (0 3)\n"
                                  "free_requested 20M 1M pool_id (1 0)\n",
         PLAIN "S 0 1048576 0 small @16777216\nS 0 1048576 0 small @20971520 pool=3\n"
               "P 0 0 1048576 0 @16777216\nP 0 1 1048576 0 @20971520 pool=3\n"
               "A 0 2 1048576 0 @25165824 pool=4\nA 0 3 1048576 0 @29360128 pool=2\n"
               "A 0 4 1048576 0 @33554432\nA 0 5 1048576 0 @37748736 pool=1\nF 0 1 0 pool=3\n",
         true},
        /* a free has the pool of a block of the start */
        {"free_completed 16M 1M pool_id (0 1)\nsegment_free 16M 1M pool_id (0 0)\n",
         PLAIN "S 0 1048576 0 large @16777216\nP 0 0 1048576 0 @16777216 pool=1\nF 0 0 0 pool=1\n"
               "S- 0 1048576 0 @16777216\n",
         true},
        /* events without a pool have that of the segment around them, except for a block that was there before */
        {POOLED("16M", "2 0") "free_completed 16M 1M\nsegment_free 16M 1M\nsegment_alloc 16M 1M\n"
                              "alloc 16M 1M\n",
         PLAIN "S 0 1048576 0 large @16777216\nP 0 0 1048576 0 @16777216\nF 0 0 0\n"
               "S- 0 1048576 0 @16777216\nS+ 0 1048576 0 @16777216 pool=1\n"
               "A 0 1 1048576 0 @16777216 pool=1\n",
         true},
        {"segment 16M 1M small segment_pool_id (0 0)\n" POOLED("20M", "1 0")
             POOLED("24M", "2 0") "free_requested 16M 1M pool_id (0 0)\n"
                                  "free_completed 16M 1M pool_id (0 0)\n"
                                  "segment_alloc 24M 1M pool_id (2 0)\n"
                                  "alloc 24M 1M pool_id (2 0)\n",
         PLAIN "S 0 1048576 0 small @16777216\nS 0 1048576 0 small @20971520 pool=1\n"
               "P 0 0 1048576 0 @16777216\nP 0 1 1048576 0 @20971520 pool=1\nF 0 0 0\nC 0 0 0\n"
               "S+ 0 1048576 0 @25165824 pool=2\nA 0 2 1048576 0 @25165824 pool=2\n",
         false},
    };
    expect_rows(rows, COUNT_OF(rows));
}

TEST(records_have_the_frames_that_they_say)
{
    static const struct row rows[] = {
        {"alloc 16M 1M frames @leaf;main\nfree_requested 16M 1M frames @drop;main\n"
         "free_completed 16M 1M\nalloc 16M 1M frames @other;main\nalloc 17M 1M frames @leaf;main\n"
         "oom 16M 1M frames @large\n",
         PLAIN "L 1 \"leaf\" \"leaf.py\"\nL 2 \"main\" \"main.py\"\nW 0 1\n"
               "A 0 0 1048576 0 @16777216 stack=1\nL 1 \"drop\" \"drop.py\"\nW 2 1\n"
               "F 0 0 0 stack=2\nC 0 0 0\nL 1 \"other\" \"other.py\"\nW 3 1\n"
               "A 0 1 1048576 0 @16777216 stack=3\nA 0 2 1048576 0 @17825792 stack=1\n"
               "L 1 \"large\" \"large.py\"\nW 4\nO 0 1048576 0 stack=4\n",
         true},
        /* blocks of the start: those of the heap at the end, also in the form of older versions */
        {"segment 16M 20M large\nblock 16M 1M active_allocated frames @init\n"
         "block 17M 1M active_allocated frames @late\n"
         "block 18M 1M active_allocated history [{addr 18M real_size 1M frames @old}]\n"
         "alloc 17M 1M frames @late\n"
         "free_requested 24M 1M frames @drop\n", /* the allocation is lost */
         PLAIN "S 0 20971520 0 large @16777216\nL 1 \"init\" \"init.py\"\nW 0\n"
               "P 0 0 1048576 0 @16777216 stack=1\nL 1 \"old\" \"old.py\"\nW 1\n"
               "P 0 1 1048576 0 @18874368 stack=2\nP 0 2 1048576 0 @25165824\n"
               "L 1 \"late\" \"late.py\"\nW 2\nA 0 3 1048576 0 @17825792 stack=3\n"
               "L 1 \"drop\" \"drop.py\"\nW 3\nF 0 2 0 stack=4\n",
         true},
        /* words of a snapshot, too */
        {"alloc 16M 1M frames @alloc;size;frames\n",
         PLAIN "L 1 \"alloc\" \"alloc.py\"\nL 2 \"size\" \"size.py\"\n"
               "L 3 \"frames\" \"frames.py\"\nW 0 1 2\nA 0 0 1048576 0 @16777216 stack=1\n",
         true},
        /* remarks: the compile context, and the program's metadata */
        {"alloc 16M 1M compile_context \"0/1\" user_metadata \"step 1\"\n"
         "alloc 17M 1M compile_context \"0/1\" user_metadata \"step 2\"\n"
         "alloc 18M 1M user_metadata step\nalloc 19M 1M\n",
         PLAIN "V \"0/1\" \"step 1\"\nA 0 0 1048576 0 @16777216\n"
               "V \"0/1\" \"step 2\"\nA 0 1 1048576 0 @17825792\n"
               "V - \"step\"\nA 0 2 1048576 0 @18874368\nV - -\nA 0 3 1048576 0 @19922944\n",
         true},
        /* invalid frames make no stack: without a line, a number, a text */
        {"alloc 16M 1M frames [{name f filename f.py}]\n", PLAIN "A 0 0 1048576 0 @16777216\n",
         true},
        {"alloc 16M 1M frames [{name f filename f.py line 1} 7]\n",
         PLAIN "A 0 0 1048576 0 @16777216\n", true},
        {"alloc 16M 1M frames [f]\n", PLAIN "A 0 0 1048576 0 @16777216\n", true},
    };
    expect_rows(rows, COUNT_OF(rows));
}

/* ---- phases ---- */

#define START(name, time) "START \"" name "\" device 0 time_us " #time "\n"
#define END(name, time)   "END \"" name "\" device 0 time_us " #time "\n"
#define FOUR                     \
    "alloc 16M 1M time_us 100\n" \
    "alloc 17M 1M time_us 200\n" \
    "alloc 18M 1M time_us 200\n" \
    "alloc 19M 1M time_us 300\n"

/* A an allocation, m a mark, (x and )x phases by the first letter. */
static void expect_shape(const struct flw_trace *trace, const char *wanted)
{
    char *text = print_text(trace), shape[256];
    size_t count = 0;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        bool is_phase = *line == 'B' || *line == 'E';
        if (*line >= 'A' && *line <= 'Z' && *line != 'S') {
            shape[count++] = *line == 'N' ? 'm' : *line == 'B' ? '(' : *line == 'E' ? ')' : *line;
        }
        if (is_phase) {
            shape[count++] = strchr(line, '"')[1];
        }
    }
    shape[count] = '\0';
    assert_string_equal(shape, wanted);
    free(text);
}

TEST(phases_lie_where_their_times_say)
{
    static const struct {
        const char *snapshot, *shape, *note;
    } rows[] = {
        {FOUR START("step", 150) START("alloc", 160) END("alloc", 250) END("step", 400),
         "A(s(aAA)aA)s", ""},
        /* one of one microsecond covers the events */
        {FOUR START("x", 200) END("x", 200) START("y", 200) END("y", 300), "A(xAA)x(yA)y", ""},
        {FOUR END("x", 250) START("x", 150), "A(xAA)xA", ""},
        /* under way at the first event; of "inner" and "outer" both began before anything on record */
        {FOUR START("over", 10) END("over", 20) END("lost", 30) START("x", 40) END("x", 150)
             END("inner", 250) END("outer", 260) START("never ends", 270),
         "(o(i(xA)xAA)i)o(nA", "\nannotations_before_the_events 3\n"},
        /* an end closes the innermost phase of the same name */
        {FOUR START("x", 50) START("x", 60) END("x", 70) END("x", 250), "(xAAA)xA",
         "\nannotations_before_the_events 2\n"},
        /* other devices, other stages */
        {FOUR "START x device 1 time_us 150\nEND x device 1 time_us 250\n"
              "MIDDLE y device 0 time_us 150\n",
         "AAAA", ""},
        {"alloc 16M 1M\n" START("x", 150) "END x device 0\n", "A",
         "\nannotations_without_a_place 2\n"},
        /* events without a time keep their places */
        {"snapshot 0 1M\nalloc 16M 1M time_us 100\nsnapshot 0 1M\nalloc 17M 1M time_us 200\n" START(
             "x", 150) END("x", 150),
         "mAm(x)xA", ""},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (uint8_t protocol = 2; protocol <= 5; protocol++) {
            struct flw_trace *trace = import(write_snapshot(protocol, rows[i].snapshot));
            struct flw_trace *again = write_and_read(trace, "pytorch");
            expect_shape(trace, rows[i].shape);
            flw_test_expect_in(trace->notes, rows[i].note);
            assert_int_equal(strstr(trace->notes, "annotations_") != NULL, *rows[i].note != '\0');
            expect_shape(again, rows[i].shape);
            for (size_t e = 0; e < trace->event_count; e++) {
                assert_int_equal(again->events[e].time_ns, trace->events[e].time_ns);
            }
            flw_trace_destroy(again);
            flw_trace_destroy(trace);
        }
    }
}

TEST(names_of_phases_are_made_printable_and_short)
{
    char text[2048], longer[1200];
    memset(longer, 'z', sizeof longer);
    memcpy(longer + 999, "\xc3\xa9", 2); /* a character that the cut would halve */
    longer[sizeof longer - 1] = '\0';
    snprintf(text, sizeof text, FOUR START("two\tlines", 150) START("", 160) START("%s", 170),
             longer);
    struct flw_trace *trace = import(write_snapshot(4, text));
    assert_int_equal(trace->names.count, 3);
    assert_string_equal(flw_intern_text(&trace->names, 0), "two?lines");
    assert_string_equal(flw_intern_text(&trace->names, 1), "unnamed");
    assert_int_equal(strlen(flw_intern_text(&trace->names, 2)), 999);
    flw_trace_destroy(trace);
}

/* ---- devices ---- */

/* Device 0 has a segment and no event, device 1 two events, device 2 one. */
TEST(devices_are_never_merged)
{
    static const char snapshot[] = "segment 16M 20M large\nblock 16M 1M active_allocated\ndevice\n"
                                   "device\nalloc 16M 11\nalloc 17M 11\ndevice\nalloc 16M 22\n";
    static const char *const records[] = {
        "S 0 20971520 0 large @16777216\nP 0 0 1048576 0 @16777216\n",
        "A 0 0 11 0 @16777216\nA 0 1 11 0 @17825792\n", "A 0 0 22 0 @16777216\n"};
    for (int device = -1; device <= 3; device++) {
        struct flw_trace *trace = import_device(write_snapshot(4, snapshot), device);
        char wanted[256];
        if (device == 3) {
            assert_null(trace);
            flw_test_expect_in(message, "has no device 3, only 0 to 2");
            continue;
        }
        int chosen = device < 0 ? 1 : device;
        snprintf(wanted, sizeof wanted,
                 "#fallow-trace 1\ndevice %d\nstream 0\nfields addresses segments\n" NOTES
                 "recorded_devices 0 1 2\n%s",
                 chosen, records[chosen]);
        expect_text(trace, wanted);
    }
}

/* ---- large files ---- */

TEST(every_free_that_is_lost_is_put_in_however_many)
{
    enum {
        PLACES = 3,
        ROUNDS = 4000
    };
    char *snapshot = NULL, *text = NULL;
    size_t bytes;
    FILE *in = open_memstream(&snapshot, &bytes), *out = open_memstream(&text, &bytes);
    assert_true(in != NULL && out != NULL);
    fprintf(out, HEAD("") "gaps 0 %d\n" NOTES, ROUNDS - PLACES - ROUNDS / 1000 + 1);
    for (int i = 0; i < ROUNDS; i++) {
        bool was_freed = i > 1000 && (i - PLACES) % 1000 == 999;
        if (i >= PLACES && !was_freed) {
            fprintf(out, "F 0 %d 0\n", i - PLACES);
        }
        fprintf(in, "alloc %dM %d\n", 1 + i % PLACES, i + 1);
        fprintf(out, "A 0 %d %d 0 @%d\n", i, i + 1, (1 + i % PLACES) << 20);
        if (i % 1000 == 999) { /* a request without completion */
            fprintf(in, "free_requested %dM %d\n", 1 + i % PLACES, i + 1);
            fprintf(out, "F 0 %d 0\n", i);
        }
    }
    assert_true(fclose(in) == 0 && fclose(out) == 0);
    expect_text(import(write_snapshot(4, snapshot)), text);
    free(snapshot);
    free(text);
}

TEST(what_a_snapshot_cannot_say_is_written_otherwise)
{
    static const char *const rows[][2] = {
        /* bytes of no character */
        {HEAD(
             "") "L 1 \"\xF4\x90\x80\x80\" \"\xF4\x8F\x80\x80\"\nW 0\nS 0 512 0 small @512 stack=1\n",
         "L 1 \"????\" \"\xF4\x8F\x80\x80\"\nW 0\nS 0 512 0 small @512 stack=1\n"},
        /* frees of which none is deferred */
        {HEAD("") "S 0 512 0 small @512\nA 0 0 512 0 @512\nF 0 0 0\n",
         "S 0 512 0 small @512\nA 0 0 512 0 @512\nF 0 0 0\nC 0 0 0\n"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct flw_trace *trace = read_text(rows[i][0]);
        expect_records(write_and_read(trace, "pytorch"), rows[i][1]);
        flw_trace_destroy(trace);
    }
}

TEST(a_deep_stack_keeps_its_innermost_frames)
{
    char *snapshot = NULL;
    size_t bytes;
    FILE *file = open_memstream(&snapshot, &bytes);
    fputs("{segments [] device_traces [[{action alloc addr 1M size 1M frames [", file);
    for (unsigned i = 0; i < 2 * FLW_STACK_DEPTH_MOST;
         i++) { /* in steps, as long lists are written */
        fprintf(file, "{name f filename f.py line %u}%s", i, i % 700 == 699 ? "|" : "");
    }
    fputs("]}]]}", file);
    assert_int_equal(fclose(file), 0);
    struct flw_trace *trace = import(write_value(4, snapshot));
    free(snapshot);
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, 0));
    uint32_t number, depth = 0;
    while (flw_stacks_next(&walk, &number)) {
        assert_int_equal(flw_stacks_frame(&trace->stacks, number)->line, depth++);
    }
    assert_int_equal(depth, 700);
    flw_trace_destroy(trace);
}

/* ---- refused ---- */

TEST(bad_snapshots_are_refused)
{
    static const struct {
        const char *snapshot, *wanted;
    } rows[] = {
        {"{size 1}", "not a PyTorch memory snapshot"},
        {"{segments none device_traces []}", "\"segments\" is no list"},
        {"{segments [] device_traces [[{action alloc addr 1 size 9} \"no event\"]]}",
         "an item of the trace is not an event"},
        {"{segments [] device_traces [[\"no event, and no other one\"]]}",
         "an item of the trace is not an event"},
        {"{segments [\"no segment\"] device_traces [[]]}",
         "an item of the segments is not a segment"},
        {"{segments [{address 1M total_size 1M blocks [{address 1M size 512 state inactive} none]}] "
         "device_traces [[]]}",
         "an item of the blocks is not a block"},
        {"allocate 1M 1\n", "an event has an unknown action"},
        {"size 1M 1\n", "an event has an unknown action"},
        {"alloc 1M 18446744073709551615\n", "exceed 64 bits"},
        {"alloc 1 18446744073709551614\nalloc 0 18446744073709551614\n", "more than 64 bits hold"},
        {"oom 0 9 device_free -1\n", "\"device_free\" is negative"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_null(import_device(write_any(rows[i].snapshot), -1));
        flw_test_expect_in(message, rows[i].wanted);
        assert_int_equal(strncmp(message, "name: byte ", 11), 0);
    }
}

TEST(bytes_behind_the_pickle_are_said)
{
    struct writer w = write_snapshot(4, "segment 1M 1M large\n");
    put_bytes(&w, "rest", 4);
    expect_text(import(w),
                PLAIN "bytes_behind_the_pickle_not_read 4\nS 0 1048576 0 large @1048576\n");
}

/* A list of n segments that are one object, with a list of n blocks that are one object. */
TEST(shared_lists_cannot_make_the_walk_long)
{
    char *snapshot = NULL;
    size_t bytes;
    FILE *file = open_memstream(&snapshot, &bytes);
    fputs("{segments [{address 1M total_size 1M blocks [{address 1M size 512 state inactive} =1",
          file);
    for (int i = 0; i < 200000; i++) {
        fputs(i == 100000 ? "]} =2" : i < 100000 ? " #1" : " #2", file);
    }
    fputs("] device_traces [[]]}", file);
    assert_int_equal(fclose(file), 0);
    assert_null(import_device(write_value(4, snapshot), -1));
    free(snapshot);
    flw_test_expect_in(message, "more items than the file has bytes");
}

FLW_TEST_MAIN(NULL, NULL)
