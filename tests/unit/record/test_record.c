/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of a recording: checksums, the clock. */
#include "support/test.h"

#include "record/crc32c.h"
#include "record/tsc.h"

TEST(the_checksum_is_crc32c)
{
    struct flw_crc32c crc;
    flw_crc32c_init(&crc);
    assert_int_equal(flw_crc32c_add(&crc, 0, "123456789", 9), 0xE3069283);
    assert_int_equal(flw_crc32c_add(&crc, flw_crc32c_add(&crc, 0, "12345", 5), "6789", 4),
                     0xE3069283);
    assert_int_equal(flw_crc32c_add(&crc, 0, "", 0), 0);
    unsigned char zeros[32] = {0};
    assert_int_equal(flw_crc32c_add(&crc, 0, zeros, 32), 0x8A9136AA);
}

/* Of every length and alignment, in two parts; where the processor has none, tables against tables. */
TEST(the_checksum_is_the_same_by_tables_and_by_instruction)
{
    unsigned char bytes[64];
    struct flw_crc32c usual, tables;
    uint64_t random = flw_test_seed("unit.record");
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)flw_test_random(&random);
    }
    flw_crc32c_init(&usual);
    flw_crc32c_init(&tables);
    tables.has_instruction = false;
    for (unsigned i = 0; i < 256; i++) { /* each entry of the first table */
        unsigned char byte = (unsigned char)i;
        assert_int_equal(flw_crc32c_add(&tables, 0, &byte, 1), flw_crc32c_add(&usual, 0, &byte, 1));
    }
    for (size_t begin = 0; begin < 8; begin++) {
        for (size_t count = 0; begin + count <= sizeof(bytes); count++) {
            uint32_t whole = flw_crc32c_add(&tables, 0, bytes + begin, count);
            uint32_t half = flw_crc32c_add(&usual, 0, bytes + begin, count / 2);
            half = flw_crc32c_add(&usual, half, bytes + begin + count / 2, count - count / 2);
            assert_int_equal(flw_crc32c_add(&usual, 0, bytes + begin, count), whole);
            assert_int_equal(half, whole);
        }
    }
}

TEST(ticks_lie_on_the_line_between_two_moments)
{
    const uint64_t hour_ns = UINT64_C(3600000000000);
    struct flw_tsc_pair from = {1000, 500}, to = {1000 + 3 * hour_ns, 500 + hour_ns};
    struct flw_tsc_line line = flw_tsc_line_through(&from, &to);
    assert_int_equal(flw_tsc_ns(&line, 0), 500); /* before the first moment: that */
    assert_int_equal(flw_tsc_ns(&line, 1000), 500);
    assert_in_range(flw_tsc_ns(&line, to.ticks), to.ns - 1, to.ns);
    uint64_t half_ns = flw_tsc_ns(&line, 1000 + 3 * (hour_ns / 2));
    assert_in_range(half_ns, 500 + hour_ns / 2 - 1, 500 + hour_ns / 2);
    line = flw_tsc_line_through(&from, &from); /* no time between them */
    assert_int_equal(flw_tsc_ns(&line, 2000), 500);
}

FLW_TEST_MAIN(NULL, NULL)
