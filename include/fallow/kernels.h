/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules: small kernels that run inside borrowed, dirty memory and write in place exactly
 * what must be there. This header has what all of them share; the modules are in attention.h, mla.h
 * and moe.h, those for debugging in debug_kernels.h.
 *
 * Every module is two functions over one struct of parameters:
 *
 *     fallow_status fallow_<group>_<operation>_query(const fallow_<operation>_params *params,
 *                                                    fallow_workspace_need *out_need);
 *     fallow_status fallow_<group>_<operation>(fallow_kernels *kernels,
 *                                              const fallow_<operation>_params *params,
 *                                              fallow_stream stream);
 *
 * CONVENTIONS
 *  - `query` is pure: no device, no driver. It looks at shapes and types only; pointers may be NULL.
 *  - A launch is asynchronous, allocates nothing, waits for nothing, reads no device memory from the
 *    host, and may be captured in a graph. The memory must be usable on `stream`.
 *  - A kernel is loaded by its first launch, which takes longer, and never inside a capture: there that
 *    launch answers FALLOW_CAPTURING. fallow_kernels_load loads before.
 *  - **Every byte of every declared output is written for every legal input**, zero tokens included,
 *    so that outputs may lie in dirty memory. Where a declared extent ends at a length on the device,
 *    the parameter says so; bytes past it are neither written nor to be read.
 *  - Sizes that vary when a graph is replayed are read from the device; grids are sized by capacity.
 *  - Outputs of one call may not overlap; they may alias an input only where the parameter says so.
 *    Both are checked before the launch.
 *  - Outputs are a function of the inputs alone, order included: what is left open by atomics
 *    elsewhere is in ascending index here.
 *  - Integers are int32 unless said otherwise, arrays row-major, strides in elements.
 *  - *flags*: where the inputs are out of bounds the outputs are still defined, and a FALLOW_FLAG_ bit
 *    is OR-ed into `params.flags`, an optional int32 on the device that the caller has zeroed once.
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

/** Bytes of one element; 0 for a value that is no type. */
static inline size_t fallow_dtype_bytes(fallow_dtype dtype)
{
    static const uint8_t bytes[] = {4, 8, 1, 4, 2, 2, 1};
    return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/** Bits of a flags word: what was out of bounds. The outputs are as defined all the same. */
enum {
    FALLOW_FLAG_NEGATIVE = 1 << 0, /**< a length below 0 counted as 0 */
    FALLOW_FLAG_OVERFLOW = 1 << 1, /**< a sum above the output's type was stored as its largest */
    FALLOW_FLAG_CLAMPED = 1 << 2,  /**< a length was cut to what the buffers hold */
    FALLOW_FLAG_DROPPED = 1 << 3,  /**< rows beyond the capacity were dropped */
    FALLOW_FLAG_INDEX = 1 << 4 /**< an index outside its table was replaced as the module says */
};

/** Entries of fallow_workspace_need.outputs. */
#define FALLOW_NEED_OUTPUTS 8

/** One output of a module: what an arena must set aside for it. */
typedef struct fallow_output_need {
    const char *name;       /**< the parameter's; static storage */
    size_t bytes;           /**< at most */
    size_t align_bytes;     /**< of its address */
    fallow_init_class init; /**< what may be in it before, what is in it after */
    uint32_t reserved_0;
} fallow_output_need;

/** What a call with these parameters needs and moves. Set by a query. */
typedef struct fallow_workspace_need {
    size_t struct_size;         /**< set by fallow_workspace_need_init */
    size_t scratch_bytes;       /**< of params.scratch; 0: none */
    size_t scratch_align_bytes; /**< of params.scratch */
    uint64_t read_bytes;        /**< from device memory, at most, each byte once */
    uint64_t write_bytes;       /**< to device memory, at most */
    uint32_t launch_count;      /**< kernels launched */
    uint32_t output_count;      /**< of outputs, that are filled */
    fallow_output_need outputs[FALLOW_NEED_OUTPUTS]; /**< in the order of the parameters */
} fallow_workspace_need;

/** Zero a parameter struct of any module, or a need, and record the caller's size of it in its first
 *  field. Zero is the default of every field. */
FALLOW_API void fallow_params_init_sized(void *params, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_workspace_need_init(fallow_workspace_need *need)
{
    fallow_params_init_sized(need, sizeof *need);
}

/**
 * Make the kernels ready for a pool's context. None is loaded: a program pays for those that it launches.
 *
 * Ownership   the caller owns *out_kernels until destroy; the pool must outlive it.
 * Errors      INVALID_ARGUMENT, INVALID_POOL, NOT_SUPPORTED (built without nvcc and the pool's device
 *             is a real one, or the driver lacks module loading), OUT_OF_HOST_MEMORY.
 * Threads     a fallow_kernels may be used from any thread.
 * Capture     allowed beside and inside any: it makes no driver call.
 * Cost        host memory. On the simulated device the C twins run instead, in stream order.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_kernels_create(fallow_pool *pool,
                                                                fallow_kernels **out_kernels);

/**
 * Load kernels now, those of the modules named: `merge_states` for fallow_attention_merge_states and so on.
 * names NULL, name_count 0: all. What is loaded is left alone.
 *
 * Errors      INVALID_ARGUMENT (no such name: none was loaded), NOT_SUPPORTED (no image for this GPU),
 *             DRIVER: those before the one that fallow_kernels_last_error names stay loaded.
 * Threads     any; one loads at a time, and a first launch meanwhile waits for it.
 * Capture     call it before a capture. Beside one it is made in relaxed capture mode, which ends
 * no capture.
 * Cost        two driver calls a kernel that is not loaded yet, and what the driver takes to load an image.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_kernels_load(fallow_kernels *kernels,
                                                              const char *const *names,
                                                              size_t name_count);

/** Unload them. Work that was given must be complete. Beside a capture as fallow_kernels_load. NULL is
 *  allowed. */
FALLOW_API void fallow_kernels_destroy(fallow_kernels *kernels);

/** The last call that was refused, from any thread, in one sentence that names the call and the
 *  parameter: copied to out_text, cut to text_bytes, always terminated. "" if none. kernels NULL: why the
 *  process's last fallow_kernels_create failed, "" if it did not. */
FALLOW_API void fallow_kernels_last_error(fallow_kernels *kernels, char *out_text,
                                          size_t text_bytes);

/** GPU generations that this library has device code for: "sm_80 sm_90 sm_100". "" if it was built without
 *  nvcc; fallow_kernels_create then refuses every device but the simulated one. Makes no driver call. */
FALLOW_API const char *fallow_kernels_generations(void);

/** Launches since create. */
FALLOW_API uint64_t fallow_kernels_launch_count(fallow_kernels *kernels);

#ifdef __cplusplus
}
#endif

#endif
