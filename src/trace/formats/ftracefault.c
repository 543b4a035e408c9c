/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the first fault found in reading a .ftrace.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "trace/formats/ftracereader.h"

bool flw_ftracereader_stop(struct flw_ftracereader *r, const char *format, ...)
{
    if (r->problem[0] == '\0') {
        char text[FLW_TRACE_MESSAGE_BYTES / 2];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        snprintf(r->problem, sizeof(r->problem), "byte %" PRIu64 ": %s", r->offset, text);
        r->problem_event = r->event_count;
    }
    return false;
}

bool flw_ftracereader_fail_memory(struct flw_ftracereader *r)
{
    r->lacks_memory = true;
    return flw_input_fail(r->input, r->offset, "no memory to hold the trace");
}
