/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a loop of dlsym calls, for counting what one costs with and without the preload.
 * Does not: count; dlsym_cost.sh does, twice with two counts, so that everything else cancels out.
 *
 *   dlsym_cost COUNT hooked | driver | library | default
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    static const struct {
        const char *way, *library, *symbol;
    } ways[] = {{"hooked", "libcuda.so.1", "cuMemAlloc_v2"},
                {"driver", "libcuda.so.1", "cuInit"},
                {"library", "libm.so.6", "cbrt"},
                {"default", NULL, "puts"}};
    for (unsigned i = 0; count == 3 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].way, arguments[2]) != 0) {
            continue;
        }
        void *handle = RTLD_DEFAULT;
        if (ways[i].library != NULL && (handle = dlopen(ways[i].library, RTLD_NOW)) == NULL) {
            fprintf(stderr, "dlsym_cost: %s\n", dlerror());
            return 1;
        }
        long calls = strtol(arguments[1], NULL, 10), found = 0;
        for (long k = 0; k < calls; k++) {
            found += dlsym(handle, ways[i].symbol) != NULL;
        }
        return found != calls;
    }
    fprintf(stderr, "usage: dlsym_cost COUNT hooked|driver|library|default\n");
    return 2;
}
