/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the stats pages of processes, the reasons if there are none, and the owners of the memory in stats pages.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/compare.h"
#include "common/frame.h"
#include "common/tool_host.h"
#include "top/top.h"

#define ANSWER_NS UINT64_C(2000000000)

/* ---- reasons */

static void explain(char *message, enum flw_stats_file_state state, pid_t process, uint32_t version)
{
    static const char *const reasons[] = {
        [FLW_STATS_FILE_NOT_OURS] =
            "its file is accessible to other users and was not read: run fallow top "
            "as the user of the process",
        [FLW_STATS_FILE_FOREIGN] = "its file is damaged or not Fallow's",
        [FLW_STATS_FILE_SILENT] = "the process does not respond (stopped, or under a debugger?)",
        [FLW_STATS_FILE_TORN] = "the answer was incomplete: try again",
        [FLW_STATS_FILE_ABSENT] = "it has ended",
        [FLW_STATS_FILE_STALE] = "it has ended",
        [FLW_STATS_FILE_REFUSED] = NULL};
    if (state == FLW_STATS_FILE_VERSIONS) {
        snprintf(
            message, FLW_TOP_MESSAGE_BYTES,
            "process %d publishes in version %u, this command reads version %u: use the fallow "
            "command of the library that the process runs",
            (int)process, version, FLW_STATS_FILE_VERSION);
    } else {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "process %d: %s", (int)process,
                 state == FLW_STATS_FILE_REFUSED ? strerror(errno) : reasons[state]);
    }
}

/* Explain that a process has no stats file. */
static void explain_absent(char *message, const char *directory, pid_t process)
{
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%d", (int)process);
    bool is_known = stat(path, &status) == 0;
    if (!is_known && kill(process, 0) != 0 && errno == ESRCH) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES,
                 "there is no process %d; fallow top without a number lists those that can be seen",
                 (int)process);
    } else if (is_known && geteuid() != 0 && status.st_uid != geteuid()) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES,
                 "process %d is another user's (%u): run fallow top as that user, or as root",
                 (int)process, (unsigned)status.st_uid);
    } else {
        snprintf(message, FLW_TOP_MESSAGE_BYTES,
                 "process %d shows no pools in %.300s: it would have to call fallow_publish_start "
                 "(fallow/publish.h), or be started by fallow run --set top:1",
                 (int)process, directory);
    }
}

/* ---- one process */

static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

static enum flw_stats_file_state take_bulletin(struct flw_stats_file_reader *reader,
                                               const char *directory,
                                               const struct flw_stats_file_name *name,
                                               struct flw_stats_page *stats_page)
{
    size_t count = 0;
    enum flw_stats_file_state state = flw_stats_file_open(reader, directory, name);
    if (state != FLW_STATS_FILE_OK) {
        return state;
    }
    FLW_LOCAL unsigned char *bytes = flw_host_alloc(FLW_STATS_FILE_BODY_BYTES, 1);
    state = flw_stats_file_ask(reader, ANSWER_NS);
    if (state == FLW_STATS_FILE_OK) {
        state = flw_stats_file_read(reader, bytes, &count);
    }
    if (state == FLW_STATS_FILE_OK && !flw_stats_page_read(stats_page, bytes, count)) {
        state = FLW_STATS_FILE_FOREIGN;
    }
    flw_stats_file_close(reader);
    return state;
}

static void adopt_pool(struct flw_top_snapshot *snapshot, unsigned copy,
                       struct flw_stats_page_pool *stats_page)
{
    struct flw_top_pool *pool = &snapshot->pools[snapshot->pool_count++];
    unsigned long long number = stats_page->value[FLW_VALUE_number];
    pool->stats_page = stats_page;
    if (copy == 0) {
        snprintf(pool->label, sizeof pool->label, "%llu", number);
    } else {
        snprintf(pool->label, sizeof pool->label, "%u.%llu", copy % FLW_STATS_FILE_COPIES,
                 number % 1000000000000);
    }
    if (stats_page->driver[0] == '\0') {
        strcpy(stats_page->driver, "libcuda.so.1");
    }
    make_printable(stats_page->driver);
    for (uint32_t i = 0; i < stats_page->arena_count; i++) {
        make_printable(stats_page->arenas[i].name);
    }
}

/* Complete a snapshot from the stats pages. */
static void adopt(struct flw_top_snapshot *snapshot)
{
    size_t capacity = 0;
    for (unsigned copy = 0; copy < FLW_STATS_FILE_COPIES; copy++) {
        struct flw_stats_page *stats_page = &snapshot->stats_pages[copy];
        if (snapshot->name[0] == '\0') {
            memcpy(snapshot->name, stats_page->name, sizeof snapshot->name);
            make_printable(snapshot->name);
            snapshot->clock_ns = stats_page->clock_ns;
        }
        snapshot->pool_total += stats_page->pool_total;
        FLW_HOST_GROW(snapshot->pools, capacity, snapshot->pool_count + stats_page->pool_count + 1);
        for (uint32_t i = 0; i < stats_page->pool_count; i++) {
            adopt_pool(snapshot, copy, &stats_page->pools[i]);
        }
    }
}

static void drop(struct flw_top_snapshot *snapshot)
{
    for (unsigned copy = 0; copy < FLW_STATS_FILE_COPIES; copy++) {
        flw_stats_page_drop(&snapshot->stats_pages[copy]);
    }
    flw_host_free(snapshot->pools);
}

/* The stats files of a directory. */
struct names {
    struct flw_stats_file_name *list;
    size_t count, capacity;
};

/* Look at a process. Returns false if there is nothing to show: nothing is held, the message is the reason, and
 * *out_ended is true if the process has ended. */
static bool take(struct flw_top_snapshot *snapshot, const char *directory,
                 const struct names *names, pid_t process, char *message, bool *out_ended)
{
    enum flw_stats_file_state state = FLW_STATS_FILE_OK;
    struct flw_stats_file_reader reader = {0};
    bool has_board = false, is_gone = false, is_any = false;
    *snapshot = (struct flw_top_snapshot){.process = process};
    for (size_t i = 0; i < names->count && (state == FLW_STATS_FILE_OK || is_gone); i++) {
        const struct flw_stats_file_name *name = &names->list[i];
        struct flw_stats_page stats_page;
        if (name->process != process) {
            continue;
        }
        has_board = true;
        state = take_bulletin(&reader, directory, name, &stats_page);
        is_gone = state == FLW_STATS_FILE_ABSENT || state == FLW_STATS_FILE_STALE;
        if (state == FLW_STATS_FILE_OK) {
            snapshot->stats_pages[name->copy] = stats_page;
            is_any = true;
        }
    }
    if (is_any && (state == FLW_STATS_FILE_OK || is_gone)) {
        adopt(snapshot);
        return true;
    }
    if (has_board) {
        explain(message, state, process, reader.version);
    } else {
        explain_absent(message, directory, process);
    }
    drop(snapshot);
    *out_ended = !has_board || is_gone;
    return false;
}

/* ---- several processes */

static void keep_name(void *context, const struct flw_stats_file_name *name)
{
    struct names *names = context;
    FLW_HOST_ADD(names->list, names->count, names->capacity, *name);
}

static int compare_names(const void *left, const void *right)
{
    const struct flw_stats_file_name *a = left, *b = right;
    return (a->process > b->process) - (a->process < b->process);
}

/* List the processes of this user in the order of their numbers; root's are those of all users. */
static pid_t *list_processes(struct names *names, size_t *out_count, uint32_t *out_other_count)
{
    pid_t *processes = flw_host_alloc(names->count, sizeof *processes);
    size_t count = 0;
    FLW_SORT(names->list, names->count, compare_names);
    for (size_t i = 0; i < names->count; i++) {
        const struct flw_stats_file_name *name = &names->list[i];
        if (geteuid() != 0 && name->user != geteuid()) {
            (*out_other_count)++;
        } else if (count == 0 || processes[count - 1] != name->process) {
            processes[count++] = name->process;
        }
    }
    *out_count = count;
    return processes;
}

void flw_top_snapshots_drop(struct flw_top_snapshots *all)
{
    for (size_t i = 0; i < all->count; i++) {
        drop(&all->snapshots[i]);
    }
    flw_host_free(all->snapshots);
    *all = (struct flw_top_snapshots){0};
}

const struct flw_top_snapshot *flw_top_snapshots_find(const struct flw_top_snapshots *all,
                                                      pid_t process)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->snapshots[i].process == process) {
            return &all->snapshots[i];
        }
    }
    return NULL;
}

/* Take snapshots of processes. Leave out a process that has ended. Any other failure ends the call if `is_named`, and becomes the
 * note if not. */
static bool take_all(struct flw_top_snapshots *all, const char *directory,
                     const struct names *names, const pid_t *processes, size_t count, bool is_named,
                     char *message)
{
    all->snapshots = flw_host_alloc(count, sizeof *all->snapshots);
    for (size_t i = 0; i < count; i++) {
        bool is_ended = false;
        if (take(&all->snapshots[all->count], directory, names, processes[i], message, &is_ended)) {
            all->count++;
        } else if (!is_ended && is_named) {
            return false;
        } else if (!is_ended) {
            memcpy(all->note, message, FLW_TOP_MESSAGE_BYTES);
        }
    }
    return true;
}

bool flw_top_snapshots_next(struct flw_top_snapshots *now, struct flw_top_snapshots *before,
                            const struct flw_top_settings *settings, char *message, bool *out_ended)
{
    struct flw_top_snapshots all = {0};
    struct names names = {0};
    size_t count = settings->process_count;
    *out_ended = false;
    if (!flw_stats_file_sweep(settings->directory, keep_name, &names)) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "cannot read the folder %s: %s",
                 settings->directory, strerror(errno));
        return false;
    }
    pid_t *found = count > 0 ? NULL : list_processes(&names, &count, &all.other_count);
    bool is_ok =
        take_all(&all, settings->directory, &names, found != NULL ? found : settings->processes,
                 count, found == NULL, message);
    *out_ended = is_ok && found == NULL && all.count == 0;
    flw_host_free(found);
    flw_host_free(names.list);
    if (!is_ok || *out_ended) {
        flw_top_snapshots_drop(&all);
        return false;
    }
    flw_top_snapshots_drop(before);
    *before = *now;
    *now = all;
    return true;
}

/* ---- owners */

/* Name the owner of a call stack. */
static void name_owner(const struct flw_stats_page_holder *holder, char *out, size_t room)
{
    char frames[FLW_STATS_PAGE_FRAMES_BYTES], name[FLW_STATS_PAGE_FRAMES_BYTES];
    char *at = frames, *function, *file, *line;
    enum flw_frame_kind best = FLW_FRAME_OTHER;
    snprintf(out, room, "code that is not known");
    memcpy(frames, holder->frames, sizeof frames);
    while ((function = strsep(&at, "\n")) != NULL && (file = strsep(&at, "\n")) != NULL &&
           (line = strsep(&at, "\n")) != NULL && at != NULL) {
        enum flw_frame_kind kind = flw_frame_tell(function, file, true, name, sizeof name);
        if (!flw_frame_is_better(kind, best)) {
            continue;
        }
        best = kind;
        if (kind != FLW_FRAME_NODE && kind != FLW_FRAME_OPERATOR) {
            flw_frame_say_place(flw_frame_local_name(function), flw_frame_base_name(file),
                                (uint32_t)strtoul(line, NULL, 10), name, sizeof name);
        }
        snprintf(out, room, "%.*s", (int)room - 1, name);
    }
    make_printable(out);
}

static int compare_owners(const void *left, const void *right)
{
    const struct flw_top_owner *a = left, *b = right;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? 1 : -1) : strcmp(a->name, b->name);
}

/* Add to the owner of that name, which is new if there is none. Returns the number of owners. */
static uint32_t add_owner(struct flw_top_owner *owners, uint32_t count,
                          const struct flw_top_owner *owner)
{
    uint32_t i = 0;
    while (i < count && strcmp(owners[i].name, owner->name) != 0) {
        i++;
    }
    if (i == count) {
        owners[count++] = *owner;
    } else {
        owners[i].bytes += owner->bytes;
        owners[i].count += owner->count;
    }
    return count;
}

uint32_t flw_top_list_owners(const struct flw_stats_page_pool *pool,
                             struct flw_top_owner owners[FLW_TOP_OWNERS])
{
    uint64_t bytes = pool->value[FLW_VALUE_requested_bytes];
    uint64_t blocks = pool->value[FLW_VALUE_live_count];
    struct flw_top_owner rest = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->holder_count; i++) {
        const struct flw_stats_page_holder *holder = &pool->holders[i];
        struct flw_top_owner owner = {.bytes = holder->requested_bytes,
                                      .count = holder->live_count};
        bytes -= flw_min(bytes, owner.bytes);
        blocks -= flw_min(blocks, owner.count);
        if (holder->stack_count > 1) {
            snprintf(owner.name, sizeof owner.name, "%" PRIu64 " more call stacks",
                     holder->stack_count);
            rest = owner;
        } else {
            name_owner(holder, owner.name, sizeof owner.name);
            count = add_owner(owners, count, &owner);
        }
    }
    FLW_SORT(owners, count, compare_owners);
    if (rest.count > 0) {
        owners[count++] = rest;
    }
    if (pool->holder_count > 0 && blocks > 0) {
        owners[count] = (struct flw_top_owner){.bytes = bytes, .count = blocks};
        snprintf(owners[count++].name, sizeof owners->name,
                 "no call stack, or before the recording");
    }
    return count;
}
