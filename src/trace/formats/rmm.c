/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading and writing RMM's CSV log.
 * Does not: keep threads (rows are in the order of the events, whichever thread wrote them) or call stacks (the log has
 * no column for them).
 *
 *   Thread,Time,Action,Pointer,Size,Stream
 *   THREAD,(HH:MM:SS.FRACTION | SECONDS[.FRACTION]),ACTION,POINTER,BYTES,STREAM
 * ACTION is allocate, free (deallocate in RMM's documentation) or "allocate failure". POINTER is
 * hexadecimal or (nil); STREAM hexadecimal with 0x, else decimal. Bytes are requested bytes.
 */
#include "trace/formats/rmm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/io/line.h"
#include "trace/trace/history.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define NS_PER_DAY    (24 * 3600 * NS_PER_SECOND)
#define NO_MEMORY     "no memory to hold the trace"

/* ---- reading ---- */

struct reader {
    struct flw_line line;
    struct flw_build *build;
    const char *column, *end; /* the last one; the line's memory, which a comma or a newline ends */
    uint64_t begin_ns, last_ns; /* of the first row and of the latest row */
    uint64_t midnight_ns;       /* midnight of the present day, if times are times of day */
    uint64_t null_count;        /* rows without memory: a null pointer allocated or freed */
    bool has_begun;
};

/* Fail with the message unless a condition holds. Only the first failure has an effect. */
static void check(struct reader *r, bool holds, const char *problem)
{
    FLW_LINE_CHECK(&r->line, holds, "%s; %zu rows before it were read", problem,
                   r->build->trace->event_count + (size_t)r->null_count);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Read the next column up to a comma, without the space around it. Returns false if there is none. An empty column after
 * the last comma counts: `at` passes the end once. */
static bool take_column(struct reader *r)
{
    struct flw_line *line = &r->line;
    const char *at = line->at, *end = line->end;
    while (at < end && is_space(*at)) {
        at++;
    }
    if (at > end) {
        r->column = r->end = end;
        return false;
    }
    const char *comma = memchr(at, ',', (size_t)(end - at));
    end = comma != NULL ? comma : end;
    line->at = end + 1;
    while (end > at && is_space(end[-1])) {
        end--;
    }
    r->column = at;
    r->end = end;
    return true;
}

static bool is_column(const struct reader *r, const char *text)
{
    size_t count = (size_t)(r->end - r->column);
    return count == strlen(text) && memcmp(r->column, text, count) == 0;
}

/* Parse digits. Returns false if there are none, or too many for 64 bits. */
static bool parse_digits(const char **at, unsigned base, uint64_t *out)
{
    const char *c = *at;
    uint64_t value = 0;
    bool fits = true;
    for (;; c++) {
        unsigned digit = *c >= '0' && *c <= '9'   ? (unsigned)(*c - '0')
                         : *c >= 'a' && *c <= 'f' ? (unsigned)(*c - 'a') + 10
                         : *c >= 'A' && *c <= 'F' ? (unsigned)(*c - 'A') + 10
                                                  : UINT32_MAX;
        if (digit >= base) {
            break;
        }
        fits = fits && !__builtin_mul_overflow(value, (uint64_t)base, &value) &&
               !__builtin_add_overflow(value, (uint64_t)digit, &value);
    }
    bool is_number = fits && c > *at;
    *out = value;
    *at = c;
    return is_number;
}

/* Read a number: "0x1f" is hexadecimal, "(nil)" is 0, others are in `base`. */
static uint64_t take_number(struct reader *r, unsigned base, const char *problem)
{
    uint64_t number = 0;
    bool is_read = take_column(r);
    const char *at = r->column;
    if (r->end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X')) {
        base = 16;
        at += 2;
    }
    check(r,
          is_read && (is_column(r, "(nil)") || (parse_digits(&at, base, &number) && at == r->end)),
          problem);
    return number;
}

/* Parse "SECONDS[.FRACTION]" or "HOURS:MINUTES:SECONDS[(.|:)FRACTION]" into ns: seconds since any time, or time since
 * midnight. Digits of the fraction below a ns are dropped. Returns false if it is neither. */
static bool parse_time(const struct reader *r, bool *out_is_clock, uint64_t *out_ns)
{
    const char *at = r->column;
    static const uint64_t limits[] = {UINT64_MAX, 60, 60}, units[] = {3600, 60, 1};
    uint64_t seconds = 0, fraction_ns = 0, weight = NS_PER_SECOND, part;
    bool is_clock = memchr(at, ':', (size_t)(r->end - at)) != NULL;
    for (size_t i = is_clock ? 0 : 2; i < 3; i++) {
        if (!parse_digits(&at, 10, &part) || (is_clock && part > limits[i]) ||
            __builtin_mul_overflow(part, units[i], &part) ||
            __builtin_add_overflow(seconds, part, &seconds) || (i < 2 && *at++ != ':')) {
            return false;
        }
    }
    if (at < r->end && *at != '.' && (*at != ':' || !is_clock)) {
        return false;
    }
    for (at += at < r->end; at < r->end && *at >= '0' && *at <= '9'; at++) {
        weight /= 10;
        fraction_ns += weight * (uint64_t)(*at - '0');
    }
    *out_is_clock = is_clock;
    return at == r->end && !__builtin_mul_overflow(seconds, NS_PER_SECOND, out_ns) &&
           !__builtin_add_overflow(*out_ns, fraction_ns, out_ns);
}

/* Read a time. Times of several threads are slightly out of order; the order of the rows is right. A time that falls by
 * half a day has passed midnight. */
static uint64_t take_time(struct reader *r)
{
    bool is_clock = false, fits = true;
    uint64_t time_ns = 0;
    bool is_time = take_column(r) && parse_time(r, &is_clock, &time_ns);
    check(r, is_time, "the time is neither HH:MM:SS.FRACTION nor seconds");
    if (is_clock) {
        if (r->has_begun && time_ns < r->last_ns - r->midnight_ns &&
            r->last_ns - r->midnight_ns - time_ns > NS_PER_DAY / 2) {
            r->midnight_ns += NS_PER_DAY;
        }
        fits = !__builtin_add_overflow(time_ns, r->midnight_ns, &time_ns);
        check(r, fits, "the time is centuries after the first");
    }
    if (!r->has_begun) {
        r->has_begun = true;
        r->begin_ns = time_ns;
        r->last_ns = time_ns;
    }
    r->last_ns = time_ns > r->last_ns ? time_ns : r->last_ns;
    return r->last_ns - r->begin_ns;
}

static uint8_t take_action(struct reader *r)
{
    static const struct {
        const char *word;
        uint8_t op;
    } actions[] = {{"allocate", FLW_TRACE_ALLOC},
                   {"free", FLW_TRACE_FREE},
                   {"deallocate", FLW_TRACE_FREE},
                   {"allocate failure", FLW_TRACE_OOM}};
    check(r, take_column(r), "there is no action");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (is_column(r, actions[i].word)) {
            return actions[i].op;
        }
    }
    check(r, false, "the action is none of allocate, free, deallocate, allocate failure");
    return FLW_TRACE_OOM;
}

static void read_row(struct reader *r)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    take_number(r, 10, "the thread is not a number");
    event.time_ns = take_time(r);
    event.op = take_action(r);
    event.address = take_number(r, 16, "the pointer is not a hexadecimal number");
    event.size_bytes = take_number(r, 10, "the size is not a number of bytes");
    uint64_t stream = take_number(r, 10, "the stream is not a number");
    check(r, !take_column(r), "there are more than six columns");
    check(r, event.size_bytes <= UINT64_MAX - event.address,
          "the pointer and the size exceed 64 bits");
    check(r, flw_build_add_stream(r->build, stream, &event.stream),
          "more than 65535 streams, or the host is out of memory");
    if (event.op == FLW_TRACE_OOM) {
        event.address = 0;
    } else if (event.address == 0) {
        r->null_count++;
        return;
    }
    check(r, flw_build_add_event(r->build, &event), NO_MEMORY);
}

static bool is_blank(const struct flw_line *line)
{
    return line->begin == line->end || (*line->begin == '\r' && line->begin + 1 == line->end);
}

static void read_rows(struct reader *r)
{
    if (flw_line_next(&r->line) && (!flw_line_accept(&r->line, FLW_RMM_MAGIC) ||
                                    (r->line.at != r->line.end && *r->line.at != '\r'))) {
        flw_line_fail(&r->line, "the header is not " FLW_RMM_MAGIC);
    }
    while (!r->line.input->failed && flw_line_next(&r->line)) {
        if (!is_blank(&r->line)) {
            read_row(r);
        }
    }
}

static void finish_trace(struct reader *r)
{
    struct flw_trace *trace = r->build->trace;
    struct flw_history history = {0};
    char text[96] = "origin rmm log\n";
    size_t bytes = strlen(text);
    if (r->null_count > 0) {
        snprintf(text + bytes, sizeof text - bytes, "rmm_null_pointer_rows %" PRIu64 "\n",
                 r->null_count);
    }
    check(r, flw_notes_add_lines(&r->build->notes, text) && flw_history_resolve(&history, r->build),
          NO_MEMORY);
    flw_history_finish(&history);
    trace->has_times = true;
    trace->has_addresses = true;
}

bool flw_rmm_read(struct flw_input *input, int device, struct flw_build *build)
{
    (void)device; /* a file has one device */
    struct reader r = {.line = {.input = input}, .build = build};
    read_rows(&r);
    if (!input->failed) {
        finish_trace(&r);
    }
    return !input->failed;
}

/* ---- writing ---- */

/* Print a row with the event's time, size and stream. */
static void print_row(const struct flw_trace *trace, const struct flw_trace_event *event,
                      const char *action, uint64_t pointer, FILE *file)
{
    uint64_t seconds = event->time_ns / 1000000000;
    fprintf(file, "0,%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,", seconds / 3600,
            seconds / 60 % 60, seconds % 60, event->time_ns / 1000 % 1000000, action);
    fprintf(file, pointer == 0 ? "(nil)" : "0x%" PRIx64, pointer);
    uint64_t handle = trace->streams[event->stream];
    fprintf(file, ",%" PRIu64 ",%s%" PRIx64 "\n", event->size_bytes, handle == 0 ? "" : "0x",
            handle);
}

/* Return the block's address, or the block's number if addresses are unknown. */
static uint64_t pointer_of(const struct flw_trace *trace, uint32_t block)
{
    return trace->has_addresses && trace->blocks[block].address != 0 ? trace->blocks[block].address
                                                                     : (uint64_t)block + 1;
}

static void print_event(const struct flw_trace *trace, const struct flw_trace_event *event,
                        FILE *file)
{
    switch (event->op) {
    case FLW_TRACE_ALLOC:
    case FLW_TRACE_FREE:
        print_row(trace, event, event->op == FLW_TRACE_ALLOC ? "allocate" : "free",
                  pointer_of(trace, event->block), file);
        break;
    case FLW_TRACE_OOM:
        print_row(trace, event, "allocate failure", 0, file);
        break;
    default:
        break;
    }
}

const char *flw_rmm_print(const struct flw_trace *trace, FILE *file)
{
    fputs(FLW_RMM_MAGIC "\n", file);
    for (size_t i = 0; i < trace->initial_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        const struct flw_trace_event event = {.size_bytes = block->size_bytes,
                                              .stream = block->stream};
        print_row(trace, &event, "allocate", pointer_of(trace, (uint32_t)i), file);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        print_event(trace, &trace->events[i], file);
    }
    return NULL;
}
