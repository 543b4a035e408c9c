/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the presets of model dimensions, from the models' published configurations. */
#include "fallow/model.h"

#include <string.h>

static const fallow_model presets[] = {
    {.name = "llama-3-8b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .intermediate = 14336,
     .vocab = 128256,
     .weight_bytes = 2},
    {.name = "llama-3-70b",
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .intermediate = 28672,
     .vocab = 128256,
     .weight_bytes = 2},
    {.name = "qwen3-30b-a3b",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 151936,
     .experts = 128,
     .top_k = 8,
     .expert_intermediate = 768,
     .weight_bytes = 2},
    {.name = "mixtral-8x7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 32000,
     .experts = 8,
     .top_k = 2,
     .expert_intermediate = 14336,
     .weight_bytes = 2},
    {.name = "deepseek-v3",
     .layers = 61,
     .hidden = 7168,
     .heads = 128,
     .kv_heads = 1,
     .head_dim = 128,
     .intermediate = 18432,
     .vocab = 129280,
     .experts = 256,
     .top_k = 8,
     .expert_intermediate = 2048,
     .dense_layers = 3,
     .shared_experts = 1,
     .query_rank = 1536,
     .kv_rank = 512,
     .rope_dim = 64,
     .weight_bytes = 1},
};

#define PRESET_COUNT (sizeof presets / sizeof *presets)

const fallow_model *fallow_model_preset(size_t index)
{
    return index < PRESET_COUNT ? &presets[index] : NULL;
}

const fallow_model *fallow_model_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < PRESET_COUNT; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}
