/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/section.h"

#include <stddef.h>

#include "base/check.h"
#include "driver/answer.h"

/* The innermost section of this thread. Initial-exec: other models allocate on first use. */
static _Thread_local struct flw_driver_section *innermost
    __attribute__((tls_model("initial-exec")));

/* Tables are copied, so compare the entry points. */
static bool is_of_driver(const struct flw_driver_section *section, const struct flw_driver *driver)
{
    return section != NULL && section->driver->cuCtxPushCurrent_v2 == driver->cuCtxPushCurrent_v2;
}

/* Return the outermost enclosing section with the same driver and context, or this one: parts
 * opened there stay open longest. */
static struct flw_driver_section *keeper_of(struct flw_driver_section *section)
{
    while (is_of_driver(section->outer, section->driver) &&
           section->outer->context == section->context) {
        section = section->outer;
    }
    return section;
}

/* Return the nearest enclosing section that opened the part, or NULL. */
static const struct flw_driver_section *opener_around(const struct flw_driver_section *section,
                                                      enum flw_section_parts part)
{
    const struct flw_driver_section *outer = section->outer;
    while (is_of_driver(outer, section->driver) && (outer->opened & part) == 0) {
        outer = outer->outer;
    }
    return is_of_driver(outer, section->driver) ? outer : NULL;
}

/* Count a driver call that is about to be made. */
static void begin_call(struct flw_driver_section *section, const char *call)
{
    section->refused = call;
    if (section->counter != NULL) {
        atomic_fetch_add_explicit(section->counter, 1, memory_order_relaxed);
    }
}

/* ---- the two parts of the frame */

static CUresult make_current(struct flw_driver_section *section)
{
    const struct flw_driver_section *around = opener_around(section, FLW_SECTION_CONTEXT);
    CUcontext current = around != NULL ? around->context : NULL;
    CUresult result = CUDA_SUCCESS;
    if (around == NULL) {
        begin_call(section, "cuCtxGetCurrent");
        result = section->driver->cuCtxGetCurrent(&current);
    }
    if (result == CUDA_SUCCESS && current != section->context) {
        begin_call(section, "cuCtxPushCurrent");
        result = section->driver->cuCtxPushCurrent_v2(section->context);
        section->is_pushed = result == CUDA_SUCCESS;
    }
    section->opened |= result == CUDA_SUCCESS ? FLW_SECTION_CONTEXT : 0;
    return result;
}

static CUresult exchange_mode(struct flw_driver_section *section)
{
    begin_call(section, "cuThreadExchangeStreamCaptureMode");
    return section->driver->cuThreadExchangeStreamCaptureMode(&section->mode);
}

static CUresult relax(struct flw_driver_section *section)
{
    if (opener_around(section, FLW_SECTION_MODE) != NULL) {
        return CUDA_SUCCESS;
    }
    section->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = exchange_mode(section);
    if (flw_result_is_gone(result) && (section->opened & FLW_SECTION_CONTEXT) == 0) {
        if (section->context == NULL) {
            return result == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS
                                                        : result; /* no context, so no mode */
        }
        result = make_current(section);
        result = result == CUDA_SUCCESS ? exchange_mode(section) : result;
    }
    section->opened |= result == CUDA_SUCCESS ? FLW_SECTION_MODE : 0;
    return result;
}

static CUresult enter(struct flw_driver_section *section, unsigned parts)
{
    CUresult result = CUDA_SUCCESS;
    parts &= ~section->opened;
    if ((parts & FLW_SECTION_CONTEXT) != 0 && section->context != NULL) {
        result = make_current(section);
    }
    if (result == CUDA_SUCCESS && (parts & FLW_SECTION_MODE) != 0) {
        result = relax(section);
    }
    return result;
}

#define LEAVE_TRIES 3 /* retries, so that one refusal does not leave another context current */

static CUresult leave(struct flw_driver_section *section)
{
    CUresult result = CUDA_SUCCESS, pop = CUDA_SUCCESS;
    bool is_relaxed = (section->opened & FLW_SECTION_MODE) != 0 &&
                      section->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    for (unsigned n = 0; is_relaxed && n < LEAVE_TRIES; n++) {
        result = exchange_mode(section);
        is_relaxed = result != CUDA_SUCCESS;
    }
    for (unsigned n = 0; section->is_pushed && n < LEAVE_TRIES; n++) {
        CUcontext popped;
        const char *before = result != CUDA_SUCCESS ? section->refused : "cuCtxPopCurrent";
        begin_call(section, before);
        pop = section->driver->cuCtxPopCurrent_v2(&popped);
        section->is_pushed = pop != CUDA_SUCCESS;
    }
    section->opened = 0;
    section->is_pushed = false;
    return result != CUDA_SUCCESS ? result : pop;
}

/* ---- open, close */

void flw_section_hold(struct flw_driver_section *section, const struct flw_driver *driver,
                      CUcontext context, _Atomic uint64_t *counter)
{
    *section = (struct flw_driver_section){
        .driver = driver, .context = context, .counter = counter, .outer = innermost};
    innermost = section;
}

CUresult flw_section_open(struct flw_driver_section *section, const struct flw_driver *driver,
                          CUcontext context, enum flw_section_parts parts,
                          _Atomic uint64_t *counter)
{
    flw_section_hold(section, driver, context, counter);
    struct flw_driver_section *keeper = keeper_of(section);
    CUresult result = enter(keeper, parts);
    if (result != CUDA_SUCCESS) {
        const char *refused = keeper->refused;
        (void)flw_section_close(section); /* closes the parts opened on behalf of a hold */
        section->refused = refused;
    }
    return result;
}

bool flw_section_open_elsewhere(struct flw_driver_section *section, const struct flw_driver *driver,
                                CUcontext context, _Atomic uint64_t *counter)
{
    CUcontext current = NULL;
    if (counter != NULL) {
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    }
    bool is_elsewhere = driver->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context;
    return is_elsewhere &&
           flw_section_open(section, driver, context, FLW_SECTION_CONTEXT, counter) == CUDA_SUCCESS;
}

CUresult flw_section_close(struct flw_driver_section *section)
{
    FLW_ASSERT(innermost == section);
    innermost = section->outer;
    CUresult result =
        section->opened != 0 ? leave(section) : CUDA_SUCCESS; /* not opened: a hold, the usual
                                                                  case */
    return section->lost != CUDA_SUCCESS ? section->lost : result;
}

/* ---- the caller's code */

struct flw_driver_section *flw_section_pause(void)
{
    struct flw_driver_section *paused = innermost;
    for (struct flw_driver_section *section = paused; section != NULL; section = section->outer) {
        unsigned opened = section->opened;
        (void)leave(section);
        section->opened = opened; /* to be opened again */
    }
    innermost = NULL;
    return paused;
}

/* Enter outer sections first: an inner one does not open their parts. */
static void enter_again(struct flw_driver_section *section)
{
    if (section != NULL) {
        unsigned parts = section->opened;
        enter_again(section->outer);
        section->opened = 0;
        section->lost = enter(section, parts);
    }
}

void flw_section_resume(struct flw_driver_section *paused)
{
    enter_again(paused);
    innermost = paused;
}
