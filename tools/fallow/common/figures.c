/* SPDX-License-Identifier: Apache-2.0 */
#include "common/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

const char *flw_format_count(uint64_t value, char *out)
{
    char digits[24], *at = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    if (value == FLW_NOT_APPLICABLE) {
        return strcpy(out, "-");
    }
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *at++ = ',';
        }
        *at++ = digits[i];
    }
    *at = '\0';
    return out;
}

static const char *format_scaled(double value, double step, const char *const *units, int count,
                                 char *out)
{
    int unit = 0;
    for (; unit + 1 < count && value >= step - 0.5; unit++) {
        value /= step;
    }
    int decimals = value == floor(value) || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, FLW_FIGURE_BYTES, "%.*f %s", decimals, value, units[unit]);
    return out;
}

const char *flw_format_size(uint64_t bytes, char *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return bytes == FLW_NOT_APPLICABLE ? strcpy(out, "-")
                                       : format_scaled((double)bytes, 1024, units, 7, out);
}

const char *flw_format_time(double ns, char *out)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return format_scaled(ns, 1000, units, 4, out);
}

struct flw_unit flw_unit_choose(uint64_t peak_bytes)
{
    struct flw_unit kib = {"KiB", FLW_KIB, 0}, mib = {"MiB", FLW_MIB, 0}, gib = {"GiB", FLW_GIB, 2};
    return peak_bytes < 4 * FLW_MIB ? kib : peak_bytes < 4 * FLW_GIB ? mib : gib;
}

const char *flw_format_bytes(uint64_t bytes, struct flw_unit unit, char *out)
{
    if (bytes == FLW_NOT_APPLICABLE || unit.decimals == 0) {
        return flw_format_count(
            bytes == FLW_NOT_APPLICABLE ? bytes : (bytes + unit.bytes / 2) / unit.bytes, out);
    }
    snprintf(out, FLW_FIGURE_BYTES, "%.*f", unit.decimals, (double)bytes / (double)unit.bytes);
    return out;
}

void flw_append(char *text, size_t room, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, room - length, format, arguments);
    va_end(arguments);
}

const char *flw_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}
