/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the 16 and 8 bit float formats on the host: exact widening to float, narrowing to nearest
 * with ties to even, as the device's conversion instructions.
 * Does not: arithmetic. */
#ifndef FLW_KERNELS_NUMBER_H
#define FLW_KERNELS_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fallow/kernels.h"

static inline uint32_t flw_number_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float flw_number_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* NaN becomes 0x7fff, as in cvt.rn.bf16.f32. */
static inline uint16_t flw_bf16_narrow(float value)
{
    uint32_t bits = flw_number_bits(value);
    if (value != value) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float flw_bf16_widen(uint16_t raw)
{
    return flw_number_float((uint32_t)raw << 16);
}

static inline float flw_f16_widen(uint16_t raw)
{
    uint32_t sign = (uint32_t)(raw & 0x8000u) << 16, exponent = raw >> 10 & 31u,
             rest = raw & 0x3ffu;
    if (exponent == 31) {
        return flw_number_float(sign | 0x7f800000u | rest << 13);
    }
    if (exponent == 0) {
        float tiny = ldexpf((float)rest, -24);
        return sign != 0 ? -tiny : tiny;
    }
    return flw_number_float(sign | (exponent + 112) << 23 | rest << 13);
}

/* NaN becomes 0x7fff, as in cvt.rn.f16.f32. */
static inline uint16_t flw_f16_narrow(float value)
{
    uint32_t bits = flw_number_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0x7fff;
    }
    if (size >= 0x477ff000u) { /* rounds to 65,536 or more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x38800000u) { /* subnormal in f16: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)rintf(ldexpf(flw_number_float(size), 24)));
    }
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | ((size - 0x38000000u) >> 13));
}

static inline float flw_e4m3_widen(uint8_t raw)
{
    uint32_t exponent = raw >> 3 & 15u, rest = raw & 7u;
    float size =
        exponent == 0 ? ldexpf((float)rest, -9) : ldexpf((float)(8 + rest), (int)exponent - 10);
    if ((raw & 0x7fu) == 0x7fu) {
        size = NAN;
    }
    return (raw & 0x80u) != 0 ? -size : size;
}

/* Saturates at 448, as cvt.rn.satfinite.e4m3x2.f32; NaN becomes 0x7f. */
static inline uint8_t flw_e4m3_narrow(float value)
{
    uint8_t sign = signbit(value) ? 0x80u : 0;
    float size = fabsf(value);
    int exponent = 0;
    if (value != value) {
        return 0x7f;
    }
    if (size >= 448.0f) {
        return (uint8_t)(sign | 0x7eu);
    }
    if (size < 0.015625f) { /* subnormal: a multiple of 2^-9 */
        return (uint8_t)(sign | (uint8_t)rintf(ldexpf(size, 9)));
    }
    (void)frexpf(size, &exponent); /* size = f 2^exponent, 1/2 <= f < 1 */
    uint32_t steps = (uint32_t)rintf(ldexpf(size, 4 - exponent)); /* 8 to 16 eighths */
    return (uint8_t)(sign | ((((uint32_t)(exponent + 6)) << 3) + steps - 8));
}

/* Convert one element of a float type, in the memory format, to float. */
static inline float flw_number_widen(const unsigned char *raw, fallow_dtype dtype)
{
    uint16_t half;
    float value;
    switch (dtype) {
    case FALLOW_F16:
    case FALLOW_BF16:
        memcpy(&half, raw, sizeof half);
        return dtype == FALLOW_F16 ? flw_f16_widen(half) : flw_bf16_widen(half);
    case FALLOW_E4M3:
        return flw_e4m3_widen(*raw);
    default:
        memcpy(&value, raw, sizeof value);
        return value;
    }
}

static inline void flw_number_narrow(unsigned char *raw, fallow_dtype dtype, float value)
{
    uint16_t half;
    switch (dtype) {
    case FALLOW_F16:
    case FALLOW_BF16:
        half = dtype == FALLOW_F16 ? flw_f16_narrow(value) : flw_bf16_narrow(value);
        memcpy(raw, &half, sizeof half);
        return;
    case FALLOW_E4M3:
        *raw = flw_e4m3_narrow(value);
        return;
    default:
        memcpy(raw, &value, sizeof value);
    }
}

#endif
