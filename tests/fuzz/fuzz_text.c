/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fuzz target of the text readers.
 */
#include "fuzz_text_twin.h"
#include "trace/formats/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    if (!flw_trace_read_bytes(bytes, count, "fuzz", -1, &trace, message)) {
        fuzz_check_refusal(trace, message);
        return 0;
    }
    bool is_plain = strcmp(trace->format, "text") == 0 && bytes[0] == '#'; /* else .xz */
    fuzz_check_trace(trace, is_plain ? bytes : NULL, count);
    fuzz_check_exports(trace);
    flw_trace_destroy(trace);
    return 0;
}
