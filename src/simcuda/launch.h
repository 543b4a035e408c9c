/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: kernels: the C twins registered under kernels' names, and running one as an operation.
 * Independent of the computation of a twin.
 * Synchronization: the world's lock; a twin runs under it. */
#ifndef FLW_SIMCUDA_LAUNCH_H
#define FLW_SIMCUDA_LAUNCH_H

#include "simcuda/order.h"

CUresult flw_kernel_run(struct flw_stream *stream, const struct flw_work *work, uint64_t sequence,
                        const struct flw_order_clock *clock);
/* Copy the parameters, so that the launch may run later. */
void flw_kernel_copy_parameters(struct flw_work *work);

void flw_kernel_finish_all(void);

#endif
