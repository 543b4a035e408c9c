/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the parts of the reader of PyTorch's snapshots share: one import under way, and how a key
 * is asked for. What a value should have been is in the input's message.
 */
#ifndef FLW_TRACE_FORMATS_PYTORCH_IMPORT_H
#define FLW_TRACE_FORMATS_PYTORCH_IMPORT_H

#include "trace/formats/pickle.h"
#include "trace/formats/pytorch_words.h"
#include "trace/trace/history.h"
#include "trace/trace/phases.h"

#define FLW_PYTORCH_DEVICES        1024
#define FLW_PYTORCH_SETTINGS_BYTES 512

/* What an event says beside its frames, as the pickle has it and as the trace does: a text plus 1, 0: none. */
struct flw_pytorch_remark {
    struct flw_pickle_value value;
    uint32_t text;
};

struct flw_pytorch_import {
    struct flw_input *input;
    struct flw_harvest *kept;        /* NULL once all of it was read */
    struct flw_harvest_dict at_hand; /* asked last */
    struct flw_pickle_value root;
    struct flw_history history;
    struct flw_build build;
    struct flw_pickle_value segments; /* lists; absent where the snapshot has none */
    struct flw_pickle_value traces;
    struct flw_pickle_value annotations;
    struct flw_phases phases;
    uint64_t unplaced_count; /* annotations without a time among events that have none */
    uint64_t rest_bytes;     /* of the file, behind the pickle */
    char settings[FLW_PYTORCH_SETTINGS_BYTES]; /* a line of the notes; "": unknown */
    bool has_overflowed;                       /* the ring of events was overwritten */
    bool has_pools;                            /* events name their pools */
    bool is_empty;                             /* no device has an event or a segment */
    int device;
    bool is_recorded[FLW_PYTORCH_DEVICES]; /* which devices have an event or a segment */
    uint64_t steps_left;                   /* of the walk */
    uint64_t first_time_us, last_time_us;
    bool has_times;
    struct flw_pytorch_remark compile_context, user_metadata; /* of the event at hand */
};

/* What the dict has under the word. An event is asked for a dozen words, one after the other. */
static inline struct flw_pickle_value flw_pytorch_get(struct flw_pytorch_import *import,
                                                      struct flw_pickle_value dict, enum word word)
{
    const struct flw_pickle_value *last = &import->at_hand.dict;
    if (last->bits != dict.bits || last->kind != dict.kind) {
        flw_harvest_open(import->kept, dict, &import->at_hand);
    }
    return flw_harvest_value(&import->at_hand, (uint32_t)word);
}

/* ---- pytorch_heap.c; false, but of get_pool: the input's message says what is wrong */

bool flw_pytorch_fail_at(struct flw_pytorch_import *import, struct flw_pickle_value container,
                         const char *what);
bool flw_pytorch_fail_memory(struct flw_pytorch_import *import);
/* One more item of the walk. */
bool flw_pytorch_count_step(struct flw_pytorch_import *import);
/* Nothing in a list goes unnoticed: all of it is what it should be. */
bool flw_pytorch_check_items(struct flw_pytorch_import *import, struct flw_pickle_value list,
                             const char *what);
/* A number that must be there and not negative; the same where it may be missing. */
bool flw_pytorch_get_number(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            enum word word, uint64_t *out);
bool flw_pytorch_get_number_or(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                               enum word word, uint64_t otherwise, uint64_t *out);
bool flw_pytorch_get_stream(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            uint16_t *out);
bool flw_pytorch_get_device(struct flw_pytorch_import *import, struct flw_pickle_value segment,
                            uint64_t *out);
/* The number of its pair; 0 where it is missing. Renumbered when all are known. */
uint32_t flw_pytorch_get_pool(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                              enum word word);

/* Where an event or a block says to have been made; 0 where it does not. */
uint32_t flw_pytorch_get_stack(struct flw_pytorch_import *import, struct flw_pickle_value dict);

/* The device's segments and their blocks, as they were at the end. */
bool flw_pytorch_read_segments(struct flw_pytorch_import *import);

#endif
