/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the set of captured streams, by identity: the count that delays epochs must decrease
 * however a capture ends. Does not: wrap an entry point, or make the calls that begin and end a
 * capture. */
#ifndef FLW_PRELOAD_CAPTURES_H
#define FLW_PRELOAD_CAPTURES_H

#include <stdbool.h>

#include "driver/driver_types.h"

/* Call around the driver call that begins the capture of a stream (with a twin's NULL replaced by
 * CU_STREAM_PER_THREAD). */
void flw_captured_begin(void);
CUresult flw_captured_begun(CUstream stream, CUresult result);
/* Return the id of a stream for flw_captured_over, before the call that may end the stream; 0:
 * unknown. */
unsigned long long flw_captured_name(CUstream stream);
/* Record the end of that stream's capture; nothing if it was not captured. */
void flw_captured_over(unsigned long long name);
/* The same for all streams of a context that has ended (the id of the home). */
void flw_captured_forget(unsigned long long context_id);
void flw_captured_child(void); /* of a fork */

#endif
