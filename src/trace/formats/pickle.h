/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: data-only unpickling, protocols 2 to 5, of the part of a pickle that a reader asks for.
 * Does not: import, call or build anything: an opcode that could is refused by name.
 *
 * The reader gives a vocabulary. Kept are the pairs of dicts whose key is a word of it, and lists
 * and dicts inside lists; a dict without such a pair, and every number or string in a list, is
 * forgotten as soon as it is complete. Texts that are no words are kept once each, cut at
 * FLW_PICKLE_TEXT_BYTES; so are pairs of numbers. In a PyTorch snapshot three quarters of all opcodes fetch
 * stack frames, which are shared: each is kept once, and each stack of them.
 *
 * Memory: 8 B a memo entry and a container, what harvest.h says for what is kept; never more
 * than a constant times the bytes read. Nothing recurses, so nesting and cycles are harmless; who
 * walks the result must bound the walk, for a list may hold another many times.
 */
#ifndef FLW_TRACE_FORMATS_PICKLE_H
#define FLW_TRACE_FORMATS_PICKLE_H

#include "trace/formats/harvest.h"
#include "trace/io/input.h"

#define FLW_PICKLE_TEXT_BYTES FLW_STACK_TEXT_BYTES /* of a text that is kept */

/* The bytes of a text that are left where it has `most` at most: no part of a character is. */
size_t flw_pickle_cut_text(const void *text, size_t count, size_t most);

/* Reads to the end of the input, the pickle and `out_rest_bytes` behind it. False: nothing is held,
 * the input's message says why. */
bool flw_pickle_read(struct flw_input *input, const struct flw_pickle_vocabulary *vocabulary,
                     struct flw_harvest **out_harvest, struct flw_pickle_value *out_root,
                     uint64_t *out_rest_bytes);

#endif
