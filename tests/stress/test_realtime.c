/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the waits of base/ by a real-time thread for an ordinary one on the same processor: for a lock
 * that it holds, and for an owner that is inside. The ordinary thread wakes the other where it is in
 * the way, so each round is such a wait.
 * Does not: run a pool (test_realtime_pool.c).
 */
#include "support/test.h"

#include <semaphore.h>

#include "base/asym.h"
#include "base/lock.h"
#include "stress/realtime.h"

#define ROUNDS     50
#define SLEPT_MOST 40 /* in one round: a holder with this processor to itself is soon done */

static struct {
    struct flw_lock lock;
    struct flw_asym asym;
    uint64_t guarded; /* by either */
    sem_t is_in_the_way, is_done;
    long slept_least, slept_most, stopped;
} bed;

static void wait_for_the_lock(void)
{
    flw_lock_acquire(&bed.lock);
    bed.guarded++;
    flw_lock_release(&bed.lock);
}

static void wait_for_the_owner(void)
{
    (void)flw_asym_barrier();
    flw_asym_wait(&bed.asym);
    bed.guarded++;
}

/* The real-time thread. */
static void *wait_each_round(void *argument)
{
    void (*wait)(void) = *(void (**)(void))argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)sem_wait(&bed.is_in_the_way);
        struct turns before = turns_now();
        wait();
        struct turns since = turns_since(&before);
        bed.slept_least = since.slept < bed.slept_least ? since.slept : bed.slept_least;
        bed.slept_most = since.slept > bed.slept_most ? since.slept : bed.slept_most;
        bed.stopped += since.stopped;
        (void)sem_post(&bed.is_done);
    }
    return NULL;
}

/* The other has the processor from the post on, and finds the lock held, the owner inside. */
static void hold_the_lock(void)
{
    flw_lock_acquire(&bed.lock);
    (void)sem_post(&bed.is_in_the_way);
    bed.guarded++;
    flw_lock_release(&bed.lock);
}

static void be_inside(void)
{
    flw_asym_enter(&bed.asym);
    (void)sem_post(&bed.is_in_the_way);
    bed.guarded++;
    flw_asym_leave(&bed.asym);
}

static void run_rounds(void (*wait)(void), void (*be_in_the_way)(void))
{
    pthread_t thread;
    bed.guarded = 0;
    bed.slept_least = ROUNDS * SLEPT_MOST;
    bed.slept_most = bed.stopped = 0;
    assert_true(stay_on_one_processor());
    if (!start_realtime(&thread, wait_each_round, &wait)) {
        exit(FLW_TEST_SKIPPED);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        be_in_the_way();
        (void)sem_wait(&bed.is_done);
    }
    pthread_join(thread, NULL);
    assert_int_equal(bed.guarded, 2 * ROUNDS);
    print_message("%d waits: slept %ld to %ld times each, stopped %ld times\n", ROUNDS,
                  bed.slept_least, bed.slept_most, bed.stopped);
    assert_true(bed.slept_least >= 1); /* else the other went on because the kernel stopped it */
    assert_true(bed.slept_most <= SLEPT_MOST);
}

static void a_thread_that_waits_for_a_lock_lets_its_holder_run(void **state)
{
    flw_lock_init(&bed.lock, FLW_RANK_PAGE);
    run_rounds(wait_for_the_lock, hold_the_lock);
}

static void a_thread_that_waits_for_an_owner_lets_it_run(void **state)
{
    run_rounds(wait_for_the_owner, be_inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_waits_for_a_lock_lets_its_holder_run),
        cmocka_unit_test(a_thread_that_waits_for_an_owner_lets_it_run),
    };
    if (sem_init(&bed.is_in_the_way, 0, 0) != 0 || sem_init(&bed.is_done, 0, 0) != 0) {
        return 2;
    }
    (void)flw_asym_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
