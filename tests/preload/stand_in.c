/* SPDX-License-Identifier: Apache-2.0
 *
 * A library in the place of the preload library, for tests of the command that launches: it joins
 * the run's page and writes the value of STAND_IN there (a number, the flags of runpage.h).
 * Does not: hook anything. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/runpage.h"

static struct flw_runpage_place *place;

__attribute__((constructor)) static void join(void)
{
    char path[256] = "";
    const char *settings = getenv("FALLOW"), *flags = getenv("STAND_IN");
    const char *state = settings != NULL ? strstr(settings, "state:") : NULL;
    if (state != NULL) {
        size_t length = strcspn(state + 6, ",");
        memcpy(path, state + 6, length < sizeof path ? length : sizeof path - 1);
        place = flw_runpage_join(flw_runpage_open(path), program_invocation_short_name);
    }
    if (getenv("CUT_PAGE") != NULL && truncate(path, 0) == 0) {
        _exit(9); /* if the page can be shortened, the parent crashes on the next read */
    }
    if (place != NULL && flags != NULL) {
        atomic_fetch_or(&place->flags, (uint32_t)strtoul(flags, NULL, 0));
    }
}

__attribute__((destructor)) static void leave(void)
{
    flw_runpage_say(place, FLW_RUNPAGE_ENDED);
}
