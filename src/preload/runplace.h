/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: this process's place in the page of `fallow run` (runpage.h), if there is one.
 * Does not: create the page. */
#ifndef FLW_PRELOAD_RUNPLACE_H
#define FLW_PRELOAD_RUNPLACE_H

#include "preload/runpage.h"

/* Call at the start, after the settings, valid or not. */
void flw_runplace_join(void);
/* In the child of a fork: take a place of its own. */
void flw_runplace_renew(void);
/* At the end: record how far the hooks came. */
void flw_runplace_leave(void);

void flw_runplace_say(enum flw_runpage_flag flag);

/* Return the place; NULL: none. */
struct flw_runpage_place *flw_runplace_here(void);
struct flw_runpage *flw_runplace_page(void);

#endif
