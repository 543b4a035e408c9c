/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: asking processes for their bulletins, and saying why there are none; the owners of the memory in them.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/tool_host.h"
#include "top/top.h"

#define ANSWER_NS UINT64_C(2000000000)

/* ---- one process */

static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

static bool explain(char *message, enum flw_board_state state, pid_t process,
                    const struct flw_board_reader *reader)
{
    const char *reason = "";
    switch (state) {
    case FLW_BOARD_VERSIONS:
        snprintf(
            message, FLW_TOP_MESSAGE_BYTES,
            "process %d publishes in version %u, this command reads version %u: use the fallow "
            "command of the library that the process runs",
            (int)process, reader->version, FLW_BOARD_VERSION);
        return false;
    case FLW_BOARD_NOT_OURS:
        reason = "its file is not this user's alone, and is not read: run fallow top as the user "
                 "of the process";
        break;
    case FLW_BOARD_FOREIGN:
        reason = "its file is damaged or none of Fallow's";
        break;
    case FLW_BOARD_SILENT:
        reason = "it does not answer: is it stopped, or under a debugger?";
        break;
    case FLW_BOARD_TORN:
        reason = "its answers never came whole: try again";
        break;
    case FLW_BOARD_REFUSED:
        reason = strerror(errno);
        break;
    case FLW_BOARD_OK:
    case FLW_BOARD_ABSENT:
    case FLW_BOARD_STALE:
        reason = "it has ended";
        break;
    }
    snprintf(message, FLW_TOP_MESSAGE_BYTES, "process %d: %s", (int)process, reason);
    return false;
}

/* Nothing is posted under its number. */
static bool explain_absent(char *message, const char *directory, pid_t process)
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
    return false;
}

static enum flw_board_state take_bulletin(struct flw_board_reader *reader, unsigned char *bytes,
                                          struct flw_bulletin *bulletin)
{
    size_t count = 0;
    enum flw_board_state state = flw_board_ask(reader, ANSWER_NS);
    if (state == FLW_BOARD_OK) {
        state = flw_board_read(reader, bytes, &count);
    }
    if (state == FLW_BOARD_OK && !flw_bulletin_read(bulletin, bytes, count)) {
        state = FLW_BOARD_FOREIGN;
    }
    return state;
}

struct names {
    pid_t process;
    uint32_t count;
    struct flw_board_name names[FLW_BOARD_COPIES];
};

static void keep_name(void *context, const struct flw_board_name *name)
{
    struct names *names = context;
    if (name->process == names->process && names->count < FLW_BOARD_COPIES) {
        names->names[names->count++] = *name;
    }
}

static void adopt(struct flw_top_look *look, const struct flw_bulletin *bulletin, uint32_t copy)
{
    if (look->name[0] == '\0') {
        memcpy(look->name, bulletin->name, sizeof look->name);
        make_printable(look->name);
        look->clock_ns = bulletin->clock_ns;
    }
    look->bulletins[copy] = *bulletin;
    look->has_bulletin[copy] = true;
    look->pool_total += bulletin->pool_total;
    look->pool_count += bulletin->pool_count;
    for (uint32_t i = 0; i < bulletin->pool_count; i++) {
        make_printable(bulletin->pools[i].driver);
        for (uint32_t a = 0; a < bulletin->pools[i].arena_count; a++) {
            make_printable(bulletin->pools[i].arenas[a].name);
        }
    }
}

bool flw_top_take(struct flw_top_look *look, const char *directory, pid_t process,
                  char message[FLW_TOP_MESSAGE_BYTES], bool *out_ended)
{
    struct names names = {.process = process};
    enum flw_board_state state = FLW_BOARD_OK;
    bool is_any = false;
    *look = (struct flw_top_look){.process = process};
    if (out_ended != NULL) {
        *out_ended = false;
    }
    if (!flw_board_sweep(directory, keep_name, &names)) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "cannot look into %.300s: %s", directory,
                 strerror(errno));
        return false;
    }
    unsigned char *bytes = flw_host_alloc(FLW_BOARD_BODY_BYTES, 1);
    for (uint32_t i = 0; i < names.count; i++) {
        struct flw_board_reader reader;
        struct flw_bulletin bulletin;
        state = flw_board_open(&reader, directory, &names.names[i]);
        if (state == FLW_BOARD_OK) {
            state = take_bulletin(&reader, bytes, &bulletin);
            flw_board_close(&reader);
        }
        if (state == FLW_BOARD_OK) {
            adopt(look, &bulletin, names.names[i].copy);
            is_any = true;
        } else if (state != FLW_BOARD_ABSENT && state != FLW_BOARD_STALE) {
            (void)explain(message, state, process, &reader);
            break;
        }
    }
    flw_host_free(bytes);
    bool is_gone = state == FLW_BOARD_ABSENT || state == FLW_BOARD_STALE;
    if (is_any && (state == FLW_BOARD_OK || is_gone)) {
        return true;
    }
    flw_top_drop(look);
    if (out_ended != NULL) {
        *out_ended = names.count == 0 || is_gone;
    }
    if (names.count == 0) {
        return explain_absent(message, directory, process);
    }
    return is_gone ? explain(message, FLW_BOARD_STALE, process, NULL) : false;
}

void flw_top_drop(struct flw_top_look *look)
{
    for (uint32_t i = 0; i < FLW_BOARD_COPIES; i++) {
        if (look->has_bulletin[i]) {
            flw_bulletin_drop(&look->bulletins[i]);
            look->has_bulletin[i] = false;
        }
    }
    look->pool_count = 0;
}

const struct flw_bulletin_pool *flw_top_pool(const struct flw_top_look *look, uint32_t index,
                                             char label[FLW_TOP_LABEL_BYTES])
{
    uint32_t copy = 0;
    while (copy < FLW_BOARD_COPIES &&
           (!look->has_bulletin[copy] || index >= look->bulletins[copy].pool_count)) {
        index -= look->has_bulletin[copy] ? look->bulletins[copy].pool_count : 0;
        copy++;
    }
    const struct flw_bulletin_pool *pool = &look->bulletins[copy].pools[index];
    unsigned long long number = pool->value[FLW_VALUE_number];
    if (copy == 0) {
        snprintf(label, FLW_TOP_LABEL_BYTES, "%llu", number);
    } else {
        snprintf(label, FLW_TOP_LABEL_BYTES, "%u.%llu", copy % FLW_BOARD_COPIES,
                 number % 1000000000000);
    }
    return pool;
}

const struct flw_bulletin_pool *flw_top_find(const struct flw_top_look *look, const char *label)
{
    char other[FLW_TOP_LABEL_BYTES];
    for (uint32_t i = 0; i < look->pool_count; i++) {
        const struct flw_bulletin_pool *pool = flw_top_pool(look, i, other);
        if (strcmp(label, other) == 0) {
            return pool;
        }
    }
    return NULL;
}

const char *flw_top_kind(uint64_t kind)
{
    static const char *const names[] = {[FLW_BULLETIN_STREAM] = "stream",
                                        [FLW_BULLETIN_GONE] = "gone",
                                        [FLW_BULLETIN_SHARED] = "shared",
                                        [FLW_BULLETIN_REST] = "rest"};
    return kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* ---- all processes */

/* ---- owners */

/* The next line of `*at`, ended by a zero byte there. NULL: there is none. */
static char *take_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    *at = end + 1;
    return line;
}

/* What owns the stack of these frames. */
static void name_owner(const struct flw_bulletin_holder *holder, char *out, size_t room)
{
    char frames[FLW_BULLETIN_FRAMES_BYTES], name[FLW_BULLETIN_FRAMES_BYTES];
    char *at = frames, *function, *file, *line;
    enum flw_frame_kind best = FLW_FRAME_OTHER;
    snprintf(out, room, "code that is not known");
    memcpy(frames, holder->frames, sizeof frames);
    while ((function = take_line(&at)) != NULL && (file = take_line(&at)) != NULL &&
           (line = take_line(&at)) != NULL) {
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

static uint32_t add_owner(struct flw_top_owner *owners, uint32_t count,
                          const struct flw_top_owner *owner)
{
    uint32_t i = 0;
    while (i < count && strcmp(owners[i].name, owner->name) != 0) {
        i++;
    }
    if (i == count) {
        owners[count++] = (struct flw_top_owner){0};
        memcpy(owners[i].name, owner->name, sizeof owners[i].name);
    }
    owners[i].bytes += owner->bytes;
    owners[i].count += owner->count;
    return count;
}

uint32_t flw_top_list_owners(const struct flw_bulletin_pool *pool,
                             struct flw_top_owner owners[FLW_TOP_OWNERS])
{
    uint64_t bytes = pool->value[FLW_VALUE_requested_bytes];
    uint64_t blocks = pool->value[FLW_VALUE_live_count];
    struct flw_top_owner rest = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->holder_count; i++) {
        const struct flw_bulletin_holder *holder = &pool->holders[i];
        struct flw_top_owner owner = {.bytes = holder->requested_bytes,
                                      .count = holder->live_count};
        bytes -= bytes < owner.bytes ? bytes : owner.bytes;
        blocks -= blocks < owner.count ? blocks : owner.count;
        if (holder->stack_count > 1) {
            snprintf(owner.name, sizeof owner.name, "%" PRIu64 " more call stacks",
                     holder->stack_count);
            rest = owner;
        } else {
            name_owner(holder, owner.name, sizeof owner.name);
            count = add_owner(owners, count, &owner);
        }
    }
    if (count > 0) {
        qsort(owners, count, sizeof *owners, compare_owners);
    }
    if (rest.count > 0) {
        owners[count++] = rest;
    }
    if (pool->holder_count > 0 && blocks > 0) {
        owners[count] = (struct flw_top_owner){.bytes = bytes, .count = blocks};
        snprintf(owners[count++].name, FLW_TOP_OWNER_BYTES,
                 "no call stack, or before the recording");
    }
    return count;
}

/* ---- processes */

static void keep_process(void *context, const struct flw_board_name *name)
{
    struct flw_top_list *list = context;
    if (geteuid() != 0 && name->user != geteuid()) {
        list->other_count++;
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->processes[i] == name->process) {
            return;
        }
    }
    list->processes =
        flw_host_grow(list->processes, &list->capacity, list->count + 1, sizeof *list->processes);
    list->processes[list->count++] = name->process;
}

static int compare_processes(const void *left, const void *right)
{
    pid_t a = *(const pid_t *)left, b = *(const pid_t *)right;
    return a < b ? -1 : a > b;
}

bool flw_top_list_take(struct flw_top_list *list, const char *directory)
{
    *list = (struct flw_top_list){0};
    if (!flw_board_sweep(directory, keep_process, list)) {
        return false;
    }
    if (list->count > 0) {
        qsort(list->processes, list->count, sizeof *list->processes, compare_processes);
    }
    return true;
}

void flw_top_list_drop(struct flw_top_list *list)
{
    flw_host_free(list->processes);
    *list = (struct flw_top_list){0};
}

/* ---- several processes */

void flw_top_looks_drop(struct flw_top_looks *all)
{
    for (size_t i = 0; i < all->count; i++) {
        flw_top_drop(&all->looks[i]);
    }
    flw_host_free(all->looks);
    *all = (struct flw_top_looks){0};
}

const struct flw_top_look *flw_top_looks_find(const struct flw_top_looks *all, pid_t process)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->looks[i].process == process) {
            return &all->looks[i];
        }
    }
    return NULL;
}

bool flw_top_looks_take(struct flw_top_looks *all, const struct flw_top_settings *settings,
                        char *message, bool *out_ended)
{
    struct flw_top_list list = {.processes = (pid_t *)settings->processes,
                                .count = settings->process_count};
    bool is_named = settings->process_count > 0, is_ok = true;
    *out_ended = false;
    *all = (struct flw_top_looks){0};
    if (!is_named && !flw_top_list_take(&list, settings->directory)) {
        snprintf(message, FLW_TOP_MESSAGE_BYTES, "cannot look into %s: %s", settings->directory,
                 strerror(errno));
        return false;
    }
    all->looks = flw_host_alloc(list.count, sizeof *all->looks);
    all->other_count = list.other_count;
    for (size_t i = 0; is_ok && i < list.count; i++) {
        bool is_ended = false;
        if (flw_top_take(&all->looks[all->count], settings->directory, list.processes[i], message,
                         &is_ended)) {
            all->count++;
        } else if (!is_ended && is_named) {
            is_ok = false;
        } else if (!is_ended) {
            memcpy(all->note, message, FLW_TOP_MESSAGE_BYTES);
        }
    }
    if (!is_named) {
        flw_top_list_drop(&list);
    }
    *out_ended = is_ok && is_named && all->count == 0;
    if (!is_ok || *out_ended) {
        flw_top_looks_drop(all);
        return false;
    }
    return true;
}
