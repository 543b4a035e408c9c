# SPDX-License-Identifier: Apache-2.0
# Count the cost of a stream that is new to the pool. Not in check builds, which check invariants during the run.
if(TARGET fallow_shared AND TARGET test_support)
  add_executable(stream_cost stream_cost.c)
  flw_target(stream_cost)
  target_include_directories(stream_cost PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(stream_cost PRIVATE fallow_shared test_support Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(stream_cost fallow-simcuda)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT FALLOW_SANITIZE)
    flw_add_script(NAME property.stream_cost SCRIPT stream_cost.py LABELS slow TIMEOUT 300
      ARGUMENTS $<TARGET_FILE:stream_cost>)
  endif()
endif()
