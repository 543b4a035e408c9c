/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/figures.h"
#include "common/tool_host.h"

void flw_doctor_begin(struct flw_doctor *doctor, const char *section)
{
    snprintf(doctor->section, sizeof doctor->section, "%s", section);
}

static void end_section(struct flw_doctor *doctor)
{
    if (doctor->has_section) {
        flw_json_end(&doctor->json, '}');
        doctor->json.line = "";
    }
}

/* Print the heading of a new section, and the key of a line of text. */
static void begin_finding(struct flw_doctor *doctor, const char *key)
{
    FILE *out = doctor->json.file;
    if (doctor->section[0] != '\0' && doctor->is_json) {
        end_section(doctor);
        flw_json_begin(&doctor->json, doctor->section, '{');
    } else if (doctor->section[0] != '\0') {
        fprintf(out, "%s%s\n", doctor->has_section ? "\n" : "", doctor->section);
    }
    doctor->has_section = true;
    doctor->section[0] = '\0';
    if (!doctor->is_json) {
        fprintf(out, "  %-34s ", key);
    }
}

static void print_text(struct flw_doctor *doctor, const char *key, const char *text)
{
    begin_finding(doctor, key);
    if (doctor->is_json) {
        flw_json_text(&doctor->json, key, text);
    } else {
        fprintf(doctor->json.file, "%s\n", text);
    }
}

void flw_doctor_text(struct flw_doctor *doctor, const char *key, const char *format, ...)
{
    char text[FLW_DOCTOR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_text(doctor, key, text);
}

void flw_doctor_number(struct flw_doctor *doctor, const char *key, enum flw_doctor_kind kind,
                       uint64_t number)
{
    char text[FLW_FIGURE_BYTES];
    if (doctor->is_json) {
        begin_finding(doctor, key);
        if (kind == FLW_DOCTOR_BOOL) {
            flw_json_bool(&doctor->json, key, number != 0);
        } else {
            flw_json_number(&doctor->json, key, number);
        }
        return;
    }
    if (kind == FLW_DOCTOR_BYTES) {
        flw_format_size(number, text);
    } else if (kind == FLW_DOCTOR_NS) {
        snprintf(text, sizeof text, "%10.2f us", (double)number / 1000);
    } else if (kind == FLW_DOCTOR_COUNT) {
        snprintf(text, sizeof text, "%" PRIu64, number);
    }
    print_text(doctor, key, kind != FLW_DOCTOR_BOOL ? text : number != 0 ? "yes" : "no");
}

void flw_doctor_advise(struct flw_doctor *doctor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    FLW_HOST_GROW(doctor->advice, doctor->advice_capacity, doctor->advice_count + 1);
    vsnprintf(doctor->advice[doctor->advice_count++], sizeof *doctor->advice, format, arguments);
    va_end(arguments);
}

void flw_doctor_print_advice(struct flw_doctor *doctor)
{
    FILE *out = doctor->json.file;
    if (doctor->is_json) {
        end_section(doctor);
        flw_json_begin(&doctor->json, "advice", '[');
    } else {
        fprintf(out, "\nrecommended settings\n%s",
                doctor->advice_count == 0 ? "  nothing: the defaults fit\n" : "");
    }
    for (size_t i = 0; i < doctor->advice_count; i++) {
        if (doctor->is_json) {
            flw_json_text(&doctor->json, NULL, doctor->advice[i]);
        } else {
            fprintf(out, "  - %s\n", doctor->advice[i]);
        }
    }
    fputs(doctor->is_json ? "]}\n" : "", out);
}

bool flw_doctor_check(struct flw_doctor *doctor, CUresult result, const char *call,
                      const char *remedy)
{
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(doctor, "%.*s failed with %s: %s", (int)strcspn(call, "_"), call,
                          flw_driver_error_name(&doctor->driver, result),
                          remedy != NULL ? remedy : "check the device with nvidia-smi");
    }
    return result == CUDA_SUCCESS;
}

CUmemAllocationProp flw_doctor_properties(const struct flw_doctor *doctor)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = doctor->ordinal}};
}
