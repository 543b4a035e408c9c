/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the model-checked run of memory without a stream: random programs with streams known only
 * to the driver, and a model that checks for every allocated block whether all work queued in any
 * context before the memory was last freed is done. */
#ifndef FLW_TESTS_STRESS_QUIESCENCE_H
#define FLW_TESTS_STRESS_QUIESCENCE_H

/* --ops N  --threads N  --contexts 1..3  --seed N  --through pool|driver. `driver`: cuMemAlloc and
 * cuMemFree of libcuda.so.1, or of a preload. Exit: 0; 3: a rule is broken; 2: usage. */
int stress_quiescence(int count, char **words);

/* Only one of the two programs links this: --through driver uses the wrappers. */
struct flw_driver;
__attribute__((weak)) void quiescence_use_hooks(struct flw_driver *cu);

#endif
