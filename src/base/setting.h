/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading settings from text. A table has each setting's type, the destination and the
 * message for a value that cannot be read. Does not: parse separators or read variables. Allocates
 * no host memory, so the preload library may use it. */
#ifndef FLW_BASE_SETTING_H
#define FLW_BASE_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_setting_form {
    FLW_SETTING_IS_TEXT, /* from 1 byte to one less than the field has */
    FLW_SETTING_IS_NUMBER,
    FLW_SETTING_IS_BYTES, /* a number, optionally with K, M, G or T */
    FLW_SETTING_IS_WORD,
    FLW_SETTING_IS_BITS /* words separated by '+' */
};

struct flw_setting_word {
    const char *name; /* NULL ends the list */
    uint32_t value;
};

struct flw_setting {
    const char *name;
    enum flw_setting_form form;
    size_t offset, size; /* of the field: 8, 4 or 1 (bool) bytes, or characters; 0: none */
    const struct flw_setting_word *words;
    uint64_t least, most; /* bounds of numbers and bytes */
    const char *expected; /* such as "give 0 or 1" */
};

#define FLW_SETTING_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

/* Read the number at the front of a text in `base` (0: as in C). Returns the rest of the text;
 * NULL if there is no number or it has more than 64 bits. */
const char *flw_number_read(const char *text, int base, uint64_t *out_value);
/* Multiply the value by a letter K, M, G or T at the front of a text, if there is one. Returns the
 * rest; NULL if the value has more than 64 bits. */
const char *flw_number_scale(const char *text, uint64_t *value);

/* Return the setting with that name in a list ended by NULL; NULL if there is none. */
const struct flw_setting *flw_setting_find(const struct flw_setting *list, const char *name);
/* Read a value. Returns false and leaves *into unchanged if it is invalid. `base` is
 * for numbers. */
bool flw_setting_read(const struct flw_setting *setting, const char *text, int base, void *into);

#endif
