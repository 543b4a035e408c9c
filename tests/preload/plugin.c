/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a plug-in that finds the driver itself, and a symbol of its own by RTLD_DEFAULT, for which
 * the C library inspects the caller. With PLUGIN_EARLY it does so in the constructor, while the
 * loader holds the lock.
 * Does not: know how it was opened. */
#include "client.h"

__attribute__((visibility("default"))) int plugin_run(void);
__attribute__((visibility("default"))) int plugin_only_symbol;

static void *find_in(void *handle, const char *name)
{
    return dlsym(handle, name);
}

static int look(void)
{
    printf("my own symbol %d\n", dlsym(RTLD_DEFAULT, "plugin_only_symbol") == &plugin_only_symbol);
    printf("the next one %d\n", dlsym(RTLD_NEXT, "plugin_only_symbol") != NULL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        printf("no driver: %s\n", dlerror());
        return 4;
    }
    int result = client_run(find_in, driver);
    fflush(stdout);
    return result;
}

#if defined(PLUGIN_EARLY)
static int early = -1;

__attribute__((constructor)) static void begin(void)
{
    early = look();
}

int plugin_run(void)
{
    return early;
}
#else
int plugin_run(void)
{
    return look();
}
#endif
