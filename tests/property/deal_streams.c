/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace distributed over several streams: the streams allocate alternately, a sixtieth of
 * the events each, and a block is freed on the stream. No recording has more than one busy stream;
 * this one resembles phases on separate streams. The recorded allocator's segments and phases are
 * dropped.
 *
 *   deal_streams TRACE STREAMS OUT.ftext */
#include <stdio.h>
#include <stdlib.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#define TURNS       60
#define STREAMS_MAX 16

static void deal(struct flw_trace *trace, size_t streams)
{
    size_t turn = trace->event_count / TURNS + 1, kept = 0, next_block = trace->initial_count;
    for (size_t i = 0; i < trace->initial_count; i++) {
        trace->blocks[i].stream = (uint16_t)(i % streams);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        struct flw_trace_event event = trace->events[i];
        if (event.op == FLW_TRACE_ALLOC) {
            trace->blocks[next_block++].stream = (uint16_t)(i / turn % streams);
        }
        if (event.op == FLW_TRACE_ALLOC || event.op == FLW_TRACE_FREE) {
            event.stream = trace->blocks[event.block].stream;
            trace->events[kept++] = event;
        }
    }
    trace->event_count = kept;
    trace->segment_count = trace->detail_count = trace->context_count = trace->names.count = 0;
    trace->has_segments = false;
    trace->recorded_peak_reserved_bytes = trace->recorded_initial_reserved_bytes = 0;
    trace->recorded_segment_calls = 0;
}

int main(int argc, char **argv)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    size_t streams = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    if (streams == 0 || streams > STREAMS_MAX) {
        fprintf(stderr, "usage: deal_streams TRACE STREAMS OUT.ftext (1 to %d streams)\n",
                STREAMS_MAX);
        return 2;
    }
    if (!flw_trace_read(argv[1], -1, &trace, message)) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    static uint64_t handles[STREAMS_MAX];
    uint64_t *recorded = trace->streams;
    size_t recorded_count = trace->stream_count;
    for (size_t i = 0; i < streams; i++) {
        handles[i] = i;
    }
    deal(trace, streams);
    trace->streams = handles;
    trace->stream_count = streams;
    bool is_written = flw_trace_write(trace, "text", argv[3], message);
    if (!is_written) {
        fprintf(stderr, "%s\n", message);
    }
    trace->streams = recorded;
    trace->stream_count = recorded_count;
    flw_trace_destroy(trace);
    return is_written ? 0 : 1;
}
