/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/real.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/address_table.h"
#include "preload/audit/audit.h"
#include "preload/hook_use.h"
#include "preload/inside.h"
#include "preload/interposer.h"
#include "preload/runplace.h"
#include "preload/settings.h"
#include "preload/trace_layer.h"

#define DRIVER "libcuda.so.1"

_Thread_local int flw_inside_depth __attribute__((tls_model("initial-exec")));

static struct flw_address_table *_Atomic by_name;    /* for results of dlsym */
static struct flw_address_table *_Atomic by_version; /* for results of cuGetProcAddress */
static _Atomic uint64_t adds_without_driver;         /* loads counted when no driver was found */

/* Return the definition after ours among the objects of every lookup; NULL: none. */
static void *find_behind(const char *symbol)
{
    flw_inside_enter();
    void *address = flw_dlsym_libc()(RTLD_NEXT, symbol);
    flw_inside_leave();
    return address;
}

/* Target of a hooked name until the driver is found, and for good if the driver lacks the name. A
 * program linked with another driver than libcuda.so.1 gets the function of that driver. */
#define X(symbol, base, since, parameters, arguments)                                   \
    static CUresult first_##symbol parameters                                           \
    {                                                                                   \
        CUresult(*real) parameters = flw_real.symbol;                                   \
        if (!flw_real_ready()) {                                                        \
            void *address = find_behind(#symbol);                                       \
            if (address == NULL) {                                                      \
                return CUDA_ERROR_NOT_INITIALIZED;                                      \
            }                                                                           \
            memcpy(&real, &address, sizeof real);                                       \
            return real arguments;                                                      \
        }                                                                               \
        real = flw_real.symbol;                                                         \
        atomic_fetch_add_explicit(&flw_hook_use.export_count, 1, memory_order_relaxed); \
        return real == first_##symbol ? CUDA_ERROR_NOT_FOUND : real arguments;          \
    }
FLW_HOOK_LIST(X)
#undef X

struct flw_real flw_real = {
#define X(symbol, base, since, parameters, arguments) .symbol = first_##symbol,
    FLW_HOOK_LIST(X)
#undef X
};

static const struct hook {
    const char *symbol, *base;
    int since;
    size_t offset; /* of the place in flw_real */
} hooks[FLW_HOOK_COUNT] = {
#define X(symbol, base, since, parameters, arguments) \
    {#symbol, #base, since, offsetof(struct flw_real, symbol)},
    FLW_HOOK_LIST(X)
#undef X
};

static uintptr_t wrapper_of(unsigned hook)
{
    static void (*const wrappers[FLW_HOOK_COUNT])(void) = {
#define X(symbol, base, since, parameters, arguments) (void (*)(void)) flw_hook_##symbol,
        FLW_HOOK_LIST(X)
#undef X
    };
    return (uintptr_t)wrappers[hook];
}

static uintptr_t first_of(unsigned hook)
{
    static void (*const firsts[FLW_HOOK_COUNT])(void) = {
#define X(symbol, base, since, parameters, arguments) (void (*)(void)) first_##symbol,
        FLW_HOOK_LIST(X)
#undef X
    };
    return (uintptr_t)firsts[hook];
}

/* Threads that run this at once store the same values. */
static void set_place(size_t offset, uintptr_t address)
{
    __atomic_store_n((uintptr_t *)(void *)((unsigned char *)&flw_real + offset), address,
                     __ATOMIC_RELAXED);
}

static uintptr_t get_place(unsigned hook)
{
    return __atomic_load_n((uintptr_t *)(void *)((unsigned char *)&flw_real + hooks[hook].offset),
                           __ATOMIC_RELAXED);
}

/* Call after flw_real_ready. */
static bool has(enum flw_hook hook)
{
    return get_place(hook) != first_of(hook);
}

bool flw_real_is_hooked(const char *name)
{
    for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
        if (strcmp(hooks[i].symbol, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Call after flw_real_ready. */
static bool is_hooked_in_vain(const char *name)
{
    for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
        if (strcmp(hooks[i].symbol, name) == 0) {
            return !has((enum flw_hook)i);
        }
    }
    return false;
}

bool flw_real_offers(const char *name)
{
    return flw_real_ready() && !is_hooked_in_vain(name);
}

/* The range of all wrappers, so that most other addresses take two comparisons. Every thread
 * computes the same. */
static bool is_among_wrappers(uintptr_t address)
{
    static _Atomic uintptr_t first, last;
    if (atomic_load_explicit(&last, memory_order_acquire) == 0) {
        uintptr_t low = UINTPTR_MAX, high = 0;
        for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
            low = wrapper_of(i) < low ? wrapper_of(i) : low;
            high = wrapper_of(i) > high ? wrapper_of(i) : high;
        }
        atomic_store_explicit(&first, low, memory_order_relaxed);
        atomic_store_explicit(&last, high, memory_order_release);
    }
    return address >= atomic_load_explicit(&first, memory_order_relaxed) &&
           address <= atomic_load_explicit(&last, memory_order_relaxed);
}

bool flw_real_is_wrapper(const void *address)
{
    for (unsigned i = 0; is_among_wrappers((uintptr_t)address) && i < FLW_HOOK_COUNT; i++) {
        if (wrapper_of(i) == (uintptr_t)address) {
            return true;
        }
    }
    return false;
}

/* ---- tables */

static struct flw_address_table *make_table(const struct flw_address_table *from)
{
    struct flw_address_table *table =
        mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        return NULL;
    }
    if (from != NULL) {
        *table = *from;
    }
    return table;
}

/* Return the table that stays: ours, or one that another thread published meanwhile. */
static struct flw_address_table *publish(struct flw_address_table *_Atomic *place,
                                         struct flw_address_table *table)
{
    struct flw_address_table *expected = NULL;
    if (!atomic_compare_exchange_strong_explicit(place, &expected, table, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        munmap(table, sizeof *table);
        return expected;
    }
    atomic_store_explicit(&flw_hook_use.is_learnt, true, memory_order_relaxed);
    flw_runplace_say(FLW_RUNPAGE_DRIVER);
    return table;
}

/* ---- the driver */

static int read_adds(struct dl_phdr_info *info, size_t bytes, void *out)
{
    (void)bytes;
    *(uint64_t *)out = info->dlpi_adds;
    return 1;
}

/* Return the driver's handle if the program has loaded it; never loads it. After a failure search
 * again only if libraries were loaded since, because the search reads folders. */
static void *find_driver(void)
{
    uint64_t adds = 0;
    dl_iterate_phdr(read_adds, &adds);
    if (adds == atomic_load_explicit(&adds_without_driver, memory_order_relaxed)) {
        return NULL;
    }
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL) {
        atomic_store_explicit(&adds_without_driver, adds, memory_order_relaxed);
    }
    return driver;
}

/* If another preload library follows this one, calls pass through it, as in a program without
 * Fallow. */
static uintptr_t find_next(void *driver, const char *symbol)
{
    void *address = find_behind(symbol);
    return (uintptr_t)(address != NULL ? address : flw_dlsym_libc()(driver, symbol));
}

static void fill_driver(void *driver)
{
    flw_dlsym_function find = flw_dlsym_libc();
#define X(need, symbol, since, before, parameters)                                     \
    set_place(offsetof(struct flw_real, driver) + offsetof(struct flw_driver, symbol), \
              (uintptr_t)find(driver, #symbol));
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
#define X(symbol, parameters) \
    set_place(offsetof(struct flw_real, symbol), (uintptr_t)find(driver, #symbol));
    FLW_REAL_LIST(X)
#undef X
    set_place(offsetof(struct flw_real, driver) + offsetof(struct flw_driver, object),
              (uintptr_t)driver);
}

/* Return NULL, or an entry point that our pools need and this driver lacks. */
static const char *find_missing(void *driver)
{
    static const struct {
        const char *symbol;
        enum {
            OPTIONAL,
            REQUIRED
        } need;
    } needs[] = {{"cuCtxGetId", REQUIRED}, /* identifies contexts */
#define X(need, symbol, since, before, parameters) {#symbol, need},
                 FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    };
    for (unsigned i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (needs[i].need == REQUIRED && flw_dlsym_libc()(driver, needs[i].symbol) == NULL) {
            return needs[i].symbol;
        }
    }
    return NULL;
}

/* Switch Fallow off, with the audit, if the requested mode is not possible. */
static void check_mode(void *driver)
{
    const char *missing = NULL;
    if (flw_settings.mode == FLW_MODE_OFF) {
        return;
    }
    flw_interposer_check(driver);
    if (flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT) {
        missing = find_missing(driver);
    }
    if (missing != NULL) {
        flw_settings_switch_off("the driver lacks %s; install one of CUDA 11.4 or newer", missing);
    }
    if (flw_settings.mode == FLW_MODE_OFF) {
        (void)flw_audit_stop();
    }
}

/* Only an audit hooks launches, copies and fills: in other processes lookups return the driver's
 * own. */
static bool is_wanted(unsigned hook)
{
    static const bool is_for_audit[FLW_HOOK_COUNT] = {
#define X(symbol, base, since, parameters, arguments) [FLW_HOOK_##symbol] = true,
        FLW_HOOKS_FILL(X) FLW_HOOKS_LAUNCH(X) FLW_HOOKS_TOUCH(X)
#undef X
    };
    return !is_for_audit[hook] ||
           (flw_settings.audit_prefix[0] != '\0' && flw_settings.mode != FLW_MODE_OFF);
}

static struct flw_address_table *learn_names(void)
{
    void *driver = find_driver();
    if (driver == NULL) {
        return NULL;
    }
    check_mode(driver);
    struct flw_address_table *table = make_table(NULL);
    if (table == NULL) {
        return NULL;
    }
    for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
        uintptr_t next = find_next(driver, hooks[i].symbol);
        uintptr_t real = (uintptr_t)flw_dlsym_libc()(driver, hooks[i].symbol);
        if (real != 0 && next != 0 && next != wrapper_of(i)) {
            set_place(hooks[i].offset, flw_trace_layer((enum flw_hook)i, next));
            if (is_wanted(i)) {
                flw_address_table_add(table, (struct flw_address){real, wrapper_of(i), i});
            }
        }
    }
    fill_driver(driver);
    return publish(&by_name, table);
}

bool flw_real_ready(void)
{
    if (atomic_load_explicit(&by_name, memory_order_acquire) != NULL) {
        return true;
    }
    if (flw_is_inside() || !flw_settings_ready()) {
        return false;
    }
    flw_inside_enter();
    bool is_ready = learn_names() != NULL;
    flw_inside_leave();
    return is_ready;
}

/* ---- substitution */

static void *answer(const struct flw_address *pair, void *address, _Atomic uint64_t *count)
{
    if (pair == NULL) {
        return address;
    }
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&flw_hook_use.answers[pair->hook], 1, memory_order_relaxed);
    return (void *)pair->wrapper;
}

void *flw_real_substitute(void *address, bool *out_learnt)
{
    *out_learnt = false;
    struct flw_address_table *table = atomic_load_explicit(&by_name, memory_order_acquire);
    if (table == NULL) {
        *out_learnt = true;
        if (!flw_real_ready()) {
            return address;
        }
        table = atomic_load_explicit(&by_name, memory_order_acquire);
    }
    if (flw_settings.mode == FLW_MODE_OFF) {
        return address;
    }
    return answer(flw_address_table_find(table, (uintptr_t)address), address,
                  &flw_hook_use.dlsym_count);
}

/* Return the real cuGetProcAddress's result; 0: none. */
static uintptr_t ask_version(const char *base, int since, cuuint64_t flags)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = has(FLW_HOOK_cuGetProcAddress_v2)
                          ? flw_real.cuGetProcAddress_v2(base, &address, since, flags, &status)
                          : flw_real.cuGetProcAddress(base, &address, since, flags);
    return result == CUDA_SUCCESS ? (uintptr_t)address : 0;
}

static bool is_twin(const char *symbol)
{
    size_t length = strlen(symbol);
    return length > 5 &&
           (strcmp(symbol + length - 5, "_ptsz") == 0 || strcmp(symbol + length - 5, "_ptds") == 0);
}

/* dlsym's results take precedence: an exported name is exact, and if a driver returns a newer
 * function for an old version, the newer function must not get the old one's wrapper. */
static struct flw_address_table *learn_versions(const struct flw_address_table *names)
{
    struct flw_address_table *table = make_table(names);
    if (table == NULL) {
        return NULL;
    }
    for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
        bool has_twin = i + 1 < FLW_HOOK_COUNT && is_twin(hooks[i + 1].symbol);
        unsigned first_flag = is_twin(hooks[i].symbol) ? 2 : 0;
        unsigned end_flag = has_twin ? 2 : 3; /* 0 default, 1 legacy, 2 the thread's own stream */
        for (unsigned flags = first_flag; is_wanted(i) && flags < end_flag; flags++) {
            uintptr_t real = ask_version(hooks[i].base, hooks[i].since, flags);
            flw_address_table_add(table, (struct flw_address){real, wrapper_of(i), i});
        }
    }
    return publish(&by_version, table);
}

void *flw_real_substitute_versioned(void *address)
{
    struct flw_address_table *table = atomic_load_explicit(&by_version, memory_order_acquire);
    struct flw_address_table *names = atomic_load_explicit(&by_name, memory_order_acquire);
    if (flw_settings.mode == FLW_MODE_OFF || names == NULL) {
        return address;
    }
    if (table == NULL) {
        flw_inside_enter();
        table = learn_versions(names);
        flw_inside_leave();
    }
    return answer(table == NULL ? NULL : flw_address_table_find(table, (uintptr_t)address), address,
                  &flw_hook_use.proc_address_count);
}
