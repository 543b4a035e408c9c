/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the examination of `fallow doctor`. Each part looks at one thing, prints its findings at once, as text or JSON,
 * and keeps advice for the end.
 * Does not: change a setting, or keep device memory for longer than a measurement.
 */
#ifndef FLW_TOOL_DOCTOR_H
#define FLW_TOOL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"
#include "trace/io/jsonwriter.h"

#define FLW_DOCTOR_TEXT_BYTES 288

enum flw_doctor_kind {
    FLW_DOCTOR_COUNT,
    FLW_DOCTOR_BYTES,
    FLW_DOCTOR_NS,
    FLW_DOCTOR_BOOL
};

/* Zero all members except json.file and is_json to begin. */
struct flw_doctor {
    struct flw_json_writer json; /* json.file: text is printed there, too */
    bool is_json;
    char section[32]; /* of the next finding; "" if its heading has been printed */
    bool has_section; /* a heading has been printed */
    char (*advice)[FLW_DOCTOR_TEXT_BYTES]; /* grown by flw_host_grow */
    size_t advice_count, advice_capacity;
    struct flw_driver driver;
    const char *driver_name; /* argument of flw_driver_open */
    bool is_sim;
    int ordinal; /* the device that is examined closely */
    CUdevice device;
    CUcontext context; /* NULL: none is current, so nothing can be measured */
    bool has_vmm;
};

/* Begin a section. A section without findings is not printed. */
void flw_doctor_begin(struct flw_doctor *doctor, const char *section);
/* Print a finding. */
void flw_doctor_text(struct flw_doctor *doctor, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void flw_doctor_number(struct flw_doctor *doctor, const char *key, enum flw_doctor_kind kind,
                       uint64_t number);
/* Keep one line of advice: it names a problem and the remedy. */
void flw_doctor_advise(struct flw_doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void flw_doctor_print_advice(struct flw_doctor *doctor);
/* Return true for CUDA_SUCCESS; else keep advice about the failed call. `remedy` NULL: look at nvidia-smi. */
bool flw_doctor_check(struct flw_doctor *doctor, CUresult result, const char *call,
                      const char *remedy);

/* Make a driver call and check the result. */
#define FLW_DOCTOR_TRY(doctor, call, remedy, ...) \
    flw_doctor_check(doctor, (doctor)->driver.call(__VA_ARGS__), #call, remedy)

void flw_doctor_see_host(struct flw_doctor *doctor);
/* Show all devices, and make the context of one current. Returns false if that device cannot be used. */
bool flw_doctor_see_driver(struct flw_doctor *doctor);
void flw_doctor_see_costs(struct flw_doctor *doctor);
/* Make a pool and allocate from the pool. Returns false if that failed. */
bool flw_doctor_see_pool(struct flw_doctor *doctor);
/* Release the context, and close the driver. */
void flw_doctor_leave(struct flw_doctor *doctor);

/* Return the properties of plain device memory. */
CUmemAllocationProp flw_doctor_properties(const struct flw_doctor *doctor);

#endif
