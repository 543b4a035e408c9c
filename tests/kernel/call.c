/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/call.h"

#include <stdlib.h>
#include <string.h>

#include "common/number.h"

#define GUARD_BYTES 64
#define MARK        0x5a

/* ---- fields */

const struct flw_field *flw_field_find(const struct flw_module *module, const char *name)
{
    for (size_t i = 0; i < module->field_count; i++) {
        if (strcmp(module->fields[i].name, name) == 0) {
            return &module->fields[i];
        }
    }
    return NULL;
}

const struct flw_field *flw_field_of(const struct flw_module *module, const char *name)
{
    const struct flw_field *field = flw_field_find(module, name);
    if (field == NULL) {
        fprintf(stderr, "%s has no field '%s' in its table\n", module->name, name);
        exit(1);
    }
    return field;
}

void flw_field_set(void *params, const struct flw_field *field, const void *pointer)
{
    memcpy((char *)params + field->offset, &pointer, sizeof pointer);
}

char *flw_field_get(const void *params, const struct flw_field *field)
{
    char *pointer;
    memcpy(&pointer, (const char *)params + field->offset, sizeof pointer);
    return pointer;
}

/* ---- inputs */

void flw_call_init(struct flw_bed *bed, struct flw_call *call, const struct flw_module *module,
                   void *params)
{
    *call = (struct flw_call){.bed = bed, .module = module, .params = params};
    memset(call->limit, 0xff, sizeof call->limit);
    module->init(params);
}

static struct flw_call_input *add_input(struct flw_call *call, const char *name)
{
    const struct flw_field *field = flw_field_of(call->module, name);
    for (size_t i = 0; i < call->input_count; i++) {
        if (call->inputs[i].field == field) {
            return &call->inputs[i];
        }
    }
    if (call->input_count == FLW_CALL_INPUTS) {
        fprintf(stderr, "%s: more than %d inputs\n", call->module->name, FLW_CALL_INPUTS);
        exit(1);
    }
    call->inputs[call->input_count].field = field;
    return &call->inputs[call->input_count++];
}

void flw_call_bind(struct flw_call *call, const char *name, void *host, size_t count, size_t each)
{
    struct flw_call_input *input = add_input(call, name);
    input->host = host;
    input->count = input->written = count;
    input->each = each;
}

void *flw_call_input(struct flw_call *call, const char *name, size_t count, size_t each)
{
    void *host = flw_bed_memory(call->bed, count * each);
    flw_call_bind(call, name, host, count, each);
    return host;
}

void *flw_call_typed(struct flw_call *call, const char *name, size_t count,
                     const fallow_dtype *dtype)
{
    void *host = flw_call_input(call, name, count, sizeof(int64_t));
    add_input(call, name)->dtype = dtype;
    return host;
}

static int32_t draw(struct flw_call *call, int64_t below)
{
    uint64_t random = flw_bed_random(call->bed);
    return (int32_t)(below == 0 ? random : random % (uint64_t)below);
}

int32_t *flw_call_draw(struct flw_call *call, const char *name, size_t count, int64_t below)
{
    int32_t *host = flw_call_input(call, name, count, sizeof *host);
    for (size_t i = 0; i < count; i++) {
        host[i] = draw(call, below);
    }
    return host;
}

int64_t *flw_call_draw_typed(struct flw_call *call, const char *name, size_t count,
                             const fallow_dtype *dtype, int64_t below)
{
    int64_t *host = flw_call_typed(call, name, count, dtype);
    for (size_t i = 0; i < count; i++) {
        host[i] = draw(call, below);
    }
    return host;
}

void flw_call_written(struct flw_call *call, const char *name, int64_t count)
{
    struct flw_call_input *input = add_input(call, name);
    input->written = count < 0 ? 0 : (uint64_t)count > input->count ? input->count : (size_t)count;
}

void flw_call_omit(struct flw_call *call, const char *name)
{
    add_input(call, name)->host = NULL;
}

static void give(struct flw_bed *bed, struct flw_call_input *input)
{
    size_t each = input->dtype != NULL ? fallow_dtype_bytes(*input->dtype) : input->each;
    if (input->device == NULL || input->room != input->count * each) {
        input->room = input->count * each;
        input->device = flw_bed_buffer(bed, input->field->name, input->room);
    } else if (input->written < input->count) {
        flw_bed_dirty(bed, input->device, input->room, 0xcd);
    }
    if (input->dtype == NULL) {
        flw_bed_write(bed, input->device, input->host, input->written * each);
    } else if (*input->dtype <= FALLOW_U8) {
        flw_bed_write_ints(bed, input->device, input->host, input->written, *input->dtype);
    } else {
        unsigned char *raw = malloc(input->written * each + 1);
        for (size_t i = 0; raw != NULL && i < input->written; i++) {
            flw_number_narrow(raw + i * each, *input->dtype, ((float *)input->host)[i]);
        }
        flw_bed_write(bed, input->device, raw, input->written * each);
        free(raw);
    }
}

void flw_call_give(struct flw_call *call)
{
    for (size_t i = 0; i < call->input_count; i++) {
        struct flw_call_input *input = &call->inputs[i];
        if (input->host != NULL) {
            give(call->bed, input);
        }
        flw_field_set(call->params, input->field, input->host != NULL ? input->device : NULL);
    }
}

/* ---- outputs */

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    struct flw_call *call = inputs;
    struct flw_params_copy params;
    memcpy(params.bytes, call->params, call->module->params_bytes);
    for (size_t i = 0; i < call->step.output_count; i++) {
        flw_field_set(params.bytes, flw_field_of(call->module, call->step.names[i]), outputs[i]);
    }
    FLW_EXPECT_OK(bed, call->module->call(flw_bed_kernels(bed), params.bytes, flw_bed_stream(bed)));
}

static void launch_after(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    struct flw_call *call = inputs;
    if (call->before != NULL) {
        call->before(call, outputs);
    }
    launch(bed, inputs, outputs);
}

fallow_workspace_need flw_call_need(struct flw_call *call)
{
    fallow_workspace_need need;
    fallow_workspace_need_init(&need);
    FLW_EXPECT(call->bed, call->module->query(call->params, &need) == FALLOW_OK, "query refused");
    call->step.output_count = need.output_count;
    for (size_t i = 0; i < need.output_count; i++) {
        size_t bytes = need.outputs[i].bytes;
        call->step.names[i] = need.outputs[i].name;
        call->step.buffer_bytes[i] = bytes;
        call->step.declared_bytes[i] = bytes < call->limit[i] ? bytes : call->limit[i];
    }
    return need;
}

void flw_call_begin(struct flw_call *call)
{
    const struct flw_field *flags = flw_field_find(call->module, "flags");
    (void)flw_call_need(call);
    flw_call_give(call);
    if (flags != NULL) {
        flw_field_set(call->params, flags, flw_bed_flags(call->bed));
    }
}

static void *read_out(struct flw_call *call, size_t i, const void *from, size_t bytes)
{
    call->out[i] = flw_bed_memory(call->bed, bytes);
    flw_bed_read(call->bed, call->out[i], from, bytes);
    return call->out[i];
}

static void check_flags(struct flw_call *call)
{
    const struct flw_field *field = flw_field_find(call->module, "flags");
    if (field != NULL) {
        int32_t flags = flw_bed_read_flags(call->bed, (void *)flw_field_get(call->params, field));
        FLW_EXPECT(call->bed, flags == call->want_flags, "flags are 0x%x, expected 0x%x",
                   (unsigned)flags, (unsigned)call->want_flags);
    }
}

/* ---- the proof */

/* The outputs of proved calls: of the largest and of the last one. */
static struct leftover {
    unsigned char *bytes[FLW_CALL_OUTPUTS];
    size_t counts[FLW_CALL_OUTPUTS], total;
} leftovers[2];

static void keep_outputs(const struct flw_call *call, struct leftover *leftover)
{
    leftover->total = 0;
    for (size_t i = 0; i < call->step.output_count; i++) {
        size_t bytes = call->step.declared_bytes[i];
        free(leftover->bytes[i]);
        leftover->bytes[i] = malloc(bytes + 1);
        leftover->counts[i] = leftover->bytes[i] != NULL ? bytes : 0;
        memcpy(leftover->bytes[i], call->out[i], leftover->counts[i]);
        leftover->total += bytes;
    }
}

/* Fill the outputs with a pattern, then with leftovers, if given, and mark them as unwritten. */
static void dirty_outputs(struct flw_call *call, unsigned char pattern, const struct leftover *left)
{
    for (size_t i = 0; i < call->step.output_count; i++) {
        size_t room = call->step.buffer_bytes[i];
        flw_bed_dirty(call->bed, call->outputs[i], room, pattern);
        if (left != NULL && left->bytes[i] != NULL) {
            flw_bed_write(call->bed, call->outputs[i], left->bytes[i],
                          left->counts[i] < room ? left->counts[i] : room);
            flw_bed_forget(call->bed, call->outputs[i], room);
        }
    }
}

static void run_over(struct flw_call *call, void *const outputs[], const char *memory,
                     bool is_first)
{
    launch_after(call->bed, call, outputs);
    for (size_t i = 0; i < call->step.output_count; i++) {
        size_t bytes = outputs[i] != NULL ? call->step.declared_bytes[i] : 0, at = 0;
        unsigned char *first = call->out[i], *now = flw_bed_memory(call->bed, bytes);
        flw_bed_read(call->bed, now, outputs[i], bytes);
        if (is_first) {
            memcpy(first, now, bytes);
        }
        while (at < bytes && now[at] == first[at]) {
            at++;
        }
        FLW_EXPECT(call->bed, at == bytes,
                   "output '%s' differs over memory %s: byte %zu is 0x%02x, over zeros 0x%02x",
                   call->step.names[i], memory, at, now[at], first[at]);
    }
    FLW_EXPECT(call->bed, flw_bed_violations(call->bed) == 0, "violations over memory %s", memory);
}

/* Run without the outputs that are optional, flags included, if any is required. */
static void run_required(struct flw_call *call)
{
    const struct flw_field *flags = flw_field_find(call->module, "flags");
    char *word = flags != NULL ? flw_field_get(call->params, flags) : NULL;
    void *outputs[FLW_CALL_OUTPUTS] = {NULL};
    size_t required = 0;
    for (size_t i = 0; i < call->step.output_count; i++) {
        if (!flw_field_of(call->module, call->step.names[i])->is_optional) {
            outputs[i] = call->outputs[i];
            required++;
        }
    }
    if (required > 0) {
        if (flags != NULL) {
            flw_field_set(call->params, flags, NULL);
        }
        dirty_outputs(call, 0xff, NULL);
        run_over(call, outputs, "without optional outputs", false);
        if (flags != NULL) {
            flw_field_set(call->params, flags, word);
        }
    }
}

void flw_call_prove(struct flw_call *call)
{
    static const struct {
        const char *memory;
        unsigned char pattern;
        const struct leftover *left;
    } runs[] = {{"of zeros", 0, NULL},
                {"of 0xff", 0xff, NULL},
                {"of 0x7f", 0x7f, NULL},
                {"left by a larger call", 0x7f, &leftovers[0]},
                {"left by the last call", 0x7f, &leftovers[1]}};
    flw_call_begin(call);
    for (size_t i = 0; i < call->step.output_count; i++) {
        call->outputs[i] =
            flw_bed_buffer(call->bed, call->step.names[i], call->step.buffer_bytes[i]);
        call->out[i] = flw_bed_memory(call->bed, call->step.declared_bytes[i]);
    }
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        dirty_outputs(call, runs[r].pattern, runs[r].left);
        run_over(call, call->outputs, runs[r].memory, r == 0);
    }
    run_required(call);
    keep_outputs(call, &leftovers[1]);
    if (leftovers[1].total >= leftovers[0].total) {
        keep_outputs(call, &leftovers[0]);
    }
    check_flags(call);
}

/* ---- other runs */

void flw_call_launch(struct flw_call *call, void *const outputs[])
{
    launch_after(call->bed, call, outputs);
}

void flw_call_run(struct flw_call *call)
{
    flw_call_begin(call);
    for (size_t i = 0; i < call->step.output_count; i++) {
        size_t bytes = call->step.buffer_bytes[i] + GUARD_BYTES;
        unsigned char *marks = memset(flw_bed_memory(call->bed, bytes), MARK, bytes);
        call->outputs[i] = flw_bed_upload(call->bed, call->step.names[i], marks, bytes);
    }
    launch_after(call->bed, call, call->outputs);
    for (size_t i = 0; i < call->step.output_count; i++) {
        size_t bytes = call->step.buffer_bytes[i];
        unsigned char *got = read_out(call, i, call->outputs[i], bytes + GUARD_BYTES);
        for (size_t at = bytes; at < bytes + GUARD_BYTES; at++) {
            FLW_EXPECT(call->bed, got[at] == MARK, "byte %zu behind '%s' was written", at - bytes,
                       call->step.names[i]);
        }
    }
    check_flags(call);
    FLW_EXPECT(call->bed, flw_bed_violations(call->bed) == 0, "violations in a run");
}

void flw_call_capture(struct flw_call *call)
{
    flw_call_begin(call);
    for (size_t i = 0; i < call->step.output_count; i++) {
        call->outputs[i] =
            flw_bed_buffer(call->bed, call->step.names[i], call->step.buffer_bytes[i]);
    }
    call->graph = flw_bed_capture(call->bed, launch, call, call->outputs);
}

void flw_call_replay(struct flw_call *call)
{
    const struct flw_field *flags = flw_field_find(call->module, "flags");
    (void)flw_call_need(call);
    flw_call_give(call);
    for (size_t i = 0; i < call->step.output_count; i++) {
        flw_bed_dirty(call->bed, call->outputs[i], call->step.buffer_bytes[i], 0x7f);
    }
    if (flags != NULL) {
        flw_bed_write(call->bed, flw_field_get(call->params, flags), &(int32_t){0}, 4);
    }
    if (call->before != NULL) {
        call->before(call, call->outputs);
    }
    flw_bed_replay(call->bed, call->graph);
    for (size_t i = 0; i < call->step.output_count; i++) {
        (void)read_out(call, i, call->outputs[i], call->step.declared_bytes[i]);
    }
    check_flags(call);
}

static size_t index_of(struct flw_call *call, const char *name)
{
    size_t i = 0;
    while (i < call->step.output_count && strcmp(call->step.names[i], name) != 0) {
        i++;
    }
    if (i == call->step.output_count) {
        fprintf(stderr, "%s has no output '%s' now\n", call->module->name, name);
        exit(1);
    }
    return i;
}

void *flw_call_out(struct flw_call *call, const char *name)
{
    return call->out[index_of(call, name)];
}

void flw_call_expect(struct flw_call *call, const char *name, const void *want)
{
    size_t output = index_of(call, name), at = 0, bytes = call->step.declared_bytes[output];
    const int32_t *got = call->out[output], *words = want;
    while (at < bytes / 4 && got[at] == words[at]) {
        at++;
    }
    FLW_EXPECT(call->bed, at == bytes / 4, "%s[%zu] is %d, expected %d", name, at, got[at],
               words[at]);
}
