/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the names of a test, and the values of expressions in script files (script.c describes them).
 */
#include "unit/pool/script.h"

#include <ctype.h>

/* ---- names */

struct script_thing *script_find(const char *name, char kind, bool may_add)
{
    for (size_t i = 0; i < script.thing_count; i++) {
        if (script.things[i].kind == kind && strcmp(script.things[i].name, name) == 0) {
            return &script.things[i];
        }
    }
    if (!may_add) {
        return NULL;
    }
    if (script.thing_count == SCRIPT_MOST || strlen(name) >= SCRIPT_NAME) {
        script_fail("no room for '%s'", name);
    }
    struct script_thing *thing = &script.things[script.thing_count++];
    *thing = (struct script_thing){.kind = kind};
    strcpy(thing->name, name);
    return thing;
}

struct script_blocks *script_blocks_of(const char *name, bool may_add)
{
    for (size_t i = 0; i < script.block_count; i++) {
        if (strcmp(script.blocks[i].name, name) == 0) {
            return &script.blocks[i];
        }
    }
    if (!may_add) {
        script_fail("no block is named '%s'", name);
    }
    if (script.block_count == SCRIPT_MOST || strlen(name) >= SCRIPT_NAME) {
        script_fail("no room for '%s'", name);
    }
    struct script_blocks *blocks = &script.blocks[script.block_count++];
    memset(blocks, 0, sizeof *blocks);
    strcpy(blocks->name, name);
    return blocks;
}

/* "0": the legacy stream, "P": the thread's own; any other name makes a stream at its first use. */
CUstream script_stream(const char *name)
{
    if (strcmp(name, "0") == 0) {
        return NULL;
    }
    if (strcmp(name, "P") == 0) {
        return CU_STREAM_PER_THREAD;
    }
    struct script_thing *stream = script_find(name, 's', true);
    if (stream->handle == NULL) {
        script_cuda(
            script.sim.cu.cuStreamCreate((CUstream *)&stream->handle, CU_STREAM_NON_BLOCKING),
            "cuStreamCreate");
    }
    return stream->handle;
}

/* ---- values */

#define FIELD(type, name)                                       \
    {                                                           \
#name, offsetof(type, name), sizeof((type *)NULL)->name \
    }

struct field {
    const char *name;
    size_t offset, size;
};

#define S(name) FIELD(fallow_stats, name)
static const struct field stats_fields[] = {
    S(requested_bytes), S(live_bytes),          S(reserved_bytes), S(peak_requested_bytes),
    S(peak_live_bytes), S(peak_reserved_bytes), S(alloc_count),    S(free_count),
    S(zero_size_count), S(hit_count),           S(event_count),    S(steal_count),
    S(wait_count),      S(driver_call_count),   S(remap_count),    S(remap_wait_count),
    S(grow_count),      S(trim_count),          S(lost_streams),   S(misuse_count),
    S(oom_count),       S(cached_bytes),        S(deferred_bytes), S(captured_bytes),
    S(host_bytes),      S(live_count),          S(stream_count),   S(uses_vmm),
    S(uses_membarrier), S(is_asleep),           S(damage_count),   S(unchecked_count),
    S(asleep_bytes),    S(saved_bytes),         S(exported_bytes), S(imported_bytes),
    S(bound_bytes),     S(handle_types),        S(page_source),    S(allows_rdma),
    S(idle_bytes),      S(question_count)};
#define L(name) FIELD(flw_sim_ledger, name)
static const struct field ledger_fields[] = {
    L(given_bytes),      L(peak_given_bytes), L(pinned_bytes),    L(reserved_address_bytes),
    L(allocation_count), L(handle_count),     L(mapping_count),   L(event_count),
    L(call_count),       L(clock_ns),         L(violation_count), L(host_wait_count),
    L(host_wait_ns)};
#define O(name) FIELD(fallow_oom_report, name)
static const struct field oom_fields[] = {
    O(size_bytes),    O(limit_bytes),           O(reserved_bytes),    O(requested_bytes),
    O(free_bytes),    O(largest_free_bytes),    O(device_free_bytes), O(owner_count),
    O(address_bytes), O(largest_address_bytes), O(lacks_addresses)};
#define B(name) FIELD(fallow_block, name)
static const struct field info_fields[] = {
    B(base),  B(requested_bytes), B(usable_bytes),  B(stream_id),   B(tag),
    B(state), B(handle),          B(handle_offset), B(handle_bytes)};

static const struct {
    const char *name;
    uint64_t value;
} constants[] = {{"handles", FALLOW_PAGES_HANDLES},
                 {"segments", FALLOW_PAGES_SEGMENTS},
                 {"LIVE", FALLOW_BLOCK_LIVE},
                 {"CAPTURED", FALLOW_BLOCK_CAPTURED},
                 {"max", UINT64_MAX}};

static bool read_field(const struct field *fields, size_t count, const void *from, const char *name,
                       uint64_t *out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            *out = 0;
            memcpy(out, (const char *)from + fields[i].offset, fields[i].size);
            return true;
        }
    }
    return false;
}

#define READ(fields, from, name, out) \
    read_field(fields, sizeof(fields) / sizeof *(fields), from, name, out)

fallow_stats script_stats(fallow_pool *pool)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(pool, &stats) != FALLOW_OK) {
        script_fail("the pool has no statistics");
    }
    return stats;
}

fallow_pool *script_first_pool(void)
{
    const struct script_thing *pool = script_find("p", 'p', false);
    return pool != NULL ? pool->handle : NULL;
}

/* `oom.owners.N.FIELD` */
static uint64_t owner_value(const fallow_oom_report *report, const char *name)
{
    char *end = NULL;
    unsigned long i = strtoul(name, &end, 10);
    if (i >= FALLOW_OOM_OWNERS || *end != '.') {
        script_fail("no owner '%s'", name);
    }
    const fallow_oom_owner *owner = &report->owners[i];
    return strcmp(end, ".tag") == 0     ? owner->tag
           : strcmp(end, ".count") == 0 ? owner->count
           : strcmp(end, ".bytes") == 0 ? owner->bytes
                                        : owner->stream_id;
}

static uint64_t oom_value(const char *name)
{
    fallow_oom_report report;
    uint64_t value = 0;
    fallow_oom_report_init(&report);
    if (fallow_pool_get_oom_report(script_first_pool(), &report) != FALLOW_OK) {
        script_fail("no report");
    }
    if (strncmp(name, "owners.", 7) == 0) {
        return owner_value(&report, name + 7);
    }
    if (!READ(oom_fields, &report, name, &value)) {
        script_fail("no field '%s' in a report", name);
    }
    return value;
}

/* `access.BLOCKS.DEVICE` */
static uint64_t access_value(char *name)
{
    unsigned long long flags = 99;
    char *dot = strchr(name, '.');
    *dot = '\0';
    const struct script_blocks *blocks = script_blocks_of(name, false);
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = atoi(dot + 1)};
    script_cuda(script.sim.cu.cuMemGetAccess(
                    &flags, &location, (CUdeviceptr)(uintptr_t)blocks->ptrs[blocks->count - 1]),
                "cuMemGetAccess");
    return flags;
}

static uint64_t dotted_value(char *name)
{
    uint64_t value = 0;
    char *field = strchr(name, '.');
    *field++ = '\0';
    const struct script_thing *pool = script_find(name, 'p', false);
    flw_sim_ledger ledger = flw_sim_read_ledger(&script.sim);
    if (strcmp(name, "n") == 0) {
        return script.sim.call_count(strcmp(field, "all") == 0 ? NULL : field);
    }
    if (strcmp(name, "sim") == 0 && strcmp(field, "free_bytes") == 0) {
        size_t free_bytes = 0, total_bytes = 0;
        script_cuda(script.sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
        return free_bytes;
    }
    if (strcmp(name, "sim") == 0 && READ(ledger_fields, &ledger, field, &value)) {
        return value;
    }
    if (strcmp(name, "oom") == 0) {
        return oom_value(field);
    }
    if (strcmp(name, "i") == 0 && READ(info_fields, &script.info, field, &value)) {
        return value;
    }
    if (strcmp(name, "id") == 0) {
        unsigned long long id = 0;
        script_cuda(script.sim.cu.cuStreamGetId(script_stream(field), &id), "cuStreamGetId");
        return id;
    }
    if (strcmp(name, "access") == 0) {
        return access_value(field);
    }
    if (pool != NULL) {
        fallow_stats stats = script_stats(pool->handle);
        if (READ(stats_fields, &stats, field, &value)) {
            return value;
        }
    }
    script_fail("no value '%s.%s'", name, field);
}

static const struct {
    const char *name;
    const size_t *value;
} own_values[] = {{"released", &script.released}};

static uint64_t named_value(const char *name)
{
    uint64_t value = 0;
    name += *name == '$';
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (strcmp(constants[i].name, name) == 0) {
            return constants[i].value;
        }
    }
    for (int i = script_runner.variable_count; i-- > 0;) {
        if (strcmp(script_runner.variables[i].name, name) == 0) {
            return script_value(script_runner.variables[i].value);
        }
    }
    if (strcmp(name, own_values[0].name) == 0) {
        return *own_values[0].value;
    }
    if (strcmp(name, "oom_calls") == 0 || strcmp(name, "log_count") == 0) {
        return *name == 'o' ? script.oom_calls : script.log_count;
    }
    if (strcmp(name, "alarm_count") == 0 || strcmp(name, "failure_count") == 0) {
        return *name == 'a' ? script.alarm_count : script.failure_count;
    }
    for (size_t i = 0; i < sizeof stats_fields / sizeof *stats_fields; i++) {
        if (strcmp(stats_fields[i].name, name) == 0) {
            fallow_stats stats = script_stats(script_first_pool());
            (void)READ(stats_fields, &stats, name, &value);
            return value;
        }
    }
    const struct script_blocks *blocks = script_blocks_of(name, false);
    return blocks->count == 0 ? 0 : (uintptr_t)blocks->ptrs[blocks->count - 1];
}

static uint64_t number(const char *term)
{
    char *end = NULL;
    uint64_t value = strtoull(term, &end, 0);
    const char *units = "KMGT", *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (*end != '\0' && (unit == NULL || end[1] != '\0')) {
        script_fail("'%s' is no number", term);
    }
    return unit != NULL ? value << 10 * (unit - units + 1) : value;
}

static uint64_t term_value(char *term)
{
    if (isdigit((unsigned char)*term)) {
        return number(term);
    }
    if (*term == '#') {
        return script_blocks_of(term + 1, false)->count;
    }
    if (*term == '^') {
        for (int i = 0; i < script_runner.mark_count; i++) {
            if (strcmp(script_runner.marks[i].name, term + 1) == 0) {
                return script_runner.marks[i].value;
            }
        }
        script_fail("'%s' was not marked", term);
    }
    return strchr(term, '.') != NULL ? dotted_value(term) : named_value(term);
}

static uint64_t sum_at(const char **at);

static uint64_t factor_at(const char **at)
{
    char term[128];
    if (**at == '(') {
        ++*at;
        uint64_t value = sum_at(at);
        if (*(*at)++ != ')') {
            script_fail("an expression lacks ')'");
        }
        return value;
    }
    size_t length = strcspn(*at, "+-*/%()");
    if (length == 0 || length >= sizeof term) {
        script_fail("bad expression '%s'", *at);
    }
    memcpy(term, *at, length);
    term[length] = '\0';
    *at += length;
    return term_value(term);
}

static uint64_t product_at(const char **at)
{
    uint64_t value = factor_at(at);
    while (**at == '*' || **at == '/' || **at == '%') {
        char join = *(*at)++;
        uint64_t next = factor_at(at);
        value = join == '*' ? value * next : join == '/' ? value / next : value % next;
    }
    return value;
}

static uint64_t sum_at(const char **at)
{
    uint64_t value = product_at(at);
    while (**at == '+' || **at == '-') {
        char join = *(*at)++;
        uint64_t next = product_at(at);
        value = join == '+' ? value + next : value - next;
    }
    return value;
}

uint64_t script_value(const char *expression)
{
    uint64_t value = sum_at(&expression);
    if (*expression != '\0') {
        script_fail("bad end '%s' of an expression", expression);
    }
    return value;
}

/* Evaluate every value that the test names with '^'. Names that have no value yet are left out. */
void script_mark(void)
{
    script_runner.mark_count = 0;
    for (const char *at = script_runner.begin; at < script_runner.end; at++) {
        size_t length = 0;
        if (*at != '^') {
            continue;
        }
        while (at + 1 + length < script_runner.end &&
               strchr(" \n;+-*/%^)", at[1 + length]) == NULL) {
            length++;
        }
        char name[64], copy[64];
        if (length == 0 || length >= sizeof name || script_runner.mark_count == SCRIPT_MARKS) {
            script_fail("too many marks");
        }
        memcpy(name, at + 1, length);
        name[length] = '\0';
        strcpy(copy, name);
        strcpy(script_runner.marks[script_runner.mark_count].name, name);
        bool is_block = strchr(name, '.') == NULL && strstr(name, "_") == NULL;
        bool exists = !is_block;
        for (size_t i = 0; i < script.block_count && !exists; i++) {
            exists = strcmp(script.blocks[i].name, name) == 0;
        }
        script_runner.marks[script_runner.mark_count++].value = exists ? term_value(copy) : 0;
    }
}
