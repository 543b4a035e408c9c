/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a driver that runs a fuzz target without a fuzzer: on every file of the corpus, on every
 * prefix of the small ones, and on seeded mutations of each. Usage: fuzz_TARGET CORPUS [MUTATIONS
 * [SEED]]
 *
 * If FALLOW_FUZZ_VERBOSE is set, each input is printed first, so the last one printed caused a
 * crash. */
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

/* Put bytes in the place of `cut` others at `at`. */
static void splice(uint8_t *bytes, size_t *count, size_t at, size_t cut, const void *what,
                   size_t what_count)
{
    cut = cut < *count - at ? cut : *count - at;
    if (*count - cut + what_count <= FILE_BYTES_MAX) {
        memmove(bytes + at + what_count, bytes + at + cut, *count - at - cut);
        memcpy(bytes + at, what, what_count);
        *count += what_count - cut;
    }
}

/* Noise, a piece of another sample, or a special number. */
static void insert(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
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
    const struct sample *other = &samples[below(state, sample_count)];
    uint8_t noise[16];
    size_t from = below(state, other->count), length = below(state, other->count - from);
    const char *number = numbers[below(state, sizeof(numbers) / sizeof(numbers[0]))];
    switch (below(state, 3)) {
    case 0:
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (uint8_t)flw_random_next(state);
        }
        splice(bytes, count, at, 0, noise, 1 + below(state, sizeof(noise)));
        break;
    case 1:
        splice(bytes, count, at, 0, other->bytes + from, length < 64 ? length : 64);
        break;
    default:
        splice(bytes, count, at, 0, number, strlen(number));
        break;
    }
}

static void overwrite(uint64_t *state, uint8_t *bytes, size_t count, size_t at)
{
    static const uint8_t values[] = {0x00, 0xFF, 0x7F, 0x80};
    size_t length = (size_t)1 << below(state, 4);
    memset(bytes + at, values[below(state, sizeof(values))],
           length < count - at ? length : count - at);
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

/* Remove the line at `at`, repeat it, or move it after the next one. */
static void edit_line(uint64_t *state, uint8_t *bytes, size_t *count, size_t at)
{
    uint8_t line[256];
    size_t first = at;
    while (first > 0 && bytes[first - 1] != '\n') {
        first--;
    }
    const uint8_t *newline = memchr(bytes + at, '\n', *count - at);
    size_t end = newline != NULL ? (size_t)(newline - bytes) + 1 : *count, length = end - first;
    memcpy(line, bytes + first, length < sizeof(line) ? length : sizeof(line));
    enum {
        REMOVE,
        REPEAT,
        MOVE
    } way = (int[]){REMOVE, REMOVE, REPEAT, MOVE}[below(state, 4)];
    if (way == REMOVE || (way == MOVE && length < sizeof(line))) {
        splice(bytes, count, first, length, "", 0);
    }
    if (way != REMOVE && length < sizeof(line)) {
        newline = memchr(bytes + first, '\n', *count - first);
        at = newline != NULL ? (size_t)(newline - bytes) + 1 : *count;
        splice(bytes, count, at, 0, line, length);
    }
}

static void mutate_once(uint64_t *state, uint8_t *bytes, size_t *count)
{
    size_t at = below(state, *count), way = below(state, 16);
    if (way < 3) {
        insert(state, bytes, count, at);
    } else if (way == 3) {
        splice(bytes, count, at, 1 + below(state, 24), "", 0);
    } else if (way == 4) {
        overwrite(state, bytes, *count, at);
    } else if (way == 5) {
        *count = at;
    } else if (way < 10) {
        edit_line(state, bytes, count, at);
    } else if (way < 14) {
        nudge_number(state, bytes, *count, at);
    } else if (*count > 0) {
        bytes[at] = (uint8_t)(below(state, 2) == 0 ? bytes[at] ^ (1u << below(state, 8))
                                                   : samples[0].bytes[at % samples[0].count]);
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
