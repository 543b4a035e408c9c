/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: data-only unpickling, protocols 2 to 5, of the part of a pickle that a reader needs.
 * Does not: import, call or build anything: an opcode that could do so is rejected by name.
 *
 * The reader supplies a vocabulary. Pairs of dicts with a word as key, and lists and dicts inside lists, are kept. A
 * dict without such a pair, and every number or string in a list, is dropped once complete. Other texts are stored once
 * each, cut at FLW_PICKLE_TEXT_BYTES, as are pairs of numbers. In a PyTorch snapshot three quarters of all opcodes
 * fetch shared stack frames; each frame and each stack is stored once.
 *
 * Memory: 8 B per memo entry and per container, and the kept values (harvest.h); at most a constant times the bytes
 * read. Nothing recurses, so nesting and cycles are harmless. A walk over the result needs a bound, because a list may
 * contain another list many times.
 */
#ifndef FLW_TRACE_FORMATS_PICKLE_H
#define FLW_TRACE_FORMATS_PICKLE_H

#include "trace/formats/harvest.h"
#include "trace/io/input.h"

#define FLW_PICKLE_TEXT_BYTES FLW_STACK_TEXT_BYTES /* most kept bytes of a text */

/* Return the bytes of a text cut to at most `most`, without a partial character. */
size_t flw_pickle_cut_text(const void *text, size_t count, size_t most);

/* Read to the end of the input: the pickle and *out_rest_bytes after it. Returns false if that fails: nothing is held;
 * see the input's message. */
bool flw_pickle_read(struct flw_input *input, const struct flw_pickle_vocabulary *vocabulary,
                     struct flw_harvest **out_harvest, struct flw_pickle_value *out_root,
                     uint64_t *out_rest_bytes);

#endif
