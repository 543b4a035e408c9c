/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call stacks of recorded calls: each frame and each stack once, identified by a number.
 * Does not: know which record has which stack, or write stacks; rings and the scribe do.
 *
 * A stack has the thread's return addresses up to the Python interpreter and, if the thread is
 * running Python, the interpreter's own frames behind these; at most a given number of each. These
 * words identify the stack, without a lock. Frames get names when a stack is first seen. A return
 * address gets the exported function around it, if there is one, and as the file the module and
 * the offset in it, from which a tool with the module's debugging information can find more. A
 * frame of Python gets the qualified name, file and line.
 *
 * Return addresses are from libunwind, which caches the tables (about 10 ns a frame); if it is not
 * installed, from the C library, ten times slower. Python is read through the C interface, 3.8 and
 * later, and only by a thread that has the interpreter's lock or may take it. Allocations by
 * Python code that runs meanwhile, such as a collection, have no stack.
 *
 * A code object that was seen stays alive until the process ends, since the address identifies it.
 * An address in a module that was unloaded and replaced by another keeps the first name.
 *
 * INVARIANTS
 *   1. Numbers start at 1; a stack never changes once it has a number. 0 means unknown.
 *   2. No two stacks in the table have the same words.
 *
 * Synchronization: the lock inside, FLW_RANK_RECORD; held for one lookup or insertion. Any thread
 * may look up a returned number. */
#ifndef FLW_RECORD_CALLSTACK_H
#define FLW_RECORD_CALLSTACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_CALLSTACK_DEPTH_USUAL 16
#define FLW_CALLSTACK_DEPTH_MOST  64

struct flw_callframe {
    char *function, *file; /* "" if unknown */
    uint32_t line;         /* 0: unknown */
};

struct flw_callstack {
    const uint32_t *frames; /* innermost first */
    size_t frame_count;
};

struct flw_callstacks;

/* Return the process's table, created on first use: numbers mean the same in all recordings. Never
 * freed. NULL: no memory. */
struct flw_callstacks *flw_callstacks_shared(void);

/* In the child of a fork: a thread of the parent's may be inside, or in libunwind, so use a new
 * table, and the C library's unwinder. */
void flw_callstacks_forget(void);

/* True if the fast unwinder is available. */
bool flw_callstacks_are_quick(const struct flw_callstacks *all);

/* Return the number of the calling thread's stack, without this library's own frames; `depth` from
 * 1 to FLW_CALLSTACK_DEPTH_MOST. 0: unknown (no memory, or a nested call). The caller holds no
 * lock of this library; errno and Python's pending exception are kept. With `enters_python` a
 * thread that has released the interpreter's lock, as PyTorch's operators do, takes it for the
 * walk: then no lock may be held at all that another thread waits for while it has the
 * interpreter's lock. With several interpreters the lock is not taken. */
uint32_t flw_callstacks_here(struct flw_callstacks *all, unsigned depth, bool enters_python);

/* Number of recordings with stacks: while it is 0 no thread walks the stack. */
extern atomic_uint flw_callstack_recordings;

/* Walk the stack for the thread's present call. False: an outer call of the thread has done so,
 * and there is nothing to end. Arguments and rules as of flw_callstacks_here. (Two pthread keys
 * hold the result: the library's thread-local storage is kept small, so that the library can be
 * loaded late.) */
bool flw_callstack_look(unsigned depth, bool enters_python);
void flw_callstack_end_look(void);

/* Return the stack for the records of the thread's present call; 0: none. */
uint32_t flw_callstack_seen(void);

/* Return the stack of a number that was returned before; 0 has no frames. */
struct flw_callstack flw_callstacks_get(struct flw_callstacks *all, uint32_t number);
struct flw_callframe flw_callstacks_frame(struct flw_callstacks *all, uint32_t frame);

#endif
