/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the driver's answers mean: one table for everybody who calls it. Does not: say what follows
 * from a meaning. Numbers, not the driver's names: a toolkit may be older than an answer, and kernel
 * modules have no toolkit.
 *
 * An answer is a refusal unless cuda.h says more of it: the call has failed, device, context and memory
 * are as they were. GONE are those alone of which cuda.h says that the process must be terminated, that
 * the context must be destroyed or has been, or that the driver shuts down. (Of the uncorrectable errors
 * 214 and 220 it does not: where such a one lasts, the driver refuses every call by that name.)
 * `check.answers` compares the table with the toolkit's comments.
 */
#ifndef FLW_DRIVER_ANSWER_H
#define FLW_DRIVER_ANSWER_H

#include <stdbool.h>

#include "fallow/status.h"

enum flw_answer {
    FLW_ANSWER_OK,
    FLW_ANSWER_NOT_READY, /* the work asked for is under way */
    FLW_ANSWER_NO_MEMORY,
    FLW_ANSWER_CAPTURING, /* a capture forbids the call, now and here */
    FLW_ANSWER_STALE,     /* the handle that was named names nothing any more */
    FLW_ANSWER_GONE,      /* the context or the device, with all that was in it */
    FLW_ANSWER_REFUSED
};

/* X(number, name, meaning) for every answer that is more than a refusal. */
/* clang-format off */
#define FLW_ANSWERS(X) \
    X(0, SUCCESS, OK) \
    X(2, ERROR_OUT_OF_MEMORY, NO_MEMORY) \
    X(4, ERROR_DEINITIALIZED, GONE) \
    X(201, ERROR_INVALID_CONTEXT, GONE) \
    X(226, ERROR_CONTAINED, GONE) \
    X(400, ERROR_INVALID_HANDLE, STALE) \
    X(600, ERROR_NOT_READY, NOT_READY) \
    X(700, ERROR_ILLEGAL_ADDRESS, GONE) \
    X(702, ERROR_LAUNCH_TIMEOUT, GONE) \
    X(709, ERROR_CONTEXT_IS_DESTROYED, GONE) \
    X(710, ERROR_ASSERT, GONE) \
    X(714, ERROR_HARDWARE_STACK_ERROR, GONE) \
    X(715, ERROR_ILLEGAL_INSTRUCTION, GONE) \
    X(716, ERROR_MISALIGNED_ADDRESS, GONE) \
    X(717, ERROR_INVALID_ADDRESS_SPACE, GONE) \
    X(718, ERROR_INVALID_PC, GONE) \
    X(719, ERROR_LAUNCH_FAILED, GONE) \
    X(721, ERROR_TENSOR_MEMORY_LEAK, GONE) \
    X(810, ERROR_MPS_CLIENT_TERMINATED, GONE) \
    X(900, ERROR_STREAM_CAPTURE_UNSUPPORTED, CAPTURING) \
    X(901, ERROR_STREAM_CAPTURE_INVALIDATED, CAPTURING) \
    X(902, ERROR_STREAM_CAPTURE_MERGE, CAPTURING) \
    X(903, ERROR_STREAM_CAPTURE_UNMATCHED, CAPTURING) \
    X(904, ERROR_STREAM_CAPTURE_UNJOINED, CAPTURING) \
    X(905, ERROR_STREAM_CAPTURE_ISOLATION, CAPTURING) \
    X(906, ERROR_STREAM_CAPTURE_IMPLICIT, CAPTURING) \
    X(907, ERROR_CAPTURED_EVENT, CAPTURING) \
    X(908, ERROR_STREAM_CAPTURE_WRONG_THREAD, CAPTURING) \
    X(911, ERROR_EXTERNAL_DEVICE, GONE)
/* clang-format on */

static inline enum flw_answer flw_answer_of(int result)
{
    switch (result) {
#define X(number, name, meaning) \
    case number:                 \
        return FLW_ANSWER_##meaning;
        FLW_ANSWERS(X)
#undef X
    default:
        return FLW_ANSWER_REFUSED;
    }
}

static inline bool flw_result_is_capture_refusal(int result)
{
    return flw_answer_of(result) == FLW_ANSWER_CAPTURING;
}

static inline bool flw_result_is_gone(int result)
{
    return flw_answer_of(result) == FLW_ANSWER_GONE;
}

/* A stream, an event or a context is named that is not there any more. Of the pool's own context, and
 * of events in it, that says that the device is lost; of anybody else's, that its work is over. */
static inline bool flw_result_is_stale(int result)
{
    return flw_answer_of(result) == FLW_ANSWER_STALE || result == 201 || result == 709;
}

/* What a call answers that the driver kept from its end, for nothing that was stale. */
static inline fallow_status flw_answer_status(int result)
{
    switch (flw_answer_of(result)) {
    case FLW_ANSWER_OK:
        return FALLOW_OK;
    case FLW_ANSWER_NO_MEMORY:
        return FALLOW_OUT_OF_MEMORY;
    case FLW_ANSWER_CAPTURING:
        return FALLOW_CAPTURING;
    case FLW_ANSWER_GONE:
        return FALLOW_DEVICE_LOST;
    default:
        return result == 801 ? FALLOW_NOT_SUPPORTED : FALLOW_DRIVER;
    }
}

#endif
