/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: internal assertions. Assertions check this library's own invariants; a caller's mistake is
 * a status instead. Assertions have no side effects, so a build without them behaves the same.
 *
 * FLW_CHECK_LEVEL  0 none · 1 asserts and lock ranks · 2 invariants at module edges · 3 exhaustive */
#ifndef FLW_BASE_CHECK_H
#define FLW_BASE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#ifndef FLW_CHECK_LEVEL
#define FLW_CHECK_LEVEL 0
#endif

/* Print the violated invariant once and abort. For check builds only. */
_Noreturn static inline void flw_check_failed(const char *file, int line, const char *expression)
{
    fprintf(stderr, "fallow: internal invariant broken at %s:%d: %s\n", file, line, expression);
    abort();
}

#if FLW_CHECK_LEVEL >= 1
#define FLW_ASSERT(x) ((x) ? (void)0 : flw_check_failed(__FILE__, __LINE__, #x))
#else
#define FLW_ASSERT(x) ((void)sizeof(!(x)))
#endif

#if FLW_CHECK_LEVEL >= 2
#define FLW_ASSERT_VALID(x) FLW_ASSERT(x)
#else
#define FLW_ASSERT_VALID(x) ((void)sizeof(!(x)))
#endif

#endif
