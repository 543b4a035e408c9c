# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
if(TARGET fallow_shared AND NOT FALLOW_SANITIZE)
  flw_add_test(check publish_cost SOURCES publish_cost.c LIBRARIES fallow_shared flw_driver flw_board flw_base
    TIMEOUT 300 PLAIN)
  add_dependencies(test_check_publish_cost fallow-simcuda)
endif()
