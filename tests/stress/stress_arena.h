/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random leases on several arenas, streams and threads under the rule checker. Does not: look
 * inside an arena.
 */
#ifndef FLW_TESTS_STRESS_ARENA_H
#define FLW_TESTS_STRESS_ARENA_H

/* Run the program. Options: --seed N, --ops N (in all), --threads N, --addresses MIB (limit of the driver's
 * reservations; 0: none), --source N (a fallow_page_source), --checks BITS (FALLOW_ARENA_CHECK_). Other options
 * are ignored with their values. Exit status: 0 clean, 1 a rule was broken (explained on stderr), 2 usage. */
int stress_arena(int count, char **words);

#endif
