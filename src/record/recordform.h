/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of the record codecs, and codec 0; record.h specifies both. */
#ifndef FLW_RECORD_RECORDFORM_H
#define FLW_RECORD_RECORDFORM_H

#include "record/record.h"

/* KIND of a SEGMENT */
#define FLW_RECORD_LARGE      1
#define FLW_RECORD_EXPANDABLE 2

bool flw_record_get_number32(struct flw_wire_in *in, uint32_t *out);

/* Data after the fields known here is of a later minor version, and skipped. */
void flw_record_put_body(const struct flw_record *record, struct flw_wire_out *out);
enum flw_record_result flw_record_get_body(struct flw_wire_in in, struct flw_record *record);

void flw_record_put_raw(struct flw_record_state *state, const struct flw_record *record,
                        struct flw_wire_out *out);
enum flw_record_result flw_record_get_raw(struct flw_record_state *state, struct flw_wire_in *in,
                                          struct flw_record *record);

#endif
