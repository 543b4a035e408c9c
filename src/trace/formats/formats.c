/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/formats/formats.h"

#include <limits.h>
#include <string.h>

#include "trace/formats/chrome.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/kineto.h"
#include "trace/formats/mistaken.h"
#include "trace/formats/pytorch.h"
#include "trace/formats/rmm.h"
#include "trace/formats/text.h"
#include "trace/io/output.h"

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

static bool begins_with(struct flw_input *input, const char *prefix)
{
    size_t count = strlen(prefix);
    return flw_input_fill(input, count) && memcmp(input->at, prefix, count) == 0;
}

/* True for a pickle. torch.save() writes another kind, which has no history. */
static bool is_pytorch(struct flw_input *input)
{
    return begins_with(input, "\x80") && !begins_with(input, "\x80\x02\x8a\nl");
}

static bool is_ftrace(struct flw_input *input)
{
    return begins_with(input, FLW_FTRACE_MAGIC);
}

static bool is_text(struct flw_input *input)
{
    return begins_with(input, FLW_TEXT_MAGIC);
}

/* True, after writing a message, if the file is a known kind that is no trace. */
static bool is_mistaken(struct flw_input *input)
{
    const char *message = flw_mistaken_tell(input);
    if (message != NULL) {
        flw_input_fail(input, 0, "%s", message);
    }
    return message != NULL;
}

/* True for JSON, possibly after space. */
static bool is_json(struct flw_input *input)
{
    flw_input_fill(input, FLW_INPUT_FILL_BYTES);
    const unsigned char *at = input->at;
    while (at < input->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) {
        at++;
    }
    return at < input->end && (*at == '{' || *at == '[');
}

static bool is_rmm(struct flw_input *input)
{
    return begins_with(input, FLW_RMM_MAGIC);
}

/* ---- reading ---- */

static bool read_nothing(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    (void)input; /* is_mistaken wrote the message */
    (void)device;
    (void)out_trace;
    return false;
}

/* Tried in this order. */
static const struct {
    bool (*recognise)(struct flw_input *input);
    bool (*read)(struct flw_input *input, int device, struct flw_trace **out_trace);
} readers[] = {
    {is_pytorch, flw_pytorch_read}, {is_ftrace, flw_ftrace_read}, {is_text, flw_text_read},
    {is_mistaken, read_nothing},    {is_json, flw_kineto_read},   {is_rmm, flw_rmm_read},
};

static bool read_any(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    if (!flw_input_fill(input, 1)) {
        return flw_input_fail(input, 0, "the file is empty");
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (readers[i].recognise(input)) {
            return readers[i].read(input, device, out_trace);
        }
    }
    return flw_input_fail(input, 0,
                          "neither a pickled PyTorch snapshot nor a fallow trace or its text, a "
                          "profiler's JSON or an RMM log; tools/convert of Fallow's sources reads "
                          "STAlloc, MiniMalloc and gtrace files");
}

static bool read_input(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    bool is_read = read_any(input, device, out_trace);
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
