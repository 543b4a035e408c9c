/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the meaning of the driver's results, in one table for all callers. Does not: decide what
 * follows from a result. The table has numbers rather than the driver's names, because a toolkit
 * may be older than a result and kernel modules have no toolkit.
 *
 * A result without a further meaning in cuda.h is a refusal: the call has failed, and device,
 * context and memory are unchanged. GONE are only those results for which cuda.h requires that the
 * process be terminated or the context be destroyed, or reports that the context was destroyed or
 * that the driver shuts down. (This excludes the uncorrectable errors 214 and 220; if one of them
 * persists, the driver returns that error from every call.) `check.answers` compares the table
 * with the toolkit's comments. */
#ifndef FLW_DRIVER_ANSWER_H
#define FLW_DRIVER_ANSWER_H

#include <stdbool.h>

#include "fallow/status.h"

enum flw_answer {
    FLW_ANSWER_OK,
    FLW_ANSWER_NOT_READY, /* the queried work is not complete */
    FLW_ANSWER_NO_MEMORY,
    FLW_ANSWER_CAPTURING, /* a capture forbids the call now */
    FLW_ANSWER_STALE,     /* the handle refers to a destroyed object */
    FLW_ANSWER_GONE,      /* the context or the device is lost with all the contents */
    FLW_ANSWER_REFUSED
};

/* X(number, name, meaning) for every result that is more than a refusal. */
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

/* True if a stream, an event or a context of the call no longer exists. For the pool's own context
 * and events in it, this means that the device is lost; for others, that the work is over. */
static inline bool flw_result_is_stale(int result)
{
    return flw_answer_of(result) == FLW_ANSWER_STALE || result == 201 || result == 709;
}

/* Return the status of a call that the driver failed for a reason other than a stale handle. */
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
