/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a frame of a call stack is, by its function and file alone: the program's code, a package's, a part of a
 * framework; and how a place in code is called. Paths of Windows are told as others'.
 * Does not: know stacks (report/owner.h, top/look.c).
 */
#ifndef FLW_TOOL_FRAME_H
#define FLW_TOOL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose memory a stack's is, the first of these that it has. */
enum flw_frame_kind {
    FLW_FRAME_OTHER,    /* native or generated code without a useful name */
    FLW_FRAME_NAMED,    /* by a pattern of the user's */
    FLW_FRAME_PROGRAM,  /* Python outside of all that is installed */
    FLW_FRAME_PACKAGE,  /* Python of a package that is no framework */
    FLW_FRAME_NODE,     /* of autograd */
    FLW_FRAME_OPERATOR, /* of PyTorch */
    FLW_FRAME_NATIVE,   /* a function of the program's own modules */
    FLW_FRAME_LIBRARY,  /* Python of a framework or of the standard library: a last resort */
    FLW_FRAME_KINDS
};

/* What a frame is; with `has_native` it may be NATIVE. Of NODE and OPERATOR `name` is what it is called. */
enum flw_frame_kind flw_frame_tell(const char *function, const char *file, bool has_native,
                                   char *name, size_t room);

/* Does a frame of this kind take the place of the best one so far, which is nearer to the allocation? Of operators the
 * outermost does, of all others the innermost stays. */
bool flw_frame_is_better(enum flw_frame_kind kind, enum flw_frame_kind best);

/* Is "/name/" one of the path's folders? */
bool flw_frame_has_folder(const char *file, const char *folder);

/* "worker.py" of ".../vllm/worker/worker.py". */
const char *flw_frame_base_name(const char *file);

/* "vllm" of ".../site-packages/vllm/worker/worker.py"; "run" of "/home/u/run/model.py". */
void flw_frame_name_module(const char *file, char *out, size_t room);

/* "weights" of "Model.build.<locals>.weights". */
const char *flw_frame_local_name(const char *function);

/* "step (train.py:12)"; where there is no line, but a place in a module, "main (a.out+0x12)". */
void flw_frame_say_place(const char *function, const char *file, uint32_t line, char *out,
                         size_t room);

#endif
