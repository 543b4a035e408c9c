/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the variable FALLOW_PLUGIN may say. Does not: read the environment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/default_pools.h"

struct word {
    const char *name;
    uint32_t value;
};

static const struct word economies[] = {
    {"balanced", FALLOW_BALANCED}, {"memory_first", FALLOW_MEMORY_FIRST}, {NULL, 0}};
static const struct word reuses[] = {{"wait", FALLOW_REUSE_WAIT},
                                     {"completed", FALLOW_REUSE_COMPLETED},
                                     {"same_stream", FALLOW_REUSE_SAME_STREAM},
                                     {NULL, 0}};
static const struct word page_sources[] = {{"automatic", FALLOW_PAGES_AUTOMATIC},
                                           {"handles", FALLOW_PAGES_HANDLES},
                                           {"segments", FALLOW_PAGES_SEGMENTS},
                                           {NULL, 0}};
static const struct word checks[] = {{"poison", FALLOW_CHECK_POISON},
                                     {"red_zones", FALLOW_CHECK_RED_ZONES},
                                     {"quarantine", FALLOW_CHECK_QUARANTINE},
                                     {NULL, 0}};

static bool read_word(const struct word *words, const char *text, uint32_t *out_value)
{
    while (words->name != NULL && strcmp(words->name, text) != 0) {
        words++;
    }
    *out_value = words->value;
    return words->name != NULL;
}

/* Words with '+' between; text is cut up. */
static bool read_bits(const struct word *words, char *text, uint32_t *out_bits)
{
    char *rest = NULL;
    uint32_t bit;
    for (const char *word = strtok_r(text, "+", &rest); word != NULL;
         word = strtok_r(NULL, "+", &rest)) {
        if (!read_word(words, word, &bit)) {
            return false;
        }
        *out_bits |= bit;
    }
    return *out_bits != 0;
}

static bool read_number(const char *text, uint64_t *out_value, char *out_unit)
{
    char *end = NULL;
    errno = 0;
    *out_value = strtoull(text, &end, 10);
    *out_unit = *end;
    return *text >= '0' && *text <= '9' && errno == 0 && (*end == '\0' || end[1] == '\0');
}

static bool read_size(const char *text, size_t *out_bytes)
{
    uint64_t value;
    char unit;
    if (!read_number(text, &value, &unit)) {
        return false;
    }
    int shift = unit == '\0'  ? 0
                : unit == 'K' ? 10
                : unit == 'M' ? 20
                : unit == 'G' ? 30
                : unit == 'T' ? 40
                              : -1;
    if (shift < 0 || value == 0 || value > SIZE_MAX >> shift) {
        return false;
    }
    *out_bytes = (size_t)value << shift;
    return true;
}

static bool read_pair(const char *key, char *value, fallow_pool_config *config, char *driver,
                      size_t driver_bytes)
{
    uint32_t word = 0;
    uint64_t number;
    char unit;
    if (strcmp(key, "limit") == 0) {
        return read_size(value, &config->limit_bytes);
    }
    if (strcmp(key, "economy") == 0 && read_word(economies, value, &word)) {
        config->economy = (fallow_economy)word;
        return true;
    }
    if (strcmp(key, "reuse") == 0 && read_word(reuses, value, &word)) {
        config->reuse_policy = (fallow_reuse_policy)word;
        return true;
    }
    if (strcmp(key, "page_source") == 0 && read_word(page_sources, value, &word)) {
        config->page_source = (fallow_page_source)word;
        return true;
    }
    if (strcmp(key, "one_handle") == 0 && strcmp(value, "none") == 0) {
        config->one_handle_bytes = FALLOW_ONE_HANDLE_NONE;
        return true;
    }
    if (strcmp(key, "one_handle") == 0) {
        return read_size(value, &config->one_handle_bytes);
    }
    if (strcmp(key, "decay") == 0 && read_number(value, &number, &unit) && unit == '\0' &&
        number < UINT32_MAX) {
        config->decay_ms = number == 0 ? UINT32_MAX : (uint32_t)number;
        return true;
    }
    if (strcmp(key, "checks") == 0) {
        return read_bits(checks, value, &config->checks);
    }
    if (strcmp(key, "driver") == 0 && *value != '\0' && strlen(value) < driver_bytes) {
        memcpy(driver, value, strlen(value) + 1);
        config->driver = driver;
        return true;
    }
    return false;
}

bool flw_plugin_read_settings(const char *text, fallow_pool_config *config, char *driver,
                              size_t driver_bytes)
{
    char *copy = strdup(text), *rest = NULL;
    bool is_read = copy != NULL;
    for (char *pair = is_read ? strtok_r(copy, ",", &rest) : NULL; is_read && pair != NULL;
         pair = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(pair, ':');
        if (colon != NULL) {
            *colon = '\0';
        }
        is_read = colon != NULL && read_pair(pair, colon + 1, config, driver, driver_bytes);
        if (!is_read) {
            flw_plugin_say(
                "FALLOW_PLUGIN: '%s%s%s' is no setting, so none of it is used; known are limit, "
                "economy, reuse, page_source, one_handle, decay, checks and driver, each with a value: "
                "limit:20G",
                pair, colon != NULL ? ":" : "", colon != NULL ? colon + 1 : "");
            fallow_pool_config_init(config);
        }
    }
    free(copy);
    return is_read;
}
