/* SPDX-License-Identifier: Apache-2.0 */
#include "base/setting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *flw_number_read(const char *text, int base, uint64_t *out_value)
{
    char *end = NULL;
    errno = 0;
    *out_value = strtoull(text, &end, base);
    return *text >= '0' && *text <= '9' && errno == 0 ? end : NULL;
}

const char *flw_number_scale(const char *text, uint64_t *value)
{
    static const char letters[] = "KMGT";
    const char *letter = *text != '\0' ? strchr(letters, *text) : NULL;
    unsigned shift = letter != NULL ? 10 * (unsigned)(letter - letters + 1) : 0;
    if (*value > UINT64_MAX >> shift) {
        return NULL;
    }
    *value <<= shift;
    return text + (letter != NULL);
}

const struct flw_setting *flw_setting_find(const struct flw_setting *list, const char *name)
{
    while (list->name != NULL && strcmp(list->name, name) != 0) {
        list++;
    }
    return list->name != NULL ? list : NULL;
}

static bool read_number(const struct flw_setting *setting, const char *text, int base,
                        uint64_t *out_value)
{
    const char *rest = flw_number_read(text, base, out_value);
    if (rest != NULL && setting->form == FLW_SETTING_IS_BYTES) {
        rest = flw_number_scale(rest, out_value);
    }
    return rest != NULL && *rest == '\0' && *out_value >= setting->least &&
           *out_value <= setting->most;
}

static bool read_words(const struct flw_setting *setting, const char *text, uint64_t *out_value)
{
    const char *ends = setting->form == FLW_SETTING_IS_BITS ? "+" : "";
    for (unsigned count = 0;; count++) {
        text += strspn(text, ends);
        if (*text == '\0' && count > 0) {
            return true;
        }
        size_t length = strcspn(text, ends);
        const struct flw_setting_word *word = setting->words;
        while (word->name != NULL &&
               (strlen(word->name) != length || memcmp(word->name, text, length) != 0)) {
            word++;
        }
        if (word->name == NULL) {
            return false;
        }
        *out_value |= word->value;
        text += length;
    }
}

bool flw_setting_read(const struct flw_setting *setting, const char *text, int base, void *into)
{
    char *field = (char *)into + setting->offset;
    uint64_t value = 0;
    bool is_word = setting->form == FLW_SETTING_IS_WORD || setting->form == FLW_SETTING_IS_BITS;
    if (setting->form == FLW_SETTING_IS_TEXT) {
        bool fits = *text != '\0' && strlen(text) < setting->size;
        return fits && strcpy(field, text) != NULL;
    }
    if (is_word ? !read_words(setting, text, &value) : !read_number(setting, text, base, &value)) {
        return false;
    }
    if (setting->size == sizeof(uint64_t)) {
        *(uint64_t *)(void *)field = value;
    } else if (setting->size == sizeof(uint32_t)) {
        *(uint32_t *)(void *)field = (uint32_t)value;
    } else if (setting->size == sizeof(bool)) {
        *(bool *)field = value != 0;
    }
    return true;
}
