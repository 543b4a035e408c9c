/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the values of settings given as text: a table says what each is, where it goes, and what to say
 * where it cannot be read. Does not: know separators or variables. Takes no host memory, so that the
 * preload library may ask.
 */
#ifndef FLW_BASE_SETTING_H
#define FLW_BASE_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_setting_form {
    FLW_SETTING_IS_TEXT, /* 1 byte to one less than its field has */
    FLW_SETTING_IS_NUMBER,
    FLW_SETTING_IS_BYTES, /* a number, and perhaps K, M, G or T */
    FLW_SETTING_IS_WORD,
    FLW_SETTING_IS_BITS /* words with '+' between */
};

struct flw_setting_word {
    const char *name; /* NULL: the end */
    uint32_t value;
};

struct flw_setting {
    const char *name;
    enum flw_setting_form form;
    size_t offset, size; /* of its field: 8, 4 or 1 (bool) bytes, or characters; 0: none */
    const struct flw_setting_word *words;
    uint64_t least, most; /* of numbers and bytes */
    const char *expected; /* "give 0 or 1" */
};

#define FLW_SETTING_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

/* The number at the front of a text in `base` (0: as in C), then its rest; NULL: none, or more than 64 bits. */
const char *flw_number_read(const char *text, int base, uint64_t *out_value);
/* A letter K, M, G or T at the front of a text times the value, then the rest; NULL: more than 64 bits. */
const char *flw_number_scale(const char *text, uint64_t *value);

/* The setting of that name in a list ended by a NULL; NULL: none. */
const struct flw_setting *flw_setting_find(const struct flw_setting *list, const char *name);
/* False: it cannot be read, *into is as it was. `base`: of numbers. */
bool flw_setting_read(const struct flw_setting *setting, const char *text, int base, void *into);

#endif
