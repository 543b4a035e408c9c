/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof of metadata memory and of the ranked lock.
 */
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/meta.h"
#include "support/emulator.h"

#define RESERVE (4u << 20)

TEST(metadata_is_zero_aligned_and_never_moves)
{
    struct flw_meta meta;
    uint64_t seed = flw_test_seed("unit.base"), end = 0;
    assert_true(flw_meta_reserve(&meta, RESERVE));
    const unsigned char *base = meta.base;
    assert_int_equal(base[RESERVE - 1], 0); /* the unused tail can be read */
    for (;;) {
        uint64_t bytes = 1 + flw_test_random(&seed) % 9000;
        uint64_t align = 1ull << flw_test_random(&seed) % 13;
        unsigned char *got = flw_meta_extend(&meta, bytes, align);
        if (got == NULL) {
            assert_true(end + bytes + align > RESERVE); /* there was no room for it */
            break;
        }
        uint64_t at = (uint64_t)(got - base);
        assert_true(at % align == 0 && at >= end && at + bytes <= RESERVE);
        for (uint64_t i = 0; i < bytes; i++) {
            assert_int_equal(got[i], 0);
        }
        memset(got, 0xff, bytes);
        end = at + bytes;
    }
    assert_ptr_equal(meta.base, base);
    assert_true(meta.used_bytes == end); /* a refusal changes nothing */
    assert_null(flw_meta_extend(&meta, UINT64_MAX - 4096, 4096));
    flw_meta_release(&meta);
    assert_null(meta.base);
}

TEST(an_opened_range_is_writable_to_its_end)
{
    struct flw_meta meta;
    assert_true(flw_meta_reserve(&meta, RESERVE));
    assert_true(flw_meta_open(&meta));
    meta.base[RESERVE - 1] = 1;
    assert_int_equal(meta.base[RESERVE - 1], 1);
    assert_null(flw_meta_extend(&meta, 1, 1));
    flw_meta_release(&meta);
}

/* A sanitizer's shadow exceeds any limit and its own memory grows; an emulator sets no limit for
 * itself. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || FLW_IS_EMULATED
#define HAS_LIMITS 0
#else
#define HAS_LIMITS 1
#endif

#define FRONT    (1u << 20)
#define DISTANCE ((uint64_t)1 << 30)

static void expect_pair(struct flw_meta *front, struct flw_meta *back)
{
    assert_true(flw_meta_reserve_pair(front, FRONT, back, RESERVE, DISTANCE));
    assert_ptr_equal(front->base + DISTANCE, back->base);
    assert_true(flw_meta_open(front) && flw_meta_open(back));
    front->base[FRONT - 1] = 1;
    back->base[0] = back->base[RESERVE - 1] = 1;
}

TEST(a_pair_of_ranges_lies_apart_and_holds_nothing_between)
{
    struct flw_meta front, back, others[2], none[2];
    uint64_t allowance = flw_meta_allowance();
    expect_pair(&front, &back);
    expect_pair(&others[0], &others[1]);
#if HAS_LIMITS
    struct rlimit before, limit;
    flw_meta_release(&front);
    flw_meta_release(&back);
    assert_int_equal(allowance, UINT64_MAX);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 46;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    allowance = flw_meta_allowance();
    assert_true(allowance > (uint64_t)1 << 45 && allowance < (uint64_t)1 << 46);
    limit.rlim_cur -= allowance - 16 * FRONT; /* far less than the distance */
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    expect_pair(&front, &back);
    assert_false(flw_meta_reserve_pair(&none[0], FRONT, &none[1], 32 * FRONT, DISTANCE));
    assert_true(none[0].base == NULL && none[1].base == NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
#else
    (void)none;
    assert_true(allowance > 0);
#endif
    flw_meta_release(&front);
    flw_meta_release(&back);
    flw_meta_release(&others[0]);
    flw_meta_release(&others[1]);
}

TEST(refusals_are_counted_and_told_apart)
{
    struct flw_meta meta;
    assert_true(flw_meta_reserve(&meta, RESERVE));
    assert_non_null(flw_meta_extend(&meta, RESERVE / 2, 1));
    assert_int_equal(meta.refusals, 0);
    assert_null(flw_meta_extend(&meta, RESERVE, 1));
    assert_true(meta.refusals == 1 && meta.is_full);
#if HAS_LIMITS
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    limit = before;
    limit.rlim_cur = 4096; /* of 0 the kernel takes no notice */
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    void *none = flw_meta_extend(&meta, RESERVE / 2, 1);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_null(none);
    assert_true(meta.refusals == 2 && !meta.is_full);
#endif
    assert_non_null(flw_meta_extend(&meta, RESERVE / 2, 1));
    flw_meta_release(&meta);
}

#define ROUNDS 100000

static struct {
    struct flw_lock lock;
    uint64_t count; /* plain: protected by the lock */
} shared;

static void *count_up(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 3 != 0 || !flw_lock_try(&shared.lock)) {
            flw_lock_acquire(&shared.lock);
        }
        shared.count++;
        flw_lock_release(&shared.lock);
    }
    return unused;
}

TEST(a_lock_lets_one_thread_in_at_a_time)
{
    pthread_t threads[3];
    flw_lock_init(&shared.lock, FLW_RANK_PAGE);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(shared.count == 3 * ROUNDS);
    assert_true(flw_lock_none_held());
    assert_true(flw_lock_try(&shared.lock));
    assert_false(flw_lock_try(&shared.lock));
    flw_lock_release(&shared.lock);
}

/* True if taking the two in this order ends the process. */
static bool aborts(enum flw_lock_rank first, enum flw_lock_rank second)
{
    pid_t child = fork();
    if (child == 0) {
        struct flw_lock a, b;
        (void)signal(SIGABRT, SIG_DFL);
        (void)freopen("/dev/null", "w", stderr);
        flw_lock_init(&a, first);
        flw_lock_init(&b, second);
        flw_lock_acquire(&a);
        flw_lock_acquire(&b);
        _exit(0);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(a_check_build_ends_at_a_lock_out_of_order)
{
#if FLW_CHECK_LEVEL >= 1
    for (unsigned a = FLW_RANK_LIFECYCLE; a < FLW_RANK_COUNT; a++) {
        for (unsigned b = FLW_RANK_LIFECYCLE; b < FLW_RANK_COUNT; b++) {
            bool is_refused = aborts((enum flw_lock_rank)a, (enum flw_lock_rank)b);
            assert_int_equal(is_refused, b <= a);
        }
    }
#else
    (void)aborts;
    skip();
#endif
}

FLW_TEST_MAIN(NULL, NULL)
