/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that a heap finds streams' completed memory with one query each time: the list
 * of all fences, the list of streams without a fence, and that the checker detects errors in both. */
#include "heap/order/domain.h"
#include "heap/order/fence.h"
#include "heap/space/deferred.h"
#include "test_heap_bed.h"

#define STREAMS 5
#define UNITS   24
#define LIMIT   (FLW_GIB / 2)

static struct heap_bed bed;
static CUstream streams[STREAMS];
static struct flw_domain *domains[STREAMS];

static void open_streams(void)
{
    bed_begin(&bed, BED_VMM, LIMIT);
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(bed.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
        domains[i] = bed_domain(&bed, &flw_order_stream, streams[i]);
    }
}

static void close_streams(void)
{
    bed_check(&bed);
    bed.sim.step(UINT64_MAX);
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(bed.sim.cu.cuStreamDestroy_v2(streams[i]), 0);
    }
    bed_end(&bed);
}

/* Queue work on the stream, then free memory of it. */
static struct flw_span *leave_run(unsigned i)
{
    struct flw_span *run = bed_obtain(&bed, domains[i], UNITS);
    assert_int_equal(bed.sim.touch(streams[i], NULL, 0), 0);
    bed_put(&bed, domains[i], run);
    return run;
}

static void leave_fence(unsigned i)
{
    leave_run(i);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[i]), FALLOW_OK);
}

static uint64_t queries(void)
{
    return atomic_load(&bed.heap.count.queries);
}

static const char *broken(void)
{
    flw_lock_acquire(&bed.heap.lock);
    const char *sentence = flw_heap_broken_invariant(&bed.heap);
    flw_lock_release(&bed.heap.lock);
    return sentence;
}

/* ---- fences */

static void what_was_recorded_first_is_asked_for_first(void **state)
{
    open_streams();
    for (unsigned i = STREAMS; i-- > 0;) {
        leave_fence(i);
    }
    bed_finish_work(&bed);
    for (unsigned i = STREAMS; i-- > 0;) {
        uint64_t before = queries();
        assert_ptr_equal(flw_heap_ask_one(&bed.heap, true), domains[i]);
        assert_int_equal(queries(), before + 1);
        bed_check(&bed);
    }
    assert_null(flw_heap_ask_one(&bed.heap, true));
    assert_null(bed.heap.standing.oldest);
    close_streams();
}

static void a_fence_that_is_not_done_hides_no_other(void **state)
{
    for (unsigned done = 1; done < STREAMS; done++) {
        struct flw_domain *seen = NULL;
        open_streams();
        for (unsigned i = 0; i < STREAMS; i++) {
            leave_fence(i);
        }
        assert_int_equal(bed.sim.cu.cuStreamSynchronize(streams[done]), 0);
        uint64_t before = queries();
        for (unsigned look = 0; look < 2 * STREAMS && seen == NULL; look++) {
            seen = flw_heap_ask_one(&bed.heap, true);
            assert_int_equal(queries(), before + look + 1); /* for any number of fences */
        }
        assert_ptr_equal(seen, domains[done]);
        close_streams();
    }
}

/* Only as far as queried: later fences of the stream stay in the list. */
static void a_fence_completes_its_own_stream_only_as_far_as_it_covers(void **state)
{
    open_streams();
    leave_fence(0);
    leave_fence(1);
    assert_int_equal(bed.sim.cu.cuStreamSynchronize(streams[0]), 0);
    leave_fence(0); /* behind more work */
    uint64_t first = domains[0]->oldest->seq;
    assert_ptr_equal(flw_heap_ask_one(&bed.heap, true), domains[0]);
    assert_int_equal(domains[0]->completed, first);
    assert_int_equal(domains[1]->completed, 0);
    assert_non_null(domains[0]->oldest);
    assert_ptr_equal(bed.heap.standing.oldest, domains[1]->oldest);
    bed_check(&bed);
    assert_null(bed_take(&bed, domains[2], 2 * UNITS));
    close_streams();
}

/* A fence in a capture is void: out of both lists, and the stream needs another. */
static void a_fence_in_a_capture_is_not_asked_for(void **state)
{
    CUgraph graph = NULL;
    open_streams();
    leave_fence(1);
    assert_int_equal(bed.sim.cu.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED),
                     0);
    flw_lock_acquire(&bed.heap.lock);
    flw_domain_want_fence(&bed.heap, domains[0], 1);
    flw_lock_release(&bed.heap.lock);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[0]), FALLOW_OK);
    assert_false(domains[0]->is_owing);
    for (unsigned look = 0; look < 4; look++) {
        assert_null(flw_heap_ask_one(&bed.heap, true));
    }
    assert_null(domains[0]->oldest);
    assert_true(domains[0]->is_owing);
    assert_ptr_equal(bed.heap.standing.oldest, domains[1]->oldest);
    assert_int_equal(bed.sim.cu.cuStreamEndCapture(streams[0], &graph), 0); /* continues */
    assert_non_null(graph);
    assert_int_equal(bed.sim.cu.cuGraphDestroy(graph), 0);
    close_streams();
}

#define FENCES 40

/* Return the number of queries until all are complete. */
static uint64_t questions_of(bool may_leap)
{
    open_streams();
    for (unsigned i = 0; i < FENCES; i++) {
        leave_fence(0);
    }
    bed_finish_work(&bed);
    uint64_t before = queries();
    while (flw_heap_ask_one(&bed.heap, may_leap) != NULL) {
        bed_check(&bed);
    }
    uint64_t questions = queries() - before;
    assert_null(bed.heap.standing.oldest);
    assert_int_equal(domains[0]->completed, domains[0]->seq - 1);
    close_streams();
    return questions;
}

static void fences_that_are_done_on_end_are_passed_over(void **state)
{
    assert_int_equal(questions_of(false), FENCES);
    assert_int_equal(questions_of(true),
                     4 + (FENCES - 1 - 1 - 2 - 4) / 8); /* 1, 1, 2, 4, 8 at a time */
}

static void a_leap_to_a_fence_that_is_not_done_misses_none_that_is(void **state)
{
    open_streams();
    for (unsigned i = 0; i < 3; i++) {
        leave_fence(0);
    }
    assert_int_equal(bed.sim.cu.cuStreamSynchronize(streams[0]), 0);
    leave_fence(0); /* the leap's target is incomplete */
    uint64_t before = queries(), seq = domains[0]->oldest->seq;
    for (unsigned look = 0; look < 3; look++) {
        assert_ptr_equal(flw_heap_ask_one(&bed.heap, true), domains[0]);
        assert_int_equal(domains[0]->completed, seq + look);
    }
    assert_int_equal(queries(), before + 4);
    before = queries();
    assert_null(flw_heap_ask_one(&bed.heap, true));
    assert_int_equal(queries(), before + 1);
    close_streams();
}

/* In one pass; another pass queries again. */
static void whoever_was_not_done_is_not_asked_twice(void **state)
{
    open_streams();
    leave_fence(0);
    leave_fence(1);
    (void)flw_heap_begin_look(&bed.heap);
    assert_null(flw_heap_ask_one(&bed.heap, true));
    uint64_t before = queries();
    assert_false(flw_heap_poll_rest(&bed.heap));
    assert_int_equal(queries(), before + 1);
    assert_false(flw_heap_poll_rest(&bed.heap));
    assert_int_equal(queries(), before + 1);
    bed_finish_work(&bed);
    assert_false(flw_heap_poll_rest(&bed.heap));
    assert_true(flw_heap_poll(&bed.heap));
    assert_null(bed.heap.standing.oldest);
    close_streams();
}

/* ---- streams without a fence */

static void whoever_has_owed_for_longest_is_recorded_on_first(void **state)
{
    open_streams();
    static const unsigned order[] = {3, 0, 4, 1};
    for (unsigned i = 0; i < 4; i++) {
        leave_run(order[i]);
    }
    leave_run(3); /* does not change the place */
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, domains[3]), domains[0]);
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, domains[2]), domains[3]);
    assert_false(domains[3]->is_owing);
    bed_check(&bed);
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, NULL), domains[4]);
    assert_null(flw_heap_take_owing(&bed.heap, domains[1])); /* none but the taker */
    assert_true(domains[1]->is_owing);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[1]), FALLOW_OK);
    assert_false(domains[1]->is_owing);
    assert_null(bed.heap.owing.first);
    close_streams();
}

/* Memory in caches is not counted: the fence is recorded all the same, unless the stream is
 * retired. */
static void what_lies_in_caches_is_owed_too(void **state)
{
    open_streams();
    for (unsigned i = 0; i < 2; i++) {
        flw_lock_acquire(&bed.heap.lock);
        flw_domain_owe(&bed.heap, domains[i]);
        flw_lock_release(&bed.heap.lock);
    }
    uint64_t events = atomic_load(&bed.heap.count.events);
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, NULL), domains[0]);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[0]), FALLOW_OK);
    assert_int_equal(atomic_load(&bed.heap.count.events), events + 1);

    assert_ptr_equal(flw_heap_take_owing(&bed.heap, NULL), domains[1]);
    assert_int_equal(flw_domain_fence_own(&bed.heap, domains[1]),
                     FALLOW_OK); /* another thread retires it */
    assert_int_equal(flw_domain_clear(&bed.heap, domains[1]), FALLOW_OK);
    flw_lock_acquire(&bed.heap.lock);
    flw_places_forget_stream(&bed.heap.places, domains[1]);
    domains[1]->is_retired = true;
    flw_lock_release(&bed.heap.lock);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[1]), FALLOW_OK);
    assert_int_equal(atomic_load(&bed.heap.count.events), events + 2);
    bed_finish_work(&bed);
    assert_true(flw_heap_poll(&bed.heap));
    assert_null(domains[1]->ops); /* the entry is free */
    close_streams();
}

static void a_refused_record_is_owed_again(void **state)
{
    open_streams();
    leave_run(0);
    assert_int_equal((bed.sim.fail)("cuEventRecord", 1, CUDA_ERROR_UNKNOWN, 0), 1);
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, NULL), domains[0]);
    assert_int_not_equal(flw_domain_fence(&bed.heap, domains[0]), FALLOW_OK);
    assert_true(domains[0]->is_owing);
    assert_ptr_equal(flw_heap_take_owing(&bed.heap, NULL), domains[0]);
    assert_int_equal(flw_domain_fence(&bed.heap, domains[0]), FALLOW_OK);
    assert_false(domains[0]->is_owing);
    close_streams();
}

/* No fence is recorded on it any more, whatever memory it frees. */
static void a_lost_stream_owes_nothing(void **state)
{
    open_streams();
    leave_run(0);
    struct flw_span *late = bed_obtain(&bed, domains[0], UNITS / 2);
    assert_true(domains[0]->is_owing);
    flw_lock_acquire(&bed.heap.lock);
    flw_domain_lose(&bed.heap, domains[0]);
    flw_lock_release(&bed.heap.lock);
    assert_false(domains[0]->is_owing);
    bed_put(&bed, domains[0], late);
    bed_check(&bed);
    assert_null(flw_heap_take_owing(&bed.heap, NULL));
    assert_true(domains[0]->unfenced_bytes > 0); /* a synchronisation completes it */
    close_streams();
}

/* ---- domains with open uses */

static void a_set_of_domains_is_gone_through_in_order(void **state)
{
    static const uint32_t places[] = {0, 1, 63, 64, 127, 640, 4096, 70000, FLW_DOMAIN_COUNT - 1};
    enum {
        COUNT = sizeof places / sizeof *places
    };
    static struct flw_domain_set set;
    for (unsigned i = COUNT; i-- > 0;) {
        flw_domain_set_add(&set, &(struct flw_domain){.index = places[i]});
    }
    for (unsigned skipped = 0; skipped < COUNT; skipped++) { /* each missing once */
        struct flw_domain domain = {.index = places[skipped]};
        assert_true(flw_domain_set_remove(&set, &domain));
        assert_false(flw_domain_set_remove(&set, &domain));
        uint32_t at = 0;
        for (unsigned i = 0; i < COUNT; i++) {
            if (i != skipped) {
                at = flw_domain_set_next(&set, at);
                assert_int_equal(at++, places[i]);
            }
        }
        assert_int_equal(flw_domain_set_next(&set, at), FLW_DOMAIN_COUNT);
        flw_domain_set_add(&set, &domain);
    }
}

/* ---- the checker */

static void the_checker_sees_a_set_that_is_wrong(void **state)
{
    open_streams();
    struct flw_domain_set *users = &bed.heap.open_users;
    flw_domain_set_add(users, domains[2]);
    assert_null(broken());
    users->words[FLW_DOMAIN_WORDS] = 0;
    assert_string_equal(broken(), "the set of domains with open uses contradicts its summary");
    users->words[FLW_DOMAIN_WORDS] = 1;
    flw_domain_set_add(users, &(struct flw_domain){.index = bed.heap.domain_end});
    assert_string_equal(broken(), "an open use names a domain that does not exist");
    memset(users, 0, sizeof *users);
    close_streams();
}

static void the_checker_sees_a_list_that_is_wrong(void **state)
{
    open_streams();
    leave_fence(0);
    leave_fence(1);
    leave_fence(0);
    leave_run(2);
    leave_run(3);
    assert_null(broken());
    struct flw_standing *standing = &bed.heap.standing;
    struct flw_fence *oldest = domains[0]->oldest, *newest = domains[0]->newest;
    struct flw_fence *middle = domains[1]->oldest, stranger = *middle;

    standing->next = &stranger;
    assert_string_equal(broken(), "the fence to query next is in no list");
    standing->next = NULL;

    oldest->behind = newest; /* the list of all loses one */
    newest->before = oldest;
    assert_string_equal(broken(), "a domain's fences are not those in the list of all");
    oldest->behind = middle;
    newest->before = middle;

    domains[1]->oldest = domains[1]->newest = NULL; /* the domain has */
    assert_string_equal(broken(), "a fence is in one list only");
    domains[1]->oldest = domains[1]->newest = middle;

    newest->previous = NULL;
    assert_string_equal(broken(), "a domain's fences are not those in the list of all");
    newest->previous = oldest;

    standing->oldest = newest; /* the order of recording, from the end */
    newest->before = NULL;
    newest->behind = middle;
    middle->before = newest;
    middle->behind = oldest;
    oldest->before = middle;
    oldest->behind = NULL;
    standing->newest = oldest;
    assert_string_equal(broken(),
                        "the list of all fences orders the fences of a domain differently");
    standing->oldest = oldest;
    oldest->before = NULL;
    oldest->behind = middle;
    middle->before = oldest;
    middle->behind = newest;
    newest->before = middle;
    newest->behind = NULL;
    standing->newest = newest;
    assert_null(broken());

    domains[4]->is_owing = true;
    assert_string_equal(broken(), "the streams with a fence due are not those in the list");
    domains[4]->is_owing = false;
    domains[3]->owing_before = NULL;
    assert_string_equal(broken(), "the list of streams with a fence due is broken");
    domains[3]->owing_before = domains[2];
    bed.heap.owing.last = domains[2];
    assert_string_equal(broken(), "the streams with a fence due are not those in the list");
    bed.heap.owing.last = domains[3];
    domains[2]->is_known = false;
    assert_string_equal(broken(), "a fence is due on a stream that permits none");
    domains[2]->is_known = true;
    close_streams();
}

static void the_checker_sees_a_batch_that_no_bit_tells_of(void **state)
{
    enum {
        CLASS = 20
    };
    struct flw_slot *slots[512];
    open_streams();
    struct flw_span *run = bed_obtain(&bed, domains[0], flw_class_slab_units(CLASS));
    flw_lock_acquire(&bed.heap.lock);
    assert_true(flw_heap_adopt_slab(&bed.heap, domains[0], CLASS, run));
    uint32_t count = flw_heap_take_slots(&bed.heap, domains[0], CLASS, 512, slots);
    flw_heap_put_slots(&bed.heap, domains[0], CLASS, slots, count);
    flw_lock_release(&bed.heap.lock);
    assert_null(broken());
    flw_class_set_remove(&domains[0]->with_batches, CLASS);
    assert_string_equal(broken(), "a listed batch is unknown to its domain");
    flw_class_set_add(&domains[0]->with_batches, CLASS);
    assert_true(flw_domain_set_remove(&bed.heap.slabs.holders, domains[0]));
    assert_string_equal(broken(), "a listed batch is unknown to its domain");
    flw_domain_set_add(&bed.heap.slabs.holders, domains[0]);
    close_streams();
}

static void the_checker_sees_an_empty_slab_that_no_bit_tells_of(void **state)
{
    enum {
        CLASS = 70
    };
    open_streams();
    struct flw_span *run = bed_obtain(&bed, domains[0], flw_class_slab_units(CLASS));
    flw_lock_acquire(&bed.heap.lock);
    assert_true(flw_heap_adopt_slab(&bed.heap, domains[0], CLASS, run));
    flw_lock_release(&bed.heap.lock);
    assert_null(broken());
    flw_class_set_remove(&bed.heap.slabs.with_empty, CLASS);
    assert_string_equal(broken(),
                        "a list of empty slabs holds a slab in use, or is filed in the wrong "
                        "place");
    flw_class_set_add(&bed.heap.slabs.with_empty, CLASS);
    assert_null(broken());
    close_streams();
}

static void the_checker_sees_a_deferred_run_that_nothing_holds_back(void **state)
{
    open_streams();
    struct flw_span *run = bed_obtain(&bed, domains[0], UNITS);
    flw_lock_acquire(&bed.heap.lock);
    struct flw_deferred *deferred = flw_heap_new_deferred(&bed.heap);
    *deferred = (struct flw_deferred){.bytes = flw_run_bytes(run),
                                      .domain = domains[0]->index,
                                      .own_seq = domains[0]->seq,
                                      .point_count = 1,
                                      .points = {{domains[1]->index, domains[1]->seq}}};
    flw_heap_defer_run(&bed.heap, deferred, run);
    flw_lock_release(&bed.heap.lock);
    assert_string_equal(broken(), "a deferred run is held back by nothing");
    flw_lock_acquire(&bed.heap.lock);
    flw_domain_want_fence(&bed.heap, domains[1], 1);
    flw_heap_hold_deferred(&bed.heap, deferred);
    flw_lock_release(&bed.heap.lock);
    assert_null(broken());
    run->u.run.deferred = NULL;
    assert_string_equal(broken(), "a deferred free holds back a run that does not lead to it");
    run->u.run.deferred = deferred;
    domains[1]->waiting_last = NULL;
    assert_string_equal(broken(), "the tail of a queue of deferred frees is not its last element");
    domains[1]->waiting_last = deferred;
    deferred->awaits.domain = domains[2]->index;
    assert_string_equal(broken(),
                        "a deferred free waits in the queue of another domain, or out of order");
    deferred->awaits.domain = domains[1]->index;
    close_streams();
}

int main(void)
{
    bed.seed = flw_test_seed("unit.standing");
    if (!flw_sim_open(&bed.sim)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_first_is_asked_for_first),
        cmocka_unit_test(a_fence_that_is_not_done_hides_no_other),
        cmocka_unit_test(a_fence_completes_its_own_stream_only_as_far_as_it_covers),
        cmocka_unit_test(fences_that_are_done_on_end_are_passed_over),
        cmocka_unit_test(a_leap_to_a_fence_that_is_not_done_misses_none_that_is),
        cmocka_unit_test(whoever_was_not_done_is_not_asked_twice),
        cmocka_unit_test(a_fence_in_a_capture_is_not_asked_for),
        cmocka_unit_test(whoever_has_owed_for_longest_is_recorded_on_first),
        cmocka_unit_test(what_lies_in_caches_is_owed_too),
        cmocka_unit_test(a_refused_record_is_owed_again),
        cmocka_unit_test(a_lost_stream_owes_nothing),
        cmocka_unit_test(a_set_of_domains_is_gone_through_in_order),
        cmocka_unit_test(the_checker_sees_a_set_that_is_wrong),
        cmocka_unit_test(the_checker_sees_a_list_that_is_wrong),
        cmocka_unit_test(the_checker_sees_a_batch_that_no_bit_tells_of),
        cmocka_unit_test(the_checker_sees_an_empty_slab_that_no_bit_tells_of),
        cmocka_unit_test(the_checker_sees_a_deferred_run_that_nothing_holds_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
