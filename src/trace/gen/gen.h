/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of the generators of traces: their list and options, and the trace under construction: random
 * numbers, blocks, streams, time, the header.
 * Does not: read command lines or write files.
 *
 * A generator computes in integers only, so the same options give the same trace on every machine; the header has all
 * options as a command line.
 */
#ifndef FLW_TRACE_GEN_GEN_H
#define FLW_TRACE_GEN_GEN_H

#include "trace/io/input.h"
#include "trace/trace/build.h"
#include "trace/trace/trace.h"

#define FLW_GEN_OPTIONS_MAX  24
#define FLW_GEN_EVENTS_MAX   UINT64_C(50000000)
#define FLW_GEN_BLOCK_MAX    (UINT64_C(1) << 44) /* bytes */
#define FLW_GEN_NO_BLOCK     UINT32_MAX
#define FLW_GEN_BYTES_PER_NS 2048 /* speed of a kernel that writes a block */
#define FLW_GEN_NO_MEMORY    "no memory for the trace; generate fewer steps"
#define FLW_GEN_LETTERS      128
#define FLW_GEN_INDICES      128

enum flw_gen_option_kind {
    FLW_GEN_COUNT,
    FLW_GEN_BYTES,
    FLW_GEN_CHOICE, /* the index of one of `words` */
    FLW_GEN_FILE    /* a path, of one option at most */
};

struct flw_gen_option {
    const char *name; /* as on the command line, without "--" */
    const char *help;
    enum flw_gen_option_kind kind;
    uint64_t initial, low, high;
    const char *const *words; /* NULL-terminated */
    char letter;              /* of the number in plans */
};

struct flw_gen_values {
    uint64_t numbers[FLW_GEN_LETTERS]; /* by letter */
    const char *path;                  /* of the FLW_GEN_FILE; borrowed; NULL: none */
};

struct flw_gen;

/* A plan (plan.h), or a function that plans call by name. */
struct flw_plan {
    const char *name, *text;
    void (*run)(struct flw_gen *gen); /* NULL: run the text */
};

struct flw_gen_kind {
    const char *name;
    const char *summary;
    const char *example;                  /* arguments after the name */
    unsigned version;                     /* changes if the same options give another trace */
    const struct flw_gen_option *options; /* the last option is the seed */
    size_t option_count;
    /* Help for each word of the first option, if it is a choice; else NULL. */
    const char *const *word_help;
    const struct flw_plan *plans;
    void (*run)(struct flw_gen *gen);
};

/* Return the generator of that index, and its name; or NULL. */
const struct flw_gen_kind *flw_gen_get(size_t index);

const char *flw_gen_name(size_t index);

struct flw_gen_values flw_gen_initial_values(const struct flw_gen_kind *kind);

/* Generate a trace. Values must be within their options' bounds. Returns false if that fails: nothing is held; see the
 * message (FLW_TRACE_MESSAGE_BYTES). */
bool flw_gen_generate(const struct flw_gen_kind *kind, const struct flw_gen_values *values,
                      struct flw_trace **out_trace, char *message);

/* ---- for generators ---------------------------------------------------------------------------
 *
 * After a failure, all functions below do nothing. */

struct flw_gen {
    const struct flw_gen_kind *kind;
    const struct flw_gen_values *values;
    struct flw_build build;
    uint64_t random_state;
    uint64_t time_ns;
    uint64_t live_bytes;
    struct flw_trace_context context; /* thread and pool of the next events */
    bool has_failed;
    char *message;
    char note[128]; /* header line of the generator; "": none */
    /* Of plans (plan.h). */
    uint64_t numbers[FLW_GEN_INDICES][FLW_GEN_LETTERS]; /* options are in [0] */
    struct flw_addressmap held;                         /* a name's key -> the block */
    /* Launch a kernel of `stream` that writes or reads bytes after the work of stream `writer`. NULL: writing takes
     * time, reading does not. */
    void (*launch)(struct flw_gen *gen, uint64_t stream, uint64_t size_bytes, uint64_t writer);
    void *owner; /* context of `launch` */
};

/* Fail with a message. Always returns false. */
bool flw_gen_fail(struct flw_gen *gen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Draw a number from `low` to `high`, both included. */
uint64_t flw_gen_between(struct flw_gen *gen, uint64_t low, uint64_t high);

/* Add `count` streams with the handles 0 .. count-1, which equal their numbers. */
void flw_gen_add_streams(struct flw_gen *gen, uint64_t count);

extern const struct flw_gen_kind flw_gen_adversarial_kind, flw_gen_random_kind, flw_gen_train_kind,
    flw_gen_serve_kind, flw_gen_streams_kind;

#endif
