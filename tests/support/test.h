/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the header order that cmocka needs, and helpers of all tests: a printed seed that can be
 * repeated, skipping, searching text. Independent of a module under test.
 *
 * Tests include this header and never <cmocka.h>; `check.layers` enforces it. */
#ifndef FLW_TESTS_SUPPORT_TEST_H
#define FLW_TESTS_SUPPORT_TEST_H

/* cmocka.h uses types of the headers before it and includes none. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"

/* Exit status of a skipped program (no GPU, no trace), registered with ctest. */
#define FLW_TEST_SKIPPED 77

/* Return the seed of a randomised test: FALLOW_TEST_SEED if set, else from the clock. Prints the
 * seed, so that a failing run can be repeated. Ends the run if the variable is not a number. */
static inline uint64_t flw_test_seed(const char *test)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000007ull ^ (uint64_t)now.tv_nsec;
    const char *text = getenv("FALLOW_TEST_SEED");
    if (text != NULL) {
        char *end = NULL;
        errno = 0;
        seed = strtoull(text, &end, 0);
        if (errno != 0 || end == text || *end != '\0') {
            fprintf(stderr, "%s: FALLOW_TEST_SEED '%s' is no number\n", test, text);
            exit(2);
        }
    }
    fprintf(stderr, "%s: FALLOW_TEST_SEED=0x%llx\n", test, (unsigned long long)seed);
    return seed;
}

/* Next pseudo-random number of a state seeded by flw_test_seed (any state is fine). */
static inline uint64_t flw_test_random(uint64_t *state)
{
    return flw_random_next(state);
}

static inline void flw_test_expect_in(const char *text, const char *what)
{
    if (strstr(text, what) == NULL) {
        fail_msg("'%s' is not in '%s'", what, text);
    }
}

/* TEST(name) { body } defines a test and registers it; FLW_TEST_MAIN(setup, teardown), last in the
 * file, runs the tests in the order of their definitions. setup and teardown may be NULL. A program of
 * several files has the macro in one of them. */
struct flw_tests {
    size_t count;
    struct CMUnitTest rows[128];
};

__attribute__((weak)) struct flw_tests flw_test_list;

static inline struct flw_tests *flw_tests(void)
{
    return &flw_test_list;
}

static inline void flw_tests_add(const char *name, CMUnitTestFunction run)
{
    struct flw_tests *tests = flw_tests();
    if (tests->count == sizeof tests->rows / sizeof *tests->rows) {
        abort();
    }
    tests->rows[tests->count++] = (struct CMUnitTest){name, run, NULL, NULL, NULL};
}

/* clang-format off */
#define TEST(name)                                                        \
    static void name(void **state);                                       \
    __attribute__((constructor)) static void flw_tests_add_##name(void)   \
    {                                                                     \
        flw_tests_add(#name, name);                                       \
    }                                                                     \
    static void name(void **state)

#define FLW_TEST_MAIN(setup, teardown)                                                    \
    int main(void)                                                                        \
    {                                                                                     \
        return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count,    \
                                       setup, teardown);                                  \
    }
/* clang-format on */

/* Fail unless a call of Fallow or of the driver succeeds. */
#define assert_ok(call) assert_int_equal(call, 0)

#endif
