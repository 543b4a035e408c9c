/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/onlookers.h"

#include "fallow/publish.h"
#include "preload/say.h"
#include "preload/settings.h"

static void say(void *nothing, fallow_log_level level, const char *line)
{
    (void)nothing;
    (void)level;
    flw_say("%s", line);
}

void flw_onlookers_admit(void)
{
    fallow_publish_config config;
    bool has_pools = flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT;
    if (flw_settings.is_top && has_pools) {
        fallow_publish_config_init(&config);
        config.log = say;
        (void)fallow_publish_start(&config);
    }
}
