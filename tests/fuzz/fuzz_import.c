/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fuzz target of every reader that imports, and of packed input; the corpus leads the way.
 */
#include "fuzz_text_twin.h"
#include "trace/formats/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    for (int device = -1; device < 2; device++) {
        struct flw_trace *trace;
        if (flw_trace_read_bytes(bytes, count, "fuzz", device, &trace, message)) {
            fuzz_check_trace(trace, NULL, 0);
            fuzz_check_exports(trace);
            flw_trace_destroy(trace);
        } else {
            fuzz_check_refusal(trace, message);
        }
    }
    return 0;
}
