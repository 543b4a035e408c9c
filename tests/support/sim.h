/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests' access to the simulated driver: the entry points and every control of
 * fallow/simcuda.h as typed function pointers.
 * Does not: need a test framework. */
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

/* Open libfallow-simcuda.so. Returns false, with a line on stderr, if the library or one of the
 * controls is missing. All callers in the process share one world. */
bool flw_sim_open(struct flw_sim *sim);
void flw_sim_close(struct flw_sim *sim);

/* Give the child of a fork a world of its own, before flw_sim_open. If the parent has opened the
 * driver, the child's calls fail until then. */
void flw_sim_renew(void);

/* Find the controls in an open driver. Returns false if the driver is not simulated. */
bool flw_sim_find_controls(struct flw_sim *sim);

/* Defaults: FLW_SIM_RANDOM, unbacked, unchecked, nothing mild. */
flw_sim_config flw_sim_config_default(uint64_t seed);

/* A new world, cuInit, and device 0's primary context current in the calling thread. Aborts on a
 * driver error: the bed of a test must work. NULL: defaults. */
CUcontext flw_sim_begin(const struct flw_sim *sim, const flw_sim_config *config);

/* Return the step between tested positions, for a test that fails every driver call in turn:
 * `every`, or 1 if FALLOW_TEST_ALL is set or `every` is 0. */
uint64_t flw_sim_step_of_sample(uint64_t every);

/* Device 0's ledger. */
flw_sim_ledger flw_sim_read_ledger(const struct flw_sim *sim);

/* Return the number of broken rules; print the first few sentences to stderr. */
uint64_t flw_sim_print_violations(const struct flw_sim *sim);

#endif
