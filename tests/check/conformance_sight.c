/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: results of the cases on GPUs: confirmed or contradicted. tests/gpu/digest writes the file. */
#include <stdio.h>
#include <string.h>

#include "conformance.h"

#define MOST_SIGHTS 1024

static struct conformance_sight sights[MOST_SIGHTS];
static size_t sight_count;

const struct conformance_sight *conformance_sight_of(const char *name)
{
    for (size_t i = 0; i < sight_count; i++) {
        if (strcmp(sights[i].name, name) == 0) {
            return &sights[i];
        }
    }
    return NULL;
}

/* Parse a line. Returns NULL, or the error. */
static const char *read_line(const char *line)
{
    struct conformance_sight sight = {.is_contradicted = false};
    char word[16] = "";
    int place = 0;
    if (sscanf(line, "%159s %15s %n", sight.name, word, &place) < 2 || place == 0) {
        return "has no 'name seen|contradicted device, driver, date'";
    }
    size_t length = strcspn(line + place, "\n");
    if (length == 0 || length >= sizeof sight.where) {
        return "does not say where it was seen, in at most 159 bytes";
    }
    memcpy(sight.where, line + place, length);
    sight.is_contradicted = strcmp(word, "contradicted") == 0;
    if (!sight.is_contradicted && strcmp(word, "seen") != 0) {
        return "says neither 'seen' nor 'contradicted'";
    }
    if (!conformance_is_case(sight.name)) {
        return "names no case";
    }
    if (conformance_sight_of(sight.name) != NULL) {
        return "names a case a second time";
    }
    if (sight_count == MOST_SIGHTS) {
        return "is one too many";
    }
    sights[sight_count++] = sight;
    return NULL;
}

bool conformance_sights_read(const char *path)
{
    char line[512];
    const char *wrong = NULL;
    unsigned number = 0;
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        fprintf(stderr, "driver_conformance: cannot read %s\n", path);
        return false;
    }
    while (wrong == NULL && fgets(line, sizeof line, in) != NULL) {
        number++;
        if (line[0] != '#' && line[0] != '\n') {
            wrong = strchr(line, '\n') == NULL ? "is too long or not ended" : read_line(line);
        }
    }
    fclose(in);
    if (wrong != NULL) {
        fprintf(stderr, "driver_conformance: %s:%u %s\n", path, number, wrong);
    }
    return wrong == NULL;
}
