/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the way of tests that look at every recorded trace there is: what cannot be read, or is not there, is
 * left out and named; without any trace the test was skipped. Each has a file of its own to write to.
 */
#ifndef FLW_TESTS_UNIT_EACH_TRACE_H
#define FLW_TESTS_UNIT_EACH_TRACE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

/* Counts what differs; the number of all. The exit code. */
static inline int flw_each_trace(int argc, char **argv,
                                 int (*check)(const struct flw_trace *trace, const char *path))
{
    char path[] = "/tmp/fallow_trace_XXXXXX";
    int fd = mkstemp(path), count = 0, differences = 0;
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    for (int i = 1; i < argc; i++) {
        char message[FLW_TRACE_MESSAGE_BYTES];
        struct flw_trace *trace;
        if (!flw_trace_read(argv[i], -1, &trace, message)) {
            printf("left out: %s\n", message);
            continue;
        }
        count++;
        differences += check(trace, path);
        flw_trace_destroy(trace);
    }
    unlink(path);
    printf("%d traces, %d differences\n", count, differences);
    return differences > 0 ? 1 : count == 0 ? 77 : 0;
}

#endif
