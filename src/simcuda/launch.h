/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: kernels: the C twins registered under kernels' names, and running one as an operation.
 * Independent of the computation of a twin.
 * Synchronization: the world's lock; a twin runs under it. */
#ifndef FLW_SIMCUDA_LAUNCH_H
#define FLW_SIMCUDA_LAUNCH_H

#include "simcuda/order.h"

#define FLW_PARAMETER_MAX 64

/* A twin. Registered for the process: resets do not affect it. */
struct flw_kernel {
    struct flw_kernel *next;
    char *name;
    flw_sim_twin twin;
    bool has_layout;
    size_t count;
    size_t bytes[FLW_PARAMETER_MAX];
    size_t offset[FLW_PARAMETER_MAX]; /* in the buffer of all parameters */
};

/* A function of a module. A library is a module, and a library's kernel is the function. */
struct flw_function {
    CUmodule module;
    struct flw_kernel *kernel; /* NULL: no twin */
    char *name;
    int max_dynamic_shared_bytes, carveout; /* attributes that a program can set */
};

/* module.c; NULL: no such function. */
struct flw_function *flw_function_find(CUfunction handle);
void flw_module_finish_all(void);

/* NULL: no twin of this name. */
struct flw_kernel *flw_kernel_find(const char *name);
CUresult flw_kernel_run(struct flw_stream *stream, const struct flw_work *work, uint64_t sequence,
                        const struct flw_order_clock *clock);
/* Copy the parameters, so that the launch may run later. */
void flw_kernel_copy_parameters(struct flw_work *work);

#endif
