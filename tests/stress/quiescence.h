/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the model-checked run of memory that names no stream: random programs whose streams only the
 * driver knows, and a model that says of every block that is allocated whether all that was given
 * to any stream of any context before its memory was last freed is done.
 */
#ifndef FLW_TESTS_STRESS_QUIESCENCE_H
#define FLW_TESTS_STRESS_QUIESCENCE_H

/* --ops N  --threads N  --contexts 1..3  --seed N  --through pool|driver. `driver`: cuMemAlloc and
 * cuMemFree of libcuda.so.1, whatever stands in front of it. Exit: 0; 3: a rule is broken; 2: usage. */
int stress_quiescence(int count, char **words);

/* Linked into one of the programs only: --through driver goes through the wrappers there. */
struct flw_driver;
__attribute__((weak)) void quiescence_use_hooks(struct flw_driver *cu);

#endif
