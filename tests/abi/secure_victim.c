/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that makes a default pool and prints whether it is privileged. */
#include <stdio.h>
#include <sys/auxv.h>

#include "fallow/plugin.h"

int main(void)
{
    fallow_pool *pool = NULL;
    printf("privileged %d\n", getauxval(AT_SECURE) != 0);
    fflush(stdout);
    printf("%s\n", fallow_status_name(fallow_plugin_pool(0, FALLOW_PLUGIN_STREAM, 1, &pool)));
    return 0;
}
