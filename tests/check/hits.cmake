# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
find_program(FALLOW_PYTHON python3)
if(FALLOW_SANITIZE OR NOT FALLOW_PYTHON OR NOT TARGET fallow_shared)
  return()
endif()
add_executable(hits hits.c)
flw_target(hits)
target_link_libraries(hits PRIVATE fallow_shared flw_driver flw_base Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(hits fallow-simcuda)
add_test(NAME check.shared_lines COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/hits.py lines
  $<TARGET_FILE:hits>)
set_tests_properties(check.shared_lines PROPERTIES LABELS check TIMEOUT 300 SKIP_RETURN_CODE 77)
if(TARGET fallow)
  add_test(NAME check.publish_cost COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/hits.py cost
    $<TARGET_FILE:hits> $<TARGET_FILE:fallow>)
  set_tests_properties(check.publish_cost PROPERTIES LABELS check TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
