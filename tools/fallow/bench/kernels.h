/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of `fallow bench kernels`: the table of modules and their cases, and the call that is made of one.
 *
 * A call is made in one of three ways: at full size without memory, for the query; on a GPU at full size; on the
 * simulated device at small sizes.
 */
#ifndef FLW_TOOL_BENCH_KERNELS_H
#define FLW_TOOL_BENCH_KERNELS_H

#include "bench/bench.h"
#include "fallow/kernels.h"

#define FLW_KERNEL_SIZES        4
#define FLW_KERNEL_CASES        6
#define FLW_KERNEL_PARAMS_BYTES 512

struct flw_kernel_call;

struct flw_kernel_case {
    const char *variant;         /* unique in the module: a model, a mode; NULL behind the last */
    int sizes[FLW_KERNEL_SIZES]; /* full, in the order of the module's names */
    double goal_us;    /* at most, inside a graph; 0: a copy of as many bytes is timed too */
    double goal_share; /* at least, of the speed of that copy; 0: none is set */
    unsigned
        launch_goal; /* 0: none is set; the number that the query returns is held all the same */
    int mode;        /* selects a variant of the parameters */
};

struct flw_kernel_module {
    const char *name; /* NULL behind the last */
    void (*make)(struct flw_kernel_call *call, const int *sizes);
    fallow_status (*query)(const void *params, fallow_workspace_need *out_need);
    fallow_status (*launch)(fallow_kernels *kernels, const void *params, fallow_stream stream);
    struct {
        const char *name;
        int most_simulated;
    } sizes[FLW_KERNEL_SIZES];
    struct flw_kernel_case cases[FLW_KERNEL_CASES];
};

extern const struct flw_kernel_module flw_kernel_modules[];

/* Load the kernels into bench->kernels. Returns false, with the message, if that fails, and sets is_absent if there are
 * none for the device. */
bool flw_kernel_load(struct flw_bench *bench);
void flw_kernel_unload(struct flw_bench *bench);

/* Wait for the stream. Returns false, with the message, after an error of the device or a violation since the last
 * call. */
bool flw_kernel_wait(struct flw_bench *bench);

struct flw_kernel_call {
    const struct flw_kernel_module *module;
    const struct flw_kernel_case *of;
    struct flw_bench *bench;
    bool is_query; /* at full size, without memory */
    void **buffers;
    size_t buffer_count, buffer_capacity;
    _Alignas(16) unsigned char params[FLW_KERNEL_PARAMS_BYTES];
    bool is_broken; /* the bench's message is the reason */
};

bool flw_kernel_call_make(struct flw_kernel_call *call, const struct flw_kernel_module *module,
                          const struct flw_kernel_case *of, struct flw_bench *bench, bool is_query);
void flw_kernel_call_finish(struct flw_kernel_call *call);

/* For `make`: allocate an output, memory of one word over and over, or int32 values. */
void *flw_kernel_output(struct flw_kernel_call *call, int64_t bytes);
void *flw_kernel_filled(struct flw_kernel_call *call, int64_t bytes, uint32_t word);

enum flw_kernel_values {
    FLW_KERNEL_MULTIPLES, /* index * with[0] */
    FLW_KERNEL_SHUFFLED,  /* a permutation of [0, with[0]), a power of 2 */
    FLW_KERNEL_SCATTERED, /* random in [0, with[0]) */
    FLW_KERNEL_CHOICES,   /* of each token with[1] different experts below with[0] */
    FLW_KERNEL_LOGITS     /* two BF16, 0.5 to 2, either sign */
};
int32_t *flw_kernel_integers(struct flw_kernel_call *call, int64_t count,
                             enum flw_kernel_values values, const int *with);

#endif
