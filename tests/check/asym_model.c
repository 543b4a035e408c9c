/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exhaustive check of the asymmetric lock (base/asym.h): every execution of one owner
 * and one or two drainers that repeat for ever, on a machine with store buffers and on one with
 * every reordering that ARMv8 allows (weak_machine.h).
 * Does not: run the shipped code; tests/stress/test_asym.c does, on the machine at hand.
 *
 * Proved for every reachable state: each critical section reads the result of the previous one (so
 * two never overlap, and no store arrives late); some thread can step (no deadlock); every thread
 * can still finish the round (no livelock).
 *
 * To show that the checker can fail, the protocol is also run with one line changed at a time, the
 * membarrier first; each change must fail, on the machine where it is wrong. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/weak_machine.h"

/* The number of drainers with which the change must fail: one, two, or never. */
enum fails {
    NEVER,
    FROM_ONE,
    WITH_TWO
};

struct protocol {
    const char *name;
    enum fails fails[MACHINE_KINDS];
    struct program owner, drainer;
};

#define HOLDS        \
    {                \
        NEVER, NEVER \
    }
#define FAILS              \
    {                      \
        FROM_ONE, FROM_ONE \
    }
#define FAILS_WEAK      \
    {                   \
        NEVER, FROM_ONE \
    }

/* clang-format off */
#define STORE_OF(variable, value, order) {STORE, variable, value, order}
#define TEST(order, closed)              {TEST_KEY, KEY, closed, order}
#define WORK                             {LOAD_DATA, DATA, 0, PLAIN}, {STORE_DATA, DATA, 0, PLAIN}
#define TAKE(lock, order)                {TAKE_LOCK, lock, 1, order}
#define GIVE(lock)                       STORE_OF(lock, 0, RELEASE)
#define AWAIT(order)                     {AWAIT_IDLE, BUSY, 0, order}
#define ORDERED                          {FENCE, BUSY, 0, PLAIN}
#define LOADS_ORDERED                    {FENCE_LOAD, BUSY, 0, PLAIN}
#define MEMBARRIER                       {BARRIER_OF, BUSY, 0, PLAIN}, {BARRIER_OF, BUSY, 1, PLAIN}, \
                                         {BARRIER_OF, BUSY, 2, PLAIN}
#define AGAIN                            {REPEAT, BUSY, 0, PLAIN}

#define ENTER   STORE_OF(BUSY, 1, PLAIN)
#define LEAVE   STORE_OF(BUSY, 0, RELEASE)
/* The owner's slow path, under the cache's lock. */
#define SLOW    LEAVE, TAKE(LOCK, ACQUIRE), WORK, GIVE(LOCK), AGAIN
#define OWNER   {{ENTER, TEST(ACQUIRE, 6), WORK, LEAVE, AGAIN, SLOW}}

#define BEGIN   TAKE(SEIZURES, ACQUIRE)
#define POISON  TAKE(LOCK, ACQUIRE), STORE_OF(KEY, 1, RELEASE), GIVE(LOCK)
#define DRAIN   TAKE(LOCK, ACQUIRE), WORK, GIVE(LOCK)
#define RESTORE TAKE(LOCK, ACQUIRE), STORE_OF(KEY, 0, RELEASE), GIVE(LOCK)
#define END     GIVE(SEIZURES), AGAIN
#define DRAINER {{BEGIN, POISON, MEMBARRIER, AWAIT(ACQUIRE), DRAIN, RESTORE, END}}

static const struct protocol protocols[] = {
    {"as shipped", HOLDS, OWNER, DRAINER},
    {"for ThreadSanitizer: both sides a locked instruction", HOLDS,
     {{ENTER, ORDERED, TEST(ACQUIRE, 7), WORK, LEAVE, AGAIN, SLOW}},
     {{BEGIN, POISON, ORDERED, AWAIT(ACQUIRE), DRAIN, RESTORE, END}}},
    {"without the membarrier: the drainer fences alone", FAILS, OWNER,
     {{BEGIN, POISON, ORDERED, AWAIT(ACQUIRE), DRAIN, RESTORE, END}}},
    {"the owner's acquire fence before the test of the key", FAILS_WEAK,
     {{ENTER, LOADS_ORDERED, TEST(PLAIN, 7), WORK, LEAVE, AGAIN, SLOW}}, DRAINER},
    {"the test of the key a plain load", FAILS_WEAK,
     {{ENTER, TEST(PLAIN, 6), WORK, LEAVE, AGAIN, SLOW}}, DRAINER},
    {"the owner leaves by a plain store", FAILS_WEAK,
     {{ENTER, TEST(ACQUIRE, 6), WORK, STORE_OF(BUSY, 0, PLAIN), AGAIN, SLOW}}, DRAINER},
    {"the drainer's look at busy a plain load, under the lock", FAILS_WEAK, OWNER,
     {{BEGIN, POISON, MEMBARRIER, TAKE(LOCK, ACQUIRE), AWAIT(PLAIN), WORK, GIVE(LOCK), RESTORE, END}}},
    {"the key restored by a plain store", FAILS_WEAK, OWNER,
     {{BEGIN, POISON, MEMBARRIER, AWAIT(ACQUIRE), TAKE(LOCK, ACQUIRE), WORK, STORE_OF(KEY, 0, PLAIN),
       GIVE(LOCK), END}}},
    {"the lock released by a plain store", FAILS_WEAK, OWNER,
     {{BEGIN, POISON, MEMBARRIER, AWAIT(ACQUIRE), TAKE(LOCK, ACQUIRE), WORK, STORE_OF(LOCK, 0, PLAIN),
       RESTORE, END}}},
    {"the lock taken without acquire", FAILS_WEAK,
     {{ENTER, TEST(ACQUIRE, 6), WORK, LEAVE, AGAIN, LEAVE, TAKE(LOCK, PLAIN), WORK, GIVE(LOCK), AGAIN}},
     DRAINER},
    {"drainers seize at the same time", {WITH_TWO, WITH_TWO}, OWNER,
     {{POISON, MEMBARRIER, AWAIT(ACQUIRE), DRAIN, RESTORE, AGAIN}}},
    {"the membarrier before the poison", FAILS, OWNER,
     {{BEGIN, MEMBARRIER, POISON, AWAIT(ACQUIRE), DRAIN, RESTORE, END}}},
    {"no wait for the owner to leave", FAILS, OWNER,
     {{BEGIN, POISON, MEMBARRIER, DRAIN, RESTORE, END}}},
    {"the key restored before the work", FAILS, OWNER,
     {{BEGIN, POISON, MEMBARRIER, AWAIT(ACQUIRE), RESTORE, DRAIN, END}}},
    {"the owner tests the key before it says busy", FAILS,
     {{TEST(ACQUIRE, 6), ENTER, WORK, LEAVE, AGAIN, SLOW}}, DRAINER},
    {"the owner leaves before its work is done", FAILS,
     {{ENTER, TEST(ACQUIRE, 6), LEAVE, WORK, AGAIN, SLOW}}, DRAINER},
    {"the slow path forgets to leave, and the drainer waits under the lock", FAILS,
     {{ENTER, TEST(ACQUIRE, 6), WORK, LEAVE, AGAIN, TAKE(LOCK, ACQUIRE), WORK, GIVE(LOCK), LEAVE, AGAIN}},
     {{BEGIN, POISON, MEMBARRIER, TAKE(LOCK, ACQUIRE), AWAIT(ACQUIRE), WORK, GIVE(LOCK), RESTORE, END}}},
};
/* clang-format on */

/* ---- the search */

struct node {
    struct state state;
    uint32_t parent;
    uint8_t by;         /* thread * STEPS + step */
    uint8_t can_finish; /* bit i: thread i can still reach the beginning of a round */
    uint8_t edge_count; /* successors follow in `edges` */
    uint32_t edges;
};

struct search {
    struct machine machine;
    struct node *nodes;
    uint32_t node_count, node_room;
    uint32_t *table; /* 1 + node, by hash; twice node_room, a power of two */
    uint32_t *edges;
    size_t edge_count, edge_room;
    const char *broken;
    uint32_t broken_at;
};

static void *grown(void *memory, size_t bytes)
{
    void *grown = realloc(memory, bytes);
    if (grown == NULL) {
        fprintf(stderr, "check.asym_model: no host memory for %zu bytes\n", bytes);
        exit(2);
    }
    return grown;
}

static uint32_t *place_of(const struct search *search, const struct state *state)
{
    uint64_t hash = 1469598103934665603ull;
    const unsigned char *bytes = (const unsigned char *)state;
    for (size_t i = 0; i < sizeof *state; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211ull;
    }
    uint32_t mask = 2 * search->node_room - 1, at = (uint32_t)(hash ^ (hash >> 32)) & mask;
    while (search->table[at] != 0 &&
           memcmp(&search->nodes[search->table[at] - 1].state, state, sizeof *state) != 0) {
        at = (at + 1) & mask;
    }
    return &search->table[at];
}

static void make_room(struct search *search, uint32_t room)
{
    search->node_room = room;
    search->nodes = grown(search->nodes, room * sizeof *search->nodes);
    search->table = grown(search->table, 2 * (size_t)room * sizeof *search->table);
    memset(search->table, 0, 2 * (size_t)room * sizeof *search->table);
    for (uint32_t i = 0; i < search->node_count; i++) {
        *place_of(search, &search->nodes[i].state) = i + 1;
    }
}

static uint32_t find_or_add(struct search *search, const struct state *state, uint32_t parent,
                            unsigned by)
{
    if (search->node_count == search->node_room) {
        make_room(search, 2 * search->node_room);
    }
    uint32_t *place = place_of(search, state);
    if (*place == 0) {
        search->nodes[search->node_count] =
            (struct node){.state = *state, .parent = parent, .by = (uint8_t)by};
        *place = ++search->node_count;
    }
    return *place - 1;
}

static void add_edge(struct search *search, uint32_t from, uint32_t to)
{
    if (search->edge_count == search->edge_room) {
        search->edge_room = 2 * search->edge_room + 1024;
        search->edges = grown(search->edges, search->edge_room * sizeof *search->edges);
    }
    search->edges[search->edge_count++] = to;
    search->nodes[from].edge_count++;
}

static void expand(struct search *search, uint32_t index)
{
    search->nodes[index].edges = (uint32_t)search->edge_count;
    for (unsigned by = 0; by < STEPS * search->machine.thread_count && search->broken == NULL;
         by++) {
        struct state next = search->nodes[index].state;
        const char *broken = NULL;
        if (machine_step(&search->machine, &next, by / STEPS, by % STEPS, &broken)) {
            uint32_t to = find_or_add(search, &next, index, by);
            add_edge(search, index, to);
            if (broken != NULL) {
                search->broken = broken;
                search->broken_at = to;
            }
        }
    }
    if (search->broken == NULL && search->nodes[index].edge_count == 0) {
        search->broken = "deadlock: nobody can step";
        search->broken_at = index;
    }
}

/* Search backwards from the states at the beginning of a round; unreached states are a livelock. */
static void check_progress(struct search *search)
{
    uint8_t all = (uint8_t)((1u << search->machine.thread_count) - 1);
    bool changed = true;
    for (uint32_t n = 0; n < search->node_count; n++) {
        for (unsigned i = 0; i < search->machine.thread_count; i++) {
            bool is_at_round = machine_is_at_round(&search->nodes[n].state, i);
            search->nodes[n].can_finish |= (uint8_t)(is_at_round << i);
        }
    }
    while (changed) {
        changed = false;
        for (uint32_t n = search->node_count; n-- > 0;) {
            struct node *node = &search->nodes[n];
            uint8_t can = node->can_finish;
            for (unsigned e = 0; e < node->edge_count; e++) {
                can |= search->nodes[search->edges[node->edges + e]].can_finish;
            }
            changed |= can != node->can_finish;
            node->can_finish = can;
        }
    }
    for (uint32_t n = 0; n < search->node_count && search->broken == NULL; n++) {
        if (search->nodes[n].can_finish != all) {
            search->broken = "a thread can never finish its round";
            search->broken_at = n;
        }
    }
}

static void print_way(const struct search *search, uint32_t index)
{
    const struct node *node = &search->nodes[index];
    if (index != 0) {
        unsigned thread = node->by / STEPS;
        print_way(search, node->parent);
        printf("      %s %u  ", thread == 0 ? "owner  " : "drainer", thread);
        machine_print_step(&search->machine, &search->nodes[node->parent].state, thread,
                           node->by % STEPS);
    }
}

/* True if the protocol behaved as expected. */
static bool check(struct search *search, const struct protocol *protocol, enum machine_kind kind,
                  unsigned drainers)
{
    static const char *const kind_names[] = {"x86-TSO", "ARMv8"};
    memset(search->table, 0, 2 * (size_t)search->node_room * sizeof *search->table);
    search->machine =
        (struct machine){.kind = kind,
                         .thread_count = 1 + drainers,
                         .programs = {&protocol->owner, &protocol->drainer, &protocol->drainer}};
    search->node_count = 0;
    search->edge_count = 0;
    search->broken = NULL;
    struct state start = machine_start(&search->machine);
    (void)find_or_add(search, &start, 0, 0);
    for (uint32_t n = 0; n < search->node_count && search->broken == NULL; n++) {
        expand(search, n);
    }
    if (search->broken == NULL) {
        check_progress(search);
    }
    enum fails fails = protocol->fails[kind];
    bool must_fail = fails == FROM_ONE || (fails == WITH_TWO && drainers == 2);
    bool is_right = (search->broken != NULL) == must_fail;
    printf("%s: %s, %s, %u drainer%s: %u states, %s%s\n", is_right ? "ok" : "WRONG", protocol->name,
           kind_names[kind], drainers, drainers == 1 ? "" : "s", search->node_count,
           search->broken == NULL ? "holds in every execution"
           : must_fail            ? "fails as it must: "
                                  : "fails: ",
           search->broken != NULL ? search->broken : "");
    if (search->broken != NULL && (!is_right || drainers == (fails == WITH_TWO) + 1u)) {
        print_way(search, search->broken_at);
    }
    return is_right;
}

int main(void)
{
    struct search search = {0};
    unsigned wrong = 0;
    make_room(&search, 1u << 12);
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        for (int kind = TSO; kind < MACHINE_KINDS; kind++) {
            for (unsigned drainers = 1; drainers < THREADS; drainers++) {
                wrong += !check(&search, &protocols[i], (enum machine_kind)kind, drainers);
            }
        }
    }
    free(search.nodes);
    free(search.table);
    free(search.edges);
    return wrong == 0 ? 0 : 1;
}
