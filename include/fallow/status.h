/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Every status that a Fallow call can return. The enum, the names and the messages are generated from
 * one list. Values never change; new ones are appended.
 *
 *  - 1 to 19: the caller's mistake; change the call.
 *  - 20 to 39: no room, or not now; free memory, wait or retry.
 *  - 40 to 59: the machine lacks something.
 *  - 60 and above: the device or its context is gone.
 */
#ifndef FALLOW_STATUS_H
#define FALLOW_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/** Mark an exported function. Define FALLOW_STATIC only to compile Fallow's sources into a program that
 *  exports none of them; programs that link libfallow.a or libfallow.so must not define it. */
#if defined(FALLOW_STATIC)
#define FALLOW_API
#else
#define FALLOW_API __attribute__((visibility("default")))
#endif
/** Mark a function whose status must be checked. */
#define FALLOW_NODISCARD __attribute__((warn_unused_result))

/* clang-format off */
/** X(name, value, sentence) for each status. */
#define FALLOW_STATUS_LIST(X) \
    X(OK, 0, "success") \
    X(INVALID_ARGUMENT, 1, "an argument is out of range; nothing was changed") \
    X(INVALID_POINTER, 2, "the pointer is not a live block of this pool (foreign, interior or freed twice); nothing was changed") \
    X(INVALID_POOL, 3, "the handle is not a pool, or the pool was destroyed") \
    X(INVALID_STREAM, 4, "the stream was retired or destroyed") \
    X(INVALID_CAPTURE, 5, "the handle is not a capture, or the capture was ended or released") \
    X(CAPTURING, 6, "the stream is being captured without an announcement; call fallow_capture_begin first") \
    X(BUSY, 7, "the object is in use; end that use first") \
    X(INVALID_RECORDER, 8, "the handle is not a recorder, or the recorder was stopped") \
    X(OUT_OF_MEMORY, 20, "no device memory within the limit; fallow_pool_get_oom_report explains why") \
    X(OUT_OF_HOST_MEMORY, 21, "the host refused memory for the pool's tables") \
    X(TIMEOUT, 22, "the deadline passed before the device's work was complete") \
    X(WOULD_WAIT, 23, "the request would have to wait and forbids waiting") \
    X(OUT_OF_PINNED_MEMORY, 24, "no pinned host memory within the limit; fallow_host_last_error explains what to do") \
    X(ASLEEP, 25, "the pool is asleep; call fallow_pool_wake first") \
    X(RECORDS_LOST, 26, "the recording ended and lacks events; the log has their number and how to avoid the loss") \
    X(OVER_BUDGET, 27, "the arena's budget is too small; raise the budget or use less; fallow_arena_last_error has both numbers") \
    X(NOT_FOUND, 40, "a library, device or file was not found") \
    X(VERSION, 41, "this library does not support the version of the driver or of the caller's header") \
    X(NOT_SUPPORTED, 42, "the device or driver lacks the feature") \
    X(DRIVER, 43, "the CUDA driver refused a call; see fallow_pool_last_driver_error") \
    X(IO, 44, "a file could not be written; the log has its name and the reason") \
    X(DEVICE_LOST, 60, "the device or its context is gone; frees succeed and do nothing, destroy the pool")
/* clang-format on */

/** The statuses of FALLOW_STATUS_LIST. */
typedef enum fallow_status {
#define X(name, value, text) FALLOW_##name = value,
    FALLOW_STATUS_LIST(X)
#undef X
} fallow_status;

/** Return the name, such as "FALLOW_OUT_OF_MEMORY"; "FALLOW_UNKNOWN" for other values. Static storage. */
FALLOW_API const char *fallow_status_name(fallow_status status);

/** Return a sentence that explains the status. Static storage. */
FALLOW_API const char *fallow_status_message(fallow_status status);

#ifdef __cplusplus
}
#endif

#endif
