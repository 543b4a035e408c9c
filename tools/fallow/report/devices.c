/* SPDX-License-Identifier: Apache-2.0 */
#include "report/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/io/output.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/options.h"

size_t flw_devices_list(const struct flw_trace *trace, int *out)
{
    int bytes = 0;
    size_t count = 0;
    const char *at = flw_notes_find_devices(trace->notes, &bytes);
    const char *end = at == NULL ? NULL : at + bytes;
    while (at < end && count < FLW_ANALYSIS_DEVICES) {
        char *after = NULL;
        long device = strtol(at, &after, 10);
        if (after == at) {
            break; /* "..." */
        }
        if (device != trace->device && device >= 0 && device <= INT_MAX) {
            out[count++] = (int)device;
        }
        at = after;
    }
    return count;
}

static void find_oom(const struct flw_trace *trace, struct flw_analysis_device *out)
{
    for (size_t i = 0; i < trace->event_count && out->oom_event == 0; i++) {
        if (trace->events[i].op == FLW_TRACE_OOM) {
            out->oom_event = i + 1;
            out->asked_bytes = trace->events[i].size_bytes;
        }
    }
}

void flw_devices_add(struct flw_analysis_devices *devices, const struct flw_trace *trace)
{
    struct flw_analysis_device *out = &devices->list[devices->count++];
    *out = (struct flw_analysis_device){
        .device = trace->device,
        .event_count = trace->event_count,
        .peak_requested_bytes = trace->peak_requested_bytes,
        .peak_reserved_bytes =
            trace->has_segments ? trace->recorded_peak_reserved_bytes : FLW_UNKNOWN};
    find_oom(trace, out);
    flw_append(out->text, sizeof out->text, "device %d: %s event%s, peak live memory %s",
               out->device, FLW_COUNT(trace->event_count), flw_plural(trace->event_count),
               FLW_SIZE(out->peak_requested_bytes));
    if (out->peak_reserved_bytes != FLW_UNKNOWN) {
        flw_append(out->text, sizeof out->text, ", reserved %s",
                   FLW_SIZE(out->peak_reserved_bytes));
    }
    if (out->oom_event != 0) {
        flw_append(out->text, sizeof out->text, "; out of memory at event %s, requested %s",
                   FLW_COUNT(out->oom_event), FLW_SIZE(out->asked_bytes));
    }
}

void flw_devices_name(struct flw_analysis *analysis)
{
    char title[FLW_ANALYSIS_NAME_BYTES];
    snprintf(title, sizeof title, "%.*s, device %d", FLW_ANALYSIS_NAME_BYTES - 16, analysis->title,
             analysis->trace->device);
    memcpy(analysis->title, title, sizeof title);
    analysis->of_devices[0] = '\0';
    analysis->is_other = true;
}

bool flw_devices_hold_pipe(const char *path, char *place)
{
    static char bytes[1 << 16];
    struct stat about;
    static const char fds[] = "/dev/fd/";
    uint64_t number = 0; /* number of the descriptor; stdin: 0 */
    snprintf(place, FLW_PLACE_BYTES, "%s", flw_input_place(path));
    if (strlen(flw_input_place(path)) >= FLW_PLACE_BYTES || stat(place, &about) != 0 ||
        !S_ISFIFO(about.st_mode)) {
        return true; /* the reader reports a missing or invalid file */
    }
    int pipe = open(place, O_RDONLY | O_CLOEXEC);
    int memory = memfd_create("fallow-report", MFD_CLOEXEC);
    ssize_t count = pipe < 0 || memory < 0 ? -1 : 1;
    while (count > 0) {
        count = read(pipe, bytes, sizeof bytes);
        count = count > 0 && write(memory, bytes, (size_t)count) != count ? -1 : count;
    }
    if (count < 0) {
        flw_complain("cannot read '%.300s': %s", path, strerror(errno));
    }
    if (pipe >= 0) {
        close(pipe);
    }
    bool is_own = strcmp(place, "/dev/stdin") == 0 ||
                  (strncmp(place, fds, sizeof fds - 1) == 0 &&
                   flw_parse_count(place + sizeof fds - 1, &number) && number <= INT_MAX);
    if (is_own && dup2(memory, (int)number) == (int)number) {
        close(memory);
    } else {
        snprintf(place, FLW_PLACE_BYTES, "/dev/fd/%d",
                 memory); /* stays open until the program ends */
    }
    return count == 0;
}
