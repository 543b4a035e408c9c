# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
if(NOT FALLOW_SANITIZE)
  flw_add_test(check shared_lines SOURCES shared_lines.c LIBRARIES fallow_shared flw_driver flw_base
    DEPENDS fallow-simcuda TIMEOUT 180 PLAIN)
endif()
