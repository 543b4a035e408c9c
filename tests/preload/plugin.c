/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a plug-in that finds the driver for itself, and a symbol of its own by RTLD_DEFAULT, which the
 * C library answers by looking who called.
 * Does not: know how it was opened.
 */
#include "client.h"

__attribute__((visibility("default"))) int plugin_run(void);
__attribute__((visibility("default"))) int plugin_only_symbol;

static void *find_in(void *handle, const char *name)
{
    return dlsym(handle, name);
}

int plugin_run(void)
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
