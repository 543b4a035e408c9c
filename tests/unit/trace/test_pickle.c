/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the pickle machine: accepted and rejected input, and the messages.
 */
#include "support/test.h"

#include <string.h>

#include "test_pickle_writer.h"
#include "trace/formats/pickle.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define BYTES(text)     text, sizeof(text) - 1

static char message[FLW_TRACE_MESSAGE_BYTES];

/* Read into `pickle`. False: rejected, `message` has the reason. */
static bool read_bytes(const void *bytes, size_t count, struct flw_pickle *pickle)
{
    struct flw_input input;
    assert_true(flw_input_open_bytes(&input, bytes, count, "name", message));
    bool is_read = flw_pickle_read(&input, pickle);
    flw_input_close(&input);
    assert_true(is_read || strncmp(message, "name: byte ", 11) == 0);
    return is_read;
}

static struct flw_pickle read_good(const void *bytes, size_t count)
{
    struct flw_pickle pickle;
    if (!read_bytes(bytes, count, &pickle)) {
        fail_msg("%s", message);
    }
    return pickle;
}

static void expect_refused(const void *bytes, size_t count, const char *text)
{
    struct flw_pickle pickle;
    assert_false(read_bytes(bytes, count, &pickle));
    flw_test_expect_in(message, text);
}

/* Expect a list of `count` dicts or lists. */
static struct flw_pickle_cursor walk(const struct flw_pickle *pickle, struct flw_pickle_value list,
                                     uint32_t count)
{
    assert_int_equal(flw_pickle_list(pickle, list)->count, count);
    return (struct flw_pickle_cursor){.next = flw_pickle_list(pickle, list)->first};
}

/* ---- opcodes ---- */

TEST(exactly_the_data_opcodes_are_accepted)
{
    static const uint8_t accepted[] = {0x80, 0x95, '.',  '(',  '0',  'N',  0x88, 0x89, 'J',
                                       'K',  'M',  0x8A, 0x8B, 'G',  0x8C, 'X',  0x8D, 'B',
                                       'C',  '}',  ']',  ')',  0x85, 0x86, 0x87, 't',  's',
                                       'u',  'a',  'e',  0x94, 'q',  'r',  'h',  'j'};
    for (int code = 0; code < 256; code++) {
        uint8_t bytes[3] = {0x80, 4, (uint8_t)code};
        struct flw_pickle pickle;
        assert_false(read_bytes(bytes, sizeof(bytes), &pickle));
        bool is_refused = strstr(message, "is refused") != NULL ||
                          strstr(message, "is not a pickle opcode") != NULL;
        assert_int_equal(is_refused, memchr(accepted, code, sizeof(accepted)) == NULL);
    }
}

TEST(what_imports_or_calls_is_refused_by_name_and_offset)
{
    static const struct {
        uint8_t code;
        const char *name;
    } evil[] = {{'c', "GLOBAL"},    {0x93, "STACK_GLOBAL"}, {'i', "INST"},          {'o', "OBJ"},
                {0x81, "NEWOBJ"},   {0x92, "NEWOBJ_EX"},    {'R', "REDUCE"},        {'b', "BUILD"},
                {0x82, "EXT1"},     {0x83, "EXT2"},         {0x84, "EXT4"},         {'P', "PERSID"},
                {'Q', "BINPERSID"}, {0x97, "NEXT_BUFFER"},  {0x8D + 1, "BINBYTES8"}};
    for (size_t i = 0; i < COUNT_OF(evil); i++) {
        char text[128];
        uint8_t bytes[] = {0x80, 4, '}', evil[i].code, '.'};
        snprintf(text, sizeof(text), "name: byte 3: the opcode %s is refused", evil[i].name);
        expect_refused(bytes, sizeof(bytes), text);
    }
}

TEST(protocols_2_to_5_are_read_and_no_other)
{
    for (int protocol = 0; protocol < 256; protocol++) {
        uint8_t bytes[] = {0x80, (uint8_t)protocol, '}', '.'};
        struct flw_pickle pickle;
        assert_int_equal(read_bytes(bytes, sizeof(bytes), &pickle), protocol >= 2 && protocol <= 5);
        flw_pickle_finish(&pickle);
    }
    expect_refused("}.", 2, "not a pickle of protocol 2 or newer");
}

TEST(values_are_what_their_bytes_say)
{
    static const struct {
        const char *bytes;
        size_t count;
        enum flw_pickle_kind kind;
        uint64_t bits;
    } rows[] = {
        /* integers keep their 64 bits */
        {BYTES("K\xff"), FLW_PICKLE_UNSIGNED, 255},
        {BYTES("M\x01\x02"), FLW_PICKLE_UNSIGNED, 0x201},
        {BYTES("J\xff\xff\xff\xff"), FLW_PICKLE_NEGATIVE, UINT64_MAX},
        {BYTES("\x8a\x00"), FLW_PICKLE_UNSIGNED, 0},
        {BYTES("\x8a\x01\x80"), FLW_PICKLE_NEGATIVE, (uint64_t)-128},
        {BYTES("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"), FLW_PICKLE_UNSIGNED, UINT64_MAX},
        {BYTES("\x8b\x08\0\0\0\0\0\0\0\0\0\0\x80"), FLW_PICKLE_NEGATIVE, UINT64_C(1) << 63},
        /* strings become their number in the vocabulary */
        {BYTES("\x8c\x04line"), FLW_PICKLE_WORD, WORD_LINE},
        {BYTES("X\4\0\0\0lime"), FLW_PICKLE_TEXT, 0},
        {BYTES("\x8d\4\0\0\0\0\0\0\0addr"), FLW_PICKLE_WORD, WORD_ADDR},
        /* skipped values */
        {BYTES("G\0\0\0\0\0\0\0\0"), FLW_PICKLE_ABSENT, 0},
        {BYTES("N"), FLW_PICKLE_ABSENT, 0},
        {BYTES("K\1K\2K\3\x87"), FLW_PICKLE_ABSENT, 0},
        {BYTES("K\1N\x86"), FLW_PICKLE_ABSENT, 0},
        {BYTES("(K\1K\2K\3t"), FLW_PICKLE_ABSENT, 0},
        {BYTES("C\3xyz"), FLW_PICKLE_ABSENT, 0},
        {BYTES("K\1K\2"
               "0"),
         FLW_PICKLE_UNSIGNED, 1},
        {BYTES("K\1(0"), FLW_PICKLE_UNSIGNED, 1},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t bytes[64] = "\x80\x04}\x8c\4size";
        memcpy(bytes + 9, rows[i].bytes, rows[i].count);
        memcpy(bytes + 9 + rows[i].count, "s.", 2);
        struct flw_pickle pickle = read_good(bytes, 11 + rows[i].count);
        struct flw_pickle_value value = flw_pickle_get(&pickle, pickle.root, WORD_SIZE);
        assert_int_equal(value.kind, rows[i].kind);
        assert_true(value.kind == FLW_PICKLE_ABSENT || value.bits == rows[i].bits);
        flw_pickle_finish(&pickle);
    }
}

TEST(broken_pickles_are_refused)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *wanted;
    } rows[] = {
        {BYTES("\x80\x04}."), "named at the start"},
        {BYTES("\x8a\x0a\1\2\3\4\5\6\7\x08\x09\x0a."), "more than 64 bits"},
        {BYTES("\x8a\x09\0\0\0\0\0\0\0\0\x01."), "more than 64 bits"},
        {BYTES("\x8a\x09\0\0\0\0\0\0\0\x7f\xff."), "more than 64 bits"},
        {BYTES("\x8b\xff\xff\xff\xff."), "more than 64 bits"},
        {BYTES("h\x00."), "the memo index is empty"},
        {BYTES("j\xff\xff\xff\xff."), "the memo index is empty"},
        {BYTES("}r\xff\xff\xff\x7f."), "larger than the bytes read"},
        {BYTES("}q\x03."), "larger than the bytes read"},
        {BYTES("."), "too little"},
        {BYTES("s"), "too little"},
        {BYTES("u"), "no mark"},
        {BYTES("(u"), "too little"},
        {BYTES("K\1(K\1K\1u"), "not a dict"},
        {BYTES("}(K\1e"), "not a list"},
        {BYTES("}(K\1u"), "a key has no value"},
        {BYTES("}\x8c\4sizeK\1s(\x8c\4sizeK\2u"), "repeats its keys"},
        {BYTES("\x8a\1\xff\x94"), "cannot be in a memo"},
        {BYTES("](K\1."), "still open"},
        {BYTES("]((e"), "too little"},
        {BYTES("]K\1(a"), "too little"},
        {BYTES("K\1(\x85"), "too little"},
        {BYTES("X\xff\xff\xff\xff"
               "abc."),
         "more bytes than the file has"},
        {BYTES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "more bytes than the file has"},
        {BYTES("B\x00\x01\x00\x00."), "more bytes than the file has"},
        {BYTES("\x95\x03\0\0\0\0\0\0\0}."), "more bytes than the file has"},
        {BYTES("\x95\x0b\0\0\0\0\0\0\0}\x95\x01\0\0\0\0\0\0\0."), "inside another"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t bytes[64] = "\x80\x04";
        memcpy(bytes + 2, rows[i].bytes, rows[i].count);
        expect_refused(bytes, 2 + rows[i].count, rows[i].wanted);
    }
    uint8_t deep[2 + 2 * 1000] = "\x80\x04";
    for (size_t i = 2; i < sizeof(deep); i += 2) {
        memcpy(deep + i, "](", 2);
    }
    expect_refused(deep, sizeof(deep), "nested deeper");
}

/* ---- containers ---- */

/* {"size": [{"size": (1, 2)}, {"size": (1, 2)}, {"size": (2, 1)}]}: which pair each has. */
TEST(equal_pairs_of_numbers_have_one_number)
{
    static const uint8_t bytes[] = "\x80\x04}\x8c\4size](}\x8c\4sizeK\1K\2\x86s}\x8c\4size(K\1K\2ts"
                                   "}\x8c\4sizeK\2K\1\x86ses.";
    struct flw_pickle_value item;
    struct flw_pickle pickle = read_good(bytes, sizeof bytes - 1);
    struct flw_pickle_cursor cursor =
        walk(&pickle, flw_pickle_get(&pickle, pickle.root, WORD_SIZE), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(flw_pickle_next(&pickle, &cursor, &item));
        struct flw_pickle_value pair = flw_pickle_get(&pickle, item, WORD_SIZE);
        assert_true(pair.kind == FLW_PICKLE_PAIR && pair.bits == (i == 2));
    }
    assert_int_equal(((const struct flw_pickle_pair *)flw_intern_at(&pickle.pairs, 1))->first, 2);
    flw_pickle_finish(&pickle);
}

TEST(the_memo_gives_back_what_was_put)
{
    static const uint8_t by_number[] = "\x80\x02}(\x8c\4sizeq\1K\5h\1K\6\x8c\4lineK\x09u.";
    struct flw_pickle_value item;
    struct flw_pickle pickle = read_good(by_number, sizeof(by_number) - 1);
    assert_int_equal(flw_pickle_get(&pickle, pickle.root, WORD_SIZE).bits,
                     6); /* the last one holds */
    assert_int_equal(flw_pickle_get(&pickle, pickle.root, WORD_LINE).bits, 9);
    flw_pickle_finish(&pickle);
    /* a list that holds itself does no harm */
    static const uint8_t itself[] = "\x80\x04]\x94h\x00"
                                    "ah\x00\x8c\x01x0a.";
    pickle = read_good(itself, sizeof(itself) - 1);
    struct flw_pickle_cursor cursor = walk(&pickle, pickle.root, 2);
    assert_true(flw_pickle_next(&pickle, &cursor, &item));
    assert_int_equal(item.bits, pickle.root.bits);
    flw_pickle_finish(&pickle);
}

TEST(lists_keep_containers_with_something_of_interest)
{
    struct writer w = write_value(4, "[1 {none 7} {size 18446744073709551614 line 3} []]");
    struct flw_pickle_value item;
    struct flw_pickle pickle = read_good(w.bytes, w.count);
    struct flw_pickle_cursor cursor = walk(&pickle, pickle.root, 2);
    assert_true(flw_pickle_next(&pickle, &cursor, &item) && item.kind == FLW_PICKLE_DICT);
    assert_true(flw_pickle_get(&pickle, item, WORD_SIZE).bits == UINT64_MAX - 1);
    assert_int_equal(flw_pickle_get(&pickle, item, WORD_LINE).bits, 3);
    assert_true(flw_pickle_next(&pickle, &cursor, &item) && item.kind == FLW_PICKLE_LIST);
    assert_false(flw_pickle_next(&pickle, &cursor, &item));
    flw_pickle_finish(&pickle);
    free(w.bytes);
}

TEST(a_list_may_name_an_item_of_before)
{
    static const uint8_t bytes[] = "\x80\x04](}\x8c\4sizeK\5sq\1}\x8c\4sizeK\6sh\1e.";
    struct flw_pickle_value item;
    struct flw_pickle pickle = read_good(bytes, sizeof(bytes) - 1);
    struct flw_pickle_cursor cursor = walk(&pickle, pickle.root, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(flw_pickle_next(&pickle, &cursor, &item));
        assert_int_equal(flw_pickle_get(&pickle, item, WORD_SIZE).bits, 5 + i % 2);
    }
    flw_pickle_finish(&pickle);
}

TEST(containers_grow_piece_by_piece)
{
    struct writer w = write_value(4, "[{size 0 | line 7} {size 1 | line 7} | {size 2 | line 7} "
                                     "{size 3 | line 7} | {size 4 | line 7} {size 5 | line 7}]");
    struct flw_pickle_value item;
    struct flw_pickle pickle = read_good(w.bytes, w.count);
    struct flw_pickle_cursor cursor = walk(&pickle, pickle.root, 6);
    for (uint64_t i = 0; i < 6; i++) {
        assert_true(flw_pickle_next(&pickle, &cursor, &item));
        assert_int_equal(flw_pickle_get(&pickle, item, WORD_SIZE).bits, i);
        assert_int_equal(flw_pickle_get(&pickle, item, WORD_LINE).bits, 7);
    }
    flw_pickle_finish(&pickle);
    free(w.bytes);
}

FLW_TEST_MAIN(NULL, NULL)
