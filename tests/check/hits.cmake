# SPDX-License-Identifier: Apache-2.0
# Valgrind and the sanitizers do not mix.
if(FALLOW_SANITIZE OR NOT FALLOW_PYTHON OR NOT TARGET fallow_shared)
  return()
endif()
add_executable(hits hits.c)
flw_target(hits)
target_link_libraries(hits PRIVATE fallow_shared flw_driver flw_base Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(hits fallow-simcuda)
flw_add_script(NAME check.shared_lines SCRIPT hits.py TIMEOUT 300 ARGUMENTS lines $<TARGET_FILE:hits>)
if(TARGET fallow)
  flw_add_script(NAME check.publish_cost SCRIPT hits.py TIMEOUT 600 ARGUMENTS cost $<TARGET_FILE:hits>
    $<TARGET_FILE:fallow>)
endif()
