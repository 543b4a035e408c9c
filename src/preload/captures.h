/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which streams are being captured, by identity: the count that holds epochs back must come down
 * however a capture ends. Does not: wrap an entry point, or make the calls that begin and end one.
 */
#ifndef FLW_PRELOAD_CAPTURES_H
#define FLW_PRELOAD_CAPTURES_H

#include <stdbool.h>

#include "driver/driver_types.h"

/* Around the driver call that begins the capture of a stream (a twin's NULL already replaced by
 * CU_STREAM_PER_THREAD). */
void flw_captured_begin(void);
CUresult flw_captured_begun(CUstream stream, CUresult result);
/* The name of a stream, for flw_captured_over; 0: unknown. Before the call that may end it. */
unsigned long long flw_captured_name(CUstream stream);
/* That stream's capture is over; nothing where it was not captured. */
void flw_captured_over(unsigned long long name);
/* Those of a context that has ended (its home's id). */
void flw_captured_forget(unsigned long long context_id);
void flw_captured_child(void); /* of a fork */

#endif
