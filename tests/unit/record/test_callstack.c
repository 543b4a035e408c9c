/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of C call stacks; tests/python has those of Python. */
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/trace_file.h"

#define DEPTH 16

static struct flw_callstacks *all;

static int set_up(void **state)
{
    all = flw_callstacks_shared();
    return all == NULL;
}

static __attribute__((noinline)) uint32_t here(unsigned depth)
{
    uint32_t number = flw_callstacks_here(all, depth, false);
    __asm__ volatile("" ::: "memory"); /* not a tail call */
    return number;
}

static __attribute__((noinline)) uint32_t deep(unsigned levels, unsigned depth)
{
    uint32_t number = levels == 0 ? here(depth) : deep(levels - 1, depth);
    __asm__ volatile("" ::: "memory");
    return number;
}

TEST(a_place_has_a_number_and_another_place_another)
{
    uint32_t first = 0;
    for (int i = 0; i < 100; i++) {
        uint32_t number = here(DEPTH);
        assert_int_not_equal(number, 0);
        assert_true(i == 0 || number == first);
        first = number;
    }
    assert_int_not_equal(here(DEPTH), first);
    assert_int_not_equal(deep(1, DEPTH), deep(2, DEPTH));
}

TEST(so_many_frames_are_kept_and_no_more)
{
    for (unsigned depth = 1; depth <= FLW_CALLSTACK_DEPTH_MOST; depth++) {
        struct flw_callstack stack = flw_callstacks_get(all, deep(80, depth));
        assert_int_equal(stack.frame_count, depth);
    }
    assert_int_equal(flw_callstacks_get(all, deep(80, 1000)).frame_count, FLW_CALLSTACK_DEPTH_MOST);
    assert_int_equal(flw_callstacks_get(all, deep(80, 0)).frame_count, 1);
    assert_int_equal(flw_callstacks_get(all, 0).frame_count, 0);
    assert_int_equal(flw_callstacks_get(all, UINT32_MAX).frame_count, 0);
}

TEST(a_deeper_look_at_the_same_place_sees_more)
{
    static const unsigned depths[] = {1, FLW_CALLSTACK_DEPTH_MOST, 2};
    size_t counts[3];
    for (size_t i = 0; i < 3; i++) {
        counts[i] = flw_callstacks_get(all, here(depths[i])).frame_count;
    }
    assert_int_equal(counts[0], 1);
    assert_true(counts[1] > 2);
    assert_int_equal(counts[2], 2);
}

/* A recording that ends meanwhile leaves nothing behind for the next one. */
TEST(a_look_is_for_one_call)
{
    atomic_store(&flw_callstack_recordings, 1);
    assert_int_equal(flw_callstack_seen(), 0);
    assert_true(flw_callstack_look(DEPTH, false));
    uint32_t first = flw_callstack_seen();
    assert_int_not_equal(first, 0);
    assert_false(flw_callstack_look(DEPTH, false)); /* an outer call has */
    assert_int_equal(flw_callstack_seen(), first);
    atomic_store(&flw_callstack_recordings, 0);
    assert_int_equal(flw_callstack_seen(), 0);
    flw_callstack_end_look();
    assert_true(
        flw_callstack_look(DEPTH, false)); /* while none is under way: as at a recording's end */
    flw_callstack_end_look();
    atomic_store(&flw_callstack_recordings, 1);
    assert_int_equal(flw_callstack_seen(), 0);
    assert_true(flw_callstack_look(DEPTH, false));
    assert_int_not_equal(flw_callstack_seen(), first);
    flw_callstack_end_look();
    atomic_store(&flw_callstack_recordings, 0);
}

static uint32_t seen_in_qsort;

static int look(const void *a, const void *b)
{
    seen_in_qsort = here(DEPTH);
    return *(const int *)a - *(const int *)b;
}

TEST(a_frame_names_the_function_that_its_module_shows_and_the_place_in_it)
{
    int numbers[2] = {2, 1};
    bool is_named = false;
    qsort(numbers, 2, sizeof numbers[0], look);
    struct flw_callstack stack = flw_callstacks_get(all, seen_in_qsort);
    for (size_t i = 0; i < stack.frame_count; i++) {
        struct flw_callframe frame = flw_callstacks_frame(all, stack.frames[i]);
        assert_non_null(strstr(frame.file, "0x"));
        assert_int_equal(frame.line, 0);
        is_named = is_named ||
                   (strncmp(frame.function, "qsort", 5) == 0 && strstr(frame.file, "libc") != NULL);
    }
    assert_true(is_named);
}

#define THREADS 4
#define LEVELS  60

static void *look_around(void *out)
{
    uint32_t *numbers = out;
    for (int round = 0; round < 50; round++) {
        for (unsigned level = 0; level < LEVELS; level++) {
            uint32_t number = deep(level, DEPTH);
            if (round > 0 && numbers[level] != number) {
                numbers[level] = 0;
                return NULL;
            }
            numbers[level] = number;
        }
    }
    return NULL;
}

TEST(threads_in_the_same_place_see_the_same)
{
    static uint32_t numbers[THREADS][LEVELS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, look_around, numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned level = 0; level < LEVELS; level++) {
        assert_int_not_equal(numbers[0][level], 0);
        assert_true(level == 0 || level > DEPTH || numbers[0][level] != numbers[0][level - 1]);
        for (int i = 1; i < THREADS; i++) {
            assert_int_equal(numbers[i][level], numbers[0][level]);
        }
    }
}

/* ---- into a file */

static bool count_bytes(void *context, const void *bytes, size_t count)
{
    (void)bytes;
    *(size_t *)context += count;
    return true;
}

static bool flush(void *context)
{
    (void)context;
    return true;
}

TEST(a_file_has_each_stack_once_and_counts_from_one)
{
    size_t written = 0;
    struct flw_ftrace_sink sink = {.write = count_bytes, .flush = flush, .context = &written};
    struct flw_ftrace_settings settings = {.has_stacks = true, .codec = FLW_RECORD_PACKED};
    struct flw_ftrace_writer *writer = flw_ftrace_writer_create(&sink, &settings);
    struct flw_callstack_file file = {0};
    uint32_t number;
    assert_non_null(writer);
    for (int round = 0; round < 2; round++) {
        for (unsigned level = 0; level < 10; level++) {
            assert_true(flw_callstacks_write(all, deep(level, DEPTH), writer, &file, &number));
            assert_int_equal(number, level + 1);
        }
    }
    size_t texts = file.text_count, frames = file.frame_count;
    assert_true(flw_callstacks_write(all, deep(3, DEPTH), writer, &file, &number));
    assert_int_equal(number, 11); /* all but the outermost frames are known */
    assert_int_equal(file.frame_count, frames + 1);
    assert_true(file.text_count <= texts + 1);
    assert_true(flw_callstacks_write(all, 0, writer, &file, &number));
    assert_int_equal(number, 0);
    assert_true(flw_ftrace_writer_end(writer));
    assert_true(written > 0);
    flw_callstack_file_finish(&file);
    flw_ftrace_writer_destroy(writer);
}

TEST(a_child_of_a_fork_counts_anew)
{
    int status;
    (void)here(DEPTH);
    pid_t child = fork();
    if (child == 0) {
        flw_callstacks_forget();
        all = flw_callstacks_shared();
        _exit(all != NULL && here(DEPTH) == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

FLW_TEST_MAIN(set_up, NULL)
