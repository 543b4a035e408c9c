/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what `fallow doctor` found out: a sheet of findings in sections, and advice. Each part
 * looks at one thing and writes to the sheet; the sheet prints itself as text or JSON. Does not:
 * change a setting, or take device memory for longer than a measurement.
 */
#ifndef FLW_TOOL_DOCTOR_H
#define FLW_TOOL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

#define FLW_DOCTOR_TEXT_BYTES 288
#define FLW_DOCTOR_ENTRIES    256
#define FLW_DOCTOR_ADVICE     24

enum flw_doctor_kind {
    FLW_DOCTOR_TEXT,
    FLW_DOCTOR_COUNT,
    FLW_DOCTOR_BYTES,
    FLW_DOCTOR_NS,
    FLW_DOCTOR_BOOL
};

struct flw_doctor_entry {
    char section[32]; /* entries of one section follow each other */
    char key[48];
    enum flw_doctor_kind kind;
    uint64_t number;
    char text[FLW_DOCTOR_TEXT_BYTES];
};

struct flw_doctor_sheet {
    struct flw_doctor_entry entries[FLW_DOCTOR_ENTRIES];
    size_t entry_count;
    char advice[FLW_DOCTOR_ADVICE][FLW_DOCTOR_TEXT_BYTES];
    size_t advice_count;
    char section[32]; /* of the entries added next */
    bool is_full;     /* something did not fit: a mistake of this program */
};

void flw_doctor_begin(struct flw_doctor_sheet *sheet, const char *section);
void flw_doctor_text(struct flw_doctor_sheet *sheet, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void flw_doctor_number(struct flw_doctor_sheet *sheet, const char *key, enum flw_doctor_kind kind,
                       uint64_t number);
/* One line that names a thing and what to do about it. */
void flw_doctor_advise(struct flw_doctor_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void flw_doctor_print(const struct flw_doctor_sheet *sheet, bool is_json);

/* A driver and one of its devices, opened. */
struct flw_doctor_patient {
    struct flw_driver driver;
    const char *driver_name; /* as flw_driver_open takes it */
    bool is_sim;
    int ordinal; /* the device that is examined closely */
    CUdevice device;
    CUcontext context; /* NULL: not current, nothing to measure */
    bool has_vmm, has_pools, has_fd, has_fabric;
};

void flw_doctor_see_host(struct flw_doctor_sheet *sheet);
/* All devices, then the one. False: the device cannot be used; the advice says why. */
bool flw_doctor_see_driver(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient);
void flw_doctor_see_costs(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient);
/* Makes a pool and allocates from it, as a program would. False: that failed. */
bool flw_doctor_see_pool(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient);

#endif
