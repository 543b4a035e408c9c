/* SPDX-License-Identifier: Apache-2.0 */
#include "check/weak_machine.h"

#include <stdio.h>
#include <string.h>

/* The parts of a window entry: the line, */
#define AT        0x1Fu
#define PERFORMED 0x20u
#define GUESSED   0x40u /* the key has not been read: later entries of the window assume an outcome */
#define OPEN      0x80u /* the assumed outcome: open */
#define STALE     0x80u /* of a load of the data: another thread has written since */

#define BLOCKED 0xFF /* the next entry depends on the last access of the window */

static const struct line *line_at(const struct machine *machine, unsigned self, uint8_t access)
{
    return &machine->programs[self]->lines[access & AT];
}

static bool is_performed(uint8_t access)
{
    return (access & PERFORMED) != 0;
}

/* ---- the window */

/* A critical section's load stays in the window until the store, which needs it, is performed. */
static bool may_go(const struct machine *machine, unsigned self, const struct thread *thread)
{
    if (thread->count == 0 || !is_performed(thread->window[0])) {
        return false;
    }
    return line_at(machine, self, thread->window[0])->operation != LOAD_DATA ||
           (thread->count > 1 && is_performed(thread->window[1]));
}

/* Remove performed entries from the front, append entries at the end. */
static void slide(const struct machine *machine, struct state *state, unsigned self)
{
    struct thread *thread = &state->threads[self];
    while (may_go(machine, self, thread)) {
        memmove(thread->window, thread->window + 1, WINDOW - 1);
        thread->window[--thread->count] = 0;
    }
    while (thread->count < WINDOW && thread->next != BLOCKED) {
        const struct line *line = line_at(machine, self, thread->next);
        if (line->operation == REPEAT) {
            thread->next = 0;
            continue;
        }
        thread->window[thread->count++] = thread->next;
        thread->next = line->operation == TEST_KEY ? BLOCKED : (uint8_t)(thread->next + 1);
    }
}

/* Discard the window after `at`; continue with `next`. */
static void cut(const struct machine *machine, struct state *state, unsigned self, unsigned at,
                int next)
{
    struct thread *thread = &state->threads[self];
    memset(thread->window + at + 1, 0, WINDOW - at - 1);
    thread->count = (uint8_t)(at + 1);
    thread->next = (uint8_t)next;
    slide(machine, state, self);
}

/* ---- the order of two accesses */

static bool is_load(const struct line *line)
{
    return line->operation == TEST_KEY || line->operation == AWAIT_IDLE ||
           line->operation == LOAD_DATA;
}

static bool is_store(const struct line *line)
{
    return line->operation == STORE || line->operation == STORE_DATA;
}

/* True if a branch depends on the access. */
static bool is_decision(const struct line *line)
{
    return line->operation == TEST_KEY || line->operation == AWAIT_IDLE ||
           line->operation == TAKE_LOCK;
}

static bool is_full_fence(const struct line *line)
{
    return line->operation == FENCE || line->operation == BARRIER_OF;
}

/* A load does not wait for an earlier store to the same word: it reads the stored value. */
static bool has_to_precede_tso(const struct line *earlier, const struct line *later)
{
    return !(is_store(earlier) && is_load(later));
}

static bool has_to_precede_arm(const struct line *earlier, const struct line *later)
{
    if (is_full_fence(earlier) || is_full_fence(later) || earlier->operation == FENCE_LOAD ||
        earlier->order == ACQUIRE || later->order == RELEASE) {
        return true;
    }
    if (later->operation == FENCE_LOAD) {
        return is_load(earlier) || earlier->operation == TAKE_LOCK;
    }
    if (is_decision(earlier) && !is_load(later)) {
        return true; /* not before every branch of earlier stores is decided */
    }
    return earlier->variable == later->variable && !(is_store(earlier) && is_load(later));
}

static bool may_perform(const struct machine *machine, const struct state *state, unsigned self,
                        unsigned at)
{
    const struct thread *thread = &state->threads[self];
    const struct line *later = line_at(machine, self, thread->window[at]);
    for (unsigned i = 0; i < at; i++) {
        const struct line *earlier = line_at(machine, self, thread->window[i]);
        if (!is_performed(thread->window[i]) &&
            (machine->kind == TSO ? has_to_precede_tso(earlier, later)
                                  : has_to_precede_arm(earlier, later))) {
            return false;
        }
    }
    return !is_performed(thread->window[at]);
}

/* ---- the effect of an access */

/* Interrupt at a point before which everything has been performed and after which nothing has;
 * loads after it are repeated. Returns false if a store after it has been performed. */
static bool interrupt(const struct machine *machine, struct state *state, unsigned self)
{
    struct thread *thread = &state->threads[self];
    unsigned gap = 0;
    while (gap < thread->count && is_performed(thread->window[gap])) {
        gap++;
    }
    for (unsigned i = gap; i < thread->count; i++) {
        const struct line *line = line_at(machine, self, thread->window[i]);
        if (is_performed(thread->window[i]) && !is_load(line) && line->operation != FENCE_LOAD) {
            return false;
        }
    }
    if (gap < thread->count) {
        thread->window[gap] &= AT;
        bool is_test = line_at(machine, self, thread->window[gap])->operation == TEST_KEY;
        cut(machine, state, self, gap, is_test ? BLOCKED : thread->window[gap] + 1);
    }
    return true;
}

static void read_key(const struct machine *machine, struct state *state, unsigned self, unsigned at)
{
    uint8_t *access = &state->threads[self].window[at], was = *access;
    bool is_open = state->memory[KEY] == 0;
    *access = (uint8_t)((was & AT) | PERFORMED);
    if ((was & GUESSED) == 0 || ((was & OPEN) != 0) != is_open) {
        int next = is_open ? (int)(was & AT) + 1 : line_at(machine, self, was)->value;
        cut(machine, state, self, at, next);
    }
}

/* Returns false if another thread has changed the data since the load. */
static bool write_data(const struct machine *machine, struct state *state, unsigned self,
                       unsigned at)
{
    bool is_stale = (state->threads[self].window[at - 1] & STALE) != 0;
    for (unsigned other = 0; other < machine->thread_count; other++) {
        struct thread *thread = &state->threads[other];
        for (unsigned i = 0; other != self && i < thread->count; i++) {
            bool has_read = is_performed(thread->window[i]) &&
                            line_at(machine, other, thread->window[i])->operation == LOAD_DATA;
            thread->window[i] |= has_read ? STALE : 0;
        }
    }
    return !is_stale;
}

/* Perform an access. Returns false if it has to wait for another thread. */
static bool perform(const struct machine *machine, struct state *state, unsigned self, unsigned at,
                    const char **broken)
{
    struct thread *thread = &state->threads[self];
    const struct line *line = line_at(machine, self, thread->window[at]);
    thread->window[at] |= PERFORMED;
    switch (line->operation) {
    case TEST_KEY:
        thread->window[at] &= (uint8_t)~PERFORMED;
        read_key(machine, state, self, at);
        break;
    case AWAIT_IDLE:
    case TAKE_LOCK:
        if (state->memory[line->variable] != 0) {
            return false;
        }
        state->memory[line->variable] = (uint8_t)line->value;
        break;
    case STORE:
        state->memory[line->variable] = (uint8_t)line->value;
        break;
    case STORE_DATA:
        if (!write_data(machine, state, self, at)) {
            *broken = "a work on what another thread has changed since";
        }
        break;
    case BARRIER_OF:
        if ((unsigned)line->value < machine->thread_count && (unsigned)line->value != self &&
            !interrupt(machine, state, (unsigned)line->value)) {
            return false;
        }
        break;
    case LOAD_DATA:
    case FENCE_LOAD:
    case FENCE:
    case REPEAT:
        break;
    }
    slide(machine, state, self);
    return true;
}

/* Continue speculatively without the key's value. Returns false if the value is known. */
static bool guess(const struct machine *machine, struct state *state, unsigned self, bool is_open)
{
    struct thread *thread = &state->threads[self];
    if (thread->count == 0 || thread->next != BLOCKED) {
        return false;
    }
    uint8_t *access = &thread->window[thread->count - 1];
    int next = is_open ? (int)(*access & AT) + 1 : line_at(machine, self, *access)->value;
    thread->next = (uint8_t)next;
    *access |= (uint8_t)(GUESSED | (is_open ? OPEN : 0));
    slide(machine, state, self);
    return true;
}

/* ---- steps */

struct state machine_start(const struct machine *machine)
{
    struct state state = {0};
    for (unsigned i = 0; i < machine->thread_count; i++) {
        slide(machine, &state, i);
    }
    return state;
}

bool machine_step(const struct machine *machine, struct state *state, unsigned thread,
                  unsigned step, const char **broken)
{
    if (step >= WINDOW) { /* where loads keep their order a guess brings nothing */
        return machine->kind == ARM && guess(machine, state, thread, step > WINDOW);
    }
    return step < state->threads[thread].count && may_perform(machine, state, thread, step) &&
           perform(machine, state, thread, step, broken);
}

bool machine_is_at_round(const struct state *state, unsigned thread)
{
    return (state->threads[thread].window[0] & (AT | PERFORMED)) == 0;
}

void machine_print_step(const struct machine *machine, const struct state *before, unsigned thread,
                        unsigned step)
{
    static const char *const names[] = {[TEST_KEY] = "read key",
                                        [AWAIT_IDLE] = "read busy as 0",
                                        [LOAD_DATA] = "read the data",
                                        [STORE_DATA] = "write the data",
                                        [STORE] = "write",
                                        [TAKE_LOCK] = "take",
                                        [FENCE_LOAD] = "load fence",
                                        [FENCE] = "fence",
                                        [BARRIER_OF] = "barrier of thread"};
    static const char *const variables[] = {"busy", "key", "lock", "seizures", "data"};
    if (step >= WINDOW) {
        printf("(guesses that the key is %s)\n", step > WINDOW ? "open" : "poisoned");
        return;
    }
    const struct line *line = line_at(machine, thread, before->threads[thread].window[step]);
    printf("%s", names[line->operation]);
    if (line->operation == STORE) {
        printf(" %s = %d", variables[line->variable], line->value);
    } else if (line->operation == TAKE_LOCK) {
        printf(" %s", variables[line->variable]);
    } else if (line->operation == BARRIER_OF) {
        printf(" %d", line->value);
    } else if (line->operation == TEST_KEY) {
        printf(": %s", before->memory[KEY] == 0 ? "open" : "poisoned");
    }
    bool is_early = false;
    for (unsigned i = 0; i < step; i++) {
        is_early |= !is_performed(before->threads[thread].window[i]);
    }
    printf("%s\n", is_early ? ", ahead of its turn" : "");
}
