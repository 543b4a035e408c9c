/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that finds the driver in the way the first argument names.
 * Does not: know whether it is preloaded.
 *
 *   client name | unversioned | default | main | error | none | probe | vain | threads | next
 *   client path FILE               also prints whether the program is privileged
 *   client plugin FILE local | deepbind | namespace
 *   client fork before | after
 *   client stripped COMMAND...     runs the command with an empty environment except for the library path */
#include "client.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

static void *find_in(void *handle, const char *name)
{
    return dlsym(handle, name);
}

static void *open_driver(const char *name, int flags)
{
    void *driver = dlopen(name, RTLD_NOW | flags);
    if (driver == NULL) {
        printf("no driver: %s\n", dlerror());
        exit(4);
    }
    return driver;
}

/* dlerror's words are the program's own, whatever was looked up on the way. */
static int look_at_errors(void)
{
    void *driver = open_driver("libcuda.so.1", 0);
    dlerror();
    printf("%s\n", dlsym(RTLD_DEFAULT, "nobody_has_this") == NULL ? "none" : "one");
    const char *text = dlerror();
    printf("default: %s\n", text != NULL ? text : "no error");
    printf("%s\n", dlsym(driver, "cuMemAlloc_v2") != NULL ? "found" : "none");
    text = dlerror();
    printf("after a success: %s\n", text != NULL ? text : "no error");
    printf("%s\n", dlsym(driver, "cuSowAndReap") == NULL ? "none" : "one");
    text = dlerror();
    printf("a driver's name: %s\n", text != NULL ? text : "no error");
    text = dlerror();
    printf("asked again: %s\n", text != NULL ? text : "no error");
    return 0;
}

/* Without a driver there is none to be found. */
static int probe(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    dlerror();
    printf("default %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
    printf("an error %d\n", dlerror() != NULL);
    printf("program %d\n", dlsym(program, "cuMemAlloc_v2") != NULL);
    printf("an error %d\n", dlerror() != NULL);
    printf("next %d\n", dlsym(RTLD_NEXT, "cuMemAlloc_v2") != NULL);
    return 0;
}

/* Look up a missing name in a driver with global visibility. */
static int look_in_vain(void)
{
    void *driver = open_driver("libcuda.so.1", RTLD_GLOBAL), *program = dlopen(NULL, RTLD_NOW);
    void *handles[] = {driver, program, RTLD_DEFAULT, RTLD_NEXT};
    printf("from cuLaunchKernel %s\n", client_object(dlsym(driver, "cuLaunchKernel")));
    for (unsigned i = 0; i < sizeof handles / sizeof *handles; i++) {
        dlerror();
        printf("known %d\n", dlsym(handles[i], "cuMemAlloc_v2") != NULL);
        printf("an error %d\n", dlerror() != NULL);
        printf("unknown %d\n", dlsym(handles[i], "cuLaunchGrid") != NULL);
        printf("an error %d\n", dlerror() != NULL);
    }
    return 0;
}

#define THREADS 8

static pthread_barrier_t barrier;

static void *look_up(void *driver)
{
    pthread_barrier_wait(&barrier);
    return dlsym(driver, "cuMemFree_v2");
}

/* All at once, none before: every one gets the same. */
static int race(void)
{
    pthread_t thread[THREADS];
    void *found[THREADS] = {0};
    void *driver = open_driver("libcuda.so.1", 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, look_up, driver) != 0) {
            return 5;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &found[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        if (found[i] != found[0]) {
            printf("thread %d got another function\n", i);
        }
    }
    printf("from cuMemFree_v2 %s\n", client_object(found[0]));
    return 0;
}

static int run_plugin(const char *file, const char *how)
{
    void *plugin = NULL;
    if (strcmp(how, "namespace") == 0) {
        plugin = dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
    } else {
        plugin = dlopen(file,
                        RTLD_NOW | RTLD_LOCAL | (strcmp(how, "deepbind") == 0 ? RTLD_DEEPBIND : 0));
    }
    if (plugin == NULL) {
        printf("no plug-in: %s\n", dlerror());
        return 6;
    }
    int (*run)(void) = NULL;
    void *address = dlsym(plugin, "plugin_run");
    memcpy(&run, &address, sizeof run);
    return run != NULL ? run() : 7;
}

static int fork_and_use(bool is_after)
{
    struct client_driver driver;
    if (!client_load(&driver, find_in, open_driver("libcuda.so.1", 0))) {
        return 3;
    }
    if (is_after) {
        client_begin(&driver);
        client_alloc(&driver);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child\n");
        if (!is_after) {
            client_begin(&driver);
        }
        client_alloc(&driver);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("parent, child's status %d\n", status);
    if (!is_after) {
        client_begin(&driver);
    }
    client_alloc(&driver);
    return 0;
}

static int run_stripped(char **command)
{
    char path[4096];
    const char *libraries = getenv("LD_LIBRARY_PATH");
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", libraries != NULL ? libraries : "");
    char *environment[] = {path, NULL};
    execve(command[0], command, environment);
    return 8;
}

static int say_what_is_loaded(void)
{
    printf("libcuda is loaded: %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);
    return 0;
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    if (strcmp(way, "name") == 0) {
        return client_run(find_in, open_driver("libcuda.so.1", 0));
    } else if (strcmp(way, "unversioned") == 0) {
        return client_run(find_in, open_driver("libcuda.so", 0));
    } else if (strcmp(way, "path") == 0 && count > 2) {
        printf("privileged %d\n", getauxval(AT_SECURE) != 0);
        return client_run(find_in, open_driver(arguments[2], 0));
    } else if (strcmp(way, "default") == 0) {
        open_driver("libcuda.so.1", RTLD_GLOBAL);
        return client_run(find_in, RTLD_DEFAULT);
    } else if (strcmp(way, "main") == 0) {
        open_driver("libcuda.so.1", RTLD_GLOBAL);
        return client_run(find_in, dlopen(NULL, RTLD_NOW));
    } else if (strcmp(way, "next") == 0) {
        void *here = dlsym(RTLD_NEXT, "puts");
        printf("puts is the library's: %d\n", here == dlsym(RTLD_DEFAULT, "puts"));
        printf("in %s\n", client_object(here));
        return 0;
    } else if (strcmp(way, "plugin") == 0 && count > 3) {
        return run_plugin(arguments[2], arguments[3]);
    } else if (strcmp(way, "fork") == 0 && count > 2) {
        return fork_and_use(strcmp(arguments[2], "after") == 0);
    } else if (strcmp(way, "stripped") == 0 && count > 2) {
        return run_stripped(arguments + 2);
    } else if (strcmp(way, "error") == 0) {
        return look_at_errors();
    } else if (strcmp(way, "probe") == 0) {
        return probe();
    } else if (strcmp(way, "vain") == 0) {
        return look_in_vain();
    } else if (strcmp(way, "threads") == 0) {
        return race();
    } else if (strcmp(way, "none") == 0) {
        return say_what_is_loaded();
    }
    fprintf(stderr, "client: no way '%s'\n", way);
    return 2;
}
