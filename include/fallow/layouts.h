/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Ready layouts: compute the arena layout of a step from a model's dimensions and the sizes of the step,
 * one call per path. The formula of each size is beside its region in src/arena/ready_*.c.
 */
#ifndef FALLOW_LAYOUTS_H
#define FALLOW_LAYOUTS_H

#include "fallow/arena.h"
#include "fallow/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sizes of a step. 0 selects the default of every field except struct_size. A path returns
 *  INVALID_ARGUMENT if it needs a size that has no default and is 0. */
typedef struct fallow_step {
    size_t struct_size; /**< set by fallow_step_init */
    uint64_t batch;     /**< requests; for a captured graph the most requests. 0 = 1 */
    uint64_t tokens;    /**< tokens of the step; 0 = batch */
    uint64_t context;   /**< longest context in tokens; 0 = 8,192 */
    uint64_t page_size; /**< tokens of a cache page; 0 = 64 */
    uint64_t chunk;     /**< attention chunk of local attention (FA3), 0 = none; tokens of a context
                                  chunk (MLA), 0 = 65,536 */
    uint64_t draft_tokens; /**< draft tokens of speculative decoding; 0 = none */
    uint64_t splits;       /**< splits of a decode (FA3); 0 = 32 */
    uint64_t sm_count;     /**< multiprocessors; 0 = 132 */
    uint64_t tensor_ranks; /**< number of ranks that share the heads; 0 = 1 */
    uint64_t expert_ranks; /**< number of ranks that share the experts; 0 = 1 */
    uint64_t block_rows;   /**< rows of a block of a MoE product; 0 = 128 */
    uint64_t value_bytes;  /**< bytes of an activation; 0 = 2 */
    uint8_t pads_values;   /**< 1: MLA pads values to the width of keys */
    uint8_t quantises;     /**< 1: DeepGEMM has activations in fp8 with a scale per 128 values */
    /** 1: the activation of an expert overwrites the gate, at the stride of gate and up, and has no region
     *  of its own. */
    uint8_t activates_in_place;
    uint8_t
        overlaps; /**< 1: MLA has a second region of gathered rows, see fallow_layout_mla_prefill */
    uint8_t reserved_0[4];
} fallow_step;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_step_init_sized(fallow_step *step, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_step_init(fallow_step *step)
{
    fallow_step_init_sized(step, sizeof *step);
}

/** Create the layout of a path. The regions are in the order that `fallow layout` prints for the same step, without empty
 *  regions. Errors: INVALID_ARGUMENT (the model lacks the feature that the path serves, a rank count does not divide
 *  the model, a number of the step exceeds 2^31 or of the model 2^20, sizes exceed 2^62), and those of
 *  fallow_layout_create. */
typedef fallow_status (*fallow_layout_function)(const fallow_model *model, const fallow_step *step,
                                                fallow_layout **out_layout);

/** SGLang's FlashAttention backend: the persistent state of a captured decode graph (lengths, offsets, page
 *  table, scheduler metadata; those of local attention and of a draft's verification if requested), and the
 *  accumulators of split decoding as scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_fa3_graph(const fallow_model *model,
                                                                  const fallow_step *step,
                                                                  fallow_layout **out_layout);
/** FlashMLA's decode: block table, tile metadata, splits, accumulators. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_flashmla_decode(const fallow_model *model,
                                                                        const fallow_step *step,
                                                                        fallow_layout **out_layout);
/** vLLM's MLA prefill of `tokens` new tokens, with contexts read in chunks: gathered rows, keys, and the two pairs of
 *  output and LSE that are merged in place. Phase 0 is the attention of the new tokens. Phases 1 to 5 are those of a
 *  chunk, and each chunk uses the same regions again. With `overlaps`, chunks are gathered into "gathered 0" and
 *  "gathered 1" in turn, instead of "gathered": another stream may gather chunk i while chunk i - 1 or the new tokens
 *  are being processed, once chunk i - 2 has been concatenated. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_mla_prefill(const fallow_model *model,
                                                                    const fallow_step *step,
                                                                    fallow_layout **out_layout);
/** A layer of experts run by Triton kernels: routing, alignment, two products. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_moe_triton(const fallow_model *model,
                                                                   const fallow_step *step,
                                                                   fallow_layout **out_layout);
/** The same with DeepGEMM's contiguous rows. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_moe_contiguous(const fallow_model *model,
                                                                       const fallow_step *step,
                                                                       fallow_layout **out_layout);
/** The same with DeepGEMM's masked rows: a fixed number of rows per expert. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_moe_masked(const fallow_model *model,
                                                                   const fallow_step *step,
                                                                   fallow_layout **out_layout);

/** A path by name. */
typedef struct fallow_path {
    const char *name;            /**< "fa3-graph" */
    const char *summary;         /**< one line */
    fallow_layout_function make; /**< creates the layout */
    const char *const *phases;   /**< names of the phases, terminated by NULL */
} fallow_path;

/** Return path number `index`; NULL after the last. Static storage. */
FALLOW_API const fallow_path *fallow_path_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif
