/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the form of each line of a text, which text.h specifies, and printing a trace.
 */
#include <inttypes.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/formats/reader.h"
#include "trace/formats/text.h"

#define LONG(op) [FLW_RECORD_LONG_FIRST + FLW_TRACE_##op]
#define CONTEXT  "tgp"
const struct flw_text_form flw_text_forms[FLW_TEXT_FORMS] = {
    [FLW_TRACE_ALLOC] = {"A", "", "isra" CONTEXT},
    [FLW_TRACE_FREE] = {"F", "", "br" CONTEXT},
    [FLW_TRACE_FREE_DONE] = {"C", "", "br" CONTEXT},
    [FLW_TRACE_SEGMENT_ALLOC] = {"S+", "", "sra" CONTEXT},
    [FLW_TRACE_SEGMENT_FREE] = {"S-", "", "sra" CONTEXT},
    [FLW_TRACE_SEGMENT_MAP] = {"M+", "", "sra" CONTEXT},
    [FLW_TRACE_SEGMENT_UNMAP] = {"M-", "", "sra" CONTEXT},
    [FLW_TRACE_USE] = {"U", "", "br" CONTEXT},
    [FLW_RECORD_BLOCK] = {"P", "", "isra" CONTEXT},
    [FLW_RECORD_SEGMENT] = {"S", "", "srkap"},
    LONG(OOM) = {"O", "", "srfl" CONTEXT},
    LONG(MARK) = {"N", "", CONTEXT},
    LONG(PHASE_BEGIN) = {"B", "", CONTEXT},
    LONG(PHASE_END) = {"E", "", CONTEXT},
    LONG(SYNC_DEVICE) = {"Y", " device", CONTEXT},
    LONG(SYNC_STREAM) = {"Y", " stream", "r" CONTEXT},
    LONG(SYNC_EVENT) = {"Y", " event", "r" CONTEXT},
    LONG(SYNC_WAIT) = {"Y", " wait", "ro" CONTEXT},
    LONG(POOL_BEGIN) = {"G+", "", "r" CONTEXT},
    LONG(POOL_END) = {"G-", "", "r" CONTEXT},
    LONG(EMPTY_CACHE) = {"X", "", CONTEXT},
    LONG(CONFIG) = {"K", "", CONTEXT},
    LONG(DROP) = {"D", "", "c" CONTEXT},
};

#define SHORT(field) true, offsetof(struct flw_record, field)
#define WIDE(field)  false, offsetof(struct flw_record, field)
const struct flw_text_column flw_text_columns[1 + 'z'] = {
    ['a'] = {" @", FLW_TEXT_ADDRESS, WIDE(address)},
    ['b'] = {" ", FLW_TEXT_NUMBER, WIDE(block)},
    ['c'] = {" ", FLW_TEXT_NUMBER, WIDE(lost_count)},
    ['f'] = {" free=", FLW_TEXT_BYTES, WIDE(free_bytes)},
    ['g'] = {" tag=", FLW_TEXT_CONTEXT, SHORT(tag)},
    ['i'] = {" ", FLW_TEXT_NEW_BLOCK, WIDE(block)},
    ['k'] = {"", FLW_TEXT_SIZES, false, 0},
    ['l'] = {" largest=", FLW_TEXT_BYTES, WIDE(largest_bytes)},
    ['o'] = {" ", FLW_TEXT_STREAM, SHORT(other_stream)},
    ['p'] = {" pool=", FLW_TEXT_CONTEXT, SHORT(pool)},
    ['r'] = {" ", FLW_TEXT_STREAM, SHORT(stream)},
    ['s'] = {" ", FLW_TEXT_NUMBER, WIDE(size_bytes)},
    ['t'] = {" thread=", FLW_TEXT_CONTEXT, SHORT(thread)},
};

struct printer {
    const struct flw_trace *trace;
    FILE *file;
    struct flw_stack_order order;
};

/* ---- values ---- */

static void print_number(FILE *file, const char *before, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    fputs(before, file);
    fwrite(digits + at, 1, sizeof digits - at, file);
}

static void print_quoted(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c == '\n' || c == '\t') {
            fputs(c == '\n' ? "\\n" : "\\t", file);
        } else if (c < 0x20 || c == 0x7F) {
            fprintf(file, "\\x%02x", c);
        } else {
            putc(c, file);
        }
    }
    putc('"', file);
}

/* ---- lines before a record ---- */

static bool print_frame(void *context, const struct flw_frame *frame)
{
    struct printer *p = context;
    print_number(p->file, "L ", frame->line);
    putc(' ', p->file);
    print_quoted(p->file, flw_stacks_text(&p->trace->stacks, frame->function));
    putc(' ', p->file);
    print_quoted(p->file, flw_stacks_text(&p->trace->stacks, frame->file));
    putc('\n', p->file);
    return true;
}

static bool print_stack(void *context, const uint32_t *frames, size_t count)
{
    struct printer *p = context;
    putc('W', p->file);
    for (size_t i = 0; i < count; i++) {
        print_number(p->file, " ", frames[i]);
    }
    putc('\n', p->file);
    return true;
}

static void print_remark(const struct printer *p, const struct flw_trace_remark *remark)
{
    const uint32_t texts[] = {remark->compile_context, remark->user_metadata};
    putc('V', p->file);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        putc(' ', p->file);
        if (texts[i] == 0) {
            putc('-', p->file);
        } else {
            print_quoted(p->file, flw_stacks_text(&p->trace->stacks, texts[i] - 1));
        }
    }
    putc('\n', p->file);
}

/* ---- records ---- */

static void print_column(const struct printer *p, const struct flw_text_column *column,
                         const struct flw_record *record)
{
    uint64_t number = 0;
    uint32_t short_number;
    if (column->is_short) {
        memcpy(&short_number, (const char *)record + column->field, sizeof short_number);
        number = short_number;
    } else {
        memcpy(&number, (const char *)record + column->field, sizeof number);
    }
    if (column->kind == FLW_TEXT_SIZES) {
        fputs(record->is_large ? " large" : " small", p->file);
        fputs(record->is_expandable ? " expandable" : "", p->file);
    } else if (column->kind == FLW_TEXT_ADDRESS   ? p->trace->has_addresses
               : column->kind == FLW_TEXT_BYTES   ? number != FLW_TRACE_UNKNOWN
               : column->kind == FLW_TEXT_CONTEXT ? number != 0
                                                  : true) {
        print_number(p->file, column->before, number);
    }
}

/* Print the remark and the stack if they are new, then the record. */
static bool print_record(void *context, const struct flw_record *record, uint32_t stack,
                         const struct flw_trace_remark *remark)
{
    struct printer *p = context;
    const struct flw_text_form *form = &flw_text_forms[record->op];
    uint32_t number;
    if (remark != NULL) {
        print_remark(p, remark);
    }
    flw_stack_order_take(&p->order, stack, &number);
    fputs(form->letters, p->file);
    print_number(p->file, " ", record->time);
    fputs(form->word, p->file);
    for (const char *column = form->columns; *column != '\0'; column++) {
        print_column(p, &flw_text_columns[(unsigned char)*column], record);
    }
    if (number != 0) {
        print_number(p->file, " stack=", number);
    }
    if (record->name != FLW_TRACE_NO_NAME) {
        fprintf(p->file, " \"%s\"", flw_intern_text(&p->trace->names, record->name));
    }
    putc('\n', p->file);
    return true;
}

static void print_header(const struct flw_trace *trace, FILE *file)
{
    bool has_any = trace->has_times || trace->has_addresses || trace->has_segments;
    fprintf(file, FLW_TEXT_MAGIC "1\ndevice %d\n", trace->device);
    for (size_t i = 0; i < trace->stream_count; i++) {
        fprintf(file, "stream %" PRIu64 "\n", trace->streams[i]);
    }
    fprintf(file, "fields%s%s%s%s\n", trace->has_times ? " times" : "",
            trace->has_addresses ? " addresses" : "", trace->has_segments ? " segments" : "",
            has_any ? "" : " none");
    if (trace->unknown_free_count > 0 || trace->lost_free_count > 0) {
        fprintf(file, "gaps %" PRIu64 " %" PRIu64 "\n", trace->unknown_free_count,
                trace->lost_free_count);
    }
    if (trace->has_times && trace->begin_ns != 0) {
        fprintf(file, "begin_ns %" PRIu64 "\n", trace->begin_ns);
    }
    fputs(trace->notes != NULL ? trace->notes : "", file);
}

const char *flw_text_print(const struct flw_trace *trace, FILE *file)
{
    struct printer p = {.trace = trace,
                        .file = file,
                        .order = {.stacks = &trace->stacks,
                                  .put_frame = print_frame,
                                  .put_stack = print_stack,
                                  .context = &p}};
    bool has_memory = flw_stack_order_begin(&p.order);
    if (has_memory) {
        print_header(trace, file);
        flw_trace_put_records(trace, print_record, &p);
    }
    flw_stack_order_finish(&p.order);
    return has_memory ? NULL : FLW_TRACE_NO_MEMORY;
}
