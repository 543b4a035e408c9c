# SPDX-License-Identifier: Apache-2.0
if(TARGET fallow)
  add_test(NAME check.top_screen COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/top_screen.sh $<TARGET_FILE:fallow>
    $<TARGET_FILE:top_target> ${CMAKE_CURRENT_BINARY_DIR}/top_screen)
  set_tests_properties(check.top_screen PROPERTIES LABELS check TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
# Valgrind and the sanitizers do not mix.
if(NOT FALLOW_SANITIZE)
  flw_add_test(check publish_cost SOURCES publish_cost.c LIBRARIES fallow_shared flw_driver flw_stats_file flw_base
    DEPENDS fallow-simcuda TIMEOUT 300 PLAIN)
endif()
