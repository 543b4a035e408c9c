/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two forms of the summary. Nothing here allocates or uses the C library's streams. */
#include "preload/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define BUFFER_BYTES 8192
#define PIECE_BYTES  1024

struct writer {
    int fd;
    int error;
    size_t used;
    char buffer[BUFFER_BYTES];
};

static void flush(struct writer *writer)
{
    size_t done = 0;
    while (done < writer->used && writer->error == 0) {
        ssize_t written = write(writer->fd, writer->buffer + done, writer->used - done);
        if (written > 0) {
            done += (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            writer->error = written == 0 ? EIO : errno;
        }
    }
    writer->used = 0;
}

__attribute__((format(printf, 2, 3))) static void put(struct writer *writer, const char *format,
                                                      ...)
{
    va_list arguments;
    if (BUFFER_BYTES - writer->used < PIECE_BYTES) {
        flush(writer);
    }
    va_start(arguments, format);
    int length = vsnprintf(writer->buffer + writer->used, PIECE_BYTES, format, arguments);
    va_end(arguments);
    writer->used += length < 0 ? 0 : length < PIECE_BYTES ? (size_t)length : PIECE_BYTES - 1;
}

/* Write a name as a string of JSON. Bytes beyond ASCII are replaced, since they need not be valid
 * text. */
static void put_text(struct writer *writer, const char *text)
{
    put(writer, "\"");
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            put(writer, "\\%c", byte);
        } else if (byte < 0x20) {
            put(writer, "\\u%04x", byte);
        } else {
            put(writer, "%c", byte < 0x7F ? byte : '?');
        }
    }
    put(writer, "\"");
}

static const char *mode_of(const struct flw_summary *summary)
{
    static const char *const modes[] = {"off", "trace", "cache", "strict", "audit"};
    return modes[summary->mode];
}

static double hit_rate(const fallow_stats *stats)
{
    return stats->alloc_count > 0 ? (double)stats->hit_count / (double)stats->alloc_count : 0.0;
}

static void put_pool(struct writer *writer, const fallow_stats *stats)
{
    put(writer, "{");
#define X(name, field) put(writer, "\"" #name "\": %" PRIu64 ", ", stats->field);
    FLW_SUMMARY_FIELDS(X, X)
#undef X
    put(writer, "\"hit_rate\": %.4f}", hit_rate(stats));
}

static void put_bypasses(struct writer *writer, const uint64_t *bypasses)
{
    const char *comma = "";
    put(writer, " \"bypassed\": {");
#define X(name, reason)                                                           \
    put(writer, "%s\"" #name "\": %" PRIu64, comma, bypasses[FLW_BYPASS_##name]); \
    comma = ", ";
    FLW_BYPASS_LIST(X)
#undef X
    put(writer, "},\n");
}

static void put_counts(struct writer *writer, const struct flw_summary *summary)
{
    put(writer, " \"foreign_frees\": %" PRIu64 ", \"double_frees\": %" PRIu64 ",\n",
        summary->foreign_frees, summary->double_frees);
    put(writer, " \"retries\": %" PRIu64 ", \"retries_served\": %" PRIu64 ",\n", summary->retries,
        summary->retries_served);
    put(writer, " \"contexts_ended\": %" PRIu64 ",\n", summary->contexts_ended);
    if (summary->is_trace) {
        const struct flw_tracer_counts *trace = &summary->trace;
        put(writer,
            " \"trace\": {\"allocs\": %" PRIu64 ", \"frees\": %" PRIu64 ", \"failed\": %" PRIu64
            ", \"refused_frees\": %" PRIu64 ", \"allocated_bytes\": %" PRIu64
            ", \"files\": %" PRIu64 ", \"failed_files\": %" PRIu64 "},\n",
            trace->allocated_count, trace->freed_count, trace->failed_count, trace->refused_count,
            trace->allocated_bytes, trace->file_count, trace->failed_files);
    }
    put(writer,
        " \"poison\": {\"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"left_out\": %" PRIu64 "}",
        summary->poison.filled_count, summary->poison.filled_bytes, summary->poison.missed_count);
}

bool flw_summary_print_json(const struct flw_summary *summary, int fd)
{
    static const char *const ends[FLW_SUMMARY_END_COUNT] = {"exit", "_exit", "killed", "running"};
    struct writer writer = {.fd = fd};
    put(&writer, "{\"schema\": 1, \"process\": %d, \"program\": ", summary->process);
    put_text(&writer, summary->program);
    put(&writer, ", \"mode\": \"%s\", \"end\": \"%s\",\n", mode_of(summary), ends[summary->end]);
    put(&writer,
        " \"reached\": {\"dlsym\": %" PRIu64 ", \"cuGetProcAddress\": %" PRIu64
        ", \"linked\": %" PRIu64 "},\n",
        summary->dlsym_count, summary->proc_address_count, summary->linked_count);
    put_bypasses(&writer, summary->bypasses);
    put_counts(&writer, summary);
    put(&writer, ",\n \"pool_count\": %" PRIu32 ", \"all\": ", summary->pool_count);
    put_pool(&writer, &summary->sum);
    put(&writer, ",\n \"pools\": [");
    for (uint32_t i = 0; i < summary->pool_count && i < FLW_SUMMARY_POOLS; i++) {
        put(&writer, "%s\n  ", i > 0 ? "," : "");
        put_pool(&writer, &summary->pools[i]);
    }
    put(&writer, "]}\n");
    flush(&writer);
    errno = writer.error;
    return writer.error == 0;
}

/* ---- the line */

struct line {
    char *out;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line->out + line->used, line->room - line->used, format, arguments);
    va_end(arguments);
    size_t left = line->room - line->used - 1;
    line->used += length < 0 ? 0 : (size_t)length < left ? (size_t)length : left;
}

/* Print bytes in the largest unit of which there is at least 1. */
static void add_bytes(struct line *line, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    add(line, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void add_optional(struct line *line, uint64_t count, const char *what)
{
    if (count > 0) {
        add(line, ", %" PRIu64 " %s%s", count, what, plural(count));
    }
}

static void add_pools(struct line *line, const fallow_stats *sum)
{
    add(line, "%" PRIu64 " allocation%s (from %" PRIu64 " driver allocation%s, ", sum->alloc_count,
        plural(sum->alloc_count), sum->grow_count, plural(sum->grow_count));
    add(line, "%.1f %% thread cache hits), %" PRIu64 " free%s", 100 * hit_rate(sum),
        sum->free_count, plural(sum->free_count));
    add(line, "; peaks ");
    add_bytes(line, sum->peak_requested_bytes);
    add(line, " requested, ");
    add_bytes(line, sum->peak_reserved_bytes);
    add(line, " reserved");
    add(line, "; %" PRIu64 " driver call%s, %" PRIu64 " event%s, %" PRIu64 " wait%s",
        sum->driver_call_count, plural(sum->driver_call_count), sum->event_count,
        plural(sum->event_count), sum->wait_count, plural(sum->wait_count));
}

static void add_bypasses(struct line *line, const uint64_t *bypasses)
{
    const char *before = "; bypassed Fallow: ";
#define X(name, reason)                                                                         \
    if (bypasses[FLW_BYPASS_##name] > 0) {                                                      \
        add(line, "%s%" PRIu64 " " #name " (" reason ")", before, bypasses[FLW_BYPASS_##name]); \
        before = ", ";                                                                          \
    }
    FLW_BYPASS_LIST(X)
#undef X
}

void flw_summary_print_line(const struct flw_summary *summary, char *out, size_t room)
{
    static const char *const ends[FLW_SUMMARY_END_COUNT] = {
        [FLW_SUMMARY_EXITED] = "",
        [FLW_SUMMARY_LEFT] = "; ended by _exit",
        [FLW_SUMMARY_KILLED] = "; killed, so its last 40 ms may be missing",
        [FLW_SUMMARY_RUNS_ON] = "; still running"};
    struct line line = {.out = out, .room = room};
    out[0] = '\0';
    add(&line, "%s (%d), mode %s: ", summary->program, summary->process, mode_of(summary));
    if (summary->is_trace) {
        const struct flw_tracer_counts *trace = &summary->trace;
        add(&line, "%" PRIu64 " allocation%s, ", trace->allocated_count,
            plural(trace->allocated_count));
        add_bytes(&line, trace->allocated_bytes);
        add(&line, " in all, %" PRIu64 " free%s", trace->freed_count, plural(trace->freed_count));
        add_optional(&line, trace->failed_count, "failed allocation");
        add_optional(&line, trace->refused_count, "refused free");
        add_optional(&line, trace->file_count, "file");
        add_optional(&line, trace->failed_files, "failed file");
    } else {
        add_pools(&line, &summary->sum);
        add_optional(&line, summary->sum.oom_count, "failed allocation");
        add_bypasses(&line, summary->bypasses);
    }
    add_optional(&line, summary->double_frees, "double free");
    add_optional(&line, summary->foreign_frees, "foreign free");
    if (summary->retries > 0) {
        add(&line, ", %" PRIu64 " tried again after a trim (%" PRIu64 " served)", summary->retries,
            summary->retries_served);
    }
    add_optional(&line, summary->poison.filled_count, "poisoned block");
    add_optional(&line, summary->poison.missed_count, "unpoisoned block");
    add(&line, "%s", ends[summary->end]);
}
