/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/interposer.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "preload/dlsym.h"
#include "preload/hooks.h"
#include "preload/settings.h"

/* Names that allocate, free or find memory. */
static const char *const guarded_names[] = {
#define X(symbol, base, since, parameters, arguments) #symbol,
    FLW_HOOKS_MEMORY(X) FLW_HOOKS_RETRY(X) FLW_HOOKS_LOOKUP(X)
#undef X
};

static uintptr_t wrapper_of(unsigned i)
{
    static void (*const wrappers[])(void) = {
#define X(symbol, base, since, parameters, arguments) (void (*)(void)) flw_hook_##symbol,
        FLW_HOOKS_MEMORY(X) FLW_HOOKS_RETRY(X) FLW_HOOKS_LOOKUP(X)
#undef X
    };
    return (uintptr_t)wrappers[i];
}

static bool report(void *address, const char *symbol)
{
    Dl_info where;
    const char *name = "another object";
    if (dladdr(address, &where) != 0 && where.dli_fname != NULL) {
        name = where.dli_fname;
    }
    flw_settings_switch_off("'%s' interposes %s too; preload one of the two", name, symbol);
    return true;
}

/* In the loader's order: a library before us, or one between us and the driver. */
static bool has_exports(void *driver, unsigned i)
{
    flw_dlsym_function find = flw_dlsym_libc();
    void *first = find(RTLD_DEFAULT, guarded_names[i]);
    void *behind = find(RTLD_NEXT, guarded_names[i]);
    void *real = find(driver, guarded_names[i]);
    if (first != NULL && (uintptr_t)first != wrapper_of(i)) {
        return report(first, guarded_names[i]);
    }
    return behind != NULL && behind != real && report(behind, guarded_names[i]);
}

/* True if a hook of dlsym by another library returns something other than the driver's own. This
 * thread is inside, so our own hook changes nothing. */
static bool has_answers(flw_dlsym_function theirs, void *driver, unsigned i)
{
    void *answer = theirs(driver, guarded_names[i]);
    void *real = flw_dlsym_libc()(driver, guarded_names[i]);
    return answer != real && answer != NULL && (uintptr_t)answer != wrapper_of(i) &&
           report(answer, guarded_names[i]);
}

void flw_interposer_check(void *driver)
{
    void *address = flw_dlsym_libc()(RTLD_DEFAULT, "dlsym");
    flw_dlsym_function front = NULL, behind = flw_dlsym_next();
    memcpy(&front, &address, sizeof front);
    for (unsigned i = 0; i < sizeof guarded_names / sizeof *guarded_names; i++) {
        if (has_exports(driver, i) || (front != NULL && has_answers(front, driver, i)) ||
            (behind != flw_dlsym_libc() && has_answers(behind, driver, i))) {
            return;
        }
    }
}
