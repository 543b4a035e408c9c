/* SPDX-License-Identifier: Apache-2.0
 *
 * example.install: opens the shared object that is the argument in a thread, uses and closes it, and ends
 * the thread, whose caches are handed back then.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void *run(void *path)
{
    static char failed[] = "failed";
    int (*use)(void) = NULL;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *address = object == NULL ? NULL : dlsym(object, "use_fallow");
    if (address == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return failed;
    }
    memcpy(&use, &address, sizeof use);
    void *answer = use() == 0 ? NULL : failed;
    dlclose(object);
    return answer;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *answer = NULL;
    return argc != 2 || pthread_create(&thread, NULL, run, argv[1]) != 0 ||
           pthread_join(thread, &answer) != 0 || answer != NULL;
}
