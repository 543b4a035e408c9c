/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines that the preload library says on stderr: "fallow: ...", whole, by one write.
 * Does not: use stdio's streams or any memory: it may be called from anywhere, at any time.
 */
#ifndef FLW_PRELOAD_SAY_H
#define FLW_PRELOAD_SAY_H

/* One line; cut at 1,000 bytes; errno is kept. */
__attribute__((format(printf, 1, 2))) void flw_say(const char *format, ...);

#endif
