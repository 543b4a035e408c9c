/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the position of each field of the headers. */
#include "record/frame.h"

#include <string.h>

#include "record/ftracewriter.h"
#include "record/wire.h"

#define CRC_BYTES 4

/* Fields between magic and checksum, with their sizes in bytes. */
/* clang-format off */
#define FILE_FIELDS(X) \
    X(major, 2) X(minor, 2) X(header_bytes, 4) X(flags, 8) X(wall_ns, 8) X(mono_ns, 8) \
    X(ticks_per_second, 8) X(process, 4) X(device, 4) X(device_count, 4)
#define CHUNK_FIELDS(X, GAP) \
    X(type, 1) X(codec, 1) GAP(2) X(payload_bytes, 4) X(unpacked_bytes, 4) X(record_count, 4) \
    X(thread, 4) X(first_event, 8) X(first_block, 8) X(base_ns, 8) X(time_scale, 4) GAP(4) \
    X(payload_crc, 4)
/* clang-format on */

static void put_crc(const struct flw_crc32c *crc, struct flw_wire_out *out, unsigned char *begin)
{
    flw_wire_put_fixed(out, flw_crc32c_add(crc, 0, begin, FLW_FRAME_BYTES - CRC_BYTES), CRC_BYTES);
}

static bool has_crc(const struct flw_crc32c *crc, const unsigned char *bytes)
{
    struct flw_wire_in in = {bytes + FLW_FRAME_BYTES - CRC_BYTES, bytes + FLW_FRAME_BYTES};
    uint64_t wanted;
    return flw_wire_get_fixed(&in, CRC_BYTES, &wanted) &&
           wanted == flw_crc32c_add(crc, 0, bytes, FLW_FRAME_BYTES - CRC_BYTES);
}

/* Read the next field; the callers have 64 bytes. */
static uint64_t take(struct flw_wire_in *in, unsigned bytes)
{
    uint64_t number = 0;
    (void)flw_wire_get_fixed(in, bytes, &number);
    return number;
}

void flw_frame_put_file(const struct flw_crc32c *crc, const struct flw_frame_file *file,
                        unsigned char *out)
{
    struct flw_wire_out to = {out};
    memcpy(to.at, FLW_FTRACE_MAGIC, 8);
    to.at += 8;
#define X(field, bytes) flw_wire_put_fixed(&to, file->field, bytes);
    FILE_FIELDS(X)
#undef X
    put_crc(crc, &to, out);
}

bool flw_frame_get_file(const struct flw_crc32c *crc, const unsigned char *bytes,
                        struct flw_frame_file *out)
{
    struct flw_wire_in in = {bytes + 8, bytes + FLW_FRAME_BYTES};
#define X(field, bytes) out->field = take(&in, bytes);
    FILE_FIELDS(X)
#undef X
    return memcmp(bytes, FLW_FTRACE_MAGIC, 8) == 0 && has_crc(crc, bytes);
}

void flw_frame_put_chunk(const struct flw_crc32c *crc, const struct flw_frame_chunk *chunk,
                         unsigned char *out)
{
    struct flw_wire_out to = {out};
    memcpy(to.at, FLW_FTRACE_CHUNK_MAGIC, 4);
    to.at += 4;
#define GAP(bytes)      flw_wire_put_fixed(&to, 0, bytes);
#define X(field, bytes) flw_wire_put_fixed(&to, chunk->field, bytes);
    CHUNK_FIELDS(X, GAP)
#undef X
#undef GAP
    put_crc(crc, &to, out);
}

bool flw_frame_get_chunk(const struct flw_crc32c *crc, const unsigned char *bytes,
                         struct flw_frame_chunk *out)
{
    struct flw_wire_in in = {bytes + 4, bytes + FLW_FRAME_BYTES};
    *out = (struct flw_frame_chunk){0};
    if (memcmp(bytes, FLW_FTRACE_CHUNK_MAGIC, 4) != 0 || !has_crc(crc, bytes)) {
        return false;
    }
#define GAP(bytes)      take(&in, bytes);
#define X(field, bytes) out->field = take(&in, bytes);
    CHUNK_FIELDS(X, GAP)
#undef X
#undef GAP
    return true;
}
