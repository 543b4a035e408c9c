/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fuzz target of the reader of requests, which generators take lengths and arrivals from.
 */
#include "fuzz_text_twin.h"

#include "trace/gen/requests.h"

static void check(const struct flw_requests *requests)
{
    uint64_t last_us = 0;
    fuzz_require(requests->count > 0, "an accepted file holds no request");
    for (size_t i = 0; i < requests->count; i++) {
        const struct flw_request *request = &requests->items[i];
        fuzz_require(request->arrival_us >= last_us, "arrivals fall");
        fuzz_require(request->arrival_us <= UINT64_C(1) << 50, "an arrival is out of range");
        fuzz_require(request->prompt >= 1 && request->prompt <= FLW_REQUEST_TOKENS_MAX,
                     "a prompt is out of range");
        fuzz_require(request->output >= 1 && request->output <= FLW_REQUEST_TOKENS_MAX,
                     "an output is out of range");
        fuzz_require(request->known < request->prompt, "all of a prompt is known");
        last_us = request->arrival_us;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_requests requests;
    if (flw_requests_read_bytes((const char *)bytes, count, "fuzz", &requests, message)) {
        check(&requests);
        flw_requests_finish(&requests);
    } else {
        fuzz_require(requests.items == NULL && requests.count == 0, "a refused file left requests");
        fuzz_check_refusal(NULL, message);
    }
    return 0;
}
