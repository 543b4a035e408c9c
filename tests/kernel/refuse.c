/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kernel/call.h"

static bool is_pointer(const struct flw_field *field)
{
    return field->kind == FLW_FIELD_INPUT || field->kind == FLW_FIELD_OUTPUT;
}

struct refusals {
    struct flw_call *call;
    struct flw_params_copy good, bad;
};

static void set_int(void *params, const struct flw_field *field, int64_t value)
{
    memcpy((char *)params + field->offset, &value, field->bytes); /* little endian */
}

static bool fits(const struct flw_field *field, int64_t value)
{
    return field->bytes == 8   ? true
           : field->bytes == 4 ? value >= INT32_MIN && value <= INT32_MAX
                               : value >= 0 && value <= UINT8_MAX;
}

/* Expect that `bad` is refused with both words, and that nothing is launched. */
static void expect_refused(struct refusals *refusals, const char *what, const char *word,
                           const char *other)
{
    struct flw_bed *bed = refusals->call->bed;
    uint64_t launched = fallow_kernels_launch_count(flw_bed_kernels(bed));
    fallow_status status = refusals->call->module->call(flw_bed_kernels(bed), refusals->bad.bytes,
                                                        flw_bed_stream(bed));
    FLW_EXPECT(bed, status == FALLOW_INVALID_ARGUMENT, "%s: %s", what, fallow_status_name(status));
    FLW_EXPECT(bed, flw_bed_error_has(bed, word) && flw_bed_error_has(bed, other),
               "%s: no '%s' and '%s' in: %s", what, word, other, flw_bed_last_error(bed));
    FLW_EXPECT(bed, fallow_kernels_launch_count(flw_bed_kernels(bed)) == launched,
               "%s: something was launched", what);
    refusals->bad = refusals->good;
}

/* Expect the refusal of a value by the call and by the query, in a sentence about this value. */
static void refuse_value(struct refusals *refusals, const struct flw_field *field, int64_t value)
{
    char what[80];
    fallow_workspace_need need;
    if (!fits(field, value)) {
        return;
    }
    fallow_workspace_need_init(&need);
    snprintf(what, sizeof what, field->kind == FLW_FIELD_COUNT ? "%.40s is %lld," : "%.40s is ",
             field->name, (long long)value);
    set_int(refusals->bad.bytes, field, value);
    FLW_EXPECT(refusals->call->bed,
               refusals->call->module->query(refusals->bad.bytes, &need) == FALLOW_INVALID_ARGUMENT,
               "the query does not refuse that %s", what);
    expect_refused(refusals, what, what, "");
}

static void refuse_pointer(struct refusals *refusals, const struct flw_field *field, char *scratch)
{
    char what[80], *good = flw_field_get(refusals->good.bytes, field);
    snprintf(what, sizeof what, "%.40s NULL or unaligned", field->name);
    if (!field->is_optional) {
        flw_field_set(refusals->bad.bytes, field, NULL);
        expect_refused(refusals, what, field->name, "is NULL");
    }
    if (!field->is_bytes) {
        flw_field_set(refusals->bad.bytes, field, (good != NULL ? good : scratch) + 1);
        expect_refused(refusals, what, field->name, "is not aligned");
    }
}

/* Expect that the output may begin in no other buffer, but for inputs that it may equal. */
static void refuse_overlaps(struct refusals *refusals, const struct flw_field *output)
{
    const struct flw_module *module = refusals->call->module;
    for (size_t i = 0; i < module->field_count; i++) {
        const struct flw_field *other = &module->fields[i];
        char *at = is_pointer(other) ? flw_field_get(refusals->good.bytes, other) : NULL, what[100];
        if (at != NULL && other != output) {
            snprintf(what, sizeof what, " %.40s ", other->name);
            bool may_equal = output->alias != NULL && strstr(output->alias, what) != NULL;
            snprintf(what, sizeof what, "%.40s in %.40s", output->name, other->name);
            flw_field_set(refusals->bad.bytes, output, at + (may_equal ? 16 : 0));
            expect_refused(refusals, what, output->name, "overlap");
        }
    }
}

static void refuse_field(struct refusals *refusals, const struct flw_field *field, char *scratch)
{
    if (field->kind == FLW_FIELD_COUNT) {
        if (field->least > INT64_MIN) {
            refuse_value(refusals, field, field->least - 1);
        }
        if (field->most < INT64_MAX) {
            refuse_value(refusals, field, field->most + 1);
        }
    } else if (field->kind == FLW_FIELD_DTYPE) {
        for (int dtype = FALLOW_I32; dtype <= FALLOW_E4M3 + 1; dtype++) {
            if ((field->most >> dtype & 1) == 0) {
                refuse_value(refusals, field, dtype);
            }
        }
        refuse_value(refusals, field, 99);
    } else if (is_pointer(field)) {
        refuse_pointer(refusals, field, scratch);
        if (field->kind == FLW_FIELD_OUTPUT) {
            refuse_overlaps(refusals, field);
        }
    }
}

static int64_t number(const struct refusals *refusals, const char *text)
{
    static const char *const dtypes[] = {"I32", "I64", "U8", "F32", "F16", "BF16", "E4M3"};
    for (int i = 0; i < 7; i++) {
        if (strcmp(text, dtypes[i]) == 0) {
            return i;
        }
    }
    char *end = NULL;
    int64_t value = strcmp(text, "NULL") == 0 ? 0 : strtoll(text, &end, 0);
    if (text[0] == '@') {
        char name[64];
        size_t length = strcspn(text + 1, "+");
        snprintf(name, sizeof name, "%.*s", (int)length, text + 1);
        value = strtoll(text + 1 + length, &end, 0) +
                (int64_t)(uintptr_t)flw_field_get(refusals->good.bytes,
                                                  flw_field_of(refusals->call->module, name));
    }
    if (end != NULL && *end != 0) {
        fprintf(stderr, "%s: '%s' is no value\n", refusals->call->module->name, text);
        exit(1);
    }
    return value;
}

static void refuse_case(struct refusals *refusals, const char *text)
{
    char copy[200], *words = copy, *next = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    char *colon = strstr(copy, ": ");
    if (colon == NULL) {
        fprintf(stderr, "%s: no words in '%s'\n", refusals->call->module->name, text);
        exit(1);
    }
    *colon = 0;
    while ((words = strtok_r(next == NULL ? copy : NULL, " ", &next)) != NULL) {
        char *value = strchr(words, '=');
        *value++ = 0;
        const struct flw_field *field = flw_field_of(refusals->call->module, words);
        if (field->kind == FLW_FIELD_FLOAT) {
            float real = strtof(value, NULL);
            memcpy(refusals->bad.bytes + field->offset, &real, sizeof real);
        } else {
            set_int(refusals->bad.bytes, field, number(refusals, value));
        }
    }
    expect_refused(refusals, text, colon + 2, "");
}

void flw_call_refuse(struct flw_call *call, const char *const *cases, size_t count)
{
    struct refusals refusals = {.call = call};
    struct flw_bed *bed = call->bed;
    const struct flw_module *module = call->module;
    char *scratch = flw_bed_buffer(bed, "scratch", 4096);
    flw_call_begin(call);
    memcpy(refusals.good.bytes, call->params, module->params_bytes);
    for (size_t i = 0; i < call->step.output_count; i++) {
        call->outputs[i] = flw_bed_buffer(bed, call->step.names[i], call->step.buffer_bytes[i]);
        flw_field_set(refusals.good.bytes, flw_field_of(module, call->step.names[i]),
                      call->outputs[i]);
    }
    flw_call_launch(call, call->outputs);
    refusals.bad = refusals.good;
    for (size_t i = 0; i < module->field_count; i++) {
        refuse_field(&refusals, &module->fields[i], scratch);
    }
    for (size_t i = 0; i < count; i++) {
        refuse_case(&refusals, cases[i]);
    }
    memset(refusals.bad.bytes, 0, sizeof(size_t));
    expect_refused(&refusals, "struct_size of 0", "struct_size", "");
    FLW_EXPECT(bed,
               module->call(NULL, refusals.good.bytes, flw_bed_stream(bed)) ==
                   FALLOW_INVALID_ARGUMENT,
               "NULL kernels are not refused");
    FLW_EXPECT(bed, module->query(refusals.good.bytes, NULL) == FALLOW_INVALID_ARGUMENT,
               "a NULL need is not refused");
}
