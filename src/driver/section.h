/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the frame around driver calls. Inside it a context is current, and the thread's capture mode is
 * relaxed, so that what is called neither fails under nor ends anybody's capture. After it the thread is
 * as it was.
 * Does not: know why calls are made, or what follows from their answers.
 *
 * Sections nest. One inside another of the same driver and context opens nothing that is open, so whoever
 * knows that several may follow *holds* the section around them all. A hold costs nothing until a section
 * is opened inside of it; what that opened then stays open to the hold's end. Alone, a section costs a
 * question for the current context, a push and a pop where that is another one, and two exchanges of the
 * mode; what it does not ask for it does not pay.
 *
 * The caller's code (a log function, a callback) runs in no section: see flw_section_pause.
 */
#ifndef FLW_DRIVER_SECTION_H
#define FLW_DRIVER_SECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"

/* What calls need. */
enum flw_section_parts {
    FLW_SECTION_CONTEXT = 1, /* the context is current */
    FLW_SECTION_MODE = 2,    /* the thread's capture mode is relaxed */
    FLW_SECTION_BOTH = 3
};

/* On the stack of the thread that opened it, which keeps them in a chain: the last one opened is the first
 * to be closed. */
struct flw_driver_section {
    const struct flw_driver *driver;
    CUcontext context;                /* NULL: whichever is current, or none */
    _Atomic uint64_t *counter;        /* of driver calls about to be made; NULL: not counted */
    struct flw_driver_section *outer; /* the section around it, of whatever driver; NULL: none */
    CUstreamCaptureMode mode;         /* the thread's before, with FLW_SECTION_MODE in opened */
    unsigned opened; /* flw_section_parts: open since this section, which closes them */
    bool is_pushed;  /* with FLW_SECTION_CONTEXT in opened; else the context was current */
    CUresult lost; /* after a pause it could not be entered again: what flw_section_close answers */
    const char *refused; /* after an error of flw_section_open: the call that answered it */
};

/* Driver calls. Open what is not open of these parts, until flw_section_close. Where that fails the thread
 * is as before, and there is nothing to close. With context NULL nothing is made current, and the mode
 * stays where the driver does not change it without a context: for what is called before there is one. */
CUresult flw_section_open(struct flw_driver_section *section, const struct flw_driver *driver,
                          CUcontext context, enum flw_section_parts parts,
                          _Atomic uint64_t *counter);

/* Driver calls. For a call that needs no context, where its answer tells of one: was another context than this
 * one current? Then FLW_SECTION_CONTEXT is open, and the call worth another try. False: there is nothing to
 * close. */
bool flw_section_open_elsewhere(struct flw_driver_section *section, const struct flw_driver *driver,
                                CUcontext context, _Atomic uint64_t *counter);

/* As flw_section_open, for whatever is opened inside; by itself it makes no call. The driver's table stays
 * where it is until flw_section_close. */
void flw_section_hold(struct flw_driver_section *section, const struct flw_driver *driver,
                      CUcontext context, _Atomic uint64_t *counter);

/* Driver calls, where this section opened something. An error: the thread may not be as it was. */
CUresult flw_section_close(struct flw_driver_section *section);

/* Driver calls. Leave every section of this thread, for a call of the caller's code, and enter them
 * again; one that cannot be answers so at its end. NULL: the thread was in none. */
struct flw_driver_section *flw_section_pause(void);
void flw_section_resume(struct flw_driver_section *paused);

#endif
