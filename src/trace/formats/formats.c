/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/formats/formats.h"

#include <limits.h>
#include <string.h>

#include "trace/formats/chrome.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/kineto.h"
#include "trace/formats/pytorch.h"
#include "trace/formats/rmm.h"
#include "trace/formats/text.h"
#include "trace/io/output.h"
#include "trace/trace/measure.h"

/* ---- writing ---- */

static const struct flw_trace_format written[] = {
    {"text", false, flw_text_print, INT_MAX},
    {"chrome", false, flw_chrome_print, INT_MAX},
    {"rmm", false, flw_rmm_print, INT_MAX},
    {"pytorch", true, flw_pytorch_print, FLW_PYTORCH_DEVICES - 1},
    {"ftrace", true, flw_ftrace_print_packed, INT_MAX},
};

const struct flw_trace_format *flw_trace_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (strcmp(written[i].name, name) == 0) {
            return &written[i];
        }
    }
    return NULL;
}

bool flw_trace_write(const struct flw_trace *trace, const char *format, const char *path,
                     char *message)
{
    const struct flw_trace_format *form = flw_trace_format_find(format);
    struct flw_output output;
    if (trace->device > form->last_device) {
        flw_input_message(message, path, "device %d: a snapshot holds devices 0 to %d",
                          trace->device, form->last_device);
        return false;
    }
    if (!flw_output_begin(&output, path, message)) {
        return false;
    }
    const char *reason = form->print(trace, output.file);
    if (reason == NULL || ferror(output.file)) {
        return flw_output_commit(&output, message);
    }
    flw_output_abandon(&output);
    flw_input_message(message, path, "%s", reason);
    return false;
}

/* ---- recognising ---- */

#define SNAPSHOT                                                                       \
    "give the pickle that _dump_snapshot() of torch.cuda.memory, torch.xpu.memory or " \
    "torch_npu.npu.memory writes"
#define TIMELINE                                                                      \
    "a file of export_memory_timeline(), sums without blocks; give the profile that " \
    "export_chrome_trace() writes"
#define RMM_DEBUG_LOG \
    "RMM's debug log; give the CSV that rmm.enable_logging() or logging_resource_adaptor writes"
#define OOM_MESSAGE  "an out-of-memory message, without the owners of the memory: " SNAPSHOT
#define BEGINS(text) text, sizeof(text) - 1

typedef bool (*reads)(struct flw_input *input, int device, struct flw_build *build);

/* The kind of a file that begins with `begin` and contains both other texts in the first bytes. The first match counts. */
static const struct kind {
    const char *begin;
    size_t begin_bytes;
    reads read;                /* NULL: users mistake the file for a trace */
    const char *text;          /* name of the format; else the kind, and the file to give instead */
    const char *has, *has_too; /* NULL: no condition */
} kinds[] = {
    {BEGINS("\x80\x02\x8a\nl"), NULL,
     "a file of torch.save(); it holds tensors and no history: " SNAPSHOT, NULL, NULL},
    {BEGINS("\x80"), flw_pytorch_read, "pytorch pickle", NULL, NULL},
    {BEGINS(FLW_FTRACE_MAGIC), flw_ftrace_read, "ftrace", NULL, NULL},
    {BEGINS(FLW_TEXT_MAGIC), flw_text_read, "text", NULL, NULL},
    {BEGINS(FLW_RMM_MAGIC), flw_rmm_read, "rmm csv", NULL, NULL},
    {BEGINS("version https://git-lfs"), NULL,
     "a pointer of Git LFS, and not the file itself; git lfs pull fetches it", NULL, NULL},
    {BEGINS("SQLite format 3"), NULL,
     "an SQLite database, as Nsight Systems exports; it holds no allocations of PyTorch: " SNAPSHOT,
     NULL, NULL},
    {BEGINS("memray"), NULL, "memray's recording of host memory; for device memory " SNAPSHOT, NULL,
     NULL},
    {BEGINS("PK\x03\x04"), NULL,
     "an archive, as torch.save() writes; it holds tensors and no history: " SNAPSHOT, NULL, NULL},
    {BEGINS("["), NULL, RMM_DEBUG_LOG, "RMM LOG BEGIN", NULL},
    {BEGINS("[ "), NULL, RMM_DEBUG_LOG, "][info", NULL},
    {BEGINS("[[1"), NULL, TIMELINE, NULL, NULL}, /* times since 1970 */
    {BEGINS("[[-1"), NULL, TIMELINE, NULL,
     NULL}, /* the raw form: memory from before the recording */
    {BEGINS("["), NULL, "memory_snapshot() as JSON; " SNAPSHOT, "\"total_size\"",
     "\"segment_type\""},
    {BEGINS("{"), NULL, "a snapshot as JSON; " SNAPSHOT, "\"total_size\"", "\"device_traces\""},
    {BEGINS("{\"fallow_rank\":"), NULL,
     "no trace but records of traces, which fallow report --json-lines wrote; fallow report merge "
     "reads them",
     NULL, NULL},
    {BEGINS("["), flw_kineto_read, "kineto json", NULL, NULL},
    {BEGINS("{"), flw_kineto_read, "kineto json", NULL, NULL},
    {BEGINS("<"), NULL, "the page of MemoryViz; " SNAPSHOT, "MemoryViz", NULL},
    {BEGINS("<"), NULL, TIMELINE, "Memory Timeline", NULL},
    {BEGINS("<"), NULL, "a page or another XML document; " SNAPSHOT, NULL, NULL},
    {BEGINS(""), NULL, OOM_MESSAGE, "out of memory. Tried to allocate", NULL},
    {BEGINS(""), NULL, OOM_MESSAGE, "OutOfMemoryError", NULL},
};

static bool begins_with(struct flw_input *input, const char *begin, size_t bytes)
{
    return flw_input_fill(input, bytes) && memcmp(input->at, begin, bytes) == 0;
}

static bool has(struct flw_input *input, const char *text)
{
    if (text == NULL) {
        return true;
    }
    flw_input_fill(input, FLW_INPUT_FILL_BYTES);
    return memmem(input->at, (size_t)(input->end - input->at), text, strlen(text)) != NULL;
}

/* True for JSON after space. */
static bool is_json(const struct flw_input *input)
{
    const unsigned char *at = input->at;
    while (at < input->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) {
        at++;
    }
    return at < input->end && (*at == '{' || *at == '[');
}

/* Return the kind of a file; NULL: unknown. */
static const struct kind *recognise(struct flw_input *input)
{
    static const struct kind json = {.read = flw_kineto_read, .text = "kineto json"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (begins_with(input, kinds[i].begin, kinds[i].begin_bytes) && has(input, kinds[i].has) &&
            has(input, kinds[i].has_too)) {
            return &kinds[i];
        }
    }
    return is_json(input) ? &json : NULL;
}

bool flw_trace_read_open(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    *out_trace = NULL;
    if (!flw_input_fill(input, 1)) {
        return flw_input_fail(input, 0, "the file is empty");
    }
    const struct kind *kind = recognise(input);
    if (kind == NULL || kind->read == NULL) {
        return flw_input_fail(
            input, 0, "%s",
            kind != NULL ? kind->text
                         : "neither a pickled PyTorch snapshot nor a fallow trace or its text, a "
                           "profiler's JSON or an RMM log; tools/convert of Fallow's sources reads "
                           "STAlloc, MiniMalloc and gtrace files");
    }
    struct flw_build build;
    bool is_read = flw_build_init(&build, input->name, kind->text) ||
                   flw_input_fail(input, 0, "no memory to hold the trace");
    is_read = is_read && kind->read(input, device, &build);
    if (is_read) {
        build.trace->notes = flw_notes_take(&build.notes);
        const char *wrong = flw_measure_trace(build.trace);
        is_read = wrong == NULL || flw_input_fail(input, 0, "%s", wrong);
    }
    flw_build_end(&build, is_read, out_trace);
    return is_read;
}

/* ---- reading ---- */

static bool read_input(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    bool is_read = flw_trace_read_open(input, device, out_trace);
    if (is_read && device >= 0 && device != (*out_trace)->device) {
        flw_input_fail(input, 0, "has no device %d, only %d", device, (*out_trace)->device);
        flw_trace_destroy(*out_trace);
        *out_trace = NULL;
        is_read = false;
    }
    if (!is_read) {
        flw_input_blame(input);
    }
    flw_input_close(input);
    return is_read;
}

static bool read_file(const char *path, int device, bool reads_on, struct flw_trace **out_trace,
                      char *message)
{
    struct flw_input input;
    *out_trace = NULL;
    if (!flw_input_open(&input, path, message)) {
        return false;
    }
    input.reads_on = reads_on;
    return read_input(&input, device, out_trace);
}

bool flw_trace_read(const char *path, int device, struct flw_trace **out_trace, char *message)
{
    return read_file(path, device, false, out_trace, message);
}

bool flw_trace_read_damaged(const char *path, int device, struct flw_trace **out_trace,
                            char *message)
{
    return read_file(path, device, true, out_trace, message);
}

bool flw_trace_read_bytes(const void *bytes, size_t count, const char *name, int device,
                          struct flw_trace **out_trace, char *message)
{
    struct flw_input input;
    *out_trace = NULL;
    return flw_input_open_bytes(&input, bytes, count, name, message) &&
           read_input(&input, device, out_trace);
}
