/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the tests of the generators share: a trace from a generator's options as words, its text
 * and the checksum of that, its blocks by size.
 */
#ifndef FLW_TESTS_UNIT_TEST_GEN_BED_H
#define FLW_TESTS_UNIT_TEST_GEN_BED_H

#include "support/recording.h"

#include <inttypes.h>
#include <string.h>

#include "trace/gen/gen.h"

extern char bed_message[FLW_TRACE_MESSAGE_BYTES];

/* NULL and bed_message where the generator refuses. `words`: "name=value name=value", a choice by its
 * word, a file by its path, all else by its number. */
struct flw_trace *bed_try(const char *name, const char *words);

/* The same, and valid; fails the test where it is not made. */
struct flw_trace *bed_make(const char *name, const char *words);

/* FNV-1a of what follows the header. */
uint64_t bed_checksum_of_events(const char *name, const char *words);

/* What a generator made when its version in the header was given. */
struct bed_golden {
    const char *name, *words;
    uint64_t checksum; /* bed_checksum_of_events */
};

/* Another checksum is another trace: it needs another version. */
void bed_expect_golden(const struct bed_golden *golden, size_t count);

/* The trace reads back as the same text; the same words give the same bytes, others other events. */
void bed_expect_reproducible(const char *name, const char *words, const char *other);

size_t bed_count_size(const struct flw_trace *trace, uint64_t size_bytes);
size_t bed_count_live_at_end(const struct flw_trace *trace);

#endif
