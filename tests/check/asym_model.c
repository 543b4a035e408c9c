/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exhaustive check of the asymmetric lock (base/asym.h): every interleaving of one owner
 * and one or two drainers that repeat for ever, on a machine with store buffers (x86-TSO).
 * Does not: model weaker processors, or run the shipped code: tests/stress/test_asym.c does that.
 *
 * The machine: four shared words; each thread has a queue of stores that memory takes one by one at
 * any later moment, in order; a thread reads its own newest queued store first. A locked
 * instruction waits for its own queue to be empty. membarrier empties the queues of the threads one
 * after the other, not at one instant, which allows more than the kernel does.
 *
 * Proved of every reachable state: at most one thread is at work on the cache; each work reads what
 * the last work wrote (so no store of it arrives late); some thread can step (no deadlock); and
 * every thread can still finish its round (no livelock that nothing ends).
 *
 * A checker that finds nothing proves nothing, so the protocol is also run with one line taken away
 * at a time, the membarrier first; each of these must be found to fail.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum variable {
    BUSY,
    KEY, /* 0 open, 1 poisoned */
    LOCK,
    DATA, /* a counter modulo 4: the cache */
    VARIABLES
};

enum operation {
    STORE,       /* a = variable, b = value; waits in the queue */
    BRANCH_OPEN, /* key read as open: next line, else line a */
    BEGIN_WORK,  /* read the counter */
    END_WORK,    /* store the counter plus one */
    TAKE_LOCK,   /* locked exchange; blocks while it is held */
    FENCE,       /* waits for the own queue to be empty */
    BARRIER_OF,  /* empties the queue of thread a */
    AWAIT_IDLE,  /* blocks until busy reads 0 */
    REPEAT       /* back to line 0: a round is finished */
};

struct line {
    enum operation operation;
    int a, b;
};

#define LINES 16
struct program {
    struct line lines[LINES];
};

#define THREADS 3
#define QUEUE   4

struct thread {
    uint8_t at, seen, is_working, queued;
    uint8_t queue[QUEUE]; /* variable * 4 + value, oldest first */
};

struct state {
    uint8_t memory[VARIABLES];
    uint8_t ghost; /* what the last finished work wrote */
    struct thread threads[THREADS];
};

struct protocol {
    const char *name;
    bool must_fail;
    struct program owner, drainer;
};

/* The owner's fast path, and its slow path (lines 6..) under the cache's lock. */
#define OWNER_SLOW                                                                               \
    {STORE, BUSY, 0}, {TAKE_LOCK, 0, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, LOCK, 0}, \
    {                                                                                            \
        REPEAT, 0, 0                                                                             \
    }
/* clang-format off */
#define OWNER {{ \
    {STORE, BUSY, 1}, {BRANCH_OPEN, 6, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, \
    {STORE, BUSY, 0}, {REPEAT, 0, 0}, OWNER_SLOW }}
#define DRAINER {{ \
    {TAKE_LOCK, 0, 0}, {STORE, KEY, 1}, {FENCE, 0, 0}, {BARRIER_OF, 0, 0}, {BARRIER_OF, 1, 0}, \
    {BARRIER_OF, 2, 0}, {AWAIT_IDLE, 0, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, \
    {STORE, KEY, 0}, {STORE, LOCK, 0}, {REPEAT, 0, 0} }}

static const struct protocol protocols[] = {
    {"as shipped", false, OWNER, DRAINER},
    {"for ThreadSanitizer: both sides a locked instruction", false,
     {{{STORE, BUSY, 1}, {FENCE, 0, 0}, {BRANCH_OPEN, 7, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0},
       {STORE, BUSY, 0}, {REPEAT, 0, 0}, OWNER_SLOW}},
     {{{TAKE_LOCK, 0, 0}, {STORE, KEY, 1}, {FENCE, 0, 0}, {AWAIT_IDLE, 0, 0}, {BEGIN_WORK, 0, 0},
       {END_WORK, 0, 0}, {STORE, KEY, 0}, {STORE, LOCK, 0}, {REPEAT, 0, 0}}}},
    {"without the membarrier: the drainer fences alone", true, OWNER,
     {{{TAKE_LOCK, 0, 0}, {STORE, KEY, 1}, {FENCE, 0, 0}, {AWAIT_IDLE, 0, 0}, {BEGIN_WORK, 0, 0},
       {END_WORK, 0, 0}, {STORE, KEY, 0}, {STORE, LOCK, 0}, {REPEAT, 0, 0}}}},
    {"the membarrier before the poison", true, OWNER,
     {{{TAKE_LOCK, 0, 0}, {FENCE, 0, 0}, {BARRIER_OF, 0, 0}, {BARRIER_OF, 1, 0}, {BARRIER_OF, 2, 0},
       {STORE, KEY, 1}, {AWAIT_IDLE, 0, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, KEY, 0},
       {STORE, LOCK, 0}, {REPEAT, 0, 0}}}},
    {"no wait for the owner to leave", true, OWNER,
     {{{TAKE_LOCK, 0, 0}, {STORE, KEY, 1}, {FENCE, 0, 0}, {BARRIER_OF, 0, 0}, {BARRIER_OF, 1, 0},
       {BARRIER_OF, 2, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, KEY, 0}, {STORE, LOCK, 0},
       {REPEAT, 0, 0}}}},
    {"the key restored before the work", true, OWNER,
     {{{TAKE_LOCK, 0, 0}, {STORE, KEY, 1}, {FENCE, 0, 0}, {BARRIER_OF, 0, 0}, {BARRIER_OF, 1, 0},
       {BARRIER_OF, 2, 0}, {AWAIT_IDLE, 0, 0}, {STORE, KEY, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0},
       {STORE, LOCK, 0}, {REPEAT, 0, 0}}}},
    {"the owner tests the key before it says busy", true,
     {{{BRANCH_OPEN, 6, 0}, {STORE, BUSY, 1}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, BUSY, 0},
       {REPEAT, 0, 0}, OWNER_SLOW}}, DRAINER},
    {"the owner leaves before its work is done", true,
     {{{STORE, BUSY, 1}, {BRANCH_OPEN, 6, 0}, {STORE, BUSY, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0},
       {REPEAT, 0, 0}, OWNER_SLOW}}, DRAINER},
    {"the slow path forgets to leave", true,
     {{{STORE, BUSY, 1}, {BRANCH_OPEN, 6, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, BUSY, 0},
       {REPEAT, 0, 0}, {TAKE_LOCK, 0, 0}, {BEGIN_WORK, 0, 0}, {END_WORK, 0, 0}, {STORE, LOCK, 0},
       {STORE, BUSY, 0}, {REPEAT, 0, 0}}}, DRAINER},
};
/* clang-format on */

/* ---- one step of the machine */

static unsigned load(const struct state *state, unsigned self, unsigned variable)
{
    const struct thread *thread = &state->threads[self];
    for (unsigned i = thread->queued; i-- > 0;) {
        if (thread->queue[i] / 4u == variable) {
            return thread->queue[i] % 4u;
        }
    }
    return state->memory[variable];
}

static bool store(struct thread *thread, unsigned variable, unsigned value)
{
    if (thread->queued == QUEUE) {
        return false;
    }
    thread->queue[thread->queued++] = (uint8_t)(variable * 4 + value);
    return true;
}

/* Memory takes a thread's oldest store. False: there is none. */
static bool retire(struct state *state, unsigned self)
{
    struct thread *thread = &state->threads[self];
    if (thread->queued == 0) {
        return false;
    }
    state->memory[thread->queue[0] / 4] = thread->queue[0] % 4;
    memmove(thread->queue, thread->queue + 1, QUEUE - 1);
    thread->queue[QUEUE - 1] = 0;
    thread->queued--;
    return true;
}

static const char *overlap(const struct state *state)
{
    unsigned working = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        working += state->threads[i].is_working;
    }
    return working > 1 ? "two threads are at work" : NULL;
}

/* A thread's next line. False: it is blocked and state is undefined. *broken: a rule it broke. */
static bool run_line(struct state *state, const struct program *program, unsigned self,
                     const char **broken)
{
    struct thread *thread = &state->threads[self];
    const struct line *line = &program->lines[thread->at++];
    switch (line->operation) {
    case STORE:
        return store(thread, (unsigned)line->a, (unsigned)line->b);
    case BRANCH_OPEN:
        if (load(state, self, KEY) != 0) {
            thread->at = (uint8_t)line->a;
        }
        return true;
    case BEGIN_WORK:
        thread->seen = (uint8_t)load(state, self, DATA);
        thread->is_working = 1;
        *broken = thread->seen != state->ghost ? "a work read stale data" : overlap(state);
        return true;
    case END_WORK:
        thread->is_working = 0;
        state->ghost = (uint8_t)((thread->seen + 1) % 4);
        thread->seen = 0;
        return store(thread, DATA, state->ghost);
    case TAKE_LOCK:
        if (thread->queued != 0 || state->memory[LOCK] != 0) {
            return false;
        }
        state->memory[LOCK] = 1;
        return true;
    case FENCE:
        return thread->queued == 0;
    case BARRIER_OF:
        while (retire(state, (unsigned)line->a)) {
        }
        return true;
    case AWAIT_IDLE:
        return load(state, self, BUSY) == 0;
    case REPEAT:
        thread->at = 0;
        return true;
    }
    return false;
}

/* ---- the search */

#define ROOM (1u << 17) /* a power of two; the largest search here uses an eighth of it */

struct node {
    struct state state;
    uint32_t parent;
    uint8_t by;          /* thread * 2 + (1: memory took its store) */
    uint8_t can_finish;  /* bit i: thread i can still reach line 0 with an empty queue */
    uint16_t edge_count; /* successors follow in `edges` */
    uint32_t edges;
};

struct search {
    const struct protocol *protocol;
    unsigned thread_count;
    struct node *nodes;
    uint32_t node_count;
    uint32_t *table; /* 1 + node, by hash */
    uint32_t *edges;
    uint32_t edge_count;
    const char *broken;
    uint32_t broken_at;
};

static uint32_t find_or_add(struct search *search, const struct state *state, uint32_t parent,
                            unsigned by)
{
    uint64_t hash = 1469598103934665603ull;
    const unsigned char *bytes = (const unsigned char *)state;
    for (size_t i = 0; i < sizeof *state; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211ull;
    }
    uint32_t at = (uint32_t)(hash ^ (hash >> 32)) & (ROOM - 1);
    for (; search->table[at] != 0; at = (at + 1) & (ROOM - 1)) {
        if (memcmp(&search->nodes[search->table[at] - 1].state, state, sizeof *state) == 0) {
            return search->table[at] - 1;
        }
    }
    if (search->node_count == ROOM / 2) {
        fprintf(stderr, "check.asym_model: more than %u states; raise ROOM\n", ROOM / 2);
        exit(2);
    }
    search->nodes[search->node_count] =
        (struct node){.state = *state, .parent = parent, .by = (uint8_t)by};
    search->table[at] = ++search->node_count;
    return search->node_count - 1;
}

static const struct program *program_of(const struct search *search, unsigned thread)
{
    return thread == 0 ? &search->protocol->owner : &search->protocol->drainer;
}

static void expand(struct search *search, uint32_t index)
{
    search->nodes[index].edges = search->edge_count;
    for (unsigned by = 0; by < 2 * search->thread_count && search->broken == NULL; by++) {
        struct state next = search->nodes[index].state;
        const char *broken = NULL;
        bool moved = by % 2 == 1 ? retire(&next, by / 2)
                                 : run_line(&next, program_of(search, by / 2), by / 2, &broken);
        if (moved) {
            uint32_t to = find_or_add(search, &next, index, by);
            search->edges[search->edge_count++] = to;
            search->nodes[index].edge_count++;
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

/* Backwards from the finished states: what cannot reach one is a livelock. */
static void check_progress(struct search *search)
{
    uint8_t all = (uint8_t)((1u << search->thread_count) - 1);
    bool changed = true;
    for (uint32_t n = 0; n < search->node_count; n++) {
        for (unsigned i = 0; i < search->thread_count; i++) {
            const struct thread *thread = &search->nodes[n].state.threads[i];
            search->nodes[n].can_finish |= (uint8_t)((thread->at == 0) << i);
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
    static const char *const names[] = {"store", "test key",   "begin work", "end work", "lock",
                                        "fence", "barrier of", "await idle", "repeat"};
    static const char *const variables[] = {"busy", "key", "lock", "data"};
    if (index == 0) {
        return;
    }
    const struct node *node = &search->nodes[index], *before = &search->nodes[node->parent];
    print_way(search, node->parent);
    unsigned thread = node->by / 2;
    const struct thread *was = &before->state.threads[thread];
    printf("      %s %u  ", thread == 0 ? "owner  " : "drainer", thread);
    if (node->by % 2 == 1) {
        printf("memory takes its %s = %u\n", variables[was->queue[0] / 4], was->queue[0] % 4u);
        return;
    }
    const struct line *line = &program_of(search, thread)->lines[was->at];
    if (line->operation == STORE) {
        printf("store %s = %d\n", variables[line->a], line->b);
    } else if (line->operation == BARRIER_OF) {
        printf("barrier of thread %d\n", line->a);
    } else {
        printf("%s\n", names[line->operation]);
    }
}

/* True: the protocol behaved as it must. */
static bool check(struct search *search, const struct protocol *protocol, unsigned drainers)
{
    memset(search->table, 0, ROOM * sizeof *search->table);
    search->protocol = protocol;
    search->thread_count = 1 + drainers;
    search->node_count = search->edge_count = 0;
    search->broken = NULL;
    struct state start = {0};
    (void)find_or_add(search, &start, 0, 0);
    for (uint32_t n = 0; n < search->node_count && search->broken == NULL; n++) {
        expand(search, n);
    }
    if (search->broken == NULL) {
        check_progress(search);
    }
    bool is_right = (search->broken != NULL) == protocol->must_fail;
    printf("%s: %s, %u drainer%s: %u states, %s%s\n", is_right ? "ok" : "WRONG", protocol->name,
           drainers, drainers == 1 ? "" : "s", search->node_count,
           search->broken != NULL ? "fails as it must: " : "holds in every interleaving",
           search->broken != NULL ? search->broken : "");
    if (search->broken != NULL && (!is_right || drainers == 1)) {
        print_way(search, search->broken_at);
    }
    return is_right;
}

int main(void)
{
    struct search search = {
        .nodes = malloc(ROOM / 2 * sizeof *search.nodes),
        .table = malloc(ROOM * sizeof *search.table),
        .edges = malloc((size_t)ROOM / 2 * 2 * THREADS * sizeof *search.edges),
    };
    unsigned wrong = 0;
    if (search.nodes != NULL && search.table != NULL && search.edges != NULL) {
        for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
            for (unsigned drainers = 1; drainers < THREADS; drainers++) {
                wrong += !check(&search, &protocols[i], drainers);
            }
        }
    } else {
        fprintf(stderr, "check.asym_model: no host memory for %u states\n", ROOM / 2);
        wrong = 1;
    }
    free(search.nodes);
    free(search.table);
    free(search.edges);
    return wrong == 0 ? 0 : 1;
}
