/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the pickle machine: what it accepts, what it refuses and how it says so.
 */
#include "support/test.h"

#include <string.h>

#include "test_pickle_writer.h"
#include "trace/formats/pickle.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

static const char *const words[] = {"a", "b", "list"};
enum {
    WORD_A,
    WORD_B,
    WORD_LIST
};
static const struct flw_pickle_vocabulary vocabulary = {words, 3, NULL};

static char message[FLW_TRACE_MESSAGE_BYTES];

/* NULL: refused, `message` says why. */
static struct flw_harvest *read_bytes(const void *bytes, size_t count,
                                      struct flw_pickle_value *root)
{
    struct flw_input input;
    struct flw_harvest *harvest = NULL;
    uint64_t rest_bytes;
    assert_true(flw_input_open_bytes(&input, bytes, count, "name", message));
    flw_pickle_read(&input, &vocabulary, &harvest, root, &rest_bytes);
    flw_input_close(&input);
    return harvest;
}

static void expect_refused(const void *bytes, size_t count, const char *text)
{
    struct flw_pickle_value root;
    struct flw_harvest *harvest = read_bytes(bytes, count, &root);
    assert_null(harvest);
    if (strstr(message, text) == NULL) {
        print_error("\"%s\" lacks \"%s\"\n", message, text);
    }
    assert_non_null(strstr(message, text));
    assert_int_equal(strncmp(message, "name: byte ", 11), 0);
}

static struct flw_pickle_value value_of(const struct flw_harvest *harvest,
                                        struct flw_pickle_value dict, uint32_t word)
{
    struct flw_harvest_dict open;
    flw_harvest_open(harvest, dict, &open);
    return flw_harvest_value(&open, word);
}

/* The value under "a" of a dict that one pair makes. */
static struct flw_pickle_value read_value(const void *value, size_t count)
{
    uint8_t bytes[512] = "\x80\x04}\x8c\x01"
                         "a";
    struct flw_pickle_value root;
    memcpy(bytes + 6, value, count);
    memcpy(bytes + 6 + count, "s.", 2);
    struct flw_harvest *harvest = read_bytes(bytes, 8 + count, &root);
    assert_non_null(harvest);
    struct flw_pickle_value found = value_of(harvest, root, WORD_A);
    flw_harvest_destroy(harvest);
    return found;
}

static void exactly_the_data_opcodes_are_accepted(void **state)
{
    (void)state;
    static const uint8_t accepted[] = {0x80, 0x95, '.',  '(',  '0',  'N',  0x88, 0x89, 'J',
                                       'K',  'M',  0x8A, 0x8B, 'G',  0x8C, 'X',  0x8D, 'B',
                                       'C',  '}',  ']',  ')',  0x85, 0x86, 0x87, 't',  's',
                                       'u',  'a',  'e',  0x94, 'q',  'r',  'h',  'j'};
    for (int code = 0; code < 256; code++) {
        uint8_t bytes[3] = {0x80, 4, (uint8_t)code};
        struct flw_pickle_value root;
        assert_null(read_bytes(bytes, sizeof(bytes), &root));
        bool is_refused = strstr(message, "is refused") != NULL ||
                          strstr(message, "is not a pickle opcode") != NULL;
        bool is_data = memchr(accepted, code, sizeof(accepted)) != NULL;
        assert_int_equal(is_refused, !is_data);
        assert_non_null(strstr(message, "name: byte "));
    }
}

static void what_imports_or_calls_is_refused_by_name_and_offset(void **state)
{
    (void)state;
    static const struct {
        uint8_t code;
        const char *name;
    } evil[] = {{'c', "GLOBAL"},    {0x93, "STACK_GLOBAL"}, {'i', "INST"},          {'o', "OBJ"},
                {0x81, "NEWOBJ"},   {0x92, "NEWOBJ_EX"},    {'R', "REDUCE"},        {'b', "BUILD"},
                {0x82, "EXT1"},     {0x83, "EXT2"},         {0x84, "EXT4"},         {'P', "PERSID"},
                {'Q', "BINPERSID"}, {0x97, "NEXT_BUFFER"},  {0x8D + 1, "BINBYTES8"}};
    for (size_t i = 0; i < sizeof(evil) / sizeof(evil[0]); i++) {
        char text[128];
        uint8_t bytes[] = {0x80, 4, '}', evil[i].code, '.'};
        snprintf(text, sizeof(text), "name: byte 3: the opcode %s is refused", evil[i].name);
        expect_refused(bytes, sizeof(bytes), text);
    }
}

static void protocols_2_to_5_are_read_and_no_other(void **state)
{
    (void)state;
    for (int protocol = 0; protocol < 256; protocol++) {
        uint8_t bytes[] = {0x80, (uint8_t)protocol, '}', '.'};
        struct flw_pickle_value root;
        struct flw_harvest *harvest = read_bytes(bytes, sizeof(bytes), &root);
        assert_int_equal(harvest != NULL, protocol >= 2 && protocol <= 5);
        flw_harvest_destroy(harvest);
    }
    expect_refused("}.", 2, "not a pickle of protocol 2 or newer");
    expect_refused("\x80\x04\x80\x04}.", 6, "named at the start");
}

static void integers_keep_their_64_bits(void **state)
{
    (void)state;
    struct flw_pickle_value v = read_value("K\xff", 2);
    assert_true(v.kind == FLW_PICKLE_UNSIGNED && v.bits == 255);
    v = read_value("M\x01\x02", 3);
    assert_true(v.kind == FLW_PICKLE_UNSIGNED && v.bits == 0x201);
    v = read_value("J\xff\xff\xff\xff", 5);
    assert_true(v.kind == FLW_PICKLE_NEGATIVE && v.bits == UINT64_MAX);
    v = read_value("\x8a\x00", 2);
    assert_true(v.kind == FLW_PICKLE_UNSIGNED && v.bits == 0);
    v = read_value("\x8a\x01\x80", 3);
    assert_true(v.kind == FLW_PICKLE_NEGATIVE && (int64_t)v.bits == -128);
    v = read_value("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00", 11);
    assert_true(v.kind == FLW_PICKLE_UNSIGNED && v.bits == UINT64_MAX);
    v = read_value("\x8b\x08\0\0\0\0\0\0\0\0\0\0\x80", 13);
    assert_true(v.kind == FLW_PICKLE_NEGATIVE && v.bits == UINT64_C(1) << 63);
}

static void integers_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    expect_refused("\x80\x04\x8a\x0a\1\2\3\4\5\6\7\x08\x09\x0a.", 15, "more than 64 bits");
    expect_refused("\x80\x04\x8a\x09\0\0\0\0\0\0\0\0\x01.", 14, "more than 64 bits");
    expect_refused("\x80\x04\x8b\xff\xff\xff\xff.", 8, "more than 64 bits");
}

static void floats_tuples_bytes_and_none_are_passed_over(void **state)
{
    (void)state;
    assert_int_equal(read_value("G\0\0\0\0\0\0\0\0", 9).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("N", 1).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("K\1K\2K\3\x87", 7).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("K\1N\x86", 4).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("(K\1K\2K\3t", 8).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("C\3xyz", 5).kind, FLW_PICKLE_ABSENT);
    assert_int_equal(read_value("K\1K\2"
                                "0",
                                5)
                         .kind,
                     FLW_PICKLE_UNSIGNED);
    assert_int_equal(read_value("K\1(0", 4).kind, FLW_PICKLE_UNSIGNED);
}

/* {"a": [{"a": (1, 2)}, {"a": (1, 2)}, {"a": (2, 1)}]}: which pair each has. */
static void equal_pairs_of_numbers_have_one_number(void **state)
{
    static const uint8_t bytes[] = "\x80\x04}\x8c\1a]("
                                   "}\x8c\1aK\1K\2\x86s"
                                   "}\x8c\1a(K\1K\2ts"
                                   "}\x8c\1aK\2K\1\x86s"
                                   "es.";
    static const uint64_t expected[] = {0, 0, 1};
    (void)state;
    struct flw_pickle_value root, item;
    struct flw_harvest *harvest = read_bytes(bytes, sizeof bytes - 1, &root);
    assert_non_null(harvest);
    struct flw_harvest_cursor cursor = flw_harvest_first(harvest, value_of(harvest, root, WORD_A));
    for (size_t i = 0; i < 3; i++) {
        assert_true(flw_harvest_next(harvest, &cursor, &item));
        struct flw_pickle_value pair = value_of(harvest, item, WORD_A);
        assert_int_equal(pair.kind, FLW_PICKLE_PAIR);
        assert_int_equal(pair.bits, expected[i]);
    }
    assert_int_equal(flw_harvest_interned(harvest)->pairs[1].first, 2);
    flw_harvest_destroy(harvest);
}

static void strings_are_known_by_their_number_in_the_vocabulary(void **state)
{
    (void)state;
    struct flw_pickle_value v = read_value("\x8c\x04list", 6);
    assert_true(v.kind == FLW_PICKLE_WORD && v.bits == WORD_LIST);
    v = read_value("X\4\0\0\0lisp", 9);
    assert_true(v.kind == FLW_PICKLE_TEXT);
    v = read_value("\x8d\1\0\0\0\0\0\0\0b", 10);
    assert_true(v.kind == FLW_PICKLE_WORD && v.bits == WORD_B);
}

static void the_memo_gives_back_what_was_put(void **state)
{
    (void)state;
    static const uint8_t by_number[] = "\x80\x02}(\x8c\x01"
                                       "aq\x01K\x05h\x01"
                                       "K\x06\x8c\x01"
                                       "bK\x09u.";
    struct flw_pickle_value root;
    struct flw_harvest *harvest = read_bytes(by_number, sizeof(by_number) - 1, &root);
    assert_non_null(harvest);
    assert_int_equal(value_of(harvest, root, WORD_A).bits, 6); /* the last one holds */
    assert_int_equal(value_of(harvest, root, WORD_B).bits, 9);
    flw_harvest_destroy(harvest);
    expect_refused("\x80\x04h\x00.", 5, "nothing was put");
    expect_refused("\x80\x04j\xff\xff\xff\xff.", 8, "nothing was put");
    expect_refused("\x80\x04}r\xff\xff\xff\x7f.", 9, "larger than the bytes read");
    expect_refused("\x80\x04}q\x03.", 6, "larger than the bytes read");
}

static void a_broken_stack_is_refused(void **state)
{
    (void)state;
    expect_refused("\x80\x04.", 3, "too little");
    expect_refused("\x80\x04s", 3, "too little");
    expect_refused("\x80\x04u", 3, "no mark");
    expect_refused("\x80\x04(u", 4, "too little");
    expect_refused("\x80\x04K\1(K\1K\1u", 10, "not a dict");
    expect_refused("\x80\x04}(K\1e", 7, "not a list");
    expect_refused("\x80\x04}(K\1u", 7, "a key has no value");
    expect_refused("\x80\x04](K\1.", 7, "still open");
    expect_refused("\x80\x04]((e", 6, "too little");
    expect_refused("\x80\x04]K\1(a", 7, "too little");
    expect_refused("\x80\x04K\1(\x85", 6, "too little");
}

static void nesting_has_an_end(void **state)
{
    (void)state;
    uint8_t bytes[2 + 2 * 1000];
    bytes[0] = 0x80;
    bytes[1] = 4;
    for (size_t i = 2; i < sizeof(bytes); i += 2) {
        memcpy(bytes + i, "](", 2);
    }
    expect_refused(bytes, sizeof(bytes), "nested deeper");
}

static void lengths_beyond_the_file_are_refused(void **state)
{
    (void)state;
    expect_refused("\x80\x04X\xff\xff\xff\xff"
                   "abc.",
                   11, "more bytes than the file has");
    expect_refused("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", 12,
                   "more bytes than the file has");
    expect_refused("\x80\x04"
                   "B\x00\x01\x00\x00.",
                   8, "more bytes than the file has");
    expect_refused("\x80\x04\x95\x03\0\0\0\0\0\0\0}.", 13, "more bytes than the file has");
    expect_refused("\x80\x04\x95\x0b\0\0\0\0\0\0\0}\x95\x01\0\0\0\0\0\0\0.", 22, "inside another");
}

static void a_dict_that_repeats_its_keys_is_refused(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_dict(&w);
    for (uint64_t i = 0; i < 1000; i++) {
        put_pair(&w, "a", i);
    }
    end_dict(&w);
    end_pickle(&w);
    expect_refused(w.bytes, w.count, "repeats its keys");
    free(w.bytes);
}

static void lists_keep_containers_with_something_of_interest(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    struct flw_pickle_value root;
    struct flw_pickle_value item;
    begin_list(&w);
    put_number(&w, 1); /* forgotten */
    begin_dict(&w);
    put_pair(&w, "line", 7); /* a frame: forgotten */
    end_dict(&w);
    begin_dict(&w);
    put_pair(&w, "a", UINT64_MAX - 1);
    put_pair(&w, "b", 3);
    end_dict(&w);
    begin_list(&w);
    end_list(&w);
    end_list(&w);
    end_pickle(&w);
    struct flw_harvest *harvest = read_bytes(w.bytes, w.count, &root);
    assert_non_null(harvest);
    assert_int_equal(flw_harvest_count(harvest, root), 2);
    struct flw_harvest_cursor cursor = flw_harvest_first(harvest, root);
    assert_true(flw_harvest_next(harvest, &cursor, &item));
    assert_int_equal(item.kind, FLW_PICKLE_DICT);
    assert_true(value_of(harvest, item, WORD_A).bits == UINT64_MAX - 1);
    assert_true(value_of(harvest, item, WORD_B).bits == 3);
    assert_true(flw_harvest_next(harvest, &cursor, &item));
    assert_int_equal(item.kind, FLW_PICKLE_LIST);
    assert_false(flw_harvest_next(harvest, &cursor, &item));
    flw_harvest_destroy(harvest);
    free(w.bytes);
}

static void containers_grow_piece_by_piece(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    struct flw_pickle_value root;
    struct flw_pickle_value item;
    put_bytes(&w, "]", 1);
    for (uint64_t batch = 0; batch < 3; batch++) {
        put_bytes(&w, "(", 1);
        for (uint64_t i = 0; i < 2; i++) {
            begin_dict(&w);
            put_pair(&w, "a", 2 * batch + i);
            end_dict(&w);
            put_bytes(&w, "(", 1);
            put_pair(&w, "b", 7);
            end_dict(&w);
        }
        end_list(&w);
    }
    end_pickle(&w);
    struct flw_harvest *harvest = read_bytes(w.bytes, w.count, &root);
    assert_non_null(harvest);
    assert_int_equal(flw_harvest_count(harvest, root), 6);
    struct flw_harvest_cursor cursor = flw_harvest_first(harvest, root);
    for (uint64_t i = 0; i < 6; i++) {
        assert_true(flw_harvest_next(harvest, &cursor, &item));
        assert_int_equal(value_of(harvest, item, WORD_A).bits, i);
        assert_int_equal(value_of(harvest, item, WORD_B).bits, 7);
    }
    assert_false(flw_harvest_next(harvest, &cursor, &item));
    flw_harvest_destroy(harvest);
    free(w.bytes);
}

static void a_list_that_holds_itself_does_no_harm(void **state)
{
    (void)state;
    static const uint8_t bytes[] = "\x80\x04]\x94h\x00"
                                   "ah\x00\x8c\x01x0a.";
    struct flw_pickle_value root;
    struct flw_pickle_value item;
    struct flw_harvest *harvest = read_bytes(bytes, sizeof(bytes) - 1, &root);
    if (harvest == NULL) {
        print_error("%s\n", message);
    }
    assert_non_null(harvest);
    struct flw_harvest_cursor cursor = flw_harvest_first(harvest, root);
    assert_true(flw_harvest_next(harvest, &cursor, &item));
    assert_int_equal(item.bits, root.bits);
    flw_harvest_destroy(harvest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_the_data_opcodes_are_accepted),
        cmocka_unit_test(what_imports_or_calls_is_refused_by_name_and_offset),
        cmocka_unit_test(protocols_2_to_5_are_read_and_no_other),
        cmocka_unit_test(integers_keep_their_64_bits),
        cmocka_unit_test(integers_beyond_64_bits_are_refused),
        cmocka_unit_test(floats_tuples_bytes_and_none_are_passed_over),
        cmocka_unit_test(equal_pairs_of_numbers_have_one_number),
        cmocka_unit_test(strings_are_known_by_their_number_in_the_vocabulary),
        cmocka_unit_test(the_memo_gives_back_what_was_put),
        cmocka_unit_test(a_broken_stack_is_refused),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(lengths_beyond_the_file_are_refused),
        cmocka_unit_test(a_dict_that_repeats_its_keys_is_refused),
        cmocka_unit_test(lists_keep_containers_with_something_of_interest),
        cmocka_unit_test(containers_grow_piece_by_piece),
        cmocka_unit_test(a_list_that_holds_itself_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
