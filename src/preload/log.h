/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines of the preload library on stderr: "fallow: ...", each by one write.
 * Does not: use stdio or allocate: may be called anywhere, at any time. */
#ifndef FLW_PRELOAD_LOG_H
#define FLW_PRELOAD_LOG_H

/* Write one line, cut at 1,000 bytes; errno is kept. */
__attribute__((format(printf, 1, 2))) void flw_log_line(const char *format, ...);

#endif
