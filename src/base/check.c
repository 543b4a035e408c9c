/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void flw_check_failed(const char *file, int line, const char *expression)
{
    fprintf(stderr, "fallow: internal invariant broken at %s:%d: %s\n", file, line, expression);
    abort();
}
