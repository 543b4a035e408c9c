/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the frame around driver calls. Inside, a context is current and the thread's capture mode
 * is relaxed, so that calls neither fail during another thread's capture nor end the capture.
 * Afterwards the thread has the previous context and mode.
 * Does not: decide which calls to make, or interpret their results.
 *
 * Sections nest. A section inside another of the same driver and context opens nothing that is
 * open, so a caller with several sections *holds* one around them. A hold costs nothing until a
 * section inside opens a part, which then stays open until the end of the hold. A section on its
 * own costs a query of the current context, a push and a pop if another context is current, and
 * two changes of the mode; parts that are not requested cost nothing.
 *
 * The caller's code (a log function, a callback) runs outside all sections: see flw_section_pause. */
#ifndef FLW_DRIVER_SECTION_H
#define FLW_DRIVER_SECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"

/* Parts of a section. */
enum flw_section_parts {
    FLW_SECTION_CONTEXT = 1, /* the context is current */
    FLW_SECTION_MODE = 2,    /* the thread's capture mode is relaxed */
    FLW_SECTION_BOTH = 3
};

/* On the stack of the thread that opened it. A thread's sections are a chain: the last one opened
 * is closed first. */
struct flw_driver_section {
    const struct flw_driver *driver;
    CUcontext context;                /* NULL: the current one, or none */
    _Atomic uint64_t *counter;        /* counter of driver calls; NULL: not counted */
    struct flw_driver_section *outer; /* enclosing section, of any driver; NULL: none */
    CUstreamCaptureMode mode;         /* the thread's previous mode, if FLW_SECTION_MODE is in
                                          opened */
    unsigned opened;                  /* parts that this section opened and will close */
    bool is_pushed; /* if FLW_SECTION_CONTEXT is in opened; otherwise the context was current */
    CUresult lost;  /* a pause could not enter the section again: the result of
                       flw_section_close */
    const char *refused; /* after a failed flw_section_open: the failed call */
};

/* Open the given parts unless they are open, until flw_section_close. Makes driver calls. After an
 * error the thread is as before and there is nothing to close. Context NULL makes no context
 * current, for calls before a context exists; the mode then stays unchanged if the driver needs a
 * context for the change. */
CUresult flw_section_open(struct flw_driver_section *section, const struct flw_driver *driver,
                          CUcontext context, enum flw_section_parts parts,
                          _Atomic uint64_t *counter);

/* After a call that needs no context failed because of the context: make this context current, if
 * another one was. Returns true if the call should be repeated and the section closed; false if
 * there is nothing to close. Makes driver calls. */
bool flw_section_open_elsewhere(struct flw_driver_section *section, const struct flw_driver *driver,
                                CUcontext context, _Atomic uint64_t *counter);

/* As flw_section_open, for sections opened inside; makes no call itself. The driver's table must
 * not move until flw_section_close. */
void flw_section_hold(struct flw_driver_section *section, const struct flw_driver *driver,
                      CUcontext context, _Atomic uint64_t *counter);

/* Close the section, with driver calls for the parts that it opened. After an error the thread may
 * have changed. */
CUresult flw_section_close(struct flw_driver_section *section);

/* Leave every section of this thread, to call the caller's code, and enter all of them again at
 * the end. Makes driver calls. NULL: the thread was in none. flw_section_close returns the error
 * of a section that cannot be entered again. */
struct flw_driver_section *flw_section_pause(void);
void flw_section_resume(struct flw_driver_section *paused);

#endif
