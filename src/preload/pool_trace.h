/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recordings of our own pools, in the modes cache and strict: each pool's recorder
 * starts in the allocation that created the pool, in a file named as the tracer's (tracer.h). A
 * device's second context has its own: run.2.ftrace.
 * Does not: record memory that bypasses the pools, such as stream-ordered or managed memory; mode
 * trace does. */
#ifndef FLW_PRELOAD_POOL_TRACE_H
#define FLW_PRELOAD_POOL_TRACE_H

/* Call once, before main. */
void flw_pool_trace_begin(void);
/* At process exit: end the files. Makes no driver call. */
void flw_pool_trace_finish(void);
/* In the child of a fork: the files are the parent's. */
void flw_pool_trace_forget(void);

#endif
