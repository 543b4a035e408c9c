/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of profiles, parsing their names, the choice, and their effects on a world.
 * README.md has the real drivers of each, with sources. */
#include "simcuda/profile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/order.h"

#define VARIABLE "FALLOW_SIMCUDA"
#define SLOW_NS  3000000ull /* of a call that creates or releases memory; an estimate */

FLW_SIM_EXPORT int flw_sim_play(const char *names, char *message, size_t bytes);
FLW_SIM_EXPORT const char *flw_sim_played(void);

static struct flw_profile chosen; /* for new worlds */
static bool is_wrong;             /* the environment variable's names are invalid */
static bool is_libcuda;           /* the library was loaded under the driver's own name */
bool flw_profile_is_chosen_old;

/* ---- names */

/* A part of the text between two separators. */
struct word {
    const char *begin;
    size_t length;
};

/* One name of the list with the options: NAME[:call][@from][=error]. */
struct item {
    struct word name, call, from, error;
};

struct reader {
    struct flw_profile *profile;
    char *message; /* a message about the first mistake */
    size_t bytes;
};

static const char known[] = "refusing[:CALL[@N][=ERROR]], no-fabric[@N], vgpu, old, slow, "
                            "host-pageable, contents, no-contents, check, devices=N, size=BYTES";

static bool is_word(struct word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.begin, text, word.length) == 0;
}

/* Write a message with a word in place of "%.*s". */
static bool complain(const struct reader *reader, struct word word, const char *sentence)
{
    if (reader->message != NULL) {
        snprintf(reader->message, reader->bytes, "'%.*s' %s", (int)word.length, word.begin,
                 sentence);
    }
    return false;
}

static struct word cut(struct word *rest, char mark)
{
    const char *at = memchr(rest->begin, mark, rest->length);
    if (at == NULL) {
        return (struct word){NULL, 0};
    }
    struct word behind = {at + 1, rest->length - (size_t)(at + 1 - rest->begin)};
    rest->length = (size_t)(at - rest->begin);
    return behind;
}

static struct item take_apart(struct word word)
{
    struct item item = {.name = word};
    item.error = cut(&item.name, '=');
    item.from = cut(&item.name, '@');
    item.call = cut(&item.name, ':');
    return item;
}

/* 1, 2, ...; nothing: 1. */
static bool read_from(const struct reader *reader, struct word word, uint64_t *from)
{
    *from = word.begin == NULL ? 1 : 0;
    for (size_t i = 0; i < word.length; i++) {
        unsigned digit = (unsigned char)word.begin[i] - (unsigned)'0';
        if (digit > 9 || *from > 1000000000) {
            return complain(reader, word, "is not a call number");
        }
        *from = *from * 10 + digit;
    }
    return *from != 0 || complain(reader, word, "is not a call number: the first is 1");
}

static bool find_entry(struct word word, unsigned *entry)
{
    char name[64];
    if (word.length + sizeof "_v2" > sizeof name) {
        return false;
    }
    memcpy(name, word.begin, word.length);
    name[word.length] = '\0';
    *entry = flw_entry_find(name);
    if (*entry == FLW_ENTRY_COUNT) {
        strcpy(name + word.length, "_v2");
        *entry = flw_entry_find(name);
    }
    return *entry != FLW_ENTRY_COUNT;
}

static bool add_refusal(const struct reader *reader, struct word word, struct flw_refusal refusal)
{
    struct flw_profile *profile = reader->profile;
    if (profile->refusal_count == FLW_REFUSAL_MAX) {
        return complain(reader, word, "exceeds the number of refusals that a profile can have");
    }
    profile->refusal[profile->refusal_count++] = refusal;
    return true;
}

static bool read_refusal(const struct reader *reader, const struct item *item)
{
    struct flw_refusal refusal = {.error = CUDA_ERROR_NOT_PERMITTED};
    if (!read_from(reader, item->from, &refusal.from)) {
        return false;
    }
    if (item->error.begin != NULL &&
        !flw_error_find(item->error.begin, item->error.length, &refusal.error)) {
        return complain(reader, item->error, "is not a driver error such as NOT_PERMITTED");
    }
    if (item->call.begin != NULL) {
        return find_entry(item->call, &refusal.entry)
                   ? add_refusal(reader, item->call, refusal)
                   : complain(reader, item->call, "is not an entry point of the driver");
    }
    static const enum flw_entry made_by[] = {FLW_ENTRY_cuMemAddressReserve, FLW_ENTRY_cuMemCreate,
                                             FLW_ENTRY_cuMemMap, FLW_ENTRY_cuMemSetAccess};
    bool fits = true;
    for (size_t i = 0; i < sizeof made_by / sizeof *made_by && fits; i++) {
        refusal.entry = made_by[i];
        fits = add_refusal(reader, item->name, refusal);
    }
    return fits;
}

/* A number with a unit of K, M, G or T, from 1 to `most`. */
static bool read_number(const struct reader *reader, struct word word, uint64_t most, uint64_t *out)
{
    static const char units[] = "KMGT";
    char digits[24] = "", *end = digits;
    if (word.length < sizeof digits && word.length > 0) {
        memcpy(digits, word.begin, word.length);
        *out = strtoull(digits, &end, 10);
    }
    const char *unit = *end != '\0' && end != digits ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    if (digits[0] < '0' || digits[0] > '9' || end[unit != NULL] != '\0' || *out == 0 ||
        *out > most >> shift) {
        char sentence[96];
        snprintf(sentence, sizeof sentence, "is not a number from 1 to %llu, such as 2 or 24G",
                 (unsigned long long)most);
        return complain(reader, word, sentence);
    }
    *out <<= shift;
    return true;
}

static bool read_item(const struct reader *reader, struct word word)
{
    struct item item = take_apart(word);
    struct flw_profile *profile = reader->profile;
    bool *trait = is_word(item.name, "vgpu")            ? &profile->is_vgpu
                  : is_word(item.name, "old")           ? &profile->is_old
                  : is_word(item.name, "slow")          ? &profile->is_slow
                  : is_word(item.name, "host-pageable") ? &profile->reads_host
                  : is_word(item.name, "contents")      ? &profile->has_contents
                  : is_word(item.name, "no-contents")   ? &profile->has_no_contents
                  : is_word(item.name, "check")         ? &profile->is_checked
                                                        : NULL;
    if (is_word(item.name, "refusing")) {
        return read_refusal(reader, &item);
    }
    if (is_word(item.name, "no-fabric") && item.call.begin == NULL && item.error.begin == NULL) {
        return read_from(reader, item.from, &profile->no_fabric_from);
    }
    if (is_word(item.name, "size") && item.from.begin == NULL && item.call.begin == NULL) {
        return read_number(reader, item.error, 1ull << 40, &profile->device_bytes);
    }
    if (is_word(item.name, "devices") && item.from.begin == NULL && item.call.begin == NULL) {
        uint64_t count = 0;
        bool is_right = read_number(reader, item.error, FLW_DEVICE_MAX, &count);
        profile->device_count = (int)count;
        return is_right;
    }
    if (trait == NULL || item.name.length != word.length) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "is not a profile of a driver; there are: %s", known);
        return complain(reader, word, sentence);
    }
    *trait = true;
    return true;
}

/* NULL and "": no profile. */
static bool read_names(const char *names, struct flw_profile *profile, char *message, size_t bytes)
{
    *profile = (struct flw_profile){0};
    struct reader reader = {profile, message, bytes};
    struct word rest = {names, names != NULL ? strlen(names) : 0};
    if (rest.length >= sizeof profile->names) {
        return complain(&reader, rest, "is too long");
    }
    if (rest.length != 0) {
        memcpy(profile->names, names, rest.length);
    }
    while (rest.length != 0) {
        struct word behind = cut(&rest, ',');
        if (!read_item(&reader, rest)) {
            return false;
        }
        rest = behind;
    }
    return true;
}

/* ---- the choice */

__attribute__((constructor)) static void choose_by_environment(void)
{
    char message[FLW_PROFILE_BYTES * 2];
    const char *names = secure_getenv(VARIABLE);
    Dl_info self;
    is_libcuda = dladdr(&flw_world, &self) != 0 && strstr(self.dli_fname, "/libcuda.so") != NULL;
    is_wrong = !read_names(names, &chosen, message, sizeof message);
    if (is_wrong) {
        chosen = (struct flw_profile){0};
        fprintf(stderr, "simcuda: " VARIABLE "=%s: %s\n", names, message);
    }
    flw_profile_is_chosen_old = chosen.is_old;
}

int flw_sim_play(const char *names, char *message, size_t bytes)
{
    struct flw_profile wanted;
    bool is_known = read_names(names, &wanted, message, bytes);
    if (is_known) {
        pthread_mutex_lock(&flw_world.lock);
        chosen = wanted;
        is_wrong = false;
        flw_profile_is_chosen_old = chosen.is_old;
        pthread_mutex_unlock(&flw_world.lock);
    }
    return is_known;
}

const char *flw_sim_played(void)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    const char *names = flw_world.profile.names;
    pthread_mutex_unlock(&flw_world.lock);
    return names;
}

bool flw_profile_is_wrong(void)
{
    return is_wrong;
}

/* ---- effects on a world */

#define VERSION_OLD 12000

static void apply_to_default(const struct flw_profile *profile, struct flw_sim_config *config)
{
    if (profile->has_contents || (is_libcuda && !profile->has_no_contents)) {
        config->backed = 1;
        config->mild |=
            FLW_SIM_MILD_GARBAGE; /* memory that was never written uses no host memory */
    }
    config->check |= profile->is_checked;
    config->device_bytes =
        profile->device_bytes != 0 ? profile->device_bytes : config->device_bytes;
    config->device_count =
        profile->device_count != 0 ? profile->device_count : config->device_count;
}

void flw_profile_begin(bool is_default)
{
    struct flw_world *w = &flw_world;
    const struct flw_profile *profile = &w->profile;
    w->profile = chosen;
    if (profile->is_vgpu) {
        w->config.without_vmm = w->config.without_rdma = 1;
    }
    if (profile->is_old) {
        w->config.without_fabric = 1; /* this kind of handle is newer */
        if (w->config.driver_version > VERSION_OLD) {
            w->config.driver_version = VERSION_OLD;
        }
    }
    if (is_default) {
        apply_to_default(profile, &w->config);
    }
    for (unsigned i = 0; i < profile->refusal_count; i++) {
        const struct flw_refusal *refusal = &profile->refusal[i];
        w->fault[w->fault_count++] = (struct flw_fault){.entry = refusal->entry,
                                                        .left = refusal->from,
                                                        .error = refusal->error,
                                                        .repeats = true,
                                                        .is_lasting = true};
    }
}

void flw_profile_stall(struct flw_call *call, struct flw_device *device)
{
    if (device == NULL || !flw_world.profile.is_slow) {
        return;
    }
    flw_order_wait_device(call->thread, device);
    flw_order_advance(call->thread, flw_world.clock_ns + SLOW_NS);
    flw_world.modelled_host_ns += SLOW_NS;
}

bool flw_profile_permits_fabric(void)
{
    uint64_t from = flw_world.profile.no_fabric_from;
    return from == 0 || ++flw_world.fabric_count < from;
}

/* mincore reports pages that are not mapped. The simulated driver's memory is elsewhere. */
bool flw_profile_reads(uint64_t address)
{
    bool is_host = address < FLW_SPACE_BEGIN || address >= FLW_SPACE_END;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char is_resident;
    return flw_world.profile.reads_host && is_host && address >= page &&
           mincore((void *)(uintptr_t)(address & ~(page - 1)), page, &is_resident) == 0;
}
