/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/trace/test_gen_bed.h"

#include <string.h>

#include "trace/formats/formats.h"
#include "trace/formats/text.h"

char bed_message[FLW_TRACE_MESSAGE_BYTES];

/* "name=value name=value": a choice by its word, a file by its path, all else by its number. */
static struct flw_gen_values bed_values(const struct flw_gen_kind *kind, char *words)
{
    struct flw_gen_values values = flw_gen_initial_values(kind);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        size_t index = flw_gen_find_option(kind, word);
        if (index == kind->option_count) {
            fail_msg("%s has no option %s", kind->name, word);
        }
        const struct flw_gen_option *option = &kind->options[index];
        if (option->kind == FLW_GEN_FILE) {
            values.paths[index] = value;
        } else if (option->kind == FLW_GEN_CHOICE) {
            uint64_t i = 0;
            while (option->words[i] != NULL && strcmp(option->words[i], value) != 0) {
                i++;
            }
            assert_non_null(option->words[i]);
            values.numbers[index] = i;
        } else {
            values.numbers[index] = strtoull(value, NULL, 10);
            assert_in_range(values.numbers[index], option->low, option->high);
        }
    }
    return values;
}

/* NULL and bed_message where the generator refuses. `words` stays as it is. */
struct flw_trace *bed_try(const char *name, const char *words)
{
    struct flw_trace *trace = NULL;
    const struct flw_gen_kind *kind = flw_gen_find(name);
    assert_non_null(kind);
    char *copy = strdup(words);
    assert_non_null(copy);
    struct flw_gen_values values = bed_values(kind, copy);
    bool is_made = flw_gen_generate(kind, &values, &trace, bed_message);
    assert_int_equal(is_made, trace != NULL);
    free(copy);
    return trace;
}

struct flw_trace *bed_make(const char *name, const char *words)
{
    struct flw_trace *trace = bed_try(name, words);
    if (trace == NULL) {
        fail_msg("%s %s: %s", name, words, bed_message);
    }
    assert_true(flw_trace_is_valid(trace));
    return trace;
}

static char *bed_text(const struct flw_trace *trace)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_true(flw_text_print(trace, file));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(strlen(text), bytes);
    return text;
}

/* FNV-1a, 64 bits. */
static uint64_t bed_checksum(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t bed_checksum_of(const char *name, const char *words)
{
    struct flw_trace *trace = bed_make(name, words);
    char *text = bed_text(trace);
    uint64_t checksum = bed_checksum(text);
    free(text);
    flw_trace_destroy(trace);
    return checksum;
}

/* What follows the header; the header names the seed. */
static const char *bed_events(const char *text)
{
    const char *end = strstr(text, "\nalive_at_end ");
    assert_non_null(end);
    return end;
}

uint64_t bed_checksum_of_events(const char *name, const char *words)
{
    struct flw_trace *trace = bed_make(name, words);
    char *text = bed_text(trace);
    uint64_t checksum = bed_checksum(bed_events(text));
    free(text);
    flw_trace_destroy(trace);
    return checksum;
}

void bed_expect_golden(const struct bed_golden *golden, size_t count)
{
    bool is_same = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t checksum = bed_checksum_of_events(golden[i].name, golden[i].words);
        if (checksum != golden[i].checksum) {
            print_error("{\"%s\", \"%s\", UINT64_C(0x%016" PRIx64 ")},\n", golden[i].name,
                        golden[i].words, checksum);
            is_same = false;
        }
    }
    assert_true(is_same);
}

/* The trace reads back as the same text; the same words give the same bytes, others other events. */
void bed_expect_reproducible(const char *name, const char *words, const char *other)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = bed_make(name, words);
    char *text = bed_text(trace);
    struct flw_trace *read = NULL;
    if (!flw_trace_read_bytes(text, strlen(text), name, -1, &read, message)) {
        fail_msg("%s %s: %s", name, words, message);
    }
    assert_int_equal(read->peak_requested_bytes, trace->peak_requested_bytes);
    char *again = bed_text(read);
    assert_string_equal(again, text);
    assert_true(bed_checksum_of(name, words) == bed_checksum(text));
    struct flw_trace *differs = bed_make(name, other);
    char *other_text = bed_text(differs);
    assert_string_not_equal(bed_events(other_text), bed_events(text));
    flw_trace_destroy(differs);
    free(other_text);
    free(again);
    free(text);
    flw_trace_destroy(read);
    flw_trace_destroy(trace);
}

size_t bed_count_size(const struct flw_trace *trace, uint64_t size_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        count += trace->blocks[i].size_bytes == size_bytes;
    }
    return count;
}

size_t bed_count_live_at_end(const struct flw_trace *trace)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        count += !trace->blocks[i].freed;
    }
    return count;
}
