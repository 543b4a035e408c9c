/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a scenario's environment with failing driver calls: it counts the driver calls of the
 * *pool*, fails the n-th of them and none of the test's own, and judges every status. Does not:
 * know a scenario. */
#ifndef FLW_TESTS_FAULT_BED_H
#define FLW_TESTS_FAULT_BED_H

#include "support/pool_under_test.h"
#include "support/sim.h"

#define FLW_BED_BLOCKS  128
#define FLW_BED_STREAMS 3

struct flw_bed {
    struct flw_sim sim;
    struct flw_put put;
    fallow_pool_config config;
    const char *scenario;
    const char *step;    /* the call under way, for messages */
    CUresult error;      /* the error of the planned failure */
    bool sticky;         /* the failure breaks the context: the only one that may lose a device */
    bool lasts;          /* every later call fails too, until the end of the scenario */
    bool has_content;    /* blocks have contents to verify; the device finishes the work often */
    uint64_t fail_at;    /* this driver call of the pool fails; 0 none */
    uint64_t call_count; /* driver calls of the pool so far */
    bool has_fired;      /* the failure has happened, in an earlier call or in this one */
    bool fired_now;
    bool has_recovered;     /* the driver serves again */
    bool was_tried_in_vain; /* create tried handles, and the driver kept the trial's */
    bool fired_in_destroy;
    bool lost;           /* a call answered DEVICE_LOST */
    const char *lost_in; /* that call */
    unsigned broken;     /* answers that must not be */
    CUstream streams[FLW_BED_STREAMS];
    void *ptrs[FLW_BED_BLOCKS];
    unsigned homes[FLW_BED_BLOCKS];
    size_t sizes[FLW_BED_BLOCKS];
    unsigned char marks[FLW_BED_BLOCKS];
    unsigned count;
    unsigned char last_mark; /* 0 marks none: a block of a capture */
    bool is_capturing;
};

/* True while the device still takes the test's own work. */
static inline bool flw_bed_device_works(const struct flw_bed *bed)
{
    return !bed->sticky || !bed->has_fired;
}

void flw_bed_create(struct flw_bed *bed);
/* Free all blocks, validate, destroy, check the ledger. */
void flw_bed_destroy(struct flw_bed *bed);

/* Each function makes one pool call under the planned failure. The block is used on the stream. */
void flw_bed_alloc(struct flw_bed *bed, size_t size, unsigned stream);
void flw_bed_alloc_flags(struct flw_bed *bed, size_t size, unsigned stream, uint32_t flags);
/* Returns the block allocated first. */
void flw_bed_free(struct flw_bed *bed, unsigned index);
void flw_bed_free_all(struct flw_bed *bed);
void flw_bed_record_use(struct flw_bed *bed, unsigned index, unsigned stream);
void flw_bed_trim(struct flw_bed *bed, size_t keep_bytes);
void flw_bed_retire(struct flw_bed *bed, unsigned stream);
void flw_bed_poll(struct flw_bed *bed);
/* Run one whole capture: allocate two blocks, free one of them inside, launch once. */
void flw_bed_capture(struct flw_bed *bed, unsigned stream);
/* Finish all work of the device. */
void flw_bed_finish_work(struct flw_bed *bed);

#endif
