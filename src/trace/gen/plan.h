/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: plans, the notation in which generators list the blocks of a layer or a step, with their sizes, their streams
 * and the order in which they are allocated and freed.
 *
 * A plan is a text of statements with spaces between them and none within:
 *
 *   name=SIZE           allocate a block on stream 0 and launch a kernel that writes it; SIZE 0: nothing
 *   name@S=SIZE         the same on stream S
 *   name+SIZE           allocate a block on stream 0 without a kernel; without a name nothing frees it
 *   -name               free a block; nothing if the name has none
 *   name>S              a kernel of stream S reads the block; a use in the trace if S is not the block's own stream
 *   name<other          give the block of `other` this name; nothing if `other` has none
 *   x:NUMBER            set a number
 *   ?CONDITION{...}     if CONDITION is not 0
 *   i*COUNT{...}        COUNT times, with i from 0
 *   <name  >name        the begin and the end of a phase
 *   (  )                the begin and the end of a capture; its blocks are in the private pool 1
 *   ~TIME               so many ns pass
 *   .name               run the generator's plan or function of that name
 *
 * Blocks have words of two letters or more, numbers have one letter. Both may have an index: hidden.i, size.(2i+1). Names
 * keep their blocks and numbers from plan to plan, so a block's life may span steps. An option of the generator is the
 * number of its letter.
 *
 * A number is a formula in unsigned integers: 2Th is 2 times T times h; + - * / % ( ) as in C; a^b is a power, a&b the
 * smaller and a|b the larger one, [a,b] a drawn number from a to b, $name the size of a block, $ alone all live bytes,
 * !a is 1 if a is 0. The operators * / % & | and products without a sign have the same precedence, above + and -. S and
 * CONDITION are one letter, one number, or a formula in parentheses.
 */
#ifndef FLW_TRACE_GEN_PLAN_H
#define FLW_TRACE_GEN_PLAN_H

#include "trace/gen/gen.h"

#define FLW_PLAN_NAME_BYTES 32

/* Run a plan. A plan with an error is a fault of the program and aborts it. */
void flw_plan_run(struct flw_gen *gen, const char *plan);

/* Run the generator's plan of this name, which must exist. */
void flw_plan_call(struct flw_gen *gen, const char *name);

#endif
