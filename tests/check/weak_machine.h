/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a machine of a few threads and words that reorders what a processor may reorder: x86-TSO, whose
 * stores wait in a buffer, or ARMv8, which keeps only the order that an instruction or a dependency
 * asks for. One step of it at a time; all the steps that there are.
 * Does not: choose steps, or judge a program, but for a work on data that another thread has changed.
 *
 * All threads see memory alike (both architectures are multi-copy atomic). Each thread has a window of
 * the next WINDOW accesses of its program. An access in it may be *performed*, that is take effect, as
 * soon as nothing before it in the window has to come first: so a store waits while later loads go
 * on, a load overtakes a load, a store overtakes a load. A load of a word that an earlier access of the
 * window is still to store reads that store. The window reaches beyond a test of the key that has not
 * been performed, by guessing its outcome: loads there are thrown away if the guess was wrong, stores
 * wait. membarrier stops the threads one after the other, each where everything before a point of its
 * program has been performed and nothing behind it, which is what an interrupt with a full barrier comes
 * to. The acquire of ARMv8 is the weaker of its two (ldapr: it may overtake an earlier release).
 *
 * The data is one word without a value. What counts is whether a work's load of it is *stale* when the
 * work's store is performed: whether another thread has stored since.
 */
#ifndef FLW_CHECK_WEAK_MACHINE_H
#define FLW_CHECK_WEAK_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum variable {
    BUSY,
    KEY,      /* 0 open, 1 poisoned */
    LOCK,     /* the cache's */
    SEIZURES, /* the lock that lets one drainer seize at a time */
    DATA,     /* the cache */
    VARIABLES
};

enum operation {
    TEST_KEY,   /* open: the next line, else line `value` */
    AWAIT_IDLE, /* a load of busy, once it reads 0 */
    LOAD_DATA,  /* a work is these two lines */
    STORE_DATA,
    STORE,
    TAKE_LOCK,  /* an exchange, once it reads 0 */
    FENCE_LOAD, /* dmb ishld: earlier loads before all that follows */
    FENCE,
    BARRIER_OF, /* of thread `value` */
    REPEAT      /* back to line 0 */
};

enum order {
    PLAIN,
    ACQUIRE,
    RELEASE
};

struct line {
    enum operation operation;
    enum variable variable;
    int value;
    enum order order;
};

#define LINES 20
struct program {
    struct line lines[LINES];
};

enum machine_kind {
    TSO,
    ARM,
    MACHINE_KINDS
};

#define THREADS 3
#define WINDOW  12

struct machine {
    enum machine_kind kind;
    unsigned thread_count;
    const struct program *programs[THREADS];
};

struct thread {
    uint8_t next, count; /* the line that comes into the window next; accesses in it */
    uint8_t window[WINDOW];
};

/* Compared byte by byte. */
struct state {
    uint8_t memory[VARIABLES];
    struct thread threads[THREADS];
};

/* A step is a thread's: an access of its window performed, or one of two guesses. */
#define STEPS (WINDOW + 2)

struct state machine_start(const struct machine *machine);
/* False: there is no such step now, *state is undefined. *broken: a rule that it broke. */
bool machine_step(const struct machine *machine, struct state *state, unsigned thread,
                  unsigned step, const char **broken);
/* Does a round of the thread begin here, with nothing left of the one before? */
bool machine_is_at_round(const struct state *state, unsigned thread);
/* One line: the step that was taken from a state. */
void machine_print_step(const struct machine *machine, const struct state *before, unsigned thread,
                        unsigned step);

#endif
