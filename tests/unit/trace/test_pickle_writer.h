/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: putting pickles of snapshots together for tests, opcode by opcode.
 */
#ifndef FLW_TESTS_UNIT_PICKLE_WRITER_H
#define FLW_TESTS_UNIT_PICKLE_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WRITER_BYTES (4u << 20)

struct writer {
    uint8_t *bytes;
    size_t count;
};

static inline void put_bytes(struct writer *w, const void *bytes, size_t count)
{
    if (count > WRITER_BYTES - w->count) {
        abort();
    }
    memcpy(w->bytes + w->count, bytes, count);
    w->count += count;
}

static inline void put_code(struct writer *w, uint8_t code)
{
    put_bytes(w, &code, 1);
}

static inline struct writer begin_pickle(uint8_t protocol)
{
    struct writer w = {malloc(WRITER_BYTES), 0};
    if (w.bytes == NULL) {
        abort();
    }
    put_code(&w, 0x80);
    put_code(&w, protocol);
    return w;
}

static inline void end_pickle(struct writer *w)
{
    put_code(w, '.');
}

static inline void put_little_endian(struct writer *w, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_code(w, (uint8_t)(value >> (8 * i)));
    }
}

static inline void put_string(struct writer *w, const char *string)
{
    put_code(w, 'X');
    put_little_endian(w, strlen(string), 4);
    put_bytes(w, string, strlen(string));
}

static inline void put_number(struct writer *w, uint64_t value)
{
    put_code(w, 0x8A);
    put_code(w, 9);
    put_little_endian(w, value, 8);
    put_code(w, 0);
}

static inline void put_pair(struct writer *w, const char *key, uint64_t value)
{
    put_string(w, key);
    put_number(w, value);
}

static inline void put_word_pair(struct writer *w, const char *key, const char *value)
{
    put_string(w, key);
    put_string(w, value);
}

static inline void begin_dict(struct writer *w)
{
    put_bytes(w, "}(", 2);
}

static inline void end_dict(struct writer *w)
{
    put_code(w, 'u');
}

static inline void begin_list(struct writer *w)
{
    put_bytes(w, "](", 2);
}

static inline void end_list(struct writer *w)
{
    put_code(w, 'e');
}

/* {segments: [ */
static inline void begin_snapshot(struct writer *w)
{
    begin_dict(w);
    put_string(w, "segments");
    begin_list(w);
}

/* ], device_traces: [[ */
static inline void begin_events(struct writer *w)
{
    end_list(w);
    put_string(w, "device_traces");
    begin_list(w);
    begin_list(w);
}

/* ]]} */
static inline void end_snapshot(struct writer *w)
{
    end_list(w);
    end_list(w);
    end_dict(w);
    end_pickle(w);
}

/* ], [ */
static inline void next_device(struct writer *w)
{
    end_list(w);
    begin_list(w);
}

static inline void begin_segment_of(struct writer *w, uint64_t device, uint64_t address,
                                    uint64_t bytes, const char *type, int is_expandable)
{
    begin_dict(w);
    put_pair(w, "device", device);
    put_pair(w, "address", address);
    put_pair(w, "total_size", bytes);
    put_pair(w, "stream", 0);
    put_word_pair(w, "segment_type", type);
    put_string(w, "is_expandable");
    put_code(w, is_expandable ? 0x88 : 0x89);
    put_string(w, "blocks");
    begin_list(w);
}

static inline void begin_segment(struct writer *w, uint64_t address, uint64_t bytes,
                                 const char *type, int is_expandable)
{
    begin_segment_of(w, 0, address, bytes, type, is_expandable);
}

static inline void end_segment(struct writer *w)
{
    end_list(w);
    end_dict(w);
}

static inline void put_block(struct writer *w, uint64_t address, uint64_t bytes, const char *state)
{
    begin_dict(w);
    put_pair(w, "address", address);
    put_pair(w, "size", bytes);
    put_pair(w, "requested_size", bytes);
    put_word_pair(w, "state", state);
    end_dict(w);
}

static inline void put_event(struct writer *w, const char *action, uint64_t address, uint64_t bytes)
{
    begin_dict(w);
    put_word_pair(w, "action", action);
    put_pair(w, "addr", address);
    put_pair(w, "size", bytes);
    put_pair(w, "stream", 0);
    end_dict(w);
}

static inline void put_oom(struct writer *w, uint64_t asked_bytes, uint64_t free_bytes)
{
    begin_dict(w);
    put_word_pair(w, "action", "oom");
    put_pair(w, "device_free", free_bytes);
    put_pair(w, "size", asked_bytes);
    put_pair(w, "stream", 0);
    end_dict(w);
}

#endif
