/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the trace tests take from the tests' common header, and the same by itself where a
 * tree does not have that header.
 */
#ifndef FLW_TESTS_UNIT_TRACE_H
#define FLW_TESTS_UNIT_TRACE_H

#if __has_include("support/test.h")
#include "support/test.h"
#else
/* cmocka.h uses the types of the headers before it and includes none, so they keep their order. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t flw_test_seed(const char *test)
{
    const char *text = getenv("FALLOW_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    fprintf(stderr, "%s: FALLOW_TEST_SEED=0x%llx\n", test, (unsigned long long)seed);
    return seed;
}

static inline uint64_t flw_test_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
#endif

#endif
