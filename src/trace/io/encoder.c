/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bytes of each opcode.
 */
#include "trace/io/encoder.h"

#include <string.h>

enum opcode {
    OPCODE_PROTO = 0x80,
    OPCODE_STOP = '.',
    OPCODE_MARK = '(',
    OPCODE_EMPTY_DICT = '}',
    OPCODE_SETITEMS = 'u',
    OPCODE_EMPTY_LIST = ']',
    OPCODE_APPENDS = 'e',
    OPCODE_SHORT_BINUNICODE = 0x8C,
    OPCODE_BINUNICODE = 'X',
    OPCODE_MEMOIZE = 0x94,
    OPCODE_BINGET = 'h',
    OPCODE_LONG_BINGET = 'j',
    OPCODE_BININT = 'J',
    OPCODE_BININT1 = 'K',
    OPCODE_BININT2 = 'M',
    OPCODE_LONG1 = 0x8A,
    OPCODE_BINFLOAT = 'G',
    OPCODE_NEWTRUE = 0x88,
    OPCODE_NEWFALSE = 0x89,
    OPCODE_TUPLE2 = 0x86
};

static void put(struct flw_encoder *encoder, int byte)
{
    putc(byte, encoder->file);
}

static void put_little_endian(struct flw_encoder *encoder, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        put(encoder, (int)(value >> (8 * i) & 0xFF));
    }
}

void flw_encoder_begin(struct flw_encoder *encoder, FILE *file, const char *const *words)
{
    *encoder = (struct flw_encoder){.file = file, .words = words};
    put(encoder, OPCODE_PROTO);
    put(encoder, 4);
}

void flw_encoder_end(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_STOP);
}

void flw_encoder_put_word(struct flw_encoder *encoder, unsigned word)
{
    if (encoder->places[word] != 0) {
        flw_encoder_put_again(encoder, encoder->places[word]);
        return;
    }
    size_t bytes = strlen(encoder->words[word]);
    put(encoder, OPCODE_SHORT_BINUNICODE);
    put(encoder, (int)bytes);
    fwrite(encoder->words[word], 1, bytes, encoder->file);
    encoder->places[word] = flw_encoder_memoize(encoder);
}

uint32_t flw_encoder_memoize(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_MEMOIZE);
    return ++encoder->memo_count;
}

void flw_encoder_put_again(struct flw_encoder *encoder, uint32_t place)
{
    bool is_short = place - 1 <= UINT8_MAX;
    put(encoder, is_short ? OPCODE_BINGET : OPCODE_LONG_BINGET);
    put_little_endian(encoder, place - 1, is_short ? 1 : 4);
}

/* Return the bytes of the character that begins here; 0: none. */
static size_t character_bytes(const unsigned char *c)
{
    size_t count = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
    if (c[0] > 0xF4 || (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xF0 && c[1] < 0x90) ||
        (c[0] == 0xF4 && c[1] > 0x8F)) {
        return 0;
    }
    for (size_t i = 1; i < count; i++) {
        if ((c[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return count;
}

void flw_encoder_put_text(struct flw_encoder *encoder, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    put(encoder, OPCODE_BINUNICODE);
    put_little_endian(encoder, strlen(text), 4);
    while (*c != '\0') {
        size_t count = character_bytes(c);
        if (count == 0) {
            put(encoder, '?');
            c++;
        }
        for (; count > 0; count--) {
            put(encoder, *c++);
        }
    }
}

/* Write a number that needs a LONG. The sign is the highest bit of the last byte, so a number may need one more zero
 * byte. */
static void put_long(struct flw_encoder *encoder, uint64_t number)
{
    unsigned bytes = 1;
    while (bytes < 9 && (bytes == 8 ? number >> 63 : number >> (8 * bytes - 1)) != 0) {
        bytes++;
    }
    put(encoder, OPCODE_LONG1);
    put(encoder, (int)bytes);
    put_little_endian(encoder, number, bytes < 8 ? bytes : 8);
    if (bytes == 9) {
        put(encoder, 0);
    }
}

void flw_encoder_put_number(struct flw_encoder *encoder, uint64_t number)
{
    if (number <= UINT8_MAX) {
        put(encoder, OPCODE_BININT1);
        put(encoder, (int)number);
    } else if (number <= UINT16_MAX) {
        put(encoder, OPCODE_BININT2);
        put_little_endian(encoder, number, 2);
    } else if (number <= INT32_MAX) {
        put(encoder, OPCODE_BININT);
        put_little_endian(encoder, number, 4);
    } else {
        put_long(encoder, number);
    }
}

void flw_encoder_put_unknown(struct flw_encoder *encoder)
{
    static const unsigned char nan[8] = {0x7F, 0xF8}; /* a double, highest byte first */
    put(encoder, OPCODE_BINFLOAT);
    fwrite(nan, 1, sizeof nan, encoder->file);
}

void flw_encoder_put_bool(struct flw_encoder *encoder, bool is_true)
{
    put(encoder, is_true ? OPCODE_NEWTRUE : OPCODE_NEWFALSE);
}

void flw_encoder_put_empty_list(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_EMPTY_LIST);
}

void flw_encoder_open_dict(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_EMPTY_DICT);
    put(encoder, OPCODE_MARK);
}

void flw_encoder_close_dict(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_SETITEMS);
}

void flw_encoder_open_list(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_EMPTY_LIST);
    put(encoder, OPCODE_MARK);
}

void flw_encoder_next_item(struct flw_encoder *encoder, uint64_t number)
{
    if (number > 0 && number % FLW_ENCODER_BATCH == 0) {
        put(encoder, OPCODE_APPENDS);
        put(encoder, OPCODE_MARK);
    }
}

void flw_encoder_close_list(struct flw_encoder *encoder)
{
    put(encoder, OPCODE_APPENDS);
}

void flw_encoder_put_pair(struct flw_encoder *encoder, uint64_t first, uint64_t second)
{
    flw_encoder_put_number(encoder, first);
    flw_encoder_put_number(encoder, second);
    put(encoder, OPCODE_TUPLE2);
}
