/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading MiniMalloc's eleven published problems: blocks and their largest live sum, which
 * another program counted. All fit 1 MiB, and no less for eight of them. Exits 77 where they are
 * absent.
 * Usage: test_trace_minimalloc_shared FOLDER
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/trace.h"

#define MIB (UINT64_C(1) << 20)

static const struct {
    char name;
    size_t blocks;
    uint64_t peak_bytes;
} problems[] = {
    {'A', 154, MIB}, {'B', 170, MIB},    {'C', 203, 1039360}, {'D', 213, 986112},
    {'E', 215, MIB}, {'F', 296, MIB},    {'G', 308, MIB},     {'H', 316, MIB},
    {'I', 374, MIB}, {'J', 409, 989184}, {'K', 454, MIB},
};

int main(int argc, char **argv)
{
    int failures = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: test_trace_minimalloc_shared FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        char path[4096];
        char message[FLW_TRACE_MESSAGE_BYTES];
        struct flw_trace *trace;
        snprintf(path, sizeof(path), "%s/minimalloc/%c.1048576.csv", argv[1], problems[i].name);
        if (!flw_trace_read(path, -1, &trace, message)) {
            bool is_absent = strstr(message, "No such file") != NULL;
            printf("%s%s\n", is_absent ? "skipped: " : "", message);
            return is_absent ? 77 : 1;
        }
        bool is_right = flw_trace_is_valid(trace) && trace->block_count == problems[i].blocks &&
                        trace->event_count == 2 * problems[i].blocks &&
                        trace->peak_requested_bytes == problems[i].peak_bytes &&
                        trace->peak_requested_bytes <= MIB;
        printf("%c: %zu blocks, at most %" PRIu64 " bytes live%s\n", problems[i].name,
               trace->block_count, trace->peak_requested_bytes, is_right ? "" : ": wrong");
        failures += !is_right;
        flw_trace_destroy(trace);
    }
    return failures == 0 ? 0 : 1;
}
