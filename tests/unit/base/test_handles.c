/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the handle table (base/handles.h) alone, and the invariants. */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>

#include "base/handles.h"

#define PLACES 7 /* no power of two */
#define TURNS  2000

static struct flw_handle_place places[PLACES], other_places[PLACES];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_CAPTURE, places);
static struct flw_handles other = FLW_HANDLES(FLW_HANDLE_CAPTURE, other_places);
static int objects[PLACES];

/* Only this thread uses the table. */
static void check(const struct flw_handles *of)
{
    for (uint32_t i = 0; i < of->count; i++) {
        uintptr_t handle = atomic_load(&of->places[i].handle);
        if (handle != 0) {
            assert_int_equal(flw_handle_place((const void *)handle), i);
            assert_int_equal(handle >> 56, 0x80 | of->kind);
            assert_int_equal(handle >> 55 & 1, 1);
            assert_true(atomic_load(&of->places[i].is_taken));
            assert_non_null(atomic_load(&of->places[i].object));
        }
        assert_int_equal(atomic_load(&of->places[i].visitors), 0);
    }
}

static void *make(struct flw_handles *in, void *object)
{
    void *handle = flw_handles_take(in);
    assert_non_null(handle);
    flw_handles_publish(in, handle, object);
    return handle;
}

static void end(struct flw_handles *in, const void *handle)
{
    assert_non_null(flw_handles_drop(in, handle));
    flw_handles_free(in, handle);
}

static void assert_refused(struct flw_handles *by, const void *handle)
{
    assert_null(flw_handles_find(by, handle));
    assert_null(flw_handles_enter(by, handle));
    assert_null(flw_handles_drop(by, handle));
}

TEST(a_handle_finds_its_object_and_nothing_else_does)
{
    void *first = make(&table, &objects[0]), *second = make(&table, &objects[1]);
    check(&table);
    assert_ptr_equal(flw_handles_find(&table, first), &objects[0]);
    assert_ptr_equal(flw_handles_find(&table, second), &objects[1]);
    assert_refused(&table, NULL);
    assert_refused(&table, &objects[0]); /* any pointer */
    assert_refused(&table, &places[flw_handle_place(first)]);
    assert_refused(&table, (const void *)UINTPTR_MAX);
    for (unsigned bit = 0; bit < 64; bit++) {
        const void *near = (const void *)((uintptr_t)first ^ (uintptr_t)1 << bit);
        if (near != second) {
            assert_refused(&table, near);
        }
    }
    end(&table, first);
    end(&table, second);
    check(&table);
}

TEST(a_handle_is_refused_until_it_is_published)
{
    void *handle = flw_handles_take(&table);
    assert_refused(&table, handle);
    flw_handles_publish(&table, handle, &objects[0]);
    assert_ptr_equal(flw_handles_find(&table, handle), &objects[0]);
    end(&table, handle);
    handle = flw_handles_take(&table);
    flw_handles_free(&table, handle); /* creation failed */
    assert_refused(&table, handle);
    check(&table);
}

TEST(no_handle_comes_again)
{
    static void *seen[PLACES * TURNS];
    for (size_t i = 0; i < PLACES * TURNS; i++) {
        seen[i] = make(&table, &objects[i % PLACES]);
        for (size_t turn = 1; turn <= i / PLACES && turn <= 64; turn++) { /* of the same place */
            assert_refused(&table, seen[i - turn * PLACES]);
        }
        assert_refused(&table, i > 0 ? seen[i - 1] : NULL);
        assert_refused(&table, i > 0 ? seen[0] : NULL);
        assert_ptr_equal(flw_handles_find(&table, seen[i]), &objects[i % PLACES]);
        end(&table, seen[i]);
    }
}

/* The generation has the bits and no others. */
TEST(a_generation_that_comes_round_leaves_kind_and_place_alone)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        places[i].generation = ((UINT64_C(1) << 43) * (i + 1)) - 9;
    }
    for (unsigned i = 0; i < PLACES * 20; i++) {
        void *handle = make(&table, &objects[0]);
        check(&table);
        end(&table, handle);
        assert_refused(&table, handle);
    }
}

/* Leases of an arena renew their handle: the place stays taken, and each handle in the place is new. */
TEST(a_taken_place_is_renewed)
{
    char *handle = flw_handles_take(&table);
    const uint64_t most = (UINT64_C(1) << 43) - 1, known = (uintptr_t)handle >> 12 & most;
    places[flw_handle_place(handle)].generation += most - 9 - known; /* wraps around below */
    handle += (most - 9 - known) << 12;
    flw_handles_publish(&table, handle, &objects[3]);
    for (unsigned i = 0; i < 50; i++) {
        void *last = handle;
        assert_ptr_equal(flw_handles_drop(&table, last), &objects[3]);
        handle = flw_handles_renew(&table, last);
        assert_int_equal(flw_handle_place(handle), flw_handle_place(last));
        assert_refused(&table, last);
        assert_ptr_equal(flw_handles_find(&table, handle), &objects[3]);
        check(&table);
    }
    end(&table, handle);
    assert_refused(&table, handle);
}

TEST(a_full_table_takes_nothing)
{
    void *handles[PLACES];
    for (uint32_t i = 0; i < PLACES; i++) {
        handles[i] = make(&table, &objects[i]);
    }
    assert_null(flw_handles_take(&table));
    assert_non_null(flw_handles_drop(&table, handles[3]));
    assert_null(flw_handles_take(&table)); /* the old object is still referenced */
    flw_handles_free(&table, handles[3]);
    void *again = make(&table, &objects[3]);
    assert_int_equal(flw_handle_place(again), flw_handle_place(handles[3]));
    assert_refused(&table, handles[3]);
    check(&table);
    handles[3] = again;
    for (uint32_t i = 0; i < PLACES; i++) {
        end(&table, handles[i]);
    }
}

TEST(a_place_with_a_visitor_is_not_taken)
{
    void *visited = make(&table, &objects[0]);
    assert_ptr_equal(flw_handles_enter(&table, visited), &objects[0]);
    end(&table, visited);
    assert_refused(&table, visited);
    for (unsigned i = 0; i < 3 * PLACES; i++) {
        void *handle = make(&table, &objects[1]);
        assert_int_not_equal(flw_handle_place(handle), flw_handle_place(visited));
        end(&table, handle);
    }
    flw_handles_leave(&table, visited);
    bool is_taken = false;
    for (unsigned i = 0; i < PLACES; i++) {
        void *handle = make(&table, &objects[1]);
        is_taken |= flw_handle_place(handle) == flw_handle_place(visited);
        end(&table, handle);
    }
    assert_true(is_taken);
    check(&table);
}

TEST(two_tables_of_a_kind_refuse_each_others_handles)
{
    for (unsigned i = 0; i < 3 * PLACES; i++) {
        void *own = make(&table, &objects[0]), *others = make(&other, &objects[1]);
        assert_refused(&other, own);
        assert_refused(&table, others);
        end(&table, own);
        end(&other, others);
    }
}

static void count(void *object, void *context)
{
    unsigned *counts = context;
    counts[(int *)object - objects]++;
}

static void end_one(void *object, void *context)
{
    void **handles = context;
    size_t i = (size_t)((int *)object - objects);
    end(&table, handles[i]);
}

TEST(each_visits_what_is_published)
{
    unsigned counts[PLACES] = {0};
    void *handles[PLACES];
    for (uint32_t i = 0; i < PLACES - 1; i++) {
        handles[i] = make(&table, &objects[i]);
    }
    handles[PLACES - 1] = flw_handles_take(&table);
    assert_non_null(flw_handles_drop(&table, handles[2]));
    flw_handles_each(&table, count, counts);
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_int_equal(counts[i], i != 2 && i != PLACES - 1);
    }
    flw_handles_free(&table, handles[2]);
    flw_handles_free(&table, handles[PLACES - 1]);
    flw_handles_each(&table, end_one, handles);
    memset(counts, 0, sizeof counts);
    flw_handles_each(&table, count, counts);
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_int_equal(counts[i], 0);
    }
    check(&table);
}

TEST(the_child_of_a_fork_has_none)
{
    void *handles[PLACES];
    for (uint32_t i = 0; i < PLACES; i++) {
        handles[i] = make(&table, &objects[i]);
        assert_non_null(flw_handles_enter(&table, handles[i])); /* by a thread that is not there */
    }
    flw_handles_forget(&table);
    check(&table);
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_refused(&table, handles[i]);
        handles[i] = make(&table, &objects[i]);
    }
    for (uint32_t i = 0; i < PLACES; i++) {
        end(&table, handles[i]);
    }
}

/* ---- threads: objects created and destroyed during visits. An object without an owner is
 * poisoned. */

#define OWNERS   2
#define VISITORS 2
#define ROUNDS   20000

struct thing {
    int value, poison; /* plain, so that the sanitizer detects concurrent access */
};

static struct thing things[PLACES];
static void *_Atomic last_handle;
static atomic_bool is_over;
static atomic_uint broken_count, met_count, double_count;

static void *own(void *context)
{
    (void)context;
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *handle = flw_handles_take(&table);
        if (handle == NULL) {
            sched_yield();
            continue;
        }
        struct thing *thing = &things[flw_handle_place(handle)];
        *thing = (struct thing){.value = (int)i};
        flw_handles_publish(&table, handle, thing);
        atomic_store(&last_handle, handle);
        if (i % 16 == 0) {
            sched_yield();
        }
        bool is_mine = flw_handles_drop(&table, handle) == thing;
        bool is_double = flw_handles_drop(&table, handle) != NULL;
        if (is_mine && i % 2 == 0) { /* the other half leaves it to the next owner of the entry */
            flw_handles_await(&table, handle);
            thing->poison = 1;
        }
        flw_handles_free(&table, handle);
        atomic_fetch_add(&double_count, !is_mine || is_double);
    }
    return NULL;
}

static void look(void *object, void *context)
{
    const struct thing *thing = object;
    (void)context;
    atomic_fetch_add(&broken_count, thing->poison != 0);
}

static void *visit(void *context)
{
    (void)context;
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        const void *handle = atomic_load(&last_handle);
        const struct thing *thing = flw_handles_enter(&table, handle);
        if (thing != NULL) {
            int value = thing->value;
            atomic_fetch_add(&met_count, 1);
            if (i % 4 == 0) {
                sched_yield();
            }
            atomic_fetch_add(&broken_count, thing->value != value || thing->poison != 0);
            flw_handles_leave(&table, handle);
        }
        if (i % 8 == 0) {
            flw_handles_each(&table, look, NULL);
        }
    }
    return NULL;
}

TEST(what_is_visited_stays)
{
    pthread_t owners[OWNERS], visitors[VISITORS];
    for (unsigned turn = 0; turn < 50 && atomic_load(&met_count) < 100; turn++) {
        atomic_store(&is_over, false);
        for (unsigned i = 0; i < VISITORS; i++) {
            assert_int_equal(pthread_create(&visitors[i], NULL, visit, NULL), 0);
        }
        for (unsigned i = 0; i < OWNERS; i++) {
            assert_int_equal(pthread_create(&owners[i], NULL, own, NULL), 0);
        }
        for (unsigned i = 0; i < OWNERS; i++) {
            pthread_join(owners[i], NULL);
        }
        atomic_store(&is_over, true);
        for (unsigned i = 0; i < VISITORS; i++) {
            pthread_join(visitors[i], NULL);
        }
    }
    assert_true(atomic_load(&met_count) >= 100);
    assert_int_equal(atomic_load(&broken_count), 0);
    assert_int_equal(atomic_load(&double_count), 0);
    check(&table);
}

FLW_TEST_MAIN(NULL, NULL)
