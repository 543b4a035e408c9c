/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: nothing; stress_pool.c's program under another name, so that mutant_main.c can plant a
 * fault before it begins.
 */
int stress_main(int count, char **words);

#define main stress_main
#include "stress_pool.c"
