/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program of the stress runs.
 *
 *   stress_pool [--seed N] [--ops N] [--threads N] [--streams N] [--live N]
 *               [--limit BYTES] [--most BYTES] [--device BYTES] [--schedule random|clock|held]
 *               [--lag NS] [--economy 0|1|2] [--reuse 0|1|2] [--checks BITS] [--no-capture]
 *               [--no-retire] [--no-check] [--without-vmm] [--validate N] [--trace ADDRESS]
 *               [--record FILE] [--order 0|1] [--decay MS] [--dies 0|1]
 *               [--faults N] [--sleep] [--share] [--foreign] [--helper] [--oom]
 *               [--reset] [--rounds N] [--one-handle BYTES] [--range BYTES] [--draw]
 *
 * See struct stress_settings. --draw: the seed of each round selects the settings; the printed
 * line repeats the round.
 *
 * Exit: 0 clean, 1 a rule was broken (with a sentence on stderr), 2 bad usage; anything else is a
 * crash. FALLOW_TEST_SEED sets the seed too. */
#include "stress_run.h"

int main(int count, char **words)
{
    struct stress_settings settings = stress_parse(count, words);
    return stress_run(&settings);
}
