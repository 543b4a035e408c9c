/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of an import that the parts of the reader of PyTorch's snapshots share, and reading keys. If a value
 * is wrong, the input's message has the expected kind.
 */
#ifndef FLW_TRACE_FORMATS_PYTORCH_IMPORT_H
#define FLW_TRACE_FORMATS_PYTORCH_IMPORT_H

#include "trace/formats/pickle.h"
#include "trace/formats/pytorch_words.h"
#include "trace/trace/history.h"
#include "trace/trace/phases.h"

#define FLW_PYTORCH_DEVICES        1024
#define FLW_PYTORCH_SETTINGS_BYTES 512

/* Texts of an event beside its frames, in the pickle and in the trace: text plus 1; 0: none. */
struct flw_pytorch_remark {
    struct flw_pickle_value value;
    uint32_t text;
};

struct flw_pytorch_import {
    struct flw_input *input;
    struct flw_harvest *kept;        /* NULL after everything was read */
    struct flw_harvest_dict at_hand; /* the last dict */
    struct flw_pickle_value root;
    struct flw_history history;
    struct flw_build build;
    struct flw_pickle_value segments; /* lists; absent if the snapshot has none */
    struct flw_pickle_value traces;
    struct flw_pickle_value annotations;
    struct flw_phases phases;
    uint64_t
        unplaced_count; /* annotations that cannot be placed, because events or annotations have no times */
    uint64_t rest_bytes;                       /* after the pickle in the file */
    char settings[FLW_PYTORCH_SETTINGS_BYTES]; /* a line of the notes; "": unknown */
    bool has_overflowed;                       /* the ring of events was overwritten */
    bool has_pools;                            /* events have their pools */
    bool is_empty;                             /* no device has an event or a segment */
    int device;
    bool is_recorded[FLW_PYTORCH_DEVICES]; /* devices with an event or a segment */
    uint64_t steps_left;                   /* of the walk */
    uint64_t first_time_us, last_time_us;
    bool has_times;
    struct flw_pytorch_remark compile_context, user_metadata; /* of the present event */
};

/* Return the dict's value for the word. An event is read with a dozen words in a row. */
static inline struct flw_pickle_value flw_pytorch_get(struct flw_pytorch_import *import,
                                                      struct flw_pickle_value dict, enum word word)
{
    const struct flw_pickle_value *last = &import->at_hand.dict;
    if (last->bits != dict.bits || last->kind != dict.kind) {
        flw_harvest_open(import->kept, dict, &import->at_hand);
    }
    return flw_harvest_value(&import->at_hand, (uint32_t)word);
}

/* ---- pytorch_heap.c; except get_pool and get_stack, each returns false after writing the input's message */

bool flw_pytorch_fail_at(struct flw_pytorch_import *import, struct flw_pickle_value container,
                         const char *what);
bool flw_pytorch_fail_memory(struct flw_pytorch_import *import);
/* Count one more item of the walk. */
bool flw_pytorch_count_step(struct flw_pytorch_import *import);
/* Check that all items of a list are of the expected kind. */
bool flw_pytorch_check_items(struct flw_pytorch_import *import, struct flw_pickle_value list,
                             const char *what);
/* Get a number that must be there and not negative, or one that may be missing. */
bool flw_pytorch_get_number(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            enum word word, uint64_t *out);
bool flw_pytorch_get_number_or(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                               enum word word, uint64_t otherwise, uint64_t *out);
bool flw_pytorch_get_stream(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            uint16_t *out);
bool flw_pytorch_get_device(struct flw_pytorch_import *import, struct flw_pickle_value segment,
                            uint64_t *out);
/* Return the number of the pool's pair; 0 if missing. Pools are renumbered at the end. */
uint32_t flw_pytorch_get_pool(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                              enum word word);

/* Return the stack of an event or a block; 0 if missing. */
uint32_t flw_pytorch_get_stack(struct flw_pytorch_import *import, struct flw_pickle_value dict);

/* Read the device's segments and their blocks at the end. */
bool flw_pytorch_read_segments(struct flw_pytorch_import *import);

#endif
