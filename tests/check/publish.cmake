# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
if(NOT FALLOW_SANITIZE)
  flw_add_test(check publish_cost SOURCES publish_cost.c LIBRARIES fallow_shared flw_driver flw_stats_file flw_base
    DEPENDS fallow-simcuda TIMEOUT 300 PLAIN)
endif()
