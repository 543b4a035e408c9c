/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fuzz target of the trace file's reader. Checksums would protect the inner parts from
 * every changed byte, so each input is also read with corrected checksums. */
#include "fuzz_text_twin.h"

#include "record/frame.h"
#include "trace/io/input.h"

static void check(const uint8_t *bytes, size_t count, bool reads_on)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_input input;
    struct flw_trace *trace = NULL;
    if (!flw_input_open_bytes(&input, bytes, count, "fuzz", message)) {
        fuzz_check_refusal(trace, message);
        return;
    }
    input.reads_on = reads_on;
    if (flw_trace_read_open(&input, -1, &trace)) {
        fuzz_check_trace(trace, NULL, 0);
        fuzz_check_exports(trace);
        flw_trace_destroy(trace);
    } else {
        fuzz_check_refusal(trace, message);
    }
    flw_input_close(&input);
}

static void put_crc(const struct flw_crc32c *crc, struct flw_wire_out to, const uint8_t *bytes,
                    size_t count)
{
    flw_wire_put_fixed(&to, flw_crc32c_add(crc, 0, bytes, count), 4);
}

/* Headers and payloads from the front; where one does not end within the input, the next "FTRC". */
static void put_checksums_right(uint8_t *bytes, size_t count)
{
    struct flw_crc32c crc;
    size_t at = FLW_FRAME_BYTES;
    flw_crc32c_init(&crc);
    if (count < FLW_FRAME_BYTES) {
        return;
    }
    memcpy(bytes, FLW_FTRACE_MAGIC, 8);
    put_crc(&crc, (struct flw_wire_out){bytes + FLW_FRAME_BYTES - 4}, bytes, FLW_FRAME_BYTES - 4);
    while (count - at >= FLW_FRAME_BYTES) {
        uint8_t *chunk = bytes + at;
        struct flw_wire_in in = {chunk + 8, chunk + 12};
        uint64_t payload_bytes;
        (void)flw_wire_get_fixed(&in, 4, &payload_bytes);
        if (memcmp(chunk, FLW_FTRACE_CHUNK_MAGIC, 4) != 0) {
            at++;
            continue;
        }
        if (payload_bytes > count - at - FLW_FRAME_BYTES) {
            payload_bytes = count - at - FLW_FRAME_BYTES;
            struct flw_wire_out to = {chunk + 8};
            flw_wire_put_fixed(&to, payload_bytes, 4);
        }
        put_crc(&crc, (struct flw_wire_out){chunk + FLW_FRAME_BYTES - 8}, chunk + FLW_FRAME_BYTES,
                payload_bytes);
        put_crc(&crc, (struct flw_wire_out){chunk + FLW_FRAME_BYTES - 4}, chunk,
                FLW_FRAME_BYTES - 4);
        at += FLW_FRAME_BYTES + payload_bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t *mended = malloc(count > 0 ? count : 1);
    fuzz_require(mended != NULL, "no memory for the input");
    memcpy(mended, bytes, count);
    put_checksums_right(mended, count);
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        check(bytes, count, goes_on == 1);
        check(mended, count, goes_on == 1);
    }
    free(mended);
    return 0;
}
