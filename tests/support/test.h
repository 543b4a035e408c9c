/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the order in which cmocka wants its headers, and what every test needs beside it: a seed
 * that is printed and can be released, the way to skip, a look for a text in another. Does not:
 * know any module under test.
 *
 * Tests include this header and never <cmocka.h>; `check.layers` enforces it.
 */
#ifndef FLW_TESTS_SUPPORT_TEST_H
#define FLW_TESTS_SUPPORT_TEST_H

/* cmocka.h uses the types of the headers before it and includes none. */
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

/* A program that exits with this was skipped (no GPU, no trace); ctest is told so. */
#define FLW_TEST_SKIPPED 77

/* The seed of a randomised test: FALLOW_TEST_SEED from the environment where it is set, else the
 * clock's. It is printed, so that a failing run can be repeated. An unreadable seed ends the run.
 */
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

#endif
