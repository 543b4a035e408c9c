/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: putting pickles of snapshots together for tests, from a text, or opcode by opcode.
 */
#ifndef FLW_TESTS_UNIT_PICKLE_WRITER_H
#define FLW_TESTS_UNIT_PICKLE_WRITER_H

#include <stdint.h>
#include <stdio.h>
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

static inline void put_little_endian(struct writer *w, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_code(w, (uint8_t)(value >> (8 * i)));
    }
}

static inline void put_text(struct writer *w, const char *text, size_t bytes)
{
    put_code(w, 'X');
    put_little_endian(w, bytes, 4);
    put_bytes(w, text, bytes);
}

static inline void put_number(struct writer *w, uint64_t value)
{
    put_code(w, 0x8A);
    put_code(w, 9);
    put_little_endian(w, value, 8);
    put_code(w, 0);
}

/* ---- values and snapshots as text ---- */

static inline void put_value(struct writer *w, const char **at);

/* A list of frames "leaf;main": leaf of leaf.py:1, main of main.py:2. */
static inline void put_frames(struct writer *w, const char *names, size_t bytes)
{
    const char *end = names + bytes;
    put_bytes(w, "](", 2);
    for (int line = 1; names < end; line++) {
        char frame[256];
        const char *at = frame;
        int length = (int)strcspn(names, "; \n}])");
        snprintf(frame, sizeof frame, "{name \"%.*s\" filename %.*s.py line %d}", length, names,
                 length, names, line);
        put_value(w, &at);
        names += length + 1;
    }
    put_code(w, 'e');
}

/* The value that `*at` begins with: 5, 20M, -1, word, "a text", True, (1 2), [...], {key value ...}, @leaf;main. Inside
 * a list or dict, | begins a new step, =N puts the last value into the memo, and #N is that value again. */
static inline void put_value(struct writer *w, const char **at)
{
    *at += strspn(*at, " ");
    char first = *(*at)++;
    if (strchr("{[(", first) != NULL) {
        uint8_t end = first == '{' ? 'u' : first == '[' ? 'e' : 0x86;
        put_bytes(w, first == '{' ? "}(" : "](", first == '(' ? 0 : 2);
        while (*at += strspn(*at, " "), strchr("}])", **at) == NULL) {
            if (**at == '|') {
                put_bytes(w, (uint8_t[]){end, '('}, 2);
                (*at)++;
            } else {
                put_value(w, at);
            }
        }
        (*at)++;
        put_code(w, end);
        return;
    }
    const char *begin = first == '"' || first == '@' ? *at : *at - 1;
    size_t bytes = strcspn(begin, first == '"' ? "\"" : " \n}])");
    *at = begin + bytes + (first == '"');
    if (first == '=' || first == '#') {
        put_code(w, first == '=' ? 'q' : 'h');
        put_code(w, (uint8_t)(begin[1] - '0'));
    } else if (first == '@') {
        put_frames(w, begin, bytes);
    } else if (first == '-') {
        put_code(w, 'J');
        put_little_endian(w, (uint64_t)strtoll(begin, NULL, 10), 4);
    } else if (first >= '0' && first <= '9') {
        put_number(w, strtoull(begin, NULL, 0) << (begin[bytes - 1] == 'M' ? 20 : 0));
    } else if (bytes == 4 && memcmp(begin, "True", 4) == 0) {
        put_code(w, 0x88);
    } else {
        put_text(w, begin, bytes);
    }
}

/* The pickle of a value. */
static inline struct writer write_value(uint8_t protocol, const char *text)
{
    struct writer w = begin_pickle(protocol);
    put_value(&w, &text);
    put_code(&w, '.');
    return w;
}

/* A snapshot of a line each, behind which pairs of keys and values may follow:
 *   segment ADDRESS BYTES TYPE     the blocks of the segment follow
 *   block ADDRESS BYTES STATE
 *   device                         events of the next device follow
 *   ACTION ADDRESS BYTES           an event
 *   START NAME, END NAME           an annotation; behind all events
 *   settings                       of the allocator; the last line */
static inline struct writer write_snapshot(uint8_t protocol, const char *text)
{
    enum {
        SEGMENTS,
        BLOCKS,
        EVENTS,
        ANNOTATIONS,
        SETTINGS
    } place = SEGMENTS;
    static const char *const ends[] = {"]}", "]}] device_traces [[]]}", "]]}", "]}", "}}"};
    char *value = NULL, a[64], b[64], c[64];
    size_t bytes;
    FILE *file = open_memstream(&value, &bytes);
    fputs("{segments [", file);
    for (size_t length; *text != '\0'; text += length + 1) {
        int count = 0, is_segment = strncmp(text, "segment ", 8) == 0;
        int is_block = strncmp(text, "block ", 6) == 0, is_note = *text < 'a';
        int are_settings = strncmp(text, "settings ", 9) == 0;
        length = strcspn(text, "\n");
        if (place == BLOCKS && !is_block) {
            fputs("]}", file);
            place = SEGMENTS;
        }
        if (place == SEGMENTS && !is_segment && !is_block) {
            fputs("] device_traces [[", file);
            place = EVENTS;
        } else if (place == EVENTS && strncmp(text, "device", length) == 0) {
            fputs("][", file);
        }
        if (place == EVENTS && (is_note || are_settings)) {
            fputs(is_note ? "]] external_annotations [" : "]] allocator_settings {", file);
            place = is_note ? ANNOTATIONS : SETTINGS;
        }
        if (are_settings) {
            fprintf(file, "%.*s", (int)length - 9, text + 9);
        } else if (is_note && sscanf(text, "%63s%n", a, &count) == 1) {
            fprintf(file, "{stage %s name%.*s}", a, (int)length - count, text + count);
        } else if (is_segment && sscanf(text, "segment %63s %63s %63s%n", a, b, c, &count) == 3) {
            fprintf(file, "{address %s total_size %s segment_type %s%.*s blocks [", a, b, c,
                    (int)length - count, text + count);
            place = BLOCKS;
        } else if (sscanf(text, "%*[a-z] %63s %63s %63s%n", a, b, c, &count) == 3 && is_block) {
            fprintf(file, "{address %s size %s state %s%.*s}", a, b, c, (int)length - count,
                    text + count);
        } else if (sscanf(text, "%63s %63s %63s%n", a, b, c, &count) == 3 && length > 6) {
            fprintf(file, "{action %s addr %s size %s%.*s}", a, b, c, (int)length - count,
                    text + count);
        }
    }
    fputs(ends[place], file);
    fclose(file);
    struct writer w = write_value(protocol, value);
    free(value);
    return w;
}

#endif
