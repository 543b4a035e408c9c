/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running a fuzz target without a fuzzer: on every file of its corpus, on every prefix of the
 * small ones, and on seeded mutations of each.
 * Usage: fuzz_TARGET CORPUS [MUTATIONS [SEED]]
 *
 * The input that a crash happened on is the one printed last when FALLOW_FUZZ_VERBOSE is set.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define FILE_BYTES_MAX   (1u << 20)
#define PREFIX_BYTES_MAX 2048 /* of files up to this size every prefix is tried */
#define FILES_MAX        256

struct sample {
    char *name;
    uint8_t *bytes;
    size_t count;
};

static struct sample samples[FILES_MAX];
static size_t sample_count;

static size_t below(uint64_t *state, size_t bound)
{
    return bound == 0 ? 0 : (size_t)(flw_random_next(state) % bound);
}

/* A copy of exactly `count` bytes, so that a sanitizer sees a read past the end. */
static void run_once(const uint8_t *bytes, size_t count)
{
    uint8_t *exact = malloc(count > 0 ? count : 1);
    if (exact == NULL) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    memcpy(exact, bytes, count);
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
}

static void insert(uint8_t *bytes, size_t *count, size_t at, const uint8_t *what, size_t what_count)
{
    if (*count + what_count > FILE_BYTES_MAX) {
        return;
    }
    memmove(bytes + at + what_count, bytes + at, *count - at);
    memmove(bytes + at, what, what_count);
    *count += what_count;
}

static void insert_random(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    uint8_t noise[16];
    size_t noise_count = 1 + below(state, sizeof(noise));
    for (size_t i = 0; i < noise_count; i++) {
        noise[i] = (uint8_t)flw_random_next(state);
    }
    insert(bytes, count, at, noise, noise_count);
}

static void insert_piece(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    const struct sample *other = &samples[below(state, sample_count)];
    size_t from = below(state, other->count);
    size_t length = below(state, other->count - from);
    insert(bytes, count, at, other->bytes + from, length < 64 ? length : 64);
}

static void insert_number(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "-1",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "9223372036854775808",
                                          "4294967296",
                                          "00",
                                          "65535",
                                          " 7",
                                          "\n",
                                          "@"};
    const char *number = numbers[below(state, sizeof(numbers) / sizeof(numbers[0]))];
    insert(bytes, count, at, (const uint8_t *)number, strlen(number));
}

static void delete_some(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    size_t length = 1 + below(state, 24);
    length = length < *count - at ? length : *count - at;
    memmove(bytes + at, bytes + at + length, *count - at - length);
    *count -= length;
}

static void overwrite(uint64_t *state, uint8_t *bytes, size_t count, size_t at)
{
    static const uint8_t values[] = {0x00, 0xFF, 0x7F, 0x80};
    uint8_t value = values[below(state, sizeof(values))];
    size_t length = (size_t)1 << below(state, 4);
    for (size_t i = at; i < count && i < at + length; i++) {
        bytes[i] = value;
    }
}

/* Exchange the line at `at` with the one that follows. */
static void swap_lines(uint8_t *bytes, size_t count, size_t at)
{
    uint8_t *middle = memchr(bytes + at, '\n', count - at);
    if (middle == NULL) {
        return;
    }
    middle++;
    uint8_t *end = memchr(middle, '\n', (size_t)(bytes + count - middle));
    uint8_t *first = bytes + at;
    while (first > bytes && first[-1] != '\n') {
        first--;
    }
    size_t first_bytes = (size_t)(middle - first);
    if (end == NULL || first_bytes > 256) {
        return;
    }
    uint8_t kept[256];
    size_t second_bytes = (size_t)(end + 1 - middle);
    memcpy(kept, first, first_bytes);
    memmove(first, middle, second_bytes);
    memcpy(first + second_bytes, kept, first_bytes);
}

/* Change the next number from `at` on: a digit of a text, or a byte of a pickled integer. */
static void nudge_number(uint64_t *state, uint8_t *bytes, size_t count, size_t at)
{
    for (size_t i = at; i + 2 < count; i++) {
        if (bytes[i] >= '0' && bytes[i] <= '9') {
            bytes[i] = (uint8_t)('0' + below(state, 10));
            return;
        }
        if (bytes[i] == 'J' || bytes[i] == 'K' || bytes[i] == 'M') {
            bytes[i + 1] = (uint8_t)flw_random_next(state);
            return;
        }
        if (bytes[i] == 0x8A && i + 2 + bytes[i + 1] < count && bytes[i + 1] <= 9) {
            bytes[i + 2 + below(state, bytes[i + 1])] = (uint8_t)flw_random_next(state);
            return;
        }
    }
}

/* Remove the line that `at` lies in, or repeat it. */
static void edit_line(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    size_t first = at;
    while (first > 0 && bytes[first - 1] != '\n') {
        first--;
    }
    const uint8_t *newline = memchr(bytes + at, '\n', *count - at);
    size_t end = newline != NULL ? (size_t)(newline - bytes) + 1 : *count;
    if (below(state, 2) == 0) {
        memmove(bytes + first, bytes + end, *count - end);
        *count -= end - first;
    } else if (end - first < 256) {
        uint8_t line[256];
        memcpy(line, bytes + first, end - first);
        insert(bytes, count, end, line, end - first);
    }
}

static void mutate_once(uint64_t *state, uint8_t *bytes, size_t *count)
{
    size_t at = below(state, *count);
    switch (below(state, 16)) {
    case 0:
        insert_random(state, bytes, count, at);
        break;
    case 1:
        insert_piece(state, bytes, count, at);
        break;
    case 2:
        insert_number(state, bytes, count, at);
        break;
    case 3:
        delete_some(state, bytes, count, at);
        break;
    case 4:
        overwrite(state, bytes, *count, at);
        break;
    case 5:
        swap_lines(bytes, *count, at);
        break;
    case 6:
        *count = at;
        break;
    case 7:
    case 8:
    case 9:
        edit_line(state, bytes, count, at);
        break;
    case 10:
    case 11:
    case 12:
    case 13:
        nudge_number(state, bytes, *count, at);
        break;
    default:
        if (*count > 0) {
            bytes[at] = (uint8_t)(below(state, 2) == 0 ? bytes[at] ^ (1u << below(state, 8))
                                                       : samples[0].bytes[at % samples[0].count]);
        }
        break;
    }
}

static bool load(const char *folder, const char *name)
{
    char path[4096];
    struct sample *sample = &samples[sample_count];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || sample_count == FILES_MAX) {
        fprintf(stderr, "cannot read %s\n", path);
        return false;
    }
    sample->name = strdup(name);
    sample->bytes = malloc(FILE_BYTES_MAX);
    sample->count = sample->bytes != NULL ? fread(sample->bytes, 1, FILE_BYTES_MAX, file) : 0;
    sample_count++;
    fclose(file);
    return sample->name != NULL && sample->bytes != NULL;
}

static int compare_samples(const void *a, const void *b)
{
    return strcmp(((const struct sample *)a)->name, ((const struct sample *)b)->name);
}

static bool load_all(const char *folder)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    bool is_loaded = directory != NULL;
    while (is_loaded && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            is_loaded = load(folder, entry->d_name);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    qsort(samples, sample_count, sizeof(samples[0]), compare_samples);
    return is_loaded && sample_count > 0 && samples[0].count > 0;
}

static void run_sample(const struct sample *sample, uint64_t mutations, uint64_t seed)
{
    static uint8_t scratch[FILE_BYTES_MAX];
    bool is_verbose = getenv("FALLOW_FUZZ_VERBOSE") != NULL;
    run_once(sample->bytes, sample->count);
    for (size_t i = 0; sample->count <= PREFIX_BYTES_MAX && i < sample->count; i++) {
        run_once(sample->bytes, i);
    }
    for (uint64_t i = 0; i < mutations; i++) {
        uint64_t state = seed + i;
        size_t count = sample->count;
        if (is_verbose) {
            fprintf(stderr, "%s, seed %" PRIu64 "\n", sample->name, state);
        }
        memcpy(scratch, sample->bytes, count);
        for (size_t n = below(&state, 4) == 0 ? 3 : 1; n > 0; n--) {
            mutate_once(&state, scratch, &count);
        }
        run_once(scratch, count);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || !load_all(argv[1])) {
        fprintf(stderr, "usage: %s CORPUS [MUTATIONS [SEED]]; the corpus must hold files\n",
                argv[0]);
        return 2;
    }
    uint64_t mutations = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    for (size_t i = 0; i < sample_count; i++) {
        run_sample(&samples[i], mutations, seed);
    }
    printf("%zu files, %" PRIu64 " mutations of each from seed %" PRIu64 "\n", sample_count,
           mutations, seed);
    for (size_t i = 0; i < sample_count; i++) {
        free(samples[i].name);
        free(samples[i].bytes);
    }
    return 0;
}
