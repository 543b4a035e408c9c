# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
if(TARGET fallow_shared AND NOT FALLOW_SANITIZE)
  flw_add_test(check shared_lines SOURCES shared_lines.c LIBRARIES fallow_shared flw_driver flw_base
    TIMEOUT 180 PLAIN)
  if(TARGET fallow-simcuda)
    add_dependencies(test_check_shared_lines fallow-simcuda)
  endif()
endif()
