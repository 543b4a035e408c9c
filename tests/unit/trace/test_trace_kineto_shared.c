/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: comparing the importer of profiler traces with what the profiler itself wrote down: in a
 * recorded trace the live bytes after every event are the recorded total. The file is read here a
 * second time, by a scan that knows how this one is laid out. Exits 77 where it is absent.
 * Usage: test_trace_kineto_shared FOLDER
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

#define EVENT_COUNT     26770
#define DEVICE_TYPE_GPU 1

struct row {
    uint64_t time_us, address, allocated, reserved;
    size_t order;
};

static struct row rows[EVENT_COUNT + 1];
static size_t row_count;

/* The caller frees it. */
static char *read_whole(const char *path, char *message)
{
    struct flw_input input;
    size_t count = 0, room = 1u << 20;
    char *text = malloc(room);
    if (text == NULL || !flw_input_open(&input, path, message)) {
        free(text);
        return NULL;
    }
    while (flw_input_fill(&input, 1)) {
        size_t held = (size_t)(input.end - input.at);
        if (count + held + 1 > room) {
            room = 2 * (count + held + 1);
            text = realloc(text, room);
            if (text == NULL) {
                abort();
            }
        }
        memcpy(text + count, input.at, held);
        count += held;
        input.at = input.end;
    }
    text[count] = '\0';
    bool is_read = !input.failed;
    flw_input_close(&input);
    if (!is_read) {
        free(text);
        return NULL;
    }
    return text;
}

/* The number behind a key, two's complement where it is negative. False: there is none. */
static bool take_number(const char *text, const char *key, uint64_t *out)
{
    const char *at = strstr(text, key);
    char *end = NULL;
    if (at == NULL) {
        return false;
    }
    at += strlen(key);
    *out = strtoull(at, &end, 10);
    return end != at;
}

/* One event from its name on. False: it is laid out differently. */
static bool scan_event(const char *at, struct row *row, uint64_t *out_type)
{
    char slice[512] = ""; /* strstr would look through all that follows */
    size_t count = strnlen(at, sizeof(slice) - 1);
    memcpy(slice, at, count);
    if (!take_number(slice, "\"ts\": ", &row->time_us) ||
        !take_number(slice, "\"Device Type\": ", out_type)) {
        return false;
    }
    return *out_type != DEVICE_TYPE_GPU ||
           (take_number(slice, "\"Addr\": ", &row->address) &&
            take_number(slice, "\"Total Allocated\": ", &row->allocated) &&
            take_number(slice, "\"Total Reserved\": ", &row->reserved));
}

/* Line by line: a sanitizer looks at all that a string function may. */
static void scan(const char *text)
{
    static const char name[] = "\"name\": \"[memory]\"";
    const char *end = text + strlen(text);
    for (const char *next, *line = text; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline != NULL ? newline + 1 : end;
        const char *at = memmem(line, (size_t)(next - line), name, strlen(name));
        struct row row = {.order = row_count};
        uint64_t type = 0;
        if (at == NULL) {
            continue;
        }
        if (!scan_event(at, &row, &type)) {
            printf("the file is laid out differently\n");
            exit(1);
        }
        if (type == DEVICE_TYPE_GPU && row_count <= EVENT_COUNT) {
            rows[row_count++] = row;
        }
    }
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a;
    const struct row *y = b;
    if (x->time_us != y->time_us) {
        return x->time_us < y->time_us ? -1 : 1;
    }
    return x->order < y->order ? -1 : 1;
}

static size_t compare(const struct flw_trace *trace)
{
    uint64_t live = 0, reserved_peak = 0;
    size_t at = 0, equal = 0;
    for (size_t i = 0; i < trace->initial_count; i++) {
        live += trace->blocks[i].size_bytes;
    }
    for (size_t i = 0; i < trace->event_count && at < row_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op != FLW_TRACE_ALLOC && event->op != FLW_TRACE_FREE) {
            continue;
        }
        live += event->op == FLW_TRACE_ALLOC ? event->size_bytes : -event->size_bytes;
        const struct row *row = &rows[at++];
        reserved_peak = row->reserved > reserved_peak ? row->reserved : reserved_peak;
        equal += live == row->allocated && event->address == row->address &&
                 event->time_ns == (row->time_us - rows[0].time_us) * 1000;
    }
    if (at != trace->event_count || reserved_peak != trace->recorded_peak_reserved_bytes) {
        printf("%zu events, %" PRIu64 " bytes reserved: not what the file says\n",
               trace->event_count, trace->recorded_peak_reserved_bytes);
        return 0;
    }
    return equal;
}

int main(int argc, char **argv)
{
    char path[4096];
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    if (argc != 2) {
        fprintf(stderr, "usage: test_trace_kineto_shared FOLDER\n");
        return 2;
    }
    snprintf(path, sizeof(path), "%s/hta_df_index_resolver.json.gz", argv[1]);
    FILE *file = fopen(path, "rb");
    if (file == NULL || !FLW_HAS_ZLIB) {
        printf("skipped: no %s, or no zlib\n", path);
        return 77;
    }
    fclose(file);
    char *text = read_whole(path, message);
    if (text == NULL || !flw_trace_read(path, -1, &trace, message)) {
        printf("%s\n", message);
        free(text);
        return 1;
    }
    scan(text);
    free(text);
    qsort(rows, row_count, sizeof(rows[0]), compare_rows);
    size_t equal = compare(trace);
    printf("%zu of %d running totals, addresses and times as recorded\n%s", equal, EVENT_COUNT,
           trace->notes);
    bool has_no_gap = strstr(trace->notes, "kineto_total_mismatches 0\n") != NULL &&
                      trace->unknown_free_count == 0 && trace->lost_free_count == 0;
    flw_trace_destroy(trace);
    return equal == EVENT_COUNT && row_count == EVENT_COUNT && has_no_gap ? 0 : 1;
}
