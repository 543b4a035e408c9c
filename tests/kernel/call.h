/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call of one kernel module, driven by a table of its parameters: inputs on the host that are
 * uploaded, outputs that are found by name, the proof over dirty memory, captures, and the refusal
 * of every field.
 * Does not: compute expected values; each test has an oracle for that. */
#ifndef FLW_TESTS_KERNEL_CALL_H
#define FLW_TESTS_KERNEL_CALL_H

#include <string.h>

#include "kernel/bed.h"

/* ---- the table of a module's parameters */

enum flw_field_kind {
    FLW_FIELD_COUNT, /* an integer from `least` to `most` */
    FLW_FIELD_DTYPE, /* one of the bits of `most` */
    FLW_FIELD_FLOAT,
    FLW_FIELD_OTHER, /* set by cases alone */
    FLW_FIELD_INPUT,
    FLW_FIELD_OUTPUT
};

struct flw_field {
    const char *name;
    size_t offset, bytes;
    enum flw_field_kind kind;
    int64_t least, most;
    const char *alias;          /* of an output: " name name " of inputs that it may equal */
    bool is_optional, is_bytes; /* may be NULL; may have any address */
};

/* Rows of the table; `flw_params` is the module's struct. A field that has a default for 0 has 0 as
 * `least`. Bounds that depend on other fields are those of the call given to flw_call_refuse.
 * FLW_OUT_DTYPE: `dtype`, 0 for the same, or E4M3. MAYBE: NULL is allowed. BYTES: any address is. OVER:
 * an output that may equal the inputs listed in `over`. */
#define FLW_FIELD(field, ...)                                  \
    {                                                          \
        .name = #field, .offset = offsetof(flw_params, field), \
        .bytes = sizeof(((flw_params *)0)->field), __VA_ARGS__ \
    }
#define FLW_COUNT(field, from, to) \
    FLW_FIELD(field, .kind = FLW_FIELD_COUNT, .least = (from), .most = (to))
#define FLW_STRIDE(field, width)    FLW_COUNT(field, width, (int64_t)1 << 40)
#define FLW_ENUM(field, last)       FLW_COUNT(field, INT64_MIN, last)
#define FLW_FLAG(field)             FLW_COUNT(field, 0, 1)
#define FLW_OUT_DTYPE(field, dtype) FLW_DTYPE(field, 1 << 0 | 1 << (dtype) | 1 << FALLOW_E4M3)
#define FLW_DTYPE(field, allowed)   FLW_FIELD(field, .kind = FLW_FIELD_DTYPE, .most = (allowed))
#define FLW_FLOAT(field)            FLW_FIELD(field, .kind = FLW_FIELD_FLOAT)
#define FLW_OTHER(field)            FLW_FIELD(field, .kind = FLW_FIELD_OTHER)
#define FLW_IN(field)               FLW_FIELD(field, .kind = FLW_FIELD_INPUT)
#define FLW_IN_BYTES(field)         FLW_FIELD(field, .kind = FLW_FIELD_INPUT, .is_bytes = true)
#define FLW_OUT(field)              FLW_FIELD(field, .kind = FLW_FIELD_OUTPUT)
#define FLW_OUT_BYTES(field)        FLW_FIELD(field, .kind = FLW_FIELD_OUTPUT, .is_bytes = true)
#define FLW_OUT_OVER(field, over)   FLW_FIELD(field, .kind = FLW_FIELD_OUTPUT, .alias = (over))
#define FLW_IN_MAYBE(field)         FLW_FIELD(field, .kind = FLW_FIELD_INPUT, .is_optional = true)
#define FLW_OUT_MAYBE(field)        FLW_FIELD(field, .kind = FLW_FIELD_OUTPUT, .is_optional = true)
#define FLW_OUT_MAYBE_OVER(field, over) \
    FLW_FIELD(field, .kind = FLW_FIELD_OUTPUT, .is_optional = true, .alias = (over))

struct flw_module {
    const char *name;
    void (*init)(void *params);
    fallow_status (*query)(const void *params, fallow_workspace_need *need);
    fallow_status (*call)(fallow_kernels *kernels, const void *params, fallow_stream stream);
    size_t params_bytes;
    const struct flw_field *fields;
    size_t field_count;
};

/* Define `id`, which returns the module of `function`, with the rows of its table. */
#define FLW_MODULE(id, function, type, ...)                                                      \
    static void id##_init(void *params)                                                          \
    {                                                                                            \
        type##_params_init(params);                                                              \
    }                                                                                            \
    static fallow_status id##_query(const void *params, fallow_workspace_need *need)             \
    {                                                                                            \
        return function##_query(params, need);                                                   \
    }                                                                                            \
    static fallow_status id##_call(fallow_kernels *kernels, const void *params,                  \
                                   fallow_stream stream)                                         \
    {                                                                                            \
        return function(kernels, params, stream);                                                \
    }                                                                                            \
    static const struct flw_module *id(void)                                                     \
    {                                                                                            \
        typedef type##_params flw_params;                                                        \
        static const struct flw_field fields[] = {__VA_ARGS__};                                  \
        static const struct flw_module module = {.name = #function,                              \
                                                 .init = id##_init,                              \
                                                 .query = id##_query,                            \
                                                 .call = id##_call,                              \
                                                 .params_bytes = sizeof(flw_params),             \
                                                 .fields = fields,                               \
                                                 .field_count = sizeof fields / sizeof *fields}; \
        return &module;                                                                          \
    }

#define FLW_PARAMS_BYTES 512

struct flw_params_copy {
    _Alignas(16) unsigned char bytes[FLW_PARAMS_BYTES];
};

/* Find a field by name: NULL if the table has none; or stop the program. */
const struct flw_field *flw_field_find(const struct flw_module *module, const char *name);
const struct flw_field *flw_field_of(const struct flw_module *module, const char *name);
/* Access a pointer in the params. */
void flw_field_set(void *params, const struct flw_field *field, const void *pointer);
char *flw_field_get(const void *params, const struct flw_field *field);

/* ---- one call */

#define FLW_CALL_INPUTS  12
#define FLW_CALL_OUTPUTS 12
#define FLW_INTEGERS     (1 << FALLOW_I32 | 1 << FALLOW_I64)
#define FLW_FLOATS       (1 << FALLOW_F16 | 1 << FALLOW_BF16 | 1 << FALLOW_F32)

struct flw_call {
    struct flw_bed *bed;
    const struct flw_module *module;
    void *params; /* pointers of inputs are set by flw_call_give */
    struct flw_call_input {
        const struct flw_field *field;
        void *host;                  /* of `each` bytes, or int64 or float if there is a dtype */
        const fallow_dtype *dtype;   /* or NULL */
        size_t count, each, written; /* the call may read the first `written` elements */
        void *device;
        size_t room;
    } inputs[FLW_CALL_INPUTS];
    size_t input_count;
    /* Optional: write inputs in the outputs' memory, before each launch that is not captured. */
    void (*before)(struct flw_call *call, void *const outputs[]);
    size_t limit[FLW_CALL_OUTPUTS]; /* most bytes of each output that the call writes */
    int32_t want_flags;             /* expected after each prove, run and replay */
    /* After a prove, run or replay: the answer of the query. */
    struct {
        size_t output_count;
        const char *names[FLW_CALL_OUTPUTS];
        size_t buffer_bytes[FLW_CALL_OUTPUTS];   /* as queried */
        size_t declared_bytes[FLW_CALL_OUTPUTS]; /* written by the call, and readable afterwards */
    } step;
    void *out[FLW_CALL_OUTPUTS]; /* on the host, in the order of the query */
    struct flw_bed_graph *graph;
    void *outputs[FLW_CALL_OUTPUTS]; /* on the device: of the last run or capture */
};

/* Begin a call with the default parameters in `params`. */
void flw_call_init(struct flw_bed *bed, struct flw_call *call, const struct flw_module *module,
                   void *params);
/* Return zeroed host memory for the input of that name. It lives until the test ends. */
void *flw_call_input(struct flw_call *call, const char *name, size_t count, size_t each);
/* The same for elements of a dtype that is read when they are uploaded: int64, or float if the
 * dtype is one of floating point. */
void *flw_call_typed(struct flw_call *call, const char *name, size_t count,
                     const fallow_dtype *dtype);
/* The same with random integers from 0 to below - 1; 0: with any of 32 bits. */
int32_t *flw_call_draw(struct flw_call *call, const char *name, size_t count, int64_t below);
int64_t *flw_call_draw_typed(struct flw_call *call, const char *name, size_t count,
                             const fallow_dtype *dtype, int64_t below);
/* Use host memory of the caller's. */
void flw_call_bind(struct flw_call *call, const char *name, void *host, size_t count, size_t each);
/* Leave all elements but the first `count` unwritten. */
void flw_call_written(struct flw_call *call, const char *name, int64_t count);
/* Pass NULL for this input. */
void flw_call_omit(struct flw_call *call, const char *name);

/* Return the answer of the query, which must be OK. */
fallow_workspace_need flw_call_need(struct flw_call *call);
/* Query, upload, and provide flags, all 0, if the module has them. */
void flw_call_begin(struct flw_call *call);
/* Upload the inputs. */
void flw_call_give(struct flw_call *call);
/* Prove that dirty memory has no effect: run the call over outputs of zeros, of 0xff, of 0x7f, and
 * over the contents that two other proved calls of the program left, of which one was the largest.
 * All declared bytes are written, with the same contents each time, which out[] receives; and those of
 * required outputs without the optional ones. */
void flw_call_prove(struct flw_call *call);
/* Launch over outputs filled with 0x5a; out[] receives all bytes, and none behind them is written. */
void flw_call_run(struct flw_call *call);
/* Launch into memory of the caller's choice: outputs by the order of the query, NULL for none. */
void flw_call_launch(struct flw_call *call, void *const outputs[]);
/* Record the call in a graph; then launch it with the inputs that the host has by now. */
void flw_call_capture(struct flw_call *call);
void flw_call_replay(struct flw_call *call);

/* Return an output by name, after a prove, run or replay. */
void *flw_call_out(struct flw_call *call, const char *name);
/* Compare all declared bytes of an output with expected words of 4 bytes. */
void flw_call_expect(struct flw_call *call, const char *name, const void *want);

/* Expect the refusal of every field in the table; then of the cases: "field=value field=value: words
 * in the message". The call is good, and all its buffers have bytes. A value is a number, a dtype,
 * NULL, or @field+bytes, another field's pointer. */
void flw_call_refuse(struct flw_call *call, const char *const *cases, size_t count);
#define FLW_CALL_REFUSE(call, ...)                            \
    flw_call_refuse(call, (const char *const[]){__VA_ARGS__}, \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

#endif
