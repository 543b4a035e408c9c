/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: this process's place in the page of `fallow run` (runpage.h), where there is one.
 * Does not: make the page.
 */
#ifndef FLW_PRELOAD_RUNPLACE_H
#define FLW_PRELOAD_RUNPLACE_H

#include "preload/runpage.h"

/* At the start, after the settings; they need not be good ones. */
void flw_runplace_join(void);
/* In the child of a fork: a place of its own. */
void flw_runplace_renew(void);
/* At the end: how far the hooks came. */
void flw_runplace_leave(void);

void flw_runplace_say(enum flw_runpage_flag flag);

/* NULL: there is none. */
struct flw_runpage_place *flw_runplace_here(void);
struct flw_runpage *flw_runplace_page(void);

#endif
