/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the kind of a frame of a call stack, by function and file alone: code of the program, of a package, of a
 * framework; and names for places in code. Paths of Windows are recognised too.
 * Does not: know stacks (report/owner.h, top/look.c).
 */
#ifndef FLW_TOOL_FRAME_H
#define FLW_TOOL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stack's memory belongs to its first frame of the first of these kinds. */
enum flw_frame_kind {
    FLW_FRAME_OTHER,    /* native or generated code without a useful name */
    FLW_FRAME_NAMED,    /* matches a pattern of the user */
    FLW_FRAME_PROGRAM,  /* Python that is not installed */
    FLW_FRAME_PACKAGE,  /* Python of a package other than a framework */
    FLW_FRAME_NODE,     /* of autograd */
    FLW_FRAME_OPERATOR, /* of PyTorch */
    FLW_FRAME_NATIVE,   /* a function of the program's own modules */
    FLW_FRAME_LIBRARY,  /* Python of a framework or of the standard library */
    FLW_FRAME_KINDS
};

/* Return the kind of a frame; NATIVE only with `has_native`. `name` receives the name of a NODE or an OPERATOR. */
enum flw_frame_kind flw_frame_tell(const char *function, const char *file, bool has_native,
                                   char *name, size_t room);

/* True if a frame of this kind replaces the best frame so far, which is nearer to the allocation: among operators the
 * outermost is best, otherwise the innermost. */
bool flw_frame_is_better(enum flw_frame_kind kind, enum flw_frame_kind best);

/* True if "/name/" is one of the path's folders. */
bool flw_frame_has_folder(const char *file, const char *folder);

/* Return "worker.py" for ".../vllm/worker/worker.py". */
const char *flw_frame_base_name(const char *file);

/* Write "vllm" for ".../site-packages/vllm/worker/worker.py"; "run" for "/home/u/run/model.py". */
void flw_frame_name_module(const char *file, char *out, size_t room);

/* Return "weights" for "Model.build.<locals>.weights". */
const char *flw_frame_local_name(const char *function);

/* Write "step (train.py:12)"; for an offset in a module without a line "main (a.out+0x12)". */
void flw_frame_say_place(const char *function, const char *file, uint32_t line, char *out,
                         size_t room);

#endif
