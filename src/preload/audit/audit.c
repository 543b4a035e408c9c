/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/audit.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "preload/audit/auditpage.h"
#include "preload/audit/callsite.h"
#include "preload/audit/liveblocks.h"

#define WAIT_MOMENTS 10000 /* of a millisecond */

atomic_int flw_audit_state;

static struct {
    struct flw_audit_config config; /* written before the audit is on */
    struct flw_lock lock;           /* for the following fields */
    struct flw_auditpage *page;
    struct flw_liveblocks blocks;
} audit;

void flw_audit_ask(const struct flw_audit_config *config)
{
    audit.config = *config;
    atomic_store_explicit(&flw_audit_state, FLW_AUDIT_ASKED, memory_order_release);
}

static bool start(void)
{
    flw_lock_init(&audit.lock, FLW_RANK_AUDIT);
    if (!flw_liveblocks_init(&audit.blocks)) {
        errno = ENOMEM;
        return false;
    }
    audit.page = flw_auditpage_create(audit.config.prefix);
    if (audit.page == NULL) {
        int error = errno;
        flw_liveblocks_finish(&audit.blocks);
        errno = error;
        return false;
    }
    audit.page->trial_id = audit.config.trial_id;
    return true;
}

/* Wait for another thread: a few system calls, possibly on a slow disk. With a limit, since it may
 * be this thread in a signal. */
static bool wait_for_start(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    int state = FLW_AUDIT_STARTING;
    for (int i = 0; i < WAIT_MOMENTS && state == FLW_AUDIT_STARTING; i++) {
        nanosleep(&moment, NULL);
        state = atomic_load_explicit(&flw_audit_state, memory_order_acquire);
    }
    return state == FLW_AUDIT_ON;
}

bool flw_audit_wake(void)
{
    int state = FLW_AUDIT_ASKED;
    int kept = errno;
    if (!atomic_compare_exchange_strong_explicit(&flw_audit_state, &state, FLW_AUDIT_STARTING,
                                                 memory_order_acquire, memory_order_acquire)) {
        bool is_there = state == FLW_AUDIT_ON || (state == FLW_AUDIT_STARTING && wait_for_start());
        errno = kept;
        return is_there;
    }
    bool is_on = start();
    int error = errno;
    atomic_store_explicit(&flw_audit_state, is_on ? FLW_AUDIT_ON : FLW_AUDIT_OFF,
                          memory_order_release);
    if (!is_on && audit.config.complain != NULL) {
        audit.config.complain(audit.config.prefix, error);
    }
    errno = kept;
    return is_on;
}

/* Page and blocks stay mapped: the parent owns both, or a thread may be reading. */
bool flw_audit_stop(void)
{
    return atomic_exchange_explicit(&flw_audit_state, FLW_AUDIT_OFF, memory_order_acq_rel) ==
           FLW_AUDIT_ASKED;
}

unsigned char flw_audit_poison(void)
{
    return audit.config.poison;
}

void flw_audit_alloc(uint64_t address, uint64_t bytes)
{
    flw_lock_acquire(&audit.lock);
    bool is_followed = flw_liveblocks_add(&audit.blocks, address, bytes);
    audit.page->counts.blocks++;
    audit.page->counts.unfollowed_blocks += !is_followed;
    flw_lock_release(&audit.lock);
}

void flw_audit_free(uint64_t address)
{
    flw_lock_acquire(&audit.lock);
    flw_liveblocks_remove(&audit.blocks, address);
    flw_lock_release(&audit.lock);
}

static void touch(uint64_t address)
{
    struct flw_liveblock *block = flw_liveblocks_find(&audit.blocks, address);
    if (block != NULL) {
        block->is_touched = true;
    }
}

void flw_audit_touch(uint64_t address)
{
    flw_lock_acquire(&audit.lock);
    touch(address);
    flw_lock_release(&audit.lock);
}

void flw_audit_touch_all(enum flw_audit_hidden what)
{
    flw_lock_acquire(&audit.lock);
    flw_liveblocks_touch_all(&audit.blocks);
    *(what == FLW_AUDIT_GRAPH ? &audit.page->counts.graph_launches
                              : &audit.page->counts.hidden_work) += 1;
    flw_lock_release(&audit.lock);
}

/* ---- judging, under the lock */

static enum flw_audit_verdict look(struct flw_audit_judgement *judgement, uint64_t span,
                                   bool is_zero, bool is_captured)
{
    struct flw_liveblock *block = flw_liveblocks_find(&audit.blocks, judgement->address);
    if (block == NULL) {
        return FLW_AUDIT_FOREIGN;
    }
    uint64_t room = block->end - judgement->address;
    if (span == 0 || span > room) {
        judgement->is_range_read = false;
        judgement->bytes = span = room;
    }
    bool is_fresh =
        flw_liveblock_is_fresh(&audit.blocks, block, judgement->address, judgement->address + span);
    if (is_captured) {
        block->is_touched = true;
        return FLW_AUDIT_CAPTURED;
    }
    flw_liveblock_fill(block, judgement->address, judgement->address + span);
    if (!judgement->is_range_read) {
        block->is_touched = true;
    }
    return !is_zero ? FLW_AUDIT_NONZERO : is_fresh ? FLW_AUDIT_CANDIDATE : FLW_AUDIT_REUSED;
}

/* Outside the lock: the loader has one of its own. */
static void try_site(struct flw_audit_judgement *judgement)
{
    struct flw_callsite site;
    if (judgement->verdict == FLW_AUDIT_CANDIDATE && audit.config.trial_id != 0) {
        flw_callsite_take(&site, judgement->caller, judgement->call);
        judgement->is_on_trial = site.id == audit.config.trial_id;
    }
}

void flw_audit_judge_fill(const struct flw_audit_fill *fill, struct flw_audit_judgement *out)
{
    *out = (struct flw_audit_judgement){.is_value_read = true,
                                        .is_range_read = true,
                                        .address = fill->address,
                                        .bytes = fill->bytes,
                                        .call = fill->call,
                                        .caller = fill->caller};
    if (fill->bytes == 0) {
        return; /* writes nothing */
    }
    flw_lock_acquire(&audit.lock);
    out->verdict = look(out, fill->span, fill->is_zero, fill->is_captured);
    flw_lock_release(&audit.lock);
    try_site(out);
}

/* ---- launches */

/* Check every aligned word of a parameter that could be an address; a parameter is aligned as the
 * members are. Returns how many blocks were found, the last one's address in *out. */
static uint32_t find_blocks(const struct flw_audit_launch *launch, bool is_touch,
                            uint64_t *out_address)
{
    uint32_t count = 0;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < launch->parameter_count; i++) {
        const struct flw_parameter *parameter = &launch->parameters[i];
        for (size_t at = 0; at + sizeof(uint64_t) <= parameter->bytes; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, parameter->at + at, sizeof word);
            struct flw_liveblock *block = flw_liveblocks_find(&audit.blocks, word);
            if (block == NULL) {
                continue;
            }
            block->is_touched |= is_touch;
            if (count == 0 || block->begin != begin) {
                begin = block->begin;
                *out_address = word;
                count++;
            }
        }
    }
    return count;
}

static void judge_fill_kernel(const struct flw_fillkernel *kernel,
                              const struct flw_audit_launch *launch,
                              struct flw_audit_judgement *out)
{
    struct flw_fillkernel_reading reading =
        flw_fillkernel_read(kernel, launch->parameters, launch->parameter_count);
    uint64_t other = 0;
    uint32_t count = find_blocks(launch, false, &other);
    if (count > 1) { /* also reads: no fill */
        find_blocks(launch, true, &other);
        return;
    }
    out->address = reading.address != 0 ? reading.address : other;
    out->bytes = reading.bytes;
    out->is_range_read = reading.address != 0 && reading.bytes != 0;
    out->is_value_read = reading.is_value_read;
    bool is_zero = !reading.is_value_read || reading.is_zero;
    if (reading.address == 0 || reading.bytes != 0) {
        out->verdict = look(out, reading.bytes, is_zero, false);
    }
}

void flw_audit_judge_launch(const struct flw_audit_launch *launch, struct flw_audit_judgement *out)
{
    *out = (struct flw_audit_judgement){.call = launch->name, .caller = launch->caller};
    const struct flw_fillkernel *kernel =
        launch->name != NULL && launch->is_read ? flw_fillkernel_find(launch->name) : NULL;
    uint64_t address;
    flw_lock_acquire(&audit.lock);
    audit.page->counts.launches++;
    if (!launch->is_read && !launch->is_captured) {
        audit.page->counts.unread_launches++;
        flw_liveblocks_touch_all(&audit.blocks);
    } else if (kernel != NULL) {
        judge_fill_kernel(kernel, launch, out);
    } else {
        find_blocks(launch, true, &address);
    }
    flw_lock_release(&audit.lock);
    try_site(out);
}

/* ---- counting */

static void count_site(const struct flw_audit_judgement *judgement,
                       const struct flw_callsite *taken, bool is_poisoned)
{
    static struct flw_audit_site made; /* under the lock; too large for small stacks */
    made = (struct flw_audit_site){.id = taken->id, .frame_count = taken->frame_count};
    strncpy(made.call, judgement->call, sizeof made.call - 1);
    memcpy(made.script, taken->script, sizeof made.script);
    for (uint32_t i = 0; i < taken->frame_count; i++) {
        const char *path = taken->path[i];
        path = path != NULL && path[0] == '\0' ? audit.page->program : path;
        made.frames[i] = (struct flw_audit_frame){
            .offset = taken->offset[i],
            .module = path != NULL ? flw_auditpage_module(audit.page, path) : FLW_AUDIT_NO_MODULE};
    }
    struct flw_audit_site *site = flw_auditpage_site(audit.page, &made);
    if (site == NULL) {
        audit.page->counts.lost_sites++;
        return;
    }
    site->fill_count++;
    site->bytes += judgement->bytes;
    site->unread_value_count += !judgement->is_value_read;
    site->unread_range_count += !judgement->is_range_read;
    site->poisoned_count += is_poisoned;
}

static uint64_t *counter(enum flw_audit_verdict verdict)
{
    struct flw_audit_counts *counts = &audit.page->counts;
    switch (verdict) {
    case FLW_AUDIT_CANDIDATE:
        return &counts->candidates;
    case FLW_AUDIT_REUSED:
        return &counts->reused;
    case FLW_AUDIT_NONZERO:
        return &counts->nonzero;
    case FLW_AUDIT_CAPTURED:
        return &counts->captured;
    default:
        return &counts->foreign;
    }
}

void flw_audit_count(const struct flw_audit_judgement *judgement, bool is_poisoned)
{
    struct flw_callsite site = {0};
    if (judgement->verdict == FLW_AUDIT_NO_FILL) {
        return;
    }
    if (judgement->verdict == FLW_AUDIT_CANDIDATE) {
        flw_callsite_take(&site, judgement->caller, judgement->call);
    }
    flw_lock_acquire(&audit.lock);
    audit.page->counts.fills++;
    *counter(judgement->verdict) += 1;
    audit.page->counts.poisoned += is_poisoned;
    audit.page->counts.unpoisoned += judgement->is_on_trial && !is_poisoned;
    if (judgement->verdict == FLW_AUDIT_CANDIDATE) {
        count_site(judgement, &site, is_poisoned);
    }
    flw_lock_release(&audit.lock);
}
