/* SPDX-License-Identifier: Apache-2.0
 *
 * On a real driver a kernel's image is loaded as a module of its own. On the simulated one, which has
 * flw_sim_register, its twin is registered under the kernel's name and the image is not looked at.
 */
#include "common/library.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/image.h"
#include "common/twin.h"
#include "fallow/extend.h"
#include "fallow/simcuda.h"

/* The driver's types, as its ABI has them: this library needs no CUDA header. */
typedef int (*load_function)(void **module, const void *image);
typedef int (*unload_function)(void *module);
typedef int (*find_function)(void **function, void *module, const char *name);
typedef int (*launch_function)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, fallow_stream stream, void **parameters,
                               void **extra);
typedef int (*push_function)(void *context);
typedef int (*pop_function)(void **context);
typedef int (*error_name_function)(int error, const char **name);

enum {
    DRIVER_INVALID_HANDLE = 400,
    DRIVER_NO_BINARY_FOR_GPU = 209,
    LONGEST_MESSAGE = 256
};

struct fallow_kernels {
    void *context;
    load_function load;
    unload_function unload;
    find_function find;
    launch_function launch;
    push_function push;
    pop_function pop;
    error_name_function error_name;
    void *modules[FLW_KERNEL_COUNT];
    void *functions[FLW_KERNEL_COUNT];
    _Atomic uint64_t launch_count; /* relaxed; a statistic */
    pthread_mutex_t lock;          /* guards message */
    char message[LONGEST_MESSAGE];
};

struct kernel {
    const char *name; /* of the device function */
    flw_sim_twin twin;
    size_t args_bytes;
    const void *image; /* a fat binary; NULL: built without nvcc */
};

/* A simulated launch arrives with the driver's signature; the twin wants its own. */
#define X(name)                                                       \
    static void run_##name(flw_sim_launch *launch, void **parameters) \
    {                                                                 \
        struct flw_##name##_args args;                                \
        struct flw_twin twin;                                         \
        memcpy(&args, parameters[0], sizeof args);                    \
        flw_twin_begin(&twin, launch);                                \
        flw_twin_##name(&twin, &args);                                \
    }
FLW_KERNEL_LIST(X)
#undef X

static const struct kernel kernel_table[FLW_KERNEL_COUNT] = {
#define X(name) {"flw_" #name, run_##name, sizeof(struct flw_##name##_args), FLW_IMAGE(name)},
    FLW_KERNEL_LIST(X)
#undef X
};

/* Why the last create failed: there is no library then that could keep the sentence. Not per thread:
 * what Python opens has little room for that. */
static pthread_mutex_t create_lock = PTHREAD_MUTEX_INITIALIZER;
static char create_message[LONGEST_MESSAGE];

void fallow_params_init_sized(void *params, size_t struct_size)
{
    memset(params, 0, struct_size);
    memcpy(params, &struct_size, sizeof struct_size);
}

void flw_kernels_refuse(fallow_kernels *kernels, const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&kernels->lock);
    va_start(arguments, format);
    vsnprintf(kernels->message, sizeof kernels->message, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&kernels->lock);
}

void fallow_kernels_last_error(fallow_kernels *kernels, char *out_text, size_t text_bytes)
{
    if (out_text == NULL || text_bytes == 0) {
        return;
    }
    if (kernels == NULL) {
        pthread_mutex_lock(&create_lock);
        snprintf(out_text, text_bytes, "%s", create_message);
        pthread_mutex_unlock(&create_lock);
    } else {
        pthread_mutex_lock(&kernels->lock);
        snprintf(out_text, text_bytes, "%s", kernels->message);
        pthread_mutex_unlock(&kernels->lock);
    }
}

uint64_t fallow_kernels_launch_count(fallow_kernels *kernels)
{
    return kernels == NULL ? 0 : atomic_load_explicit(&kernels->launch_count, memory_order_relaxed);
}

static fallow_status refuse_driver(fallow_kernels *kernels, const char *call, const char *what,
                                   int error)
{
    const char *name = NULL;
    if (kernels->error_name == NULL || kernels->error_name(error, &name) != 0 || name == NULL) {
        name = "an unknown error";
    }
    flw_kernels_refuse(kernels, "%s of %s: the driver answered %s (%d)", call, what, name, error);
    return error == DRIVER_INVALID_HANDLE      ? FALLOW_INVALID_STREAM
           : error == DRIVER_NO_BINARY_FOR_GPU ? FALLOW_NOT_SUPPORTED
                                               : FALLOW_DRIVER;
}

/* A data pointer to a function pointer, the way POSIX has it. */
static void find_entry(fallow_pool *pool, const char *name, void *out_function)
{
    void *entry = fallow_pool_driver_entry(pool, name);
    memcpy(out_function, &entry, sizeof entry);
}

static bool find_entries(fallow_kernels *kernels, fallow_pool *pool)
{
    find_entry(pool, "cuModuleLoadData", &kernels->load);
    find_entry(pool, "cuModuleUnload", &kernels->unload);
    find_entry(pool, "cuModuleGetFunction", &kernels->find);
    find_entry(pool, "cuLaunchKernel", &kernels->launch);
    find_entry(pool, "cuCtxPushCurrent_v2", &kernels->push);
    find_entry(pool, "cuCtxPopCurrent_v2", &kernels->pop);
    find_entry(pool, "cuGetErrorName", &kernels->error_name);
    return kernels->load != NULL && kernels->unload != NULL && kernels->find != NULL &&
           kernels->launch != NULL && kernels->push != NULL && kernels->pop != NULL;
}

/* True if the pool's driver is the simulated one: it knows the twins from now on. */
static bool register_twins(fallow_pool *pool)
{
    flw_sim_register_function add = NULL;
    flw_sim_parameters_function describe = NULL;
    find_entry(pool, "flw_sim_register", &add);
    find_entry(pool, "flw_sim_parameters", &describe);
    if (add == NULL || describe == NULL || !flw_twin_find_accessors(pool)) {
        return false;
    }
    for (int i = 0; i < FLW_KERNEL_COUNT; i++) {
        add(kernel_table[i].name, kernel_table[i].twin);
        describe(kernel_table[i].name, 1, &kernel_table[i].args_bytes);
    }
    return true;
}

static fallow_status load_kernels(fallow_kernels *kernels, bool is_simulated)
{
    fallow_status status = FALLOW_OK;
    for (int i = 0; i < FLW_KERNEL_COUNT && status == FALLOW_OK; i++) {
        const struct kernel *kernel = &kernel_table[i];
        const void *image = is_simulated ? kernel->name : kernel->image;
        int error = kernels->load(&kernels->modules[i], image);
        if (error == 0) {
            error = kernels->find(&kernels->functions[i], kernels->modules[i], kernel->name);
        }
        if (error != 0) {
            status = refuse_driver(kernels, "loading", kernel->name, error);
        }
    }
    return status;
}

static void unload_kernels(fallow_kernels *kernels)
{
    for (int i = 0; i < FLW_KERNEL_COUNT; i++) {
        if (kernels->modules[i] != NULL) {
            (void)kernels->unload(kernels->modules[i]);
        }
    }
}

static fallow_status fill(fallow_kernels *kernels, fallow_pool *pool)
{
    void *popped = NULL;
    if (!find_entries(kernels, pool)) {
        flw_kernels_refuse(kernels, "the pool's driver cannot load modules: is it up to date?");
        return FALLOW_NOT_SUPPORTED;
    }
    bool is_simulated = register_twins(pool);
    if (!is_simulated && kernel_table[0].image == NULL) {
        flw_kernels_refuse(kernels, "this library was built without kernel images: build it where "
                                    "nvcc is found, with FALLOW_KERNEL_IMAGES on");
        return FALLOW_NOT_SUPPORTED;
    }
    int error = kernels->push(kernels->context);
    if (error != 0) {
        return refuse_driver(kernels, "making current", "the pool's context", error);
    }
    fallow_status status = load_kernels(kernels, is_simulated);
    if (status != FALLOW_OK) {
        unload_kernels(kernels);
    }
    (void)kernels->pop(&popped);
    return status;
}

static fallow_status end_create(fallow_status status, const char *message)
{
    pthread_mutex_lock(&create_lock);
    snprintf(create_message, sizeof create_message, "%s", message);
    pthread_mutex_unlock(&create_lock);
    return status;
}

fallow_status fallow_kernels_create(fallow_pool *pool, fallow_kernels **out_kernels)
{
    if (out_kernels == NULL) {
        return end_create(FALLOW_INVALID_ARGUMENT, "out_kernels is NULL");
    }
    *out_kernels = NULL;
    void *context = fallow_pool_context(pool);
    if (context == NULL) {
        return end_create(FALLOW_INVALID_POOL, "pool is not one that lives");
    }
    fallow_kernels *kernels = calloc(1, sizeof *kernels);
    if (kernels == NULL) {
        return end_create(FALLOW_OUT_OF_HOST_MEMORY, "no host memory for the kernels' table");
    }
    kernels->context = context;
    pthread_mutex_init(&kernels->lock, NULL);
    fallow_status status = fill(kernels, pool);
    if (status != FALLOW_OK) {
        (void)end_create(status, kernels->message);
        pthread_mutex_destroy(&kernels->lock);
        free(kernels);
        return status;
    }
    *out_kernels = kernels;
    return end_create(FALLOW_OK, "");
}

void fallow_kernels_destroy(fallow_kernels *kernels)
{
    void *popped = NULL;
    if (kernels == NULL) {
        return;
    }
    if (kernels->push(kernels->context) == 0) {
        unload_kernels(kernels);
        (void)kernels->pop(&popped);
    }
    pthread_mutex_destroy(&kernels->lock);
    free(kernels);
}

fallow_status flw_kernels_launch(fallow_kernels *kernels, enum flw_kernel kernel,
                                 struct flw_grid grid, const void *args, fallow_stream stream)
{
    void *popped = NULL;
    unsigned char copy[1024];
    void *parameters[] = {copy};
    _Static_assert(sizeof(void *) == 8, "device addresses are 64 bits");
#define X(name) \
    _Static_assert(sizeof(struct flw_##name##_args) <= sizeof copy, "arguments of " #name);
    FLW_KERNEL_LIST(X)
#undef X
    if (grid.blocks_x == 0) {
        return FALLOW_OK;
    }
    if (grid.blocks_x < 0 || grid.blocks_x > INT32_MAX || grid.blocks_y < 0 ||
        grid.blocks_y > UINT16_MAX) {
        flw_kernels_refuse(kernels, "launch of %s: the shape takes %lld x %lld blocks, too many",
                           kernel_table[kernel].name, (long long)grid.blocks_x,
                           (long long)grid.blocks_y);
        return FALLOW_INVALID_ARGUMENT;
    }
    memcpy(copy, args, kernel_table[kernel].args_bytes);
    int error = kernels->push(kernels->context);
    if (error == 0) {
        error = kernels->launch(kernels->functions[kernel], (unsigned)grid.blocks_x,
                                grid.blocks_y == 0 ? 1 : (unsigned)grid.blocks_y, 1, grid.threads,
                                1, 1, grid.shared_bytes, stream, parameters, NULL);
        (void)kernels->pop(&popped);
    }
    if (error != 0) {
        return refuse_driver(kernels, "launch", kernel_table[kernel].name, error);
    }
    atomic_fetch_add_explicit(&kernels->launch_count, 1, memory_order_relaxed);
    return FALLOW_OK;
}
