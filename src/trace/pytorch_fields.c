/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a key of a snapshot is asked for, and the walk's steps, which are counted.
 * Does not: know what a snapshot has (pytorch.c, pytorch_heap.c).
 */
#include "trace/pytorch_import.h"

bool flw_pytorch_fail_at(struct flw_pytorch_import *import, struct flw_pickle_value container,
                         const char *what)
{
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, container), "%s", what);
}

bool flw_pytorch_fail_memory(struct flw_pytorch_import *import)
{
    return flw_input_fail(import->input, 0, "no memory to hold the trace");
}

bool flw_pytorch_count_step(struct flw_pytorch_import *import)
{
    if (import->steps_left == 0) {
        return flw_input_fail(import->input, 0,
                              "its lists hold more items than the file has bytes");
    }
    import->steps_left--;
    return true;
}

bool flw_pytorch_check_items(struct flw_pytorch_import *import, struct flw_pickle_value list,
                             const char *what)
{
    return !flw_harvest_has_left_out(import->kept, list) || flw_pytorch_fail_at(import, list, what);
}

bool flw_pytorch_get_number(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            enum word word, uint64_t *out)
{
    struct flw_pickle_value value = flw_harvest_get(import->kept, dict, (uint32_t)word);
    *out = value.bits;
    if (value.kind == FLW_PICKLE_UNSIGNED) {
        return true;
    }
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, dict), "\"%s\" is %s",
                          words[word],
                          value.kind == FLW_PICKLE_ABSENT     ? "missing"
                          : value.kind == FLW_PICKLE_NEGATIVE ? "negative"
                                                              : "not a number");
}

bool flw_pytorch_get_number_or(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                               enum word word, uint64_t otherwise, uint64_t *out)
{
    if (flw_harvest_get(import->kept, dict, (uint32_t)word).kind == FLW_PICKLE_ABSENT) {
        *out = otherwise;
        return true;
    }
    return flw_pytorch_get_number(import, dict, word, out);
}

bool flw_pytorch_get_stream(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                            uint16_t *out)
{
    uint64_t handle;
    if (!flw_pytorch_get_number_or(import, dict, WORD_STREAM, 0, &handle)) {
        return false;
    }
    return flw_build_add_stream(&import->build, handle, out) ||
           flw_pytorch_fail_at(import, dict,
                               "more than 65535 streams, or the host is out of memory");
}

uint32_t flw_pytorch_get_pool(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                              enum word word)
{
    struct flw_pickle_value pool = flw_harvest_get(import->kept, dict, (uint32_t)word);
    return pool.kind == FLW_PICKLE_PAIR ? (uint32_t)pool.bits + 1 : 0;
}

uint32_t flw_pytorch_get_stack(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    return flw_harvest_stack(import->kept, flw_harvest_get(import->kept, dict, WORD_FRAMES));
}

bool flw_pytorch_get_device(struct flw_pytorch_import *import, struct flw_pickle_value segment,
                            uint64_t *out)
{
    if (!flw_pytorch_get_number_or(import, segment, WORD_DEVICE, 0, out)) {
        return false;
    }
    return *out < FLW_PYTORCH_DEVICES ||
           flw_pytorch_fail_at(import, segment, "\"device\" is not a device number");
}
