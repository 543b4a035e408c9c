/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recordings of our own pools, in the modes cache and strict: each pool's recorder from the
 * allocation on that made it, in a file named as the tracer names them (tracer.h). A device's second
 * context has its own: run.2.ftrace.
 * Does not: record what passes the pools by, such as stream-ordered or managed memory; mode trace does.
 */
#ifndef FLW_PRELOAD_POOL_TRACE_H
#define FLW_PRELOAD_POOL_TRACE_H

/* Once, before main. */
void flw_pool_trace_begin(void);
/* The process ends: the files get their ends. No driver call. */
void flw_pool_trace_finish(void);
/* In the child of a fork: they are the parent's. */
void flw_pool_trace_forget(void);

#endif
