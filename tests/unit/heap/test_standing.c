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

TEST(a_fence_that_is_not_done_hides_no_other)
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

/* A fence in a capture is void: out of both lists, and the stream needs another. */
TEST(a_fence_in_a_capture_is_not_asked_for)
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

/* ---- streams without a fence */

TEST(a_refused_record_is_owed_again)
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

/* ---- domains with open uses */

TEST(a_set_of_domains_is_gone_through_in_order)
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

TEST(the_checker_sees_a_set_that_is_wrong)
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

TEST(the_checker_sees_a_list_that_is_wrong)
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

TEST(the_checker_sees_a_batch_that_no_bit_tells_of)
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

TEST(the_checker_sees_an_empty_slab_that_no_bit_tells_of)
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

TEST(the_checker_sees_a_deferred_run_that_nothing_holds_back)
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
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}
