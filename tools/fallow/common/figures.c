/* SPDX-License-Identifier: Apache-2.0 */
#include "common/figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

struct flw_unit flw_unit_choose(uint64_t peak_bytes)
{
    struct flw_unit mib = {"MiB", FLW_MIB};
    struct flw_unit kib = {"KiB", FLW_KIB};
    return peak_bytes < 4 * FLW_MIB ? kib : mib;
}

const char *flw_format_count(uint64_t value, char *out)
{
    char digits[24], *at = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *at++ = ',';
        }
        *at++ = digits[i];
    }
    *at = '\0';
    return out;
}

void flw_format_optional(uint64_t value, char *out)
{
    if (value == FLW_NOT_APPLICABLE) {
        strcpy(out, "-");
    } else {
        flw_format_count(value, out);
    }
}

void flw_format_bytes(uint64_t bytes, struct flw_unit unit, char *out)
{
    flw_format_optional(bytes == FLW_NOT_APPLICABLE ? bytes : (bytes + unit.bytes / 2) / unit.bytes,
                        out);
}
