/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the types of the script runner. A script file (*.script) contains tests as tables of calls, the status of
 * each, and the statistics, log lines and driver calls that must follow; script.c describes the form, verbs.c has
 * the calls.
 */
#ifndef FLW_TESTS_UNIT_POOL_SCRIPT_H
#define FLW_TESTS_UNIT_POOL_SCRIPT_H

#include "support/test.h"

#include <pthread.h>
#include <stdbool.h>

#include "fallow/fallow.h"
#include "support/sim.h"

#define SCRIPT_NAME  24
#define SCRIPT_WORDS 48
#define SCRIPT_MOST  640 /* names of one kind in a test */

/* Blocks under one name. Their addresses stay readable after the free. */
struct script_blocks {
    char name[SCRIPT_NAME];
    fallow_pool *pool;
    void **ptrs;
    size_t *sizes;
    CUstream *streams;
    size_t count, capacity;
    bool is_freed;
};

/* A stream, pool, capture, graph, context or thread of a test. */
struct script_thing {
    char name[SCRIPT_NAME];
    char kind;
    void *handle;
    uint64_t number; /* of a thread: the index in the runner's table */
};

/* One statement, after the substitution of variables. */
struct script_call {
    char text[512];
    char *words[SCRIPT_WORDS]; /* without the expected status */
    int count;
    const char *rest; /* all behind the verb, as written */
    const char *body; /* between braces; NULL: none */
    size_t body_length;
    fallow_pool *pool; /* the pool named behind '@', or the first */
};

struct script_verb {
    const char *name;
    fallow_status (*run)(struct script_call *call);
    int least_words; /* behind the verb */
};

struct script {
    struct flw_sim sim;
    CUcontext context; /* of the world */
    bool has_world, is_gone, is_violated;
    struct script_thing things[SCRIPT_MOST];
    size_t thing_count;
    struct script_blocks blocks[SCRIPT_MOST];
    size_t block_count;
    fallow_block info;               /* of the last `info` */
    size_t released;                 /* by the last `trim` */
    char log[1024];                  /* the last line */
    unsigned log_count, alarm_count; /* lines; those that are not information */
    unsigned failure_count;          /* pools that could not be created */
    const char *oom_body;            /* runs when the pool calls on_oom; NULL: no callback */
    size_t oom_length;
    uint64_t oom_calls;
};

#define SCRIPT_VARIABLES 12
#define SCRIPT_MARKS     32

/* The running test with its variables and marks. */
struct script_runner {
    const char *file;
    int line;
    pthread_t main_thread;
    const char *begin, *end; /* text of the test */
    struct {
        char name[SCRIPT_NAME], value[256];
    } variables[SCRIPT_VARIABLES];
    int variable_count;
    struct {
        char name[64];
        uint64_t value;
    } marks[SCRIPT_MARKS];
    int mark_count;
    char statement[512];
};

extern struct script script;
extern struct script_runner script_runner;
extern const struct script_verb script_verbs[];

/* End the test with a message that names the statement. */
__attribute__((format(printf, 1, 2), noreturn)) void script_fail(const char *format, ...);
void script_cuda(CUresult result, const char *what);
uint64_t script_value(const char *expression);
/* Find a thing, or with `may_add` make a place for it. NULL if there is none. */
struct script_thing *script_find(const char *name, char kind, bool may_add);
struct script_blocks *script_blocks_of(const char *name, bool may_add);
CUstream script_stream(const char *name);
fallow_stats script_stats(fallow_pool *pool);
/* Run statements in the calling thread. */
void script_run_text(const char *text, size_t length);
void script_mark(void);
fallow_pool *script_first_pool(void);
/* Return the value of the word KEY=VALUE, or NULL; the same as a number, or `usual`. */
const char *script_option(const struct script_call *call, const char *key);
uint64_t script_number_of(const struct script_call *call, const char *key, uint64_t usual);
bool script_has(const struct script_call *call, const char *word);
/* Fail if a word from the `first` on is not in `known`: names between spaces, "KEY=" for KEY=VALUE. */
void script_know(const struct script_call *call, int first, const char *known);
/* Fail if memory or another resource of the world remains, or a rule was broken. */
void script_check_world(void);
void script_keep_block(struct script_call *call, const char *name, void *ptr, size_t bytes,
                       CUstream stream);
/* Run `one` for the blocks of the first word; stop at the first status other than OK. */
fallow_status script_each_block(struct script_call *call,
                                fallow_status (*one)(struct script_call *call,
                                                     struct script_blocks *blocks, size_t i,
                                                     void *ptr));

/* Verbs of blocks.c. */
fallow_status script_run_alloc(struct script_call *call);
fallow_status script_run_fill(struct script_call *call);
fallow_status script_run_free(struct script_call *call);
fallow_status script_run_use(struct script_call *call);
fallow_status script_run_once(struct script_call *call);
fallow_status script_run_holds(struct script_call *call);
fallow_status script_run_differ(struct script_call *call);
fallow_status script_run_alone(struct script_call *call);

#endif
