/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: noticing another interposer of the same entry points. Two that answer for one allocation
 * would each believe in half of it, so Fallow goes off, with one line that names the other.
 * Does not: mind an interposer of other names: calls go through it.
 */
#ifndef FLW_PRELOAD_RIVAL_H
#define FLW_PRELOAD_RIVAL_H

/* Look once, when the driver is learnt and the thread is inside. */
void flw_rival_look(void *driver);

#endif
