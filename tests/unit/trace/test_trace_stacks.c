/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of call stacks: what of a snapshot's frames is kept, and with which record.
 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "test_pickle_writer.h"
#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7F0000000000)

static void put_frame(struct writer *w, const char *function, const char *file, uint64_t line)
{
    begin_dict(w);
    put_word_pair(w, "name", function);
    put_word_pair(w, "filename", file);
    put_pair(w, "line", line);
    end_dict(w);
}

/* The frames of "leaf;middle;root", the innermost first: leaf.py:1, middle.py:2, ... */
static void put_frames(struct writer *w, const char *names)
{
    char file[64];
    uint64_t line = 0;
    put_string(w, "frames");
    begin_list(w);
    while (*names != '\0') {
        size_t bytes = strcspn(names, ";");
        snprintf(file, sizeof file, "%.*s.py", (int)bytes, names);
        char function[64];
        snprintf(function, sizeof function, "%.*s", (int)bytes, names);
        put_frame(w, function, file, ++line);
        names += bytes + (names[bytes] == ';');
    }
    end_list(w);
}

static void put_event_from(struct writer *w, const char *action, uint64_t address, uint64_t bytes,
                           const char *names)
{
    begin_dict(w);
    put_word_pair(w, "action", action);
    put_pair(w, "addr", address);
    put_pair(w, "size", bytes);
    put_pair(w, "stream", 0);
    put_frames(w, names);
    end_dict(w);
}

/* Releases the writer. */
static struct flw_trace *import(struct writer *w)
{
    static char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    if (!flw_trace_read_bytes(w->bytes, w->count, "name", -1, &trace, message)) {
        print_error("%s\n", message);
    }
    free(w->bytes);
    assert_non_null(trace);
    assert_true(flw_trace_is_valid(trace));
    return trace;
}

/* "leaf.py:1 leaf;middle.py:2 middle" of a record. */
static void expect_stack(const struct flw_trace *trace, size_t record, const char *expected)
{
    char text[256] = "";
    size_t length = 0;
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, record));
    for (uint32_t number; flw_stacks_next(&walk, &number);) {
        const struct flw_frame *frame = &trace->stacks.frames[number];
        int added = snprintf(text + length, sizeof text - length, "%s%s:%u %s",
                             length == 0 ? "" : ";", flw_stacks_text(&trace->stacks, frame->file),
                             frame->line, flw_stacks_text(&trace->stacks, frame->function));
        assert_true(added > 0 && (size_t)added < sizeof text - length);
        length += (size_t)added;
    }
    assert_string_equal(text, expected);
}

static void every_event_has_the_frames_that_it_says(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event_from(&w, "alloc", BASE, MIB, "leaf;main");
    put_event_from(&w, "free_requested", BASE, MIB, "drop;main");
    put_event(&w, "free_completed", BASE, MIB);
    put_event_from(&w, "alloc", BASE, MIB, "other;main");
    put_event_from(&w, "alloc", BASE + MIB, MIB, "leaf;main");
    put_event_from(&w, "oom", BASE, MIB, "large");
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->event_count, 6);
    expect_stack(trace, 0, "leaf.py:1 leaf;main.py:2 main");
    expect_stack(trace, 1, "drop.py:1 drop;main.py:2 main");
    expect_stack(trace, 2, "");
    expect_stack(trace, 3, "other.py:1 other;main.py:2 main");
    assert_int_equal(flw_trace_stack(trace, 4), flw_trace_stack(trace, 0));
    expect_stack(trace, 5, "large.py:1 large");
    expect_stack(trace, 6, ""); /* behind the last */
    assert_int_equal(trace->stacks.stack_count, 1 + 4);
    assert_int_equal(trace->stacks.frame_count, 5);
    flw_trace_destroy(trace);
}

static void begin_block(struct writer *w, uint64_t address, const char *state)
{
    begin_dict(w);
    put_pair(w, "address", address);
    put_pair(w, "size", MIB);
    put_word_pair(w, "state", state);
}

static void blocks_of_the_start_have_those_of_the_heap_at_the_end(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 20 * MIB, "large", 0);
    begin_block(&w, BASE, "active_allocated"); /* older than the recording */
    put_frames(&w, "init");
    end_dict(&w);
    begin_block(&w, BASE + MIB, "active_allocated"); /* allocated on record */
    put_frames(&w, "late");
    end_dict(&w);
    begin_block(&w, BASE + 2 * MIB, "active_allocated"); /* as older versions say it */
    put_string(&w, "history");
    begin_list(&w);
    begin_dict(&w);
    put_pair(&w, "addr", BASE + 2 * MIB);
    put_pair(&w, "real_size", MIB);
    put_frames(&w, "old");
    end_dict(&w);
    end_list(&w);
    end_dict(&w);
    end_segment(&w);
    begin_events(&w);
    put_event_from(&w, "alloc", BASE + MIB, MIB, "late");
    put_event_from(&w, "free_requested", BASE + 8 * MIB, MIB, "drop"); /* its allocation is lost */
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 3);
    expect_stack(trace, 0, "init.py:1 init");
    expect_stack(trace, 1, "old.py:1 old");
    expect_stack(trace, 2, "");
    expect_stack(trace, 3, "late.py:1 late");
    expect_stack(trace, 4, "drop.py:1 drop");
    flw_trace_destroy(trace);
}

/* "alloc" and "size" are words of a snapshot, too. */
static void a_function_may_be_called_as_a_key_is(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event_from(&w, "alloc", BASE, MIB, "alloc;size;frames");
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    expect_stack(trace, 0, "alloc.py:1 alloc;size.py:2 size;frames.py:3 frames");
    flw_trace_destroy(trace);
}

static void a_deep_stack_keeps_its_innermost_frames(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    begin_dict(&w);
    put_word_pair(&w, "action", "alloc");
    put_pair(&w, "addr", BASE);
    put_pair(&w, "size", MIB);
    put_string(&w, "frames");
    begin_list(&w);
    for (unsigned i = 0; i < 2 * FLW_STACK_DEPTH_MOST; i++) {
        put_frame(&w, "f", "f.py", i);
        if (i % 700 == 699) { /* in several steps, as long lists are written */
            end_list(&w);
            put_code(&w, '(');
        }
    }
    end_list(&w);
    end_dict(&w);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, 0));
    uint32_t number, depth = 0;
    while (flw_stacks_next(&walk, &number)) {
        assert_int_equal(trace->stacks.frames[number].line, depth++);
    }
    assert_int_equal(depth, 700);
    flw_trace_destroy(trace);
}

/* Frames that lack something, or something among them that is none: read as before, without a stack. */
static void what_is_no_frame_makes_no_stack(void **state)
{
    (void)state;
    for (unsigned shape = 0; shape < 3; shape++) {
        struct writer w = begin_pickle(4);
        begin_snapshot(&w);
        begin_events(&w);
        begin_dict(&w);
        put_word_pair(&w, "action", "alloc");
        put_pair(&w, "addr", BASE);
        put_pair(&w, "size", MIB);
        put_string(&w, "frames");
        begin_list(&w);
        if (shape == 0) { /* no line */
            begin_dict(&w);
            put_word_pair(&w, "name", "f");
            put_word_pair(&w, "filename", "f.py");
            end_dict(&w);
        } else if (shape == 1) {
            put_frame(&w, "f", "f.py", 1);
            put_number(&w, 7);
        } else {
            put_string(&w, "f");
        }
        end_list(&w);
        end_dict(&w);
        end_snapshot(&w);
        struct flw_trace *trace = import(&w);
        assert_int_equal(trace->alloc_count, 1);
        expect_stack(trace, 0, "");
        flw_trace_destroy(trace);
    }
}

static void stacks_and_frames_are_kept_once(void **state)
{
    (void)state;
    struct flw_stacks stacks = {0};
    uint32_t frames[300], one, again, none;
    assert_true(flw_stacks_are_valid(&stacks));
    for (unsigned i = 0; i < 300; i++) {
        assert_true(flw_stacks_add_frame(&stacks, "f", "f.py", i, &frames[i]));
        assert_int_equal(frames[i], i);
    }
    assert_true(flw_stacks_add_frame(&stacks, "f", "f.py", 299, &again));
    assert_int_equal(again, 299);
    assert_true(flw_stacks_add(&stacks, frames, 0, &none));
    assert_int_equal(none, 0);
    assert_true(flw_stacks_add(&stacks, frames, 300, &one) && one != 0);
    assert_true(flw_stacks_add(&stacks, frames, 299, &none) && none != one);
    assert_true(flw_stacks_add(&stacks, frames, 300, &again) && again == one);
    assert_true(flw_stacks_are_valid(&stacks));
    flw_stacks_settle(&stacks);
    struct flw_stack_walk walk = flw_stacks_walk(&stacks, one);
    unsigned count = 0;
    while (flw_stacks_next(&walk, &again)) {
        assert_int_equal(again, frames[count++]);
    }
    assert_int_equal(count, 300);
    stacks.frame_count--; /* the last frame is of the first stack alone */
    assert_false(flw_stacks_are_valid(&stacks));
    stacks.frame_count++;
    stacks.bytes[stacks.begins[2] - 1] |= 0x80; /* its last number does not end */
    assert_false(flw_stacks_are_valid(&stacks));
    flw_stacks_finish(&stacks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_has_the_frames_that_it_says),
        cmocka_unit_test(blocks_of_the_start_have_those_of_the_heap_at_the_end),
        cmocka_unit_test(a_function_may_be_called_as_a_key_is),
        cmocka_unit_test(a_deep_stack_keeps_its_innermost_frames),
        cmocka_unit_test(what_is_no_frame_makes_no_stack),
        cmocka_unit_test(stacks_and_frames_are_kept_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
