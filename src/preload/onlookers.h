/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: whether `fallow top` sees this process (the setting top).
 * Does not: collect or publish anything: that is publish/.
 */
#ifndef FLW_PRELOAD_ONLOOKERS_H
#define FLW_PRELOAD_ONLOOKERS_H

/* The driver is used for the first time: show the pools that come, where the settings say so. What
 * goes wrong is one line, and the program goes on. */
void flw_onlookers_admit(void);

#endif
