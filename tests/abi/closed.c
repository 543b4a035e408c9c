/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.closed_<library>: a program that opens the library, uses it on a thread, closes it and only then
 * ends the thread goes on; so it does where it forks then, and where it opens the library once more.
 * What the library hung into the thread (thread-specific data, caches) has to find the code there.
 *
 *   closed pool|kernels|host|driver <library>
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"
#include "fallow/host.h"
#include "fallow/kernels.h"

#define ROUNDS 3

struct visit {
    void *library;
    bool (*use)(void *library);
    bool is_used;
    pthread_barrier_t barrier; /* the thread has used the library; the library is closed */
};

static bool find(void *library, const char *name, void *out_function)
{
    void *function = dlsym(library, name);
    memcpy(out_function, &function, sizeof function);
    if (function == NULL) {
        fprintf(stderr, "closed: %s\n", dlerror());
    }
    return function != NULL;
}

/* Declares `name` as a local pointer to the function of this name; leaves where there is none. */
#define FIND(library, name)                 \
    __typeof__(&(name)) p_##name = NULL;    \
    if (!find(library, #name, &p_##name)) { \
        return false;                       \
    }
#define EXPECT(expression)                                                             \
    if (!(expression)) {                                                               \
        fprintf(stderr, "closed: line %d: %s does not hold\n", __LINE__, #expression); \
        return false;                                                                  \
    }

static bool make_pool(void *library, fallow_pool **out_pool)
{
    FIND(library, fallow_pool_config_init_sized)
    FIND(library, fallow_pool_create)
    fallow_pool_config config;
    p_fallow_pool_config_init_sized(&config, sizeof config);
    config.driver = "sim";
    EXPECT(p_fallow_pool_create(&config, out_pool) == FALLOW_OK)
    return true;
}

static bool alloc_and_free(void *library, fallow_pool *pool)
{
    static const size_t sizes[] = {64, 40000, 3u << 20};
    FIND(library, fallow_alloc)
    FIND(library, fallow_free)
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = NULL;
        EXPECT(p_fallow_alloc(pool, sizes[i], NULL, &block) == FALLOW_OK)
        EXPECT(p_fallow_free(pool, block, NULL) == FALLOW_OK)
    }
    return true;
}

static bool use_pool(void *library)
{
    fallow_pool *pool = NULL;
    FIND(library, fallow_pool_destroy)
    EXPECT(make_pool(library, &pool) && alloc_and_free(library, pool))
    p_fallow_pool_destroy(pool);
    return true;
}

static bool use_kernels(void *library)
{
    fallow_pool *pool = NULL;
    fallow_kernels *kernels = NULL;
    FIND(library, fallow_pool_destroy)
    FIND(library, fallow_kernels_create)
    FIND(library, fallow_kernels_destroy)
    EXPECT(make_pool(library, &pool) && alloc_and_free(library, pool))
    EXPECT(p_fallow_kernels_create(pool, &kernels) == FALLOW_OK)
    p_fallow_kernels_destroy(kernels);
    p_fallow_pool_destroy(pool);
    return true;
}

static bool use_host(void *library)
{
    fallow_pool *pool = NULL;
    fallow_host *host = NULL;
    void *blocks[2] = {NULL, NULL};
    FIND(library, fallow_pool_destroy)
    FIND(library, fallow_host_create)
    FIND(library, fallow_host_alloc)
    FIND(library, fallow_host_free)
    FIND(library, fallow_host_destroy)
    EXPECT(make_pool(library, &pool) && alloc_and_free(library, pool))
    EXPECT(p_fallow_host_create(pool, NULL, &host) == FALLOW_OK)
    for (int i = 0; i < 2; i++) { /* one of jemalloc's arena, one of whole pages */
        EXPECT(p_fallow_host_alloc(host, i == 0 ? 512 : 100000, &blocks[i]) == FALLOW_OK)
        memset(blocks[i], 1, 512);
        EXPECT(p_fallow_host_free(host, blocks[i], NULL) == FALLOW_OK)
    }
    p_fallow_host_destroy(host);
    p_fallow_pool_destroy(pool);
    return true;
}

#define X(need, symbol, since, before, parameters) \
    typedef CUresult(CUDAAPI *type_##symbol) parameters;
FLW_DRIVER_ENTRY_POINTS(X)
#undef X

#define FIND_ENTRY(library, name)           \
    type_##name p_##name = NULL;            \
    if (!find(library, #name, &p_##name)) { \
        return false;                       \
    }

static bool use_driver(void *library)
{
    CUcontext context = NULL;
    CUdeviceptr block = 0;
    FIND_ENTRY(library, cuInit)
    FIND_ENTRY(library, cuDevicePrimaryCtxRetain)
    FIND_ENTRY(library, cuCtxSetCurrent)
    FIND_ENTRY(library, cuMemAlloc_v2)
    FIND_ENTRY(library, cuMemFree_v2)
    EXPECT(p_cuInit(0) == CUDA_SUCCESS)
    EXPECT(p_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS)
    EXPECT(p_cuCtxSetCurrent(context) == CUDA_SUCCESS)
    EXPECT(p_cuMemAlloc_v2(&block, 1 << 20) == CUDA_SUCCESS)
    EXPECT(p_cuMemFree_v2(block) == CUDA_SUCCESS)
    return true;
}

static void *visit(void *argument)
{
    struct visit *visit = argument;
    visit->is_used = visit->use(visit->library);
    pthread_barrier_wait(&visit->barrier);
    pthread_barrier_wait(&visit->barrier);
    return NULL;
}

/* A child of the process in which the library was closed ends as any other does. */
static bool fork_once(void)
{
    int state = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &state, 0) == child)
    EXPECT(WIFEXITED(state) && WEXITSTATUS(state) == 0)
    return true;
}

static bool run_round(const char *path, bool (*use)(void *library))
{
    struct visit one = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL), .use = use};
    pthread_t thread;
    if (one.library == NULL) {
        fprintf(stderr, "closed: %s\n", dlerror());
        return false;
    }
    pthread_barrier_init(&one.barrier, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, visit, &one) == 0)
    pthread_barrier_wait(&one.barrier);
    bool is_closed = dlclose(one.library) == 0;
    pthread_barrier_wait(&one.barrier);
    EXPECT(pthread_join(thread, NULL) == 0)
    pthread_barrier_destroy(&one.barrier);
    EXPECT(one.is_used && is_closed)
    return fork_once();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*use)(void *library);
    } uses[] = {
        {"pool", use_pool}, {"kernels", use_kernels}, {"host", use_host}, {"driver", use_driver}};
    for (unsigned i = 0; argc == 3 && i < sizeof uses / sizeof *uses; i++) {
        if (strcmp(uses[i].name, argv[1]) == 0) {
            for (int round = 0; round < ROUNDS; round++) {
                if (!run_round(argv[2], uses[i].use)) {
                    return 1;
                }
            }
            printf("opened, used, closed %d times\n", ROUNDS);
            return 0;
        }
    }
    fprintf(stderr, "closed pool|kernels|host|driver <library>\n");
    return 2;
}
