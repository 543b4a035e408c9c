/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/callsite.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <unwind.h>

#include "preload/audit/scriptframes.h"

#define OWN_FRAMES_MAX 16 /* of the hook and the callees */

struct walk {
    uintptr_t caller, pc[FLW_AUDIT_FRAMES];
    uint32_t count, passed;
};

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t pc = _Unwind_GetIP(context);
    if (pc == 0) {
        return _URC_END_OF_STACK;
    }
    if (walk->count == 0 && pc != walk->caller) {
        return ++walk->passed < OWN_FRAMES_MAX ? _URC_NO_REASON : _URC_END_OF_STACK;
    }
    walk->pc[walk->count++] = pc;
    return walk->count < FLW_AUDIT_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    }
    return hash;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* A return address may be the first byte after the function: the byte before decides. */
static void resolve(struct flw_callsite *site, uint32_t i, uintptr_t pc)
{
    Dl_info info;
    struct link_map *map = NULL;
    site->path[i] = NULL;
    site->offset[i] = 0;
    if (dladdr1((void *)(pc - 1), &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL) {
        site->path[i] = map->l_name;
        site->offset[i] = pc - map->l_addr;
    }
}

void flw_callsite_take(struct flw_callsite *site, uintptr_t caller, const char *call)
{
    struct walk walk = {.caller = caller};
    (void)_Unwind_Backtrace(take_frame, &walk);
    if (walk.count == 0) {
        walk.pc[walk.count++] = caller;
    }
    uint64_t hash = add_bytes(0xcbf29ce484222325ull, call, strlen(call));
    for (uint32_t i = 0; i < walk.count; i++) {
        resolve(site, i, walk.pc[i]);
        const char *name = site->path[i] != NULL ? last_part(site->path[i]) : "?";
        hash = add_bytes(hash, name, strlen(name) + 1);
        hash = add_bytes(hash, &site->offset[i], sizeof site->offset[i]);
    }
    flw_scriptframes_take(site->script, sizeof site->script);
    hash = add_bytes(hash, site->script, strlen(site->script));
    site->frame_count = walk.count;
    site->id = ((hash >> 48) ^ hash) & 0xffffffffffffull;
    site->id += site->id == 0;
}
