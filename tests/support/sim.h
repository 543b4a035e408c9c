/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a test's way to the simulated driver: its entry points and every control of
 * fallow/simcuda.h as typed function pointers.
 * Does not: decide what a test wants of it; needs no test framework.
 */
#ifndef FLW_TESTS_SUPPORT_SIM_H
#define FLW_TESTS_SUPPORT_SIM_H

#include <stdbool.h>

#include "driver/driver.h"

#include "fallow/simcuda.h"

struct flw_sim {
    struct flw_driver cu;
    flw_sim_reset_function reset;
    flw_sim_play_function play;
    flw_sim_played_function played;
    flw_sim_advance_function advance;
    flw_sim_step_function step;
    flw_sim_touch_function touch;
    flw_sim_ledger_function get_ledger;
    flw_sim_extents_function get_extents;
    flw_sim_fail_function fail;
    flw_sim_calls_function call_count;
    flw_sim_violation_function violation;
    flw_sim_name_function name;
    flw_sim_forget_function forget;
    flw_sim_register_function register_twin;
    flw_sim_parameters_function parameters;
    flw_sim_dimensions_function dimensions;
    flw_sim_load_function load;
    flw_sim_store_function store;
};

/* Open libfallow-simcuda.so. False, and a line on stderr, when it or one of its controls is
 * missing. The world is the process's: every opener sees the same one. */
bool flw_sim_open(struct flw_sim *sim);
void flw_sim_close(struct flw_sim *sim);

/* In the child of a fork, before flw_sim_open: where its parent has ever opened the driver the child's
 * calls are refused until it has a world of its own, which this makes. */
void flw_sim_renew(void);

/* Find the controls in a driver that is open already. False: it is not a simulated one. */
bool flw_sim_find_controls(struct flw_sim *sim);

/* Defaults: FLW_SIM_RANDOM, unbacked, unchecked, nothing mild. */
flw_sim_config flw_sim_config_default(uint64_t seed);

/* A new world, cuInit, and device 0's primary context current in the calling thread. Aborts on a
 * driver error: the bed of a test must work. NULL: defaults. */
CUcontext flw_sim_begin(const struct flw_sim *sim, const flw_sim_config *config);

/* A test that fails every driver call in turn takes every so many positions: what its command line says, and
 * every one where FALLOW_TEST_ALL is set or the answer would be none. */
uint64_t flw_sim_step_of_sample(uint64_t every);

/* Device 0's ledger. */
flw_sim_ledger flw_sim_read_ledger(const struct flw_sim *sim);

/* How many rules were broken; the first few sentences go to stderr. */
uint64_t flw_sim_print_violations(const struct flw_sim *sim);

#endif
