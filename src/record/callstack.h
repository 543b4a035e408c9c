/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call stacks that threads are seen with: each frame and each stack once, with a number to know it by.
 * Does not: know which record has which, or write them; rings and the scribe do.
 *
 * A stack is the thread's return addresses up to the Python interpreter, and, where the thread runs Python at the
 * moment, the interpreter's own frames behind them; at most so many of each. It is known again by these words alone,
 * without a lock. Frames get names when a stack is seen first: of a return address the exported function around
 * it, where there is one, and as its file the module and the offset in it, from which a tool with the module's
 * debugging information can tell more; of a frame of Python its qualified name, file and line.
 *
 * Return addresses are libunwind's, which keeps what it has learned of each (some 10 ns a frame); where it is not
 * installed the C library's, ten times dearer. Python is asked by its C interface, 3.8 and later, and only
 * by a thread that holds the interpreter, or may take it. What it may run meanwhile, a collection, is seen without a stack.
 *
 * A code object that was seen stays for as long as the process: its address is what tells it from others. An address in
 * a module that was unloaded, and another one loaded in its place, keeps its first name.
 *
 * INVARIANTS
 *   1. Numbers count from 1; a stack, once it has one, does not change. 0 is 'not known'.
 *   2. Of two stacks in the table no two have the same words.
 *
 * Synchronization: the lock inside, FLW_RANK_RECORD; held for one look-up or entry. Numbers, once told, may be
 * looked up by any thread.
 */
#ifndef FLW_RECORD_CALLSTACK_H
#define FLW_RECORD_CALLSTACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_CALLSTACK_DEPTH_USUAL 16
#define FLW_CALLSTACK_DEPTH_MOST  64

struct flw_callframe {
    char *function, *file; /* "" where it is not known */
    uint32_t line;         /* 0: none */
};

struct flw_callstack {
    const uint32_t *frames; /* innermost first */
    size_t frame_count;
};

struct flw_callstacks;

/* The process's, made on first sight: numbers mean the same in all recordings. It stays. NULL: no memory. */
struct flw_callstacks *flw_callstacks_shared(void);

/* In the child of a fork: a thread of the parent's may be inside, or in libunwind: the next stacks are new, and the C
 * library's. */
void flw_callstacks_forget(void);

/* Is what tells return addresses quickly there? */
bool flw_callstacks_are_quick(const struct flw_callstacks *all);

/* The number of the calling thread's stack, without the frames of this library's own; `depth` of 1 to
 * FLW_CALLSTACK_DEPTH_MOST. 0: not known (no memory, or it is asked within itself). No lock of this library's is held
 * by the caller; errno and Python's pending exception are kept. With `enters_python` a thread that has let the
 * interpreter go, as PyTorch's operators do, takes it for the look: then no lock may be held at all that another thread
 * waits for while it has the interpreter. Where there is more than one interpreter it is not taken. */
uint32_t flw_callstacks_here(struct flw_callstacks *all, unsigned depth, bool enters_python);

/* Recordings with stacks that are under way: while it is 0 no thread looks. */
extern atomic_uint flw_callstack_recordings;

/* Look, for the thread's present call. False: an outer call of the thread's has, and there is nothing to end. Arguments
 * and rules as of flw_callstacks_here. (Two of the system's keys stand behind it: the library's thread-local storage is
 * kept small, so that it can be loaded late.) */
bool flw_callstack_look(unsigned depth, bool enters_python);
void flw_callstack_end_look(void);

/* The stack that the thread's present call is recorded with; 0: none. */
uint32_t flw_callstack_seen(void);

/* What a number stands for, of 1 to as many as were told; 0 has no frames. */
struct flw_callstack flw_callstacks_get(struct flw_callstacks *all, uint32_t number);
struct flw_callframe flw_callstacks_frame(struct flw_callstacks *all, uint32_t frame);

#endif
