/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: modules, libraries and their functions, their attributes and occupancy.
 * Does not: launch (launch.c).
 *
 * A function with a registered twin is in every module. Others are in the module if their name is in
 * the image, or if the image's names cannot be read because it is compressed; a launch of one fails. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/launch.h"

struct module {
    unsigned char *image; /* a copy */
    size_t bytes;
    bool is_compressed;
};

struct flw_function *flw_function_find(CUfunction handle)
{
    return flw_table_find(&flw_world.function_table, (uintptr_t)handle);
}

/* ---- images */

#define ELF_MAGIC     0x464c457fu
#define FATBIN_MAGIC  0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_FLAGS  0x28    /* offset of the first part's flags behind the header */
#define FATBIN_PACKED 0xa000u /* they say: LZ4 or zstd */

static uint64_t read_word(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

static uint32_t magic_of(const unsigned char *image)
{
    bool has_one = strnlen((const char *)image, 4) == 4;
    return has_one ? (uint32_t)read_word(image, 4) : 0;
}

/* Find the size of a cubin (ELF), a fat binary or a text of PTX. False: it exceeds the limit, which
 * a text cannot. */
static bool find_bytes(const unsigned char *image, size_t limit, size_t *bytes)
{
    uint32_t magic = magic_of(image);
    uint64_t head, rest;
    if (magic == ELF_MAGIC && limit >= 0x40) { /* the section headers are at the end */
        head = read_word(image + 0x28, 8);
        rest = read_word(image + 0x3a, 2) * read_word(image + 0x3c, 2);
    } else if (magic == FATBIN_MAGIC && limit >= 0x10) {
        head = read_word(image + 6, 2);
        rest = read_word(image + 8, 8);
    } else if (magic == ELF_MAGIC || magic == FATBIN_MAGIC) {
        return false;
    } else {
        *bytes = strlen((const char *)image) + 1;
        return true;
    }
    return !__builtin_add_overflow(head, rest, bytes) && *bytes <= limit;
}

static bool is_compressed(const unsigned char *image, size_t bytes)
{
    size_t header =
        bytes >= 16 && read_word(image, 4) == FATBIN_MAGIC ? read_word(image + 6, 2) : 0;
    return header != 0 && header + FATBIN_FLAGS + 8 <= bytes &&
           (read_word(image + header + FATBIN_FLAGS, 8) & FATBIN_PACKED) != 0;
}

static bool is_name_byte(unsigned char byte)
{
    return byte == '_' || byte == '$' || (byte >= '0' && byte <= '9') ||
           (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

/* True if the image has the name as a whole word. */
static bool has_name(const struct module *module, const char *name)
{
    size_t length = strlen(name), left = module->bytes;
    const unsigned char *at = module->image, *hit;
    while (length != 0 && (hit = memmem(at, left, name, length)) != NULL) {
        bool begins = hit == module->image || !is_name_byte(hit[-1]);
        const unsigned char *end = hit + length;
        if (begins && (end == module->image + module->bytes || !is_name_byte(*end))) {
            return true;
        }
        at = hit + 1;
        left = module->bytes - (size_t)(at - module->image);
    }
    return module->is_compressed;
}

static CUresult add_module(CUmodule *out, const unsigned char *image, size_t limit)
{
    size_t bytes;
    if (magic_of(image) == WRAPPER_MAGIC) { /* it has the image's address, so no file is one */
        FLW_REFUSE_IF(limit != SIZE_MAX, CUDA_ERROR_INVALID_IMAGE);
        memcpy(&image, image + 8, sizeof image);
    }
    FLW_REFUSE_IF(!find_bytes(image, limit, &bytes), CUDA_ERROR_INVALID_IMAGE);
    struct module *module = flw_host_get(sizeof *module);
    module->bytes = bytes;
    module->image = flw_host_get(bytes);
    memcpy(module->image, image, bytes);
    module->is_compressed = is_compressed(module->image, bytes);
    *out = (CUmodule)(uintptr_t)flw_table_add(&flw_world.module_table, module);
    return CUDA_SUCCESS;
}

/* Return the contents of a file with a terminating 0, and store their number in *limit. NULL: the file cannot be
 * read. */
static unsigned char *read_file(const char *path, size_t *limit)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    size_t bytes = 0, capacity = 1u << 16;
    unsigned char *content = flw_host_get(capacity);
    for (size_t got; (got = fread(content + bytes, 1, capacity - bytes - 1, file)) != 0;) {
        bytes += got;
        if (bytes + 1 == capacity) {
            capacity *= 2;
            content = flw_host_resize(content, capacity);
        }
    }
    content[bytes] = '\0';
    *limit = bytes;
    if (ferror(file)) { /* a folder, for one */
        free(content);
        content = NULL;
    }
    fclose(file);
    return content;
}

/* ---- modules */

static struct module *find_module(CUmodule handle)
{
    return flw_table_find(&flw_world.module_table, (uintptr_t)handle);
}

static void drop_functions(CUmodule module)
{
    struct flw_table *table = &flw_world.function_table;
    for (uint32_t i = 0; i < table->count; i++) {
        struct flw_function *function = table->object[i];
        if (function != NULL && (module == NULL || function->module == module)) {
            flw_table_remove(table, table->base + ((uint64_t)i << 4));
            free(function->name);
            free(function);
        }
    }
}

static void free_module(struct module *module)
{
    if (module != NULL) {
        free(module->image);
        free(module);
    }
}

void flw_module_finish_all(void)
{
    drop_functions(NULL);
    for (uint32_t i = 0; i < flw_world.module_table.count; i++) {
        free_module(flw_world.module_table.object[i]);
    }
}

/* Load an image of at most `limit` bytes; SIZE_MAX: its header gives the size. */
static CUresult load(CUmodule *out, const void *image, size_t limit, unsigned needs)
{
    FLW_CALL(cuModuleLoadData, needs);
    FLW_REFUSE_IF(out == NULL || image == NULL, CUDA_ERROR_INVALID_VALUE);
    return add_module(out, image, limit);
}

static CUresult load_file(CUmodule *out, const char *path, unsigned needs)
{
    FLW_REFUSE_IF(path == NULL, CUDA_ERROR_INVALID_VALUE);
    size_t limit;
    unsigned char *image = read_file(path, &limit);
    FLW_REFUSE_IF(image == NULL, CUDA_ERROR_FILE_NOT_FOUND);
    CUresult result = load(out, image, limit, needs);
    free(image);
    return result;
}

static CUresult unload(CUmodule handle, unsigned needs)
{
    FLW_CALL(cuModuleUnload, needs);
    struct module *module = find_module(handle);
    FLW_REFUSE_IF(module == NULL, CUDA_ERROR_INVALID_HANDLE);
    drop_functions(handle);
    flw_table_remove(&flw_world.module_table, (uintptr_t)handle);
    free_module(module);
    return CUDA_SUCCESS;
}

/* Return the handle that a module's function already has, or NULL. */
static CUfunction known_function(CUmodule module, const char *name)
{
    struct flw_table *table = &flw_world.function_table;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct flw_function *function = table->object[i];
        if (function != NULL && function->module == module && strcmp(function->name, name) == 0) {
            return (CUfunction)(uintptr_t)(table->base + ((uint64_t)i << 4));
        }
    }
    return NULL;
}

static CUresult get_function(CUfunction *out, CUmodule handle, const char *name, unsigned needs)
{
    FLW_CALL(cuModuleGetFunction, needs);
    struct module *module = find_module(handle);
    FLW_REFUSE_IF(out == NULL || name == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(module == NULL, CUDA_ERROR_INVALID_HANDLE);
    CUfunction known = known_function(handle, name);
    if (known != NULL) {
        *out = known;
        return CUDA_SUCCESS;
    }
    struct flw_kernel *kernel = flw_kernel_find(name);
    /* "If no function of that name exists" */
    FLW_REFUSE_IF(kernel == NULL && !has_name(module, name), CUDA_ERROR_NOT_FOUND);
    struct flw_function *function = flw_host_get(sizeof *function);
    *function = (struct flw_function){.module = handle,
                                      .kernel = kernel,
                                      .name = flw_host_get(strlen(name) + 1),
                                      .max_dynamic_shared_bytes = 48 << 10,
                                      .carveout = -1};
    memcpy(function->name, name, strlen(name) + 1);
    *out = (CUfunction)(uintptr_t)flw_table_add(&flw_world.function_table, function);
    return CUDA_SUCCESS;
}

/* No image's variables are modelled. */
static CUresult get_variable(CUmodule handle, const void *address, const void *bytes,
                             const char *name)
{
    FLW_CALL(cuModuleGetFunction, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(name == NULL || (address == NULL && bytes == NULL), CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(find_module(handle) == NULL, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_ERROR_NOT_FOUND;
}

#define UNSAFE (FLW_CALL_CONTEXT | FLW_CALL_UNSAFE)

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, image, SIZE_MAX, UNSAFE);
}

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
    return load_file(module, path, UNSAFE);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    return unload(module, UNSAFE);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    return get_function(function, module, name, FLW_CALL_CONTEXT);
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                      const char *name)
{
    return get_variable(module, address, bytes, name);
}

/* The images are not compiled before a launch. */
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    FLW_CALL(cuDeviceGetCount, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(mode == NULL, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries: modules that need no context. Options about compiling have no effect. */

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                                   void **jit_values, unsigned jit_count, CUlibraryOption *options,
                                   void **values, unsigned count)
{
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load((CUmodule *)library, code, SIZE_MAX, FLW_CALL_PLAIN);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                       CUjit_option *jit_options, void **jit_values,
                                       unsigned jit_count, CUlibraryOption *options, void **values,
                                       unsigned count)
{
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load_file((CUmodule *)library, path, FLW_CALL_PLAIN);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
    return unload((CUmodule)library, FLW_CALL_PLAIN);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return get_function((CUfunction *)kernel, (CUmodule)library, name, FLW_CALL_PLAIN);
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    FLW_CALL(cuModuleGetFunction, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(module == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(find_module((CUmodule)library) == NULL, CUDA_ERROR_INVALID_HANDLE);
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                    const char *name)
{
    return get_variable((CUmodule)library, address, bytes, name);
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                     const char *name)
{
    return get_variable((CUmodule)library, address, bytes, name);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    FLW_CALL(cuModuleGetFunction, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(function == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(flw_function_find((CUfunction)kernel) == NULL, CUDA_ERROR_INVALID_HANDLE);
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

/* ---- functions */

/* Enter a call about one function, and find it. */
static CUresult enter_function(struct flw_call *call, enum flw_entry entry, CUfunction handle,
                               struct flw_function **function)
{
    FLW_TRY(flw_call_enter(call, entry, FLW_CALL_PLAIN));
    *function = flw_function_find(handle);
    return *function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

#define CALL_ON_FUNCTION(symbol, handle) \
    struct flw_function *function;       \
    FLW_FRAME(enter_function(&call, FLW_ENTRY_##symbol, handle, &function))

FLW_SIM_NEWER(cuFuncGetName, (const char **name, CUfunction handle))
{
    FLW_CALL(cuFuncGetName, FLW_CALL_PLAIN);
    struct flw_function *function = flw_function_find(handle);
    FLW_REFUSE_IF(name == NULL || handle == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(function == NULL, CUDA_ERROR_INVALID_HANDLE);
    *name = function->name;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuFuncGetParamInfo, (CUfunction handle, size_t index, size_t *offset, size_t *bytes))
{
    CALL_ON_FUNCTION(cuFuncGetParamInfo, handle);
    const struct flw_kernel *kernel = function->kernel;
    /* no twin, or a twin without flw_sim_parameters */
    FLW_REFUSE_IF(kernel == NULL || !kernel->has_layout, CUDA_ERROR_NOT_SUPPORTED);
    FLW_REFUSE_IF(offset == NULL || index >= kernel->count, CUDA_ERROR_INVALID_VALUE);
    *offset = kernel->offset[index];
    if (bytes != NULL) {
        *bytes = kernel->bytes[index];
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    FLW_REFUSE_IF(module == NULL, CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel))
{
    return cuFuncGetModule((CUmodule *)library, (CUfunction)kernel);
}

FLW_SIM_NEWER(cuFuncLoad, (CUfunction handle))
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction handle))
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    FLW_REFUSE_IF(state == NULL, CUDA_ERROR_INVALID_VALUE);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

#define REGISTERS_PER_THREAD 32 /* of every function */

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    FLW_REFUSE_IF(value == NULL || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX,
                  CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = REGISTERS_PER_THREAD;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function->carveout;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
        value <= 227 << 10) {
        function->max_dynamic_shared_bytes = value;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 &&
        value <= 100) {
        function->carveout = value;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* "this is only a preference" */
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    return (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- occupancy, of functions without static shared memory */

#define SHARED_BYTES (228u << 10) /* of a multiprocessor; each block reserves 1 KiB */

static unsigned blocks_of(size_t block, size_t shared)
{
    size_t warps = (block + 31) / 32, threads = warps * 32;
    size_t count = flw_min(2048 / threads, 65536 / (threads * REGISTERS_PER_THREAD));
    count = flw_min(count, SHARED_BYTES / flw_align_up(shared + 1024, 128));
    return (unsigned)flw_min(count, 32);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
                                                             int block_size, size_t shared_bytes)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    FLW_REFUSE_IF(blocks == NULL || block_size <= 0, CUDA_ERROR_INVALID_VALUE);
    bool fits = block_size <= 1024 && shared_bytes <= (size_t)function->max_dynamic_shared_bytes;
    *blocks = fits ? (int)blocks_of((size_t)block_size, shared_bytes) : 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle,
                                                         int blocks, int block_size)
{
    CALL_ON_FUNCTION(cuModuleGetFunction, handle);
    FLW_REFUSE_IF(bytes == NULL || blocks <= 0 || block_size <= 0 || block_size > 1024 ||
                      (unsigned)blocks > blocks_of((size_t)block_size, 0),
                  CUDA_ERROR_INVALID_VALUE);
    size_t each = SHARED_BYTES / (unsigned)blocks / 128 * 128 - 1024;
    *bytes = flw_min(each, (size_t)function->max_dynamic_shared_bytes);
    return CUDA_SUCCESS;
}

/* "the block size that can achieve the maximum occupancy"; the largest of several. */
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction handle,
                                                  CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                                  int limit)
{
    FLW_REFUSE_IF(grid == NULL || block == NULL || limit < 0, CUDA_ERROR_INVALID_VALUE);
    int most = limit == 0 || limit > 1024 ? 1024 : limit, best = 0;
    for (int size = most; size > 0; size -= size % 32 == 0 ? 32 : size % 32) {
        int blocks = 0;
        size_t shared = shared_of != NULL ? shared_of(size) : shared_bytes;
        FLW_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, handle, size, shared));
        if (blocks * size > best) {
            best = blocks * size;
            *block = size;
            *grid = blocks * FLW_MULTIPROCESSORS;
        }
    }
    return best == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
