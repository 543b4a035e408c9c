/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Every status that a Fallow call can return, once: the enum, the names and the sentences are made
 * from this list. Values are pinned and only ever appended to.
 *
 * What to do:  1..19 the caller's mistake, change the call · 20..39 no room or not now, free, wait
 * or retry · 40..59 the machine lacks something · 60.. the device or its context is gone.
 */
#ifndef FALLOW_STATUS_H
#define FALLOW_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/** Marks what the library exports. FALLOW_STATIC is for a build that compiles Fallow's sources into a program of its own: there no name is
 * to be seen from outside. Who links libfallow.a, or the shared library, leaves it alone. */
#if defined(FALLOW_STATIC)
#define FALLOW_API
#else
#define FALLOW_API __attribute__((visibility("default")))
#endif
/** Marks a call whose status must be looked at. */
#define FALLOW_NODISCARD __attribute__((warn_unused_result))

/* clang-format off */
/** X(name, value, sentence) for each status. */
#define FALLOW_STATUS_LIST(X) \
    X(OK, 0, "success") \
    X(INVALID_ARGUMENT, 1, "an argument is outside what the call accepts; nothing was changed") \
    X(INVALID_POINTER, 2, "the pointer is no live block of this pool (foreign, interior or freed twice); nothing was changed") \
    X(INVALID_POOL, 3, "the pool was destroyed or never was one") \
    X(INVALID_STREAM, 4, "the stream was retired or destroyed") \
    X(INVALID_CAPTURE, 5, "the capture has ended, was released or never was one") \
    X(CAPTURING, 6, "the stream is being captured and the pool was not told; call fallow_capture_begin") \
    X(BUSY, 7, "the object is in use; end that use first") \
    X(INVALID_RECORDER, 8, "the recorder has been stopped or never was one") \
    X(OUT_OF_MEMORY, 20, "no device memory within the limit; fallow_pool_get_oom_report tells why") \
    X(OUT_OF_HOST_MEMORY, 21, "the host refused memory for the pool's tables") \
    X(TIMEOUT, 22, "the deadline passed before the work was done") \
    X(WOULD_WAIT, 23, "only possible by waiting, and the request forbids it") \
    X(OUT_OF_PINNED_MEMORY, 24, "no pinned host memory within the limit; fallow_host_last_error says what to do") \
    X(ASLEEP, 25, "the pool is asleep; fallow_pool_wake comes first") \
    X(RECORDS_LOST, 26, "the recording has ended and lacks events; the log says how many and what loses none") \
    X(OVER_BUDGET, 27, "the arena may not take that much; raise its budget or use less; fallow_arena_last_error names both") \
    X(NOT_FOUND, 40, "a library, device or file was not found") \
    X(VERSION, 41, "the driver or the caller's header is of a version this library does not serve") \
    X(NOT_SUPPORTED, 42, "the device or driver lacks the feature") \
    X(DRIVER, 43, "the CUDA driver refused a call; fallow_pool_last_driver_error names it") \
    X(IO, 44, "a file could not be written; the log names it and says why") \
    X(DEVICE_LOST, 60, "the device or its context is gone; frees succeed and do nothing, destroy the pool")
/* clang-format on */

/** FALLOW_ and a name of FALLOW_STATUS_LIST. */
typedef enum fallow_status {
#define X(name, value, text) FALLOW_##name = value,
    FALLOW_STATUS_LIST(X)
#undef X
} fallow_status;

/** "FALLOW_OUT_OF_MEMORY"; "FALLOW_UNKNOWN" for a value that no version has. Static storage. */
FALLOW_API const char *fallow_status_name(fallow_status status);

/** One sentence that says what happened. Static storage. */
FALLOW_API const char *fallow_status_message(fallow_status status);

#ifdef __cplusplus
}
#endif

#endif
