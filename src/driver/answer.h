/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the driver's answers that mean one thing to everybody who asks about a stream, an event or a
 * context. Does not: say what follows from them.
 */
#ifndef FLW_DRIVER_ANSWER_H
#define FLW_DRIVER_ANSWER_H

#include <stdbool.h>

#include "driver/driver_types.h"

/* A capture's answer: the call is not to be made now. */
static inline bool flw_result_is_capture_refusal(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* A handle or a context that is not there any more. */
static inline bool flw_result_is_gone(CUresult result)
{
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
           result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_VALUE;
}

#endif
