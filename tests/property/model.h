/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model of a pool: the allowed statuses and held bytes, from a list of blocks and a few
 * sums. A test makes a step on the pool and checks the status with the model. Does not: choose
 * steps (test_pool_model.c) or serve them. */
#ifndef FLW_TESTS_PROPERTY_MODEL_H
#define FLW_TESTS_PROPERTY_MODEL_H

#include "support/client.h"
#include "support/pool_under_test.h"
#include "support/sim.h"

/* Sizes from here on are absurd: refused before any arithmetic. */
#define FLW_MODEL_ABSURD_BYTES ((size_t)1 << 48)

struct flw_model {
    const char *what; /* for messages */
    struct flw_sim sim;
    struct flw_put put, other; /* the other pool of the same device allocates one block,
                                  `foreign` */
    void *foreign;
    struct flw_client client;
    uint64_t seed, step, device_bytes, limit_bytes;
    uint64_t zero_size_count, misuse_count, peak_requested_bytes;
    uint64_t refused_use_count; /* also wrong sizes, which a pool may or may not count as
                                    misuse */
    bool peak_is_exact;         /* no batch was rolled back, no capture has allocated */
    bool ignore_peaks;
    bool only_common;          /* steps that every pool has; nothing that may fail for room */
    unsigned char *transcript; /* every answer of the common steps, in order */
    size_t transcript_count, transcript_capacity;
};

struct flw_model_setup {
    const struct flw_put_ops *ops;
    uint64_t seed, device_bytes, limit_bytes, reserve_most_bytes;
    flw_sim_schedule schedule;
    bool only_common, without_vmm, without_ids, ignore_peaks;
    uint32_t checks;
    fallow_economy economy;
};

/* Make a world with two pools and streams. Returns false, with a reason on stderr. */
bool flw_model_init(struct flw_model *model, const struct flw_model_setup *setup);
/* Free everything, destroy both pools, check the ledger. */
bool flw_model_finish(struct flw_model *model);

/* Ends the program with a line that repeats the seed and step when `good` is false. */
void flw_model_expect(const struct flw_model *model, bool good, const char *sentence,
                      fallow_status status);

/* Write an answer down; both pools' transcripts must be equal. */
void flw_model_note(struct flw_model *model, fallow_status status);

/* Draws are by (seed, step), so that a step which a pool lacks shifts nothing. */
void flw_model_begin_step(struct flw_model *model, uint64_t step);

/* An allocation's answer: OK and a good block that is adopted, or a failure that the size allows.
 */
void flw_model_judge_alloc(struct flw_model *model, const struct flw_client_block *asked,
                           fallow_status status, void *ptr);
/* usable_bytes against the published bound. */
bool flw_model_waste_is_bounded(size_t requested_bytes, size_t usable_bytes);
uint64_t flw_model_requested_bytes(const struct flw_model *model);
/* Statistics, ledger, violations. */
void flw_model_compare(struct flw_model *model);

#endif
