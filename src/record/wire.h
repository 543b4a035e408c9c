/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: encoding of numbers: little-endian of a fixed width, and varints.
 *
 * A varint is a number in groups of seven bits, the lowest first; every byte except the last has
 * the top bit set. A tagged varint has one extra bit, in bit 0 of the first byte, above it six
 * bits of the number, the rest as a varint if the top bit is set: 65 bits in all. A signed number
 * is zigzagged: 0, -1, 1, -2, 2 are 0, 1, 2, 3, 4. */
#ifndef FLW_RECORD_WIRE_H
#define FLW_RECORD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_WIRE_VARINT_BYTES 10 /* at most, including tagged ones */

/* Place of the next byte. The caller has made room. */
struct flw_wire_out {
    unsigned char *at;
};

/* The rest of the input. */
struct flw_wire_in {
    const unsigned char *at, *end;
};

static inline void flw_wire_put_fixed(struct flw_wire_out *out, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        *out->at++ = (unsigned char)(number >> (8 * i));
    }
}

static inline void flw_wire_put_varint(struct flw_wire_out *out, uint64_t number)
{
    while (number >= 128) {
        *out->at++ = (unsigned char)(number | 128);
        number >>= 7;
    }
    *out->at++ = (unsigned char)number;
}

static inline void flw_wire_put_tagged(struct flw_wire_out *out, bool tag, uint64_t number)
{
    *out->at++ = (unsigned char)((number > 63 ? 128 : 0) | (number & 63) << 1 | tag);
    if (number > 63) {
        flw_wire_put_varint(out, number >> 6);
    }
}

/* Each get returns false, and sets *out to 0, if the bytes end too early or the number is too
 * large. */
static inline bool flw_wire_get_fixed(struct flw_wire_in *in, unsigned bytes, uint64_t *out)
{
    *out = 0;
    if ((size_t)(in->end - in->at) < bytes) {
        return false;
    }
    for (unsigned i = 0; i < bytes; i++) {
        *out |= (uint64_t)*in->at++ << (8 * i);
    }
    return true;
}

static inline bool flw_wire_get_varint(struct flw_wire_in *in, uint64_t *out)
{
    uint64_t number = 0;
    *out = 0;
    for (unsigned shift = 0; in->at < in->end && shift < 64; shift += 7) {
        uint64_t byte = *in->at++;
        if (shift == 63 && byte > 1) {
            return false;
        }
        number |= (byte & 127) << shift;
        if (byte < 128) {
            *out = number;
            return true;
        }
    }
    return false;
}

static inline bool flw_wire_get_tagged(struct flw_wire_in *in, bool *out_tag, uint64_t *out)
{
    uint64_t rest = 0;
    *out = 0;
    *out_tag = false;
    if (in->at == in->end) {
        return false;
    }
    uint64_t first = *in->at++;
    if (first >= 128 && (!flw_wire_get_varint(in, &rest) || rest > UINT64_MAX >> 6)) {
        return false;
    }
    *out_tag = (first & 1) != 0;
    *out = rest << 6 | (first >> 1 & 63);
    return true;
}

static inline uint64_t flw_wire_zigzag(uint64_t difference)
{
    return difference << 1 ^ ((difference >> 63) != 0 ? UINT64_MAX : 0);
}

static inline uint64_t flw_wire_unzigzag(uint64_t number)
{
    return number >> 1 ^ ((number & 1) != 0 ? UINT64_MAX : 0);
}

#endif
