/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/runplace.h"

#include <errno.h>
#include <stdlib.h>

#include "preload/hook_use.h"
#include "preload/settings.h"

#define KEY "state:"

static struct flw_runpage *page;
static struct flw_runpage_place *place;

/* The command has put the key last. */
void flw_runplace_join(void)
{
    char path[256];
    int saved = errno;
    const char *settings = secure_getenv("FALLOW"), *found = NULL;
    for (const char *at = settings; at != NULL && (at = strstr(at, KEY)) != NULL; at++) {
        found = at == settings || at[-1] == ',' ? at + strlen(KEY) : found;
    }
    size_t length = found != NULL ? strcspn(found, ",") : 0;
    if (length > 0 && length < sizeof path) {
        memcpy(path, found, length);
        path[length] = '\0';
        page = flw_runpage_open(path);
        place = flw_runpage_join(page, program_invocation_short_name);
    }
    errno = saved;
}

void flw_runplace_renew(void)
{
    place = flw_runpage_join(page, program_invocation_short_name);
}

void flw_runplace_leave(void)
{
    if (place == NULL) {
        return;
    }
    if (flw_settings.mode ==
        FLW_MODE_OFF) { /* it may have been switched off since the start, with a reason logged */
        flw_runplace_say(FLW_RUNPAGE_OFF);
    }
    uint32_t flags = atomic_load(&place->flags);
    if (flw_hook_use_is_reached()) {
        flw_runplace_say(FLW_RUNPAGE_REACHED);
    } else if ((flags & (FLW_RUNPAGE_DRIVER | FLW_RUNPAGE_OFF)) == 0 && flw_hook_use_has_driver()) {
        flw_runplace_say(flw_hook_use_is_linked() ? FLW_RUNPAGE_DRIVER : FLW_RUNPAGE_PASSED);
    }
    flw_runplace_say(FLW_RUNPAGE_ENDED);
}

void flw_runplace_say(enum flw_runpage_flag flag)
{
    flw_runpage_say(place, flag);
}

struct flw_runpage_place *flw_runplace_here(void)
{
    return place;
}

struct flw_runpage *flw_runplace_page(void)
{
    return page;
}
