/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables and the computation, eight bytes a step; the same with x86's instruction. */
#include "record/crc32c.h"

#include <string.h>

#define POLYNOMIAL UINT32_C(0x82F63B78) /* reflected */

#if defined(__x86_64__)
#include <cpuid.h>

static bool find_instruction(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
}

__attribute__((target("sse4.2"))) static uint32_t add_fast(uint32_t value, const unsigned char *at,
                                                           size_t count)
{
    uint64_t wide = value;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    value = (uint32_t)wide;
    for (; count > 0; count--, at++) {
        value = __builtin_ia32_crc32qi(value, *at);
    }
    return value;
}
#else
static bool find_instruction(void)
{
    return false;
}

static uint32_t add_fast(uint32_t value, const unsigned char *at, size_t count)
{
    (void)at;
    (void)count;
    return value;
}
#endif

void flw_crc32c_init(struct flw_crc32c *crc)
{
    crc->has_instruction = find_instruction();
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1) != 0 ? POLYNOMIAL : 0);
        }
        crc->tables[0][byte] = value;
    }
    for (int zeros = 1; zeros < 8; zeros++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = crc->tables[zeros - 1][byte];
            crc->tables[zeros][byte] = (value >> 8) ^ crc->tables[0][value & 255];
        }
    }
}

uint32_t flw_crc32c_add(const struct flw_crc32c *crc, uint32_t before, const void *bytes,
                        size_t count)
{
    const unsigned char *at = bytes;
    uint32_t value = ~before;
    if (crc->has_instruction) {
        return ~add_fast(value, at, count);
    }
    for (; count >= 8; count -= 8, at += 8) {
        value ^=
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        value = crc->tables[7][value & 255] ^ crc->tables[6][value >> 8 & 255] ^
                crc->tables[5][value >> 16 & 255] ^ crc->tables[4][value >> 24] ^
                crc->tables[3][at[4]] ^ crc->tables[2][at[5]] ^ crc->tables[1][at[6]] ^
                crc->tables[0][at[7]];
    }
    for (; count > 0; count--, at++) {
        value = (value >> 8) ^ crc->tables[0][(value ^ *at) & 255];
    }
    return ~value;
}
