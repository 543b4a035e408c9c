/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a machine of a few threads and words with the reorderings of a processor: x86-TSO, whose
 * stores wait in a buffer, or ARMv8, which preserves only the order of barriers and dependencies.
 * It performs one step, and enumerates all possible steps.
 * Does not: choose steps, or judge a program, except for a critical section on data that another
 * thread has changed.
 *
 * All threads see memory alike (both architectures are multi-copy atomic). Each thread has a
 * window of the next WINDOW accesses of the program. An access in the window may be *performed* as
 * soon as no earlier access of the window has to precede it: so a store waits while later loads
 * continue, a load overtakes a load, a store overtakes a load. A load of a word with an earlier
 * store in the window reads that store. The window continues past a branch on the key that has not
 * been performed, by guessing the outcome: after a wrong guess the loads are discarded; stores
 * wait. membarrier interrupts the threads one after the other, each at a point before which
 * everything has been performed and after which nothing has, like an interrupt with a full
 * barrier. The acquire of ARMv8 is the weaker of the two (ldapr: it may overtake an earlier
 * release).
 *
 * The data is one word without a value. The model only tracks whether a critical section's load is
 * *stale* when the store is performed: whether another thread has stored in between. */
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
    AWAIT_IDLE, /* a load of busy that reads 0 */
    LOAD_DATA,  /* a work is these two lines */
    STORE_DATA,
    STORE,
    TAKE_LOCK,  /* an exchange that reads 0 */
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
    uint8_t next, count; /* the next line to enter the window; number of accesses in the window */
    uint8_t window[WINDOW];
};

/* Compared byte by byte. */
struct state {
    uint8_t memory[VARIABLES];
    struct thread threads[THREADS];
};

/* A step is one thread's: perform an access of the window, or make one of two guesses. */
#define STEPS (WINDOW + 2)

struct state machine_start(const struct machine *machine);
/* Returns false, with *state undefined, if there is no such step. *broken: the rule
 * that it broke. */
bool machine_step(const struct machine *machine, struct state *state, unsigned thread,
                  unsigned step, const char **broken);
/* Does a round of the thread begin here, with nothing left of the one before? */
bool machine_is_at_round(const struct state *state, unsigned thread);
/* One line: the step that was taken from a state. */
void machine_print_step(const struct machine *machine, const struct state *before, unsigned thread,
                        unsigned step);

#endif
