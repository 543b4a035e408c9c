/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a loop of dlsym calls, to count their cost with and without the preload.
 * Does not: count; dlsym_cost.sh does, inside call_many.
 *
 *   dlsym_cost COUNT hooked | driver | library | default */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long call_many(void *handle, const char *symbol, long calls);

__attribute__((noinline)) long call_many(void *handle, const char *symbol, long calls)
{
    long found = 0;
    for (long i = 0; i < calls; i++) {
        found += dlsym(handle, symbol) != NULL;
    }
    return found;
}

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
        long calls = strtol(arguments[1], NULL, 10);
        if (dlsym(handle, ways[i].symbol) == NULL) { /* the first one learns */
            return 1;
        }
        return call_many(handle, ways[i].symbol, calls) != calls;
    }
    fprintf(stderr, "usage: dlsym_cost COUNT hooked|driver|library|default\n");
    return 2;
}
