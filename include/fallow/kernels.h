/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules: small kernels that run in borrowed, uninitialised memory and write in place every
 * value that a later kernel reads. This header has the common part; the modules are in attention.h,
 * mla.h and moe.h, those for debugging in debug_kernels.h.
 *
 * Every module has two functions and a struct of parameters:
 *
 *     fallow_status fallow_<group>_<operation>_query(const fallow_<operation>_params *params,
 *                                                    fallow_workspace_need *out_need);
 *     fallow_status fallow_<group>_<operation>(fallow_kernels *kernels,
 *                                              const fallow_<operation>_params *params,
 *                                              fallow_stream stream);
 *
 * CONVENTIONS
 *  - `query` is pure: it uses no device and no driver, and reads only shapes and types; pointers may be
 *    NULL.
 *  - A launch is asynchronous, allocates nothing, waits for nothing, reads no device memory from the
 *    host, and may be captured in a graph. The memory must be usable on `stream`.
 *  - The first launch of a kernel loads it, which takes longer and is not possible inside a capture:
 *    that launch returns FALLOW_CAPTURING. fallow_kernels_load loads kernels in advance.
 *  - **Every byte of every declared output is written for every legal input**, zero tokens included, so
 *    outputs may be in uninitialised memory. If a declared extent ends at a length on the device, the
 *    parameter's comment states so; bytes past this length are not written and must not be read.
 *  - Sizes that vary between replays of a graph are read from the device; grids are sized by capacity.
 *  - Outputs of one call must not overlap. An output may alias an input only if the parameter's comment
 *    permits. Both are checked before the launch.
 *  - Outputs depend on the inputs alone, their order included. Results that atomics would leave in any
 *    order are in ascending index order.
 *  - Integers are int32 unless stated otherwise, arrays are row-major, strides are in elements.
 *  - A buffer's comment begins with its direction (`out`, `in/out`; none: an input), shape, strides and
 *    type: `out [rows, width], row stride out_stride; out_dtype`. A row stride is that of the last dimension
 *    but one. The Python module fallow.kernels reads these comments.
 *  - *flags*: if inputs are out of bounds, the outputs are still defined and a FALLOW_FLAG_ bit is OR-ed
 *    into `params.flags`, an optional int32 on the device that the caller has zeroed once.
 *
 * ERRORS  A launch that returns anything but OK has launched nothing and changed nothing;
 *         fallow_kernels_last_error names the call and the parameter.
 */
#ifndef FALLOW_KERNELS_H
#define FALLOW_KERNELS_H

#include "fallow/fallow.h"
#include "fallow/init_class.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The kernels of a pool's context. */
typedef struct fallow_kernels fallow_kernels;

/** Types of elements. Values are pinned. */
typedef enum fallow_dtype {
    FALLOW_I32 = 0,
    FALLOW_I64 = 1,
    FALLOW_U8 = 2,
    FALLOW_F32 = 3,
    FALLOW_F16 = 4,
    FALLOW_BF16 = 5,
    FALLOW_E4M3 = 6 /**< 8 bits: sign, 4 exponent, 3 mantissa; no infinity, NaN 0x7f and 0xff */
} fallow_dtype;

/** Return the bytes of one element; 0 for an unknown type. */
static inline size_t fallow_dtype_bytes(fallow_dtype dtype)
{
    static const uint8_t bytes[] = {4, 8, 1, 4, 2, 2, 1};
    return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/** Bits of a flags word: inputs that were out of bounds. The outputs are defined nevertheless. */
enum {
    FALLOW_FLAG_NEGATIVE = 1 << 0, /**< a length below 0 counted as 0 */
    FALLOW_FLAG_OVERFLOW = 1 << 1, /**< a sum above the output's type was stored as its largest */
    FALLOW_FLAG_CLAMPED = 1 << 2,  /**< a length was cut to what the buffers hold */
    FALLOW_FLAG_DROPPED = 1 << 3,  /**< rows beyond the capacity were dropped */
    FALLOW_FLAG_INDEX =
        1 << 4 /**< an index outside its table was replaced, as the module documents */
};

/** Entries of fallow_workspace_need.outputs. */
#define FALLOW_NEED_OUTPUTS 8

/** One output of a module: the region that an arena must reserve for it. */
typedef struct fallow_output_need {
    const char *name;       /**< the parameter's; static storage */
    size_t bytes;           /**< at most */
    size_t align_bytes;     /**< of its address */
    fallow_init_class init; /**< required contents before, guaranteed contents after */
    uint32_t reserved_0;
} fallow_output_need;

/** Memory that a call needs, reads and writes. Set by a query. */
typedef struct fallow_workspace_need {
    size_t struct_size;         /**< set by fallow_workspace_need_init */
    size_t scratch_bytes;       /**< of params.scratch; 0: none */
    size_t scratch_align_bytes; /**< of params.scratch */
    uint64_t read_bytes;        /**< from device memory, at most, each byte once */
    uint64_t write_bytes;       /**< to device memory, at most */
    uint32_t launch_count;      /**< kernels launched */
    uint32_t output_count;      /**< entries of outputs that are set */
    fallow_output_need outputs[FALLOW_NEED_OUTPUTS]; /**< in the order of the parameters */
} fallow_workspace_need;

/** Set all fields of a module's parameters, or of a need, to 0, their default, and set struct_size, the
 *  first field. */
FALLOW_API void fallow_params_init_sized(void *params, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_workspace_need_init(fallow_workspace_need *need)
{
    fallow_params_init_sized(need, sizeof *need);
}

/**
 * Prepare the kernels for a context. Loads none: a program pays only for kernels that it launches.
 *
 *  pool         its driver and context are used; NULL: the calling thread's current context and the process's
 *               libcuda.so.1, for a program that allocates elsewhere.
 *
 * Ownership   the caller owns *out_kernels until destroy; the pool, or the context, must outlive it.
 * Errors      INVALID_ARGUMENT, INVALID_POOL, NOT_FOUND (pool NULL: no libcuda.so.1, or no context is
 *             current), NOT_SUPPORTED (built without nvcc and the device is a real one, or the driver lacks
 *             module loading), OUT_OF_HOST_MEMORY.
 * Threads     a fallow_kernels may be used from any thread.
 * Capture     permitted during and inside any capture: asks for the current context at most.
 * Cost        host memory. On the simulated device the C twins run instead, in stream order.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_kernels_create(fallow_pool *pool,
                                                                fallow_kernels **out_kernels);

/**
 * Load the kernels of the named modules now: `merge_states` for fallow_attention_merge_states and so on.
 * names NULL, name_count 0: all. Kernels that are loaded already stay as they are.
 *
 * Errors      INVALID_ARGUMENT (unknown name; none was loaded), NOT_SUPPORTED (no image for this GPU),
 *             DRIVER: fallow_kernels_last_error names the kernel; those before it stay loaded.
 * Threads     any; one thread loads at a time, and a first launch meanwhile waits.
 * Capture     call before a capture. During one the call runs in relaxed capture mode, which ends no
 *             capture.
 * Cost        two driver calls per kernel that is not loaded yet, and the driver's time to load an image.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_kernels_load(fallow_kernels *kernels,
                                                              const char *const *names,
                                                              size_t name_count);

/** Unload the kernels. Submitted work must be complete. During a capture as fallow_kernels_load. NULL is
 *  ignored. */
FALLOW_API void fallow_kernels_destroy(fallow_kernels *kernels);

/** Copy an explanation of the calling thread's last refused call, with the names of call and parameter, to
 *  out_text; truncated to text_bytes, always terminated, "" if none was refused since the thread's last
 *  fallow_kernels_create that succeeded. `kernels` is ignored. */
FALLOW_API void fallow_kernels_last_error(fallow_kernels *kernels, char *out_text,
                                          size_t text_bytes);

/** Return the GPU generations that this library has device code for, "sm_80 sm_90 sm_100"; "" if it was
 *  built without nvcc. fallow_kernels_create then supports only the simulated device. Makes no driver
 *  call. */
FALLOW_API const char *fallow_kernels_generations(void);

/** Return the number of launches since create. */
FALLOW_API uint64_t fallow_kernels_launch_count(fallow_kernels *kernels);

#ifdef __cplusplus
}
#endif

#endif
