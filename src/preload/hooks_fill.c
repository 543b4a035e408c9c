/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of memsets and kernel launches: they pass the call through, and report to the
 * audit if one is on; a fill on trial gets poison. The audit's part in the life of the process.
 * Does not: judge fills (audit/audit.h). */
#include <string.h>

#include "preload/audit/audit.h"
#include "preload/hooks.h"
#include "preload/inside.h"
#include "preload/life.h"
#include "preload/log.h"
#include "preload/real.h"
#include "preload/runplace.h"
#include "preload/settings.h"

#define CALLER() ((uintptr_t)__builtin_return_address(0))

/* ---- the part */

static void complain(const char *prefix, int error)
{
    flw_log_line("audit: cannot keep findings at '%.300s': %s; the program runs without an audit",
                 prefix, strerror(error));
    flw_runplace_say(FLW_RUNPAGE_UNKEPT);
}

static void start(void)
{
    struct flw_audit_config config = {.prefix = flw_settings.audit_prefix,
                                      .trial_id = flw_settings.trial_id,
                                      .poison = (unsigned char)flw_settings.trial_byte,
                                      .complain = complain};
    if (flw_settings.audit_prefix[0] != '\0') {
        flw_audit_ask(&config);
    }
}

/* The file is the parent's; a child that may use the driver requests its own. */
static void child(void)
{
    bool is_fresh = flw_audit_stop();
    if (is_fresh || flw_life_state() == FLW_LIFE_FRESH) {
        start();
    }
}

const struct flw_part flw_part_fill = {.start = start, .child = child};

/* ---- shared by the wrappers */

struct watch {
    struct flw_audit_judgement judgement;
    unsigned value; /* the value to fill with: the program's, or poison in every byte */
    bool is_on;
};

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return flw_real_ready() &&
           flw_real.driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

struct rows {
    CUdeviceptr pointer;
    size_t pitch, width, height; /* in bytes, except height */
    unsigned value;
    CUstream stream;
};

static void begin_fill(struct watch *watch, const char *call, uintptr_t caller,
                       const struct rows *rows)
{
    watch->is_on = flw_audit_is_on();
    watch->value = rows->value;
    if (!watch->is_on) {
        return;
    }
    bool is_empty = rows->width == 0 || rows->height == 0;
    struct flw_audit_fill fill = {.address = rows->pointer,
                                  .bytes = is_empty ? 0 : rows->width * rows->height,
                                  .span =
                                      is_empty ? 0 : rows->pitch * (rows->height - 1) + rows->width,
                                  .is_zero = rows->value == 0,
                                  .is_captured = is_captured(flw_hook_stream(rows->stream, call)),
                                  .call = call,
                                  .caller = caller};
    flw_audit_judge_fill(&fill, &watch->judgement);
    if (watch->judgement.is_on_trial) {
        watch->value = flw_audit_poison() * 0x01010101u;
    }
}

static CUresult end_fill(const struct watch *watch, CUresult result)
{
    if (watch->is_on && result == CUDA_SUCCESS) {
        flw_audit_count(&watch->judgement, watch->judgement.is_on_trial);
    }
    return result;
}

/* ---- memsets: the range that each fills, by base name, in terms of the parameters in the list */

#define ROW(on)  ((struct rows){pointer, 0, count * sizeof value, 1, value, on})
#define ROWS(on) ((struct rows){pointer, pitch, width * sizeof value, height, value, on})

#define FILL_cuMemsetD8         ROW(NULL)
#define FILL_cuMemsetD8Async    ROW(stream)
#define FILL_cuMemsetD16        ROW(NULL)
#define FILL_cuMemsetD16Async   ROW(stream)
#define FILL_cuMemsetD32        ROW(NULL)
#define FILL_cuMemsetD32Async   ROW(stream)
#define FILL_cuMemsetD2D8       ROWS(NULL)
#define FILL_cuMemsetD2D8Async  ROWS(stream)
#define FILL_cuMemsetD2D16      ROWS(NULL)
#define FILL_cuMemsetD2D16Async ROWS(stream)
#define FILL_cuMemsetD2D32      ROWS(NULL)
#define FILL_cuMemsetD2D32Async ROWS(stream)

#define WRAP(symbol, base, since, parameters, arguments)    \
    CUresult flw_hook_##symbol parameters                   \
    {                                                       \
        struct watch watch;                                 \
        const struct rows rows = FILL_##base;               \
        begin_fill(&watch, #symbol, CALLER(), &rows);       \
        value = watch.value; /* truncated to the type */    \
        return end_fill(&watch, flw_real.symbol arguments); \
    }
FLW_HOOKS_FILL(WRAP)
#undef WRAP

/* ---- launches: their arguments */

struct arguments {
    struct flw_parameter at[FLW_PARAMETERS_MAX];
    uint32_t count;
    bool is_read;
};

/* A launch also accepts a kernel of a library instead of a function. */
static CUresult get_place(CUfunction function, bool is_kernel, size_t index, size_t *offset,
                          size_t *bytes)
{
    if (is_kernel) {
        return flw_real.cuKernelGetParamInfo != NULL
                   ? flw_real.cuKernelGetParamInfo((struct CUkern_st *)function, index, offset,
                                                   bytes)
                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    return flw_real.driver.cuFuncGetParamInfo != NULL
               ? flw_real.driver.cuFuncGetParamInfo(function, index, offset, bytes)
               : CUDA_ERROR_NOT_SUPPORTED;
}

static const char *get_name(CUfunction function)
{
    const char *name = NULL;
    if (flw_real.driver.cuFuncGetName != NULL &&
        flw_real.driver.cuFuncGetName(&name, function) == CUDA_SUCCESS) {
        return name;
    }
    if (flw_real.cuKernelGetName != NULL &&
        flw_real.cuKernelGetName(&name, (struct CUkern_st *)function) == CUDA_SUCCESS) {
        return name;
    }
    return NULL;
}

struct buffer {
    const unsigned char *at;
    size_t bytes;
};

/* extra: names and values, ended by CU_LAUNCH_PARAM_END. False: an unknown name. */
static bool find_buffer(void **extra, struct buffer *out)
{
    enum {
        END = 0,
        POINTER = 1,
        SIZE = 2
    };
    for (; (uintptr_t)extra[0] != END; extra += 2) {
        if ((uintptr_t)extra[0] == POINTER) {
            out->at = extra[1];
        } else if ((uintptr_t)extra[0] == SIZE) {
            memcpy(&out->bytes, extra[1], sizeof out->bytes);
        } else {
            return false;
        }
    }
    return true;
}

/* Add one parameter; false if the driver does not report the layout. */
static bool add_argument(struct arguments *arguments, void **parameters,
                         const struct buffer *buffer, size_t offset, size_t bytes)
{
    uint32_t index = arguments->count;
    const unsigned char *at = NULL;
    if (index == FLW_PARAMETERS_MAX) {
        return false;
    }
    if (parameters != NULL) {
        at = parameters[index];
    } else if (buffer->at != NULL && bytes <= buffer->bytes && offset <= buffer->bytes - bytes) {
        at = buffer->at + offset;
    }
    arguments->at[arguments->count++] = (struct flw_parameter){at, bytes};
    return at != NULL;
}

/* A driver before 12.4 does not describe parameters: then a buffer is read word by word, and
 * pointers to parameters of unknown size are not read. */
static void read_arguments(struct arguments *arguments, CUfunction function, void **parameters,
                           void **extra)
{
    struct buffer buffer = {NULL, 0};
    size_t offset = 0, bytes = 0;
    arguments->count = 0;
    arguments->is_read = parameters != NULL || extra == NULL || find_buffer(extra, &buffer);
    if (!arguments->is_read || !flw_real_ready()) {
        arguments->is_read = false;
        return;
    }
    CUresult result = get_place(function, false, 0, &offset, &bytes);
    bool is_kernel =
        result != CUDA_SUCCESS && get_place(function, true, 0, &offset, &bytes) == CUDA_SUCCESS;
    result = is_kernel ? CUDA_SUCCESS : result;
    while (result == CUDA_SUCCESS && arguments->is_read) {
        arguments->is_read = add_argument(arguments, parameters, &buffer, offset, bytes);
        result = get_place(function, is_kernel, arguments->count, &offset, &bytes);
    }
    if (result != CUDA_ERROR_INVALID_VALUE) { /* not the end of the list */
        bool is_flat = parameters == NULL && arguments->count == 0;
        arguments->is_read = is_flat && (extra == NULL || buffer.at != NULL);
        if (is_flat && buffer.at != NULL) {
            arguments->at[arguments->count++] = (struct flw_parameter){buffer.at, buffer.bytes};
        }
    }
}

struct launch {
    CUfunction function;
    void **parameters, **extra;
    CUstream stream;
};

static void begin_launch(struct watch *watch, const char *call, uintptr_t caller,
                         struct launch *launch)
{
    struct arguments arguments;
    watch->is_on = flw_audit_is_on();
    if (!watch->is_on) {
        return;
    }
    launch->stream = flw_hook_stream(launch->stream, call);
    struct flw_audit_launch seen = {.is_captured = is_captured(launch->stream)};
    if (!seen.is_captured) { /* no driver call either, which might load a module during a
                                 capture */
        flw_inside_enter();
        read_arguments(&arguments, launch->function, launch->parameters, launch->extra);
        seen = (struct flw_audit_launch){.name = get_name(launch->function),
                                         .parameters = arguments.at,
                                         .parameter_count = arguments.count,
                                         .is_read = arguments.is_read,
                                         .caller = caller};
        flw_inside_leave();
    }
    flw_audit_judge_launch(&seen, &watch->judgement);
}

/* A kernel's fill on trial runs, and poison is written after it on the stream, so that everything
 * else about the launch stays unchanged. */
static CUresult end_launch(const struct watch *watch, const struct launch *launch, CUresult result)
{
    if (!watch->is_on || result != CUDA_SUCCESS) {
        return result;
    }
    const struct flw_audit_judgement *judgement = &watch->judgement;
    bool is_poisoned = judgement->is_on_trial && judgement->is_range_read &&
                       flw_real.cuMemsetD8Async(judgement->address, flw_audit_poison(),
                                                judgement->bytes, launch->stream) == CUDA_SUCCESS;
    flw_audit_count(judgement, is_poisoned);
    return result;
}

/* ---- launches: the arguments of each, as above */

/* The first members of CUlaunchConfig in the driver's interface, for builds without cuda.h. */
struct launch_head {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
};

static CUstream stream_of(const struct CUlaunchConfig_st *config)
{
    struct launch_head head = {.stream = NULL};
    if (config != NULL && flw_audit_is_on()) {
        memcpy(&head, config, sizeof head);
    }
    return head.stream;
}

#define LAUNCH(more, on)                 ((struct launch){function, parameters, more, on})
#define LAUNCH_cuLaunchKernel            LAUNCH(extra, stream)
#define LAUNCH_cuLaunchKernelEx          LAUNCH(extra, stream_of(config))
#define LAUNCH_cuLaunchCooperativeKernel LAUNCH(NULL, stream)

#define WRAP(symbol, base, since, parameters, arguments)               \
    CUresult flw_hook_##symbol parameters                              \
    {                                                                  \
        struct watch watch;                                            \
        struct launch launch = LAUNCH_##base;                          \
        begin_launch(&watch, #symbol, CALLER(), &launch);              \
        return end_launch(&watch, &launch, flw_real.symbol arguments); \
    }
FLW_HOOKS_LAUNCH(WRAP)
#undef WRAP
