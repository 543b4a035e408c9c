/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: where each field of the headers lies.
 */
#include "record/frame.h"

#include <string.h>

#include "record/ftracewriter.h"
#include "record/wire.h"

#define CRC_BYTES 4

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

/* The next field; the callers have 64 bytes. */
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
    flw_wire_put_fixed(&to, file->major, 2);
    flw_wire_put_fixed(&to, file->minor, 2);
    flw_wire_put_fixed(&to, file->header_bytes, 4);
    flw_wire_put_fixed(&to, file->flags, 8);
    flw_wire_put_fixed(&to, file->wall_ns, 8);
    flw_wire_put_fixed(&to, file->mono_ns, 8);
    flw_wire_put_fixed(&to, file->ticks_per_second, 8);
    flw_wire_put_fixed(&to, file->process, 4);
    flw_wire_put_fixed(&to, file->device, 4);
    flw_wire_put_fixed(&to, file->device_count, 4);
    put_crc(crc, &to, out);
}

bool flw_frame_get_file(const struct flw_crc32c *crc, const unsigned char *bytes,
                        struct flw_frame_file *out)
{
    struct flw_wire_in in = {bytes + 8, bytes + FLW_FRAME_BYTES};
    out->major = (uint16_t)take(&in, 2);
    out->minor = (uint16_t)take(&in, 2);
    out->header_bytes = (uint32_t)take(&in, 4);
    out->flags = take(&in, 8);
    out->wall_ns = take(&in, 8);
    out->mono_ns = take(&in, 8);
    out->ticks_per_second = take(&in, 8);
    out->process = (uint32_t)take(&in, 4);
    out->device = (uint32_t)take(&in, 4);
    out->device_count = (uint32_t)take(&in, 4);
    return memcmp(bytes, FLW_FTRACE_MAGIC, 8) == 0 && has_crc(crc, bytes);
}

void flw_frame_put_chunk(const struct flw_crc32c *crc, const struct flw_frame_chunk *chunk,
                         unsigned char *out)
{
    struct flw_wire_out to = {out};
    memcpy(to.at, FLW_FTRACE_CHUNK_MAGIC, 4);
    to.at += 4;
    flw_wire_put_fixed(&to, chunk->type, 1);
    flw_wire_put_fixed(&to, chunk->codec, 1);
    flw_wire_put_fixed(&to, 0, 2);
    flw_wire_put_fixed(&to, chunk->payload_bytes, 4);
    flw_wire_put_fixed(&to, chunk->unpacked_bytes, 4);
    flw_wire_put_fixed(&to, chunk->record_count, 4);
    flw_wire_put_fixed(&to, chunk->thread, 4);
    flw_wire_put_fixed(&to, chunk->first_event, 8);
    flw_wire_put_fixed(&to, chunk->first_block, 8);
    flw_wire_put_fixed(&to, chunk->base_ns, 8);
    flw_wire_put_fixed(&to, chunk->time_scale, 4);
    flw_wire_put_fixed(&to, 0, 4);
    flw_wire_put_fixed(&to, chunk->payload_crc, 4);
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
    out->type = (uint8_t)take(&in, 1);
    out->codec = (uint8_t)take(&in, 1);
    take(&in, 2);
    out->payload_bytes = (uint32_t)take(&in, 4);
    out->unpacked_bytes = (uint32_t)take(&in, 4);
    out->record_count = (uint32_t)take(&in, 4);
    out->thread = (uint32_t)take(&in, 4);
    out->first_event = take(&in, 8);
    out->first_block = take(&in, 8);
    out->base_ns = take(&in, 8);
    out->time_scale = (uint32_t)take(&in, 4);
    take(&in, 4);
    out->payload_crc = (uint32_t)take(&in, 4);
    return true;
}
