/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of vmm_probe's questions: timed calls, idle or behind running work, and
 * their rows. */
#ifndef FLW_TESTS_GPU_VMM_PROBE_H
#define FLW_TESTS_GPU_VMM_PROBE_H

#include "bed.h"

#define MOST_SAMPLES 1024
#define BEHIND_MS    200

/* One call, made several times: a row of JSON. */
struct row {
    const char *call;
    size_t bytes;        /* of one call */
    unsigned count;      /* handles that one call is about */
    CUresult result;     /* the first that was not a success */
    unsigned call_count; /* that succeeded; of the first MOST_SAMPLES each time is kept */
    double us[MOST_SAMPLES], total_us;
    bool has_waited; /* the concurrent work was done when the call returned */
};

struct probe {
    struct bed bed;
    const char *question;
    bool is_behind; /* calls are made while work of BEHIND_MS runs on `stream` */
    CUstream stream;
    CUevent end;    /* of that work */
    uint64_t begun; /* when the call under way was made */
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
};

/* Before a call: work is running, or none is, as the probe wants; the time is taken. */
void probe_begin(struct probe *probe);
/* Finish the timed call. True if it succeeded. */
bool probe_take(struct probe *probe, struct row *row, CUresult result);
/* TIMED(probe, row, call of the driver): true if it succeeded */
#define TIMED(p, row, invocation) (probe_begin(p), probe_take(p, row, (p)->bed.cu->invocation))
/* A line of JSON, written out at once; nothing where the call was never made. */
void probe_print(struct probe *probe, const struct row *row);
/* An answer that is no time: `text` is members of JSON with a leading comma, or "". */
void probe_say(struct probe *probe, const char *call, size_t bytes, CUresult result,
               const char *text);
/* Nothing runs any more. */
void probe_rest(struct probe *probe);

/* Reserve addresses. False if refused, with a row. */
bool probe_reserve(struct probe *probe, CUdeviceptr *address, size_t bytes);

/* Reserve addresses with `count` handles of `bytes` mapped side by side, accessible. Returns NULL,
 * with a row, if refused. probe_unmap releases it, with a row for each refused release. */
struct stretch {
    CUdeviceptr address;
    size_t bytes; /* of a handle */
    unsigned count, mapped_count;
    CUmemGenericAllocationHandle *handles;
};
struct stretch *probe_map(struct probe *probe, size_t bytes, unsigned count, bool is_accessible);
/* is_mapped: false if the caller has unmapped everything. */
void probe_unmap(struct probe *probe, struct stretch *stretch, bool is_mapped);

void ask_reserve(struct probe *probe);
void ask_creates(struct probe *probe);
void ask_ipc(struct probe *probe);
void ask_life(struct probe *probe);
void ask_unmap(struct probe *probe);
void ask_access(struct probe *probe);
void ask_fill(struct probe *probe);

#endif
