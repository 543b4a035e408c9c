/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: kernels, launches, and the twins' view of device memory.
 * Independent of the computation of a twin. */
#include "simcuda/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/shadow.h"

struct flw_sim_launch {
    struct flw_stream *stream;
    const struct flw_work *work;
    uint64_t sequence;
    const struct flw_order_clock *clock;
    CUresult error;
};

static struct flw_kernel *kernels; /* under the world's lock */

FLW_SIM_EXPORT void flw_sim_register(const char *kernel_name, flw_sim_twin twin);
FLW_SIM_EXPORT int flw_sim_parameters(const char *kernel_name, size_t count, const size_t *bytes);
FLW_SIM_EXPORT void flw_sim_dimensions(const flw_sim_launch *launch, unsigned out[7]);
FLW_SIM_EXPORT void flw_sim_load(flw_sim_launch *launch, const char *argument, void *to,
                                 uint64_t from, size_t bytes);
FLW_SIM_EXPORT void flw_sim_store(flw_sim_launch *launch, const char *argument, uint64_t to,
                                  const void *from, size_t bytes);

struct flw_kernel *flw_kernel_find(const char *name)
{
    struct flw_kernel *kernel = kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0) {
        kernel = kernel->next;
    }
    return kernel;
}

void flw_sim_register(const char *kernel_name, flw_sim_twin twin)
{
    pthread_mutex_lock(&flw_world.lock);
    struct flw_kernel *kernel = flw_kernel_find(kernel_name);
    if (kernel == NULL) {
        kernel = flw_host_get(sizeof *kernel);
        kernel->name = flw_host_get(strlen(kernel_name) + 1);
        memcpy(kernel->name, kernel_name, strlen(kernel_name) + 1);
        kernel->next = kernels;
        kernels = kernel;
    }
    kernel->twin = twin;
    pthread_mutex_unlock(&flw_world.lock);
}

/* A parameter is aligned to the largest power of two that divides the size, at most 16, because a
 * struct's true alignment is unknown here. */
static void lay_out(struct flw_kernel *kernel)
{
    size_t end = 0;
    for (size_t i = 0; i < kernel->count; i++) {
        size_t bytes = kernel->bytes[i] | 16;
        kernel->offset[i] = flw_align_up(end, bytes & (0 - bytes));
        end = kernel->offset[i] + kernel->bytes[i];
    }
}

int flw_sim_parameters(const char *kernel_name, size_t count, const size_t *bytes)
{
    pthread_mutex_lock(&flw_world.lock);
    struct flw_kernel *kernel = flw_kernel_find(kernel_name);
    bool fits = kernel != NULL && count <= FLW_PARAMETER_MAX;
    if (fits) {
        kernel->has_layout = true;
        kernel->count = count;
        memcpy(kernel->bytes, bytes, count * sizeof *bytes);
        lay_out(kernel);
    }
    pthread_mutex_unlock(&flw_world.lock);
    return fits;
}

__attribute__((destructor)) static void forget_kernels(void)
{
    while (kernels != NULL) {
        struct flw_kernel *kernel = kernels;
        kernels = kernel->next;
        free(kernel->name);
        free(kernel);
    }
}

void flw_sim_dimensions(const flw_sim_launch *launch, unsigned out[7])
{
    memcpy(out, launch->work->dimensions, sizeof launch->work->dimensions);
}

/* One block: the pointers, then the values. Without a layout the caller's values are not copied;
 * such a launch runs before the call returns. */
void flw_kernel_copy_parameters(struct flw_work *work)
{
    const struct flw_kernel *kernel = work->kernel;
    void **from = work->parameters;
    size_t total = kernel->count * sizeof(void *);
    if (!kernel->has_layout) {
        work->parameters = NULL;
        work->borrowed_parameters = from;
        return;
    }
    for (size_t i = 0; i < kernel->count; i++) {
        total += flw_align_up(kernel->bytes[i], 16) + 16;
    }
    unsigned char *block = flw_host_get(total + 16);
    void **to = (void **)(void *)block;
    size_t at = flw_align_up(kernel->count * sizeof(void *), 16);
    for (size_t i = 0; i < kernel->count; i++) {
        to[i] = block + at;
        memcpy(to[i], from[i], kernel->bytes[i]);
        at += flw_align_up(kernel->bytes[i], 16);
    }
    work->parameters = to;
}

CUresult flw_kernel_run(struct flw_stream *stream, const struct flw_work *work, uint64_t sequence,
                        const struct flw_order_clock *clock)
{
    struct flw_sim_launch launch = {
        .stream = stream, .work = work, .sequence = sequence, .clock = clock};
    struct flw_thread *thread = flw_thread_get();
    thread->is_in_twin = true;
    work->kernel->twin(&launch,
                       work->parameters != NULL ? work->parameters : work->borrowed_parameters);
    thread->is_in_twin = false;
    return launch.error;
}

/* ---- memory access by twins ---- */

static bool may_access(flw_sim_launch *launch, const char *argument, uint64_t address, size_t bytes,
                       bool is_write)
{
    if (launch->error != CUDA_SUCCESS) {
        return false; /* the kernel is dead: no more accesses */
    }
    if (flw_check_is_on()) {
        struct flw_sim_range range = {.address = address, .bytes = bytes, .is_write = is_write};
        launch->error = flw_check_access(launch->stream, launch->work->name, launch->sequence,
                                         launch->clock, &range);
    }
    (void)argument;
    return launch->error == CUDA_SUCCESS;
}

static void report_byte(flw_sim_launch *launch, const char *argument, uint64_t address,
                        uint64_t first, const char *what)
{
    char name[160];
    flw_check_describe(address, name, sizeof name);
    flw_check_violation("%s of kernel %s, argument '%s', offset %llu, address %#llx%s, operation "
                        "%llu of stream %llu",
                        what, launch->work->name, argument != NULL ? argument : "?",
                        (unsigned long long)(address - first), (unsigned long long)address, name,
                        (unsigned long long)launch->sequence,
                        (unsigned long long)launch->stream->id);
}

/* Check the shadow of the bytes; one report per access. */
static void check_shadow(flw_sim_launch *launch, const char *argument, uint64_t address,
                         size_t bytes, bool is_load)
{
    uint64_t offset = flw_shadow_search(address, bytes, FLW_SHADOW_RED);
    if (offset < bytes) {
        report_byte(launch, argument, address + offset, address,
                    is_load ? "red zone: load" : "red zone: store");
    }
    offset = is_load ? flw_shadow_search(address, bytes, FLW_SHADOW_UNWRITTEN) : bytes;
    if (offset < bytes) {
        report_byte(launch, argument, address + offset, address, "unwritten: load");
    }
}

void flw_sim_load(flw_sim_launch *launch, const char *argument, void *to, uint64_t from,
                  size_t bytes)
{
    memset(to, 0xa5, bytes); /* result of a refused load, and of memory without contents */
    if (!may_access(launch, argument, from, bytes, false)) {
        return;
    }
    if (flw_check_is_on()) {
        check_shadow(launch, argument, from, bytes, true);
    }
    flw_storage_read(to, from, bytes);
}

void flw_sim_store(flw_sim_launch *launch, const char *argument, uint64_t to, const void *from,
                   size_t bytes)
{
    if (!may_access(launch, argument, to, bytes, true)) {
        return;
    }
    if (flw_check_is_on()) {
        check_shadow(launch, argument, to, bytes, false);
    }
    flw_storage_write(to, from, bytes, flw_shadow_mark(launch->sequence));
}

/* ---- entry points ---- */

/* Find each parameter in "a single buffer that is passed in via the extra parameter". */
static CUresult unpack(const struct flw_kernel *kernel, void **extra, void **parameters)
{
    enum {
        END = 0,
        POINTER = 1,
        SIZE = 2
    };
    unsigned char *buffer = NULL;
    size_t bytes = 0;
    for (; (uintptr_t)extra[0] != END; extra += 2) {
        if ((uintptr_t)extra[0] == POINTER) {
            buffer = extra[1];
        } else if ((uintptr_t)extra[0] == SIZE) {
            memcpy(&bytes, extra[1], sizeof bytes);
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    /* a twin without flw_sim_parameters */
    FLW_REFUSE_IF(!kernel->has_layout, CUDA_ERROR_NOT_SUPPORTED);
    for (size_t i = 0; i < kernel->count; i++) {
        FLW_REFUSE_IF(buffer == NULL || kernel->offset[i] + kernel->bytes[i] > bytes,
                      CUDA_ERROR_INVALID_VALUE);
        parameters[i] = buffer + kernel->offset[i];
    }
    return CUDA_SUCCESS;
}

static CUresult give_launch(struct flw_call *call, struct flw_stream *stream,
                            struct flw_kernel *kernel, struct flw_work *work)
{
    /* a launch needs the stream's context to be current */
    FLW_REFUSE_IF(flw_context_owner(stream->context) != flw_context_owner(call->context),
                  CUDA_ERROR_INVALID_HANDLE);
    FLW_REFUSE_IF(kernel->has_layout ? kernel->count > 0 && work->parameters == NULL
                                     : stream->capture != NULL,
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_position position = {0};
    CUresult result = flw_order_submit(stream, work, &position);
    if (result == CUDA_SUCCESS && !kernel->has_layout && !flw_world_runs_on_clock()) {
        flw_order_run_until(call->thread, &position);
    }
    return result;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared_bytes, CUstream stream_handle,
                                void **parameters, void **extra)
{
    FLW_CALL_ON_STREAM(cuLaunchKernel, FLW_CALL_CONTEXT, stream_handle);
    struct flw_function *function = flw_function_find(handle);
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    FLW_REFUSE_IF(function == NULL, CUDA_ERROR_INVALID_HANDLE);
    /* The limits of compute capability 9.0. */
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535 ||
        grid_x > 0x7fffffff || threads == 0 || threads > 1024 || block_z > 64 ||
        shared_bytes > 227u << 10) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "no kernel image available that is suitable for the device": without a twin nothing can run */
    FLW_REFUSE_IF(function->kernel == NULL, CUDA_ERROR_NO_BINARY_FOR_GPU);
    void *unpacked[FLW_PARAMETER_MAX];
    if (extra != NULL) {
        FLW_TRY(parameters != NULL ? CUDA_ERROR_INVALID_VALUE
                                   : unpack(function->kernel, extra, unpacked));
        parameters = unpacked;
    }
    struct flw_work work = {
        .kind = FLW_WORK_LAUNCH,
        .name = function->kernel->name,
        .kernel = function->kernel,
        .parameters = parameters,
        .dimensions = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes}};
    return give_launch(&call, call.stream, function->kernel, &work);
}
