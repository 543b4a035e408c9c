/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: encoding and decoding of a trace file's two headers, with checksums.
 * Does not: interpret chunks. ftrace.h specifies both. */
#ifndef FLW_RECORD_FRAME_H
#define FLW_RECORD_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "record/crc32c.h"

#define FLW_FRAME_BYTES 64 /* of either header */

struct flw_frame_file {
    uint16_t major, minor;
    uint32_t header_bytes; /* of the whole header; bytes beyond 64 are skipped */
    uint64_t flags;
    uint64_t wall_ns, mono_ns;
    uint64_t ticks_per_second;
    uint32_t process;
    uint32_t device, device_count;
};

struct flw_frame_chunk {
    uint8_t type, codec;
    uint32_t payload_bytes, unpacked_bytes;
    uint32_t record_count;
    uint32_t thread;
    uint64_t first_event, first_block;
    uint64_t base_ns;
    uint32_t time_scale;
    uint32_t payload_crc;
};

void flw_frame_put_file(const struct flw_crc32c *crc, const struct flw_frame_file *file,
                        unsigned char *out);
void flw_frame_put_chunk(const struct flw_crc32c *crc, const struct flw_frame_chunk *chunk,
                         unsigned char *out);

/* False: wrong magic or checksum; *out is undefined. */
bool flw_frame_get_file(const struct flw_crc32c *crc, const unsigned char *bytes,
                        struct flw_frame_file *out);
bool flw_frame_get_chunk(const struct flw_crc32c *crc, const unsigned char *bytes,
                         struct flw_frame_chunk *out);

#endif
