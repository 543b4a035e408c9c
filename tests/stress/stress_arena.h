/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random leases on several arenas, streams and threads under the rule checker. Does not: look
 * inside an arena.
 */
#ifndef FLW_TESTS_STRESS_ARENA_H
#define FLW_TESTS_STRESS_ARENA_H

/* The program: --seed N, --ops N (in all), --threads N, --addresses MIB that the driver reserves (0: any), --source N
 * (a fallow_page_source); others are passed over with their value. Exit
 * status: 0 clean, 1 a rule or a promise was broken (a sentence on stderr), 2 usage. */
int stress_arena(int count, char **words);

#endif
