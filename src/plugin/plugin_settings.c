/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the settings of the variable FALLOW_PLUGIN. Does not: read the environment. */
#include <stdlib.h>
#include <string.h>

#include "base/setting.h"
#include "plugin/default_pools.h"

static const struct flw_setting_word economies[] = {{"balanced", FALLOW_BALANCED},
                                                    {"memory_first", FALLOW_MEMORY_FIRST},
                                                    {"speed_first", FALLOW_SPEED_FIRST},
                                                    {NULL, 0}};
static const struct flw_setting_word reuses[] = {{"wait", FALLOW_REUSE_WAIT},
                                                 {"completed", FALLOW_REUSE_COMPLETED},
                                                 {"same_stream", FALLOW_REUSE_SAME_STREAM},
                                                 {NULL, 0}};
static const struct flw_setting_word page_sources[] = {{"automatic", FALLOW_PAGES_AUTOMATIC},
                                                       {"handles", FALLOW_PAGES_HANDLES},
                                                       {"segments", FALLOW_PAGES_SEGMENTS},
                                                       {NULL, 0}};
static const struct flw_setting_word checks[] = {{"poison", FALLOW_CHECK_POISON},
                                                 {"red_zones", FALLOW_CHECK_RED_ZONES},
                                                 {"quarantine", FALLOW_CHECK_QUARANTINE},
                                                 {NULL, 0}};

#define FIELD(field) FLW_SETTING_FIELD(fallow_pool_config, field)

static const struct flw_setting list[] = {
    {"limit", FLW_SETTING_IS_BYTES, FIELD(limit_bytes), .least = 1, .most = SIZE_MAX},
    {"economy", FLW_SETTING_IS_WORD, FIELD(economy), .words = economies},
    {"reuse", FLW_SETTING_IS_WORD, FIELD(reuse_policy), .words = reuses},
    {"page_source", FLW_SETTING_IS_WORD, FIELD(page_source), .words = page_sources},
    {"one_handle", FLW_SETTING_IS_BYTES, FIELD(one_handle_bytes), .least = 1, .most = SIZE_MAX},
    {"decay_ms", FLW_SETTING_IS_NUMBER, FIELD(decay_ms), .most = UINT32_MAX - 1},
    {"checks", FLW_SETTING_IS_BITS, FIELD(checks), .words = checks},
    {.name = NULL}};

static bool read_pair(const char *key, const char *value, fallow_pool_config *config, char *driver,
                      size_t driver_bytes)
{
    const struct flw_setting name = {"driver", FLW_SETTING_IS_TEXT, .size = driver_bytes};
    key = strcmp(key, "decay") == 0 ? "decay_ms" : key; /* the name until 0.1 */
    const struct flw_setting *setting = flw_setting_find(list, key);
    if (strcmp(key, name.name) == 0 && flw_setting_read(&name, value, 10, driver)) {
        config->driver = driver;
        return true;
    }
    if (strcmp(key, "one_handle") == 0 && strcmp(value, "none") == 0) {
        config->one_handle_bytes = FALLOW_ONE_HANDLE_NONE;
        return true;
    }
    if (strcmp(key, "decay_ms") == 0 && strcmp(value, "never") == 0) {
        config->decay_ms = UINT32_MAX;
        return true;
    }
    return setting != NULL && flw_setting_read(setting, value, 10, config);
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
            flw_plugin_log(
                "FALLOW_PLUGIN: '%s%s%s' is not a setting with a valid value, so the whole variable is ignored; "
                "settings are limit, "
                "economy, reuse, page_source, one_handle, decay_ms, checks and driver, each with a value: "
                "limit:20G",
                pair, colon != NULL ? ":" : "", colon != NULL ? colon + 1 : "");
            fallow_pool_config_init(config);
        }
    }
    free(copy);
    return is_read;
}
