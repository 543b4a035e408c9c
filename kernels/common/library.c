/* SPDX-License-Identifier: Apache-2.0
 *
 * On a real driver a kernel's image is loaded as a module of its own, before the first launch. On
 * the simulated one, which has flw_sim_register, the twin is registered under the kernel's name
 * and the image is ignored. */
#include "common/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/image.h"
#include "common/twin.h"
#include "driver/answer.h"
#include "driver/section.h"
#include "fallow/extend.h"
#include "fallow/simcuda.h"

/* The driver's types, as in the ABI: this library needs no CUDA header. */
typedef int (*load_function)(void **module, const void *image);
typedef int (*unload_function)(void *module);
typedef int (*find_function)(void **function, void *module, const char *name);
typedef int (*launch_function)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, fallow_stream stream, void **parameters,
                               void **extra);
typedef int (*error_name_function)(int error, const char **name);
typedef int (*is_capturing_function)(fallow_stream stream, int *status);

enum {
    DRIVER_NO_BINARY_FOR_GPU = 209,
    DRIVER_STREAM_CAPTURE_IMPLICIT = 906,
    DRIVER_IS_NOT_CAPTURING = 0,
    LONGEST_MESSAGE = 256,
    DRIVER_TRIES = 3
};

struct fallow_kernels {
    void *context;
    struct flw_driver driver; /* the driver functions that sections call, and no others */
    bool is_simulated;
    load_function load;
    unload_function unload;
    find_function find;
    launch_function launch;
    error_name_function error_name;
    is_capturing_function is_capturing;
    pthread_mutex_t loading;                   /* held during a load, over driver calls */
    void *modules[FLW_KERNEL_COUNT];           /* under loading */
    void *_Atomic functions[FLW_KERNEL_COUNT]; /* NULL until loaded, then permanent */
    _Atomic uint64_t launch_count;             /* relaxed; a statistic */
};

/* Where the driver's functions are found: in a pool's driver, or in an object of dlopen. */
struct source {
    fallow_pool *pool;
    void *object; /* if pool is NULL */
};

struct kernel {
    const char *name; /* of the device function */
    flw_sim_twin twin;
    size_t args_bytes;
    const void *image; /* a fat binary; NULL: built without nvcc */
};

/* A simulated launch has the driver's signature; the twin has its own. */
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

/* Why each thread's last refused call failed. Not in thread-local storage, of which libraries that Python
 * opens have little. */
static pthread_once_t message_once = PTHREAD_ONCE_INIT;
static pthread_key_t message_key;
static bool has_messages;

static void make_message_key(void)
{
    has_messages = pthread_key_create(&message_key, free) == 0;
}

/* Return the thread's message, "" at first; NULL: no host memory. */
static char *last_message(void)
{
    (void)pthread_once(&message_once, make_message_key);
    char *message = has_messages ? pthread_getspecific(message_key) : NULL;
    if (message == NULL && has_messages) {
        message = calloc(1, LONGEST_MESSAGE);
        if (message != NULL && pthread_setspecific(message_key, message) != 0) {
            free(message);
            message = NULL;
        }
    }
    return message;
}

void fallow_params_init_sized(void *params, size_t struct_size)
{
    memset(params, 0, struct_size);
    memcpy(params, &struct_size, sizeof struct_size);
}

void flw_kernels_refuse(const char *format, ...)
{
    char *message = last_message();
    if (message == NULL) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, LONGEST_MESSAGE, format, arguments);
    va_end(arguments);
}

void fallow_kernels_last_error(fallow_kernels *kernels, char *out_text, size_t text_bytes)
{
    (void)kernels;
    if (out_text != NULL && text_bytes > 0) {
        const char *message = last_message();
        snprintf(out_text, text_bytes, "%s", message != NULL ? message : "");
    }
}

const char *fallow_kernels_generations(void)
{
    return FLW_KERNEL_GENERATIONS;
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
    flw_kernels_refuse("%s of %s: the driver answered %s (%d)", call, what, name, error);
    return flw_answer_of(error) == FLW_ANSWER_STALE ? FALLOW_INVALID_STREAM
           : error == DRIVER_NO_BINARY_FOR_GPU      ? FALLOW_NOT_SUPPORTED
                                                    : flw_answer_status(error);
}

static void *entry_of(const struct source *source, const char *name)
{
    return source->pool != NULL ? fallow_pool_driver_entry(source->pool, name)
                                : dlsym(source->object, name);
}

/* Convert a data pointer to a function pointer, as POSIX permits. */
static void find_entry(const struct source *source, const char *name, void *out_function)
{
    void *entry = entry_of(source, name);
    memcpy(out_function, &entry, sizeof entry);
}

static bool find_entries(fallow_kernels *kernels, const struct source *source)
{
    struct flw_driver *driver = &kernels->driver;
    find_entry(source, "cuModuleLoadData", &kernels->load);
    find_entry(source, "cuModuleUnload", &kernels->unload);
    find_entry(source, "cuModuleGetFunction", &kernels->find);
    find_entry(source, "cuLaunchKernel", &kernels->launch);
    find_entry(source, "cuCtxGetCurrent", &driver->cuCtxGetCurrent);
    find_entry(source, "cuCtxPushCurrent_v2", &driver->cuCtxPushCurrent_v2);
    find_entry(source, "cuCtxPopCurrent_v2", &driver->cuCtxPopCurrent_v2);
    find_entry(source, "cuGetErrorName", &kernels->error_name);
    find_entry(source, "cuStreamIsCapturing", &kernels->is_capturing);
    find_entry(source, "cuThreadExchangeStreamCaptureMode",
               &driver->cuThreadExchangeStreamCaptureMode);
    return kernels->load != NULL && kernels->unload != NULL && kernels->find != NULL &&
           kernels->launch != NULL && kernels->is_capturing != NULL &&
           driver->cuCtxGetCurrent != NULL && driver->cuCtxPushCurrent_v2 != NULL &&
           driver->cuCtxPopCurrent_v2 != NULL && driver->cuThreadExchangeStreamCaptureMode != NULL;
}

/* True if the driver is the simulated one, which has the twins from now on. */
static bool register_twins(const struct source *source)
{
    flw_sim_register_function add = NULL;
    flw_sim_parameters_function describe = NULL;
    find_entry(source, "flw_sim_register", &add);
    find_entry(source, "flw_sim_parameters", &describe);
    if (add == NULL || describe == NULL ||
        !flw_twin_set_accessors(entry_of(source, "flw_sim_load"),
                                entry_of(source, "flw_sim_store"))) {
        return false;
    }
    for (int i = 0; i < FLW_KERNEL_COUNT; i++) {
        add(kernel_table[i].name, kernel_table[i].twin);
        describe(kernel_table[i].name, 1, &kernel_table[i].args_bytes);
    }
    return true;
}

/* ---- loading, in a driver section, so that it neither fails during nor ends a capture of another
 * stream */

static int enter(fallow_kernels *kernels, struct flw_driver_section *section,
                 enum flw_section_parts parts)
{
    return (int)flw_section_open(section, &kernels->driver, kernels->context, parts, NULL);
}

/* Look up the function at once: a driver that loads lazily then loads here, not in the launch.
 * loading held, in a section. */
static fallow_status load_kernel(fallow_kernels *kernels, int index)
{
    const struct kernel *kernel = &kernel_table[index];
    void *module = NULL, *function = NULL;
    if (kernels->functions[index] != NULL) {
        return FALLOW_OK;
    }
    int error = kernels->load(&module, kernels->is_simulated ? kernel->name : kernel->image);
    if (error == 0) {
        error = kernels->find(&function, module, kernel->name);
        if (error != 0) {
            (void)kernels->unload(module);
        }
    }
    if (error != 0) {
        return refuse_driver(kernels, "loading", kernel->name, error);
    }
    kernels->modules[index] = module;
    atomic_store_explicit(&kernels->functions[index], function, memory_order_release);
    return FALLOW_OK;
}

/* Load the wanted kernels; those before a refusal stay loaded. */
static fallow_status load_kernels(fallow_kernels *kernels, const bool wanted[FLW_KERNEL_COUNT])
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_OK;
    pthread_mutex_lock(&kernels->loading);
    int error = enter(kernels, &section, FLW_SECTION_BOTH);
    if (error != 0) {
        status = refuse_driver(kernels, "making current", "the context", error);
    }
    for (int i = 0; i < FLW_KERNEL_COUNT && status == FALLOW_OK; i++) {
        status = wanted[i] ? load_kernel(kernels, i) : FALLOW_OK;
    }
    if (error == 0) {
        (void)flw_section_close(&section);
    }
    pthread_mutex_unlock(&kernels->loading);
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

/* FLW_KERNEL_COUNT: no kernel has this name. */
static int find_kernel(const char *name)
{
    int index = 0;
    while (index < FLW_KERNEL_COUNT &&
           (name == NULL || strcmp(kernel_table[index].name + strlen("flw_"), name) != 0)) {
        index++;
    }
    return index;
}

fallow_status fallow_kernels_load(fallow_kernels *kernels, const char *const *names,
                                  size_t name_count)
{
    bool wanted[FLW_KERNEL_COUNT] = {false};
    if (kernels == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (names == NULL && name_count != 0) {
        flw_kernels_refuse("fallow_kernels_load: names is NULL, and name_count is %zu", name_count);
        return FALLOW_INVALID_ARGUMENT;
    }
    for (int i = 0; i < FLW_KERNEL_COUNT; i++) {
        wanted[i] = names == NULL;
    }
    for (size_t i = 0; i < name_count; i++) {
        int index = find_kernel(names[i]);
        if (index == FLW_KERNEL_COUNT) {
            flw_kernels_refuse("fallow_kernels_load: there is no kernel '%s'",
                               names[i] != NULL ? names[i] : "NULL");
            return FALLOW_INVALID_ARGUMENT;
        }
        wanted[index] = true;
    }
    return load_kernels(kernels, wanted);
}

/* No document states whether a driver can load a module during a capture, and the work then may
 * end the capture. So require the caller to load before. */
static fallow_status refuse_capture(fallow_kernels *kernels, const char *name, fallow_stream stream)
{
    struct flw_driver_section section;
    int capture = DRIVER_IS_NOT_CAPTURING;
    int error = enter(kernels, &section, FLW_SECTION_CONTEXT);
    if (error == 0) {
        error = kernels->is_capturing(stream, &capture);
        (void)flw_section_close(&section);
    }
    if (error != 0 && error != DRIVER_STREAM_CAPTURE_IMPLICIT) {
        return refuse_driver(kernels, "launch", name, error);
    }
    if (error != 0 || capture != DRIVER_IS_NOT_CAPTURING) {
        flw_kernels_refuse("launch of %s: the kernel is not loaded yet, and the stream is being "
                           "captured: launch it once, or call fallow_kernels_load, before "
                           "the capture begins",
                           name);
        return FALLOW_CAPTURING;
    }
    return FALLOW_OK;
}

/* Return the kernel's function, loaded at the first launch. */
static fallow_status loaded_function(fallow_kernels *kernels, enum flw_kernel kernel,
                                     fallow_stream stream, void **out_function)
{
    bool wanted[FLW_KERNEL_COUNT] = {false};
    fallow_status status = FALLOW_OK;
    *out_function = atomic_load_explicit(&kernels->functions[kernel], memory_order_acquire);
    if (*out_function == NULL) {
        wanted[kernel] = true;
        status = refuse_capture(kernels, kernel_table[kernel].name, stream);
        status = status == FALLOW_OK ? load_kernels(kernels, wanted) : status;
        *out_function = atomic_load_explicit(&kernels->functions[kernel], memory_order_acquire);
    }
    return status;
}

/* ---- create, destroy */

static fallow_status fill(fallow_kernels *kernels, const struct source *source)
{
    if (!find_entries(kernels, source)) {
        flw_kernels_refuse("fallow_kernels_create: the driver cannot load modules: update it");
        return FALLOW_NOT_SUPPORTED;
    }
    if (source->pool == NULL) {
        (void)kernels->driver.cuCtxGetCurrent((CUcontext *)&kernels->context);
    }
    if (kernels->context == NULL) {
        flw_kernels_refuse("fallow_kernels_create: pool is NULL, and no context is current on this "
                           "thread");
        return FALLOW_NOT_FOUND;
    }
    kernels->is_simulated = register_twins(source);
    if (!kernels->is_simulated && kernel_table[0].image == NULL) {
        flw_kernels_refuse("fallow_kernels_create: this library was built without kernel images: "
                           "build it where nvcc is found, with FALLOW_KERNEL_IMAGES on");
        return FALLOW_NOT_SUPPORTED;
    }
    return FALLOW_OK;
}

/* Without a pool, use the driver that the process has loaded already: no other has a context. */
static fallow_status find_source(fallow_pool *pool, struct source *source, void **out_context)
{
    *source = (struct source){.pool = pool};
    *out_context = pool != NULL ? fallow_pool_context(pool) : NULL;
    if (pool != NULL && *out_context == NULL) {
        flw_kernels_refuse("fallow_kernels_create: pool is none that exists");
        return FALLOW_INVALID_POOL;
    }
    if (pool == NULL) {
        source->object = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    }
    if (pool == NULL && source->object == NULL) {
        flw_kernels_refuse("fallow_kernels_create: pool is NULL, and the process has not loaded "
                           "libcuda.so.1");
        return FALLOW_NOT_FOUND;
    }
    return FALLOW_OK;
}

fallow_status fallow_kernels_create(fallow_pool *pool, fallow_kernels **out_kernels)
{
    struct source source;
    void *context = NULL;
    if (out_kernels == NULL) {
        flw_kernels_refuse("fallow_kernels_create: out_kernels is NULL");
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_kernels = NULL;
    fallow_status status = find_source(pool, &source, &context);
    if (status != FALLOW_OK) {
        return status;
    }
    fallow_kernels *kernels = calloc(1, sizeof *kernels);
    if (kernels == NULL) {
        flw_kernels_refuse("fallow_kernels_create: no host memory");
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    kernels->context = context;
    pthread_mutex_init(&kernels->loading, NULL);
    status = fill(kernels, &source);
    if (status != FALLOW_OK) {
        pthread_mutex_destroy(&kernels->loading);
        free(kernels);
        return status;
    }
    char *message = last_message();
    if (message != NULL) {
        message[0] = 0;
    }
    *out_kernels = kernels;
    return FALLOW_OK;
}

void fallow_kernels_destroy(fallow_kernels *kernels)
{
    struct flw_driver_section section;
    int error = -1;
    if (kernels == NULL) {
        return;
    }
    for (int n = 0; n < DRIVER_TRIES && error != 0; n++) {
        error = enter(kernels, &section, FLW_SECTION_BOTH);
    }
    if (error == 0) {
        unload_kernels(kernels);
        (void)flw_section_close(&section);
    }
    pthread_mutex_destroy(&kernels->loading);
    free(kernels);
}

fallow_status flw_kernels_launch(fallow_kernels *kernels, enum flw_kernel kernel,
                                 struct flw_grid grid, const void *args, fallow_stream stream)
{
    struct flw_driver_section section;
    void *function = NULL;
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
        flw_kernels_refuse(
            "launch of %s: the shape needs a grid of %lld x %lld blocks, more than a launch can "
            "have",
            kernel_table[kernel].name, (long long)grid.blocks_x, (long long)grid.blocks_y);
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = loaded_function(kernels, kernel, stream, &function);
    if (status != FALLOW_OK) {
        return status;
    }
    memcpy(copy, args, kernel_table[kernel].args_bytes);
    int error = enter(kernels, &section, FLW_SECTION_CONTEXT); /* a launch may be captured */
    if (error == 0) {
        error = kernels->launch(function, (unsigned)grid.blocks_x,
                                grid.blocks_y == 0 ? 1 : (unsigned)grid.blocks_y, 1, grid.threads,
                                1, 1, grid.shared_bytes, stream, parameters, NULL);
        (void)flw_section_close(&section);
    }
    if (error != 0) {
        return refuse_driver(kernels, "launch", kernel_table[kernel].name, error);
    }
    atomic_fetch_add_explicit(&kernels->launch_count, 1, memory_order_relaxed);
    return FALLOW_OK;
}
