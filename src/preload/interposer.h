/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: detection of another interposer of the same entry points. If two answer for one
 * allocation, each knows half of it, so Fallow switches itself off with one line that names the
 * other.
 * Does not: object to an interposer of other names: calls go through it. */
#ifndef FLW_PRELOAD_INTERPOSER_H
#define FLW_PRELOAD_INTERPOSER_H

/* Check once, when the driver is found and the thread is inside. */
void flw_interposer_check(void *driver);

#endif
