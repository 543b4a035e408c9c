/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: why the hooks were never reached, from the page and a look at the command's file.
 */

#include "common/command.h"
#include "common/program_file.h"

static bool has_flag(const struct flw_runpage_place *place, enum flw_runpage_flag flag)
{
    return (atomic_load(&place->flags) & (uint32_t)flag) != 0;
}

static size_t place_count(const struct flw_runpage *page)
{
    size_t count = atomic_load(&page->place_count);
    return count < FLW_RUNPAGE_PLACES ? count : FLW_RUNPAGE_PLACES;
}

/* The last place with the flag; NULL: there is none. */
static const struct flw_runpage_place *find(const struct flw_runpage *page,
                                            enum flw_runpage_flag flag)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < place_count(page); i++) {
        found = has_flag(&page->places[i], flag) ? &page->places[i] : found;
    }
    return found;
}

/* The last image of a process that did not come to its end: another one took its place, or _exit, or
 * a signal. NULL: there is none. */
static const struct flw_runpage_place *find_unended(const struct flw_runpage *page)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < place_count(page); i++) {
        bool is_last = true;
        for (size_t j = i + 1; j < place_count(page); j++) {
            is_last &= atomic_load(&page->places[j].pid) != atomic_load(&page->places[i].pid);
        }
        if (is_last && !has_flag(&page->places[i], FLW_RUNPAGE_ENDED)) {
            found = &page->places[i];
        }
    }
    return found;
}

static void explain_unloaded(const struct flw_launch *launch,
                             const struct flw_launch_outcome *outcome)
{
    struct flw_program_file file;
    flw_program_look(launch->command[0], &file);
    switch (file.kind) {
    case FLW_PROGRAM_STATIC:
        flw_complain("%s: the hooks were never reached: %s is statically linked, so nothing can be "
                     "preloaded into it",
                     launch->subcommand, file.path);
        break;
    case FLW_PROGRAM_SECURE:
        flw_complain(
            "%s: the hooks were never reached: %s is setuid, setgid or has capabilities, and "
            "then the loader ignores LD_PRELOAD",
            launch->subcommand, file.path);
        break;
    case FLW_PROGRAM_FOREIGN:
        flw_complain(
            "%s: the hooks were never reached: %s is for another processor or word size than "
            "%s",
            launch->subcommand, file.path, outcome->library);
        break;
    case FLW_PROGRAM_DYNAMIC:
    case FLW_PROGRAM_UNKNOWN:
        flw_complain(
            "%s: the hooks were never reached: %s was not loaded into %s; the loader's message "
            "above says why, or another user's process could not say that it was",
            launch->subcommand, outcome->library,
            file.path[0] != '\0' ? file.path : launch->command[0]);
        break;
    }
}

/* The driver was found, and then the process could not say any more: the hooks may have been reached. */
static bool may_have_reached(const struct flw_runpage *page)
{
    bool may = false;
    for (size_t i = 0; i < place_count(page); i++) {
        may |= has_flag(&page->places[i], FLW_RUNPAGE_DRIVER) &&
               !has_flag(&page->places[i], FLW_RUNPAGE_ENDED);
    }
    return may;
}

bool flw_launch_is_reached(const struct flw_launch_outcome *outcome)
{
    return find(&outcome->page, FLW_RUNPAGE_REACHED) != NULL || may_have_reached(&outcome->page);
}

bool flw_launch_explain(const struct flw_launch *launch, const struct flw_launch_outcome *outcome)
{
    const struct flw_runpage *page = &outcome->page;
    const struct flw_runpage_place *unended = find_unended(page);
    const struct flw_runpage_place *passed = find(page, FLW_RUNPAGE_PASSED);
    if (page->magic != FLW_RUNPAGE_MAGIC || flw_launch_is_reached(outcome) ||
        find(page, FLW_RUNPAGE_OFF) != NULL) {
        return false;
    }
    if (place_count(page) == 0) {
        explain_unloaded(launch, outcome);
    } else if (passed != NULL) {
        flw_complain("%s: the hooks were never reached: %s (%d) loaded the driver past them: by "
                     "RTLD_DEEPBIND, dlmopen or a library in front of this one, or never called it",
                     launch->subcommand, passed->name, (int)atomic_load(&passed->pid));
    } else if (find(page, FLW_RUNPAGE_DRIVER) != NULL) {
        flw_complain(
            "%s: the hooks were never reached: the driver was loaded, but nothing of it was "
            "called that is hooked",
            launch->subcommand);
    } else if (unended != NULL && outcome->signal == 0) {
        flw_complain(
            "%s: the hooks were never reached: no CUDA was used up to where %s (%d) ended by "
            "_exit or a signal or became a program without LD_PRELOAD: one that is static or "
            "setuid, or was given another environment",
            launch->subcommand, unended->name, (int)atomic_load(&unended->pid));
    } else {
        flw_complain(
            "%s: the hooks were never reached: no CUDA was used, libcuda.so.1 was not loaded",
            launch->subcommand);
    }
    return true;
}
