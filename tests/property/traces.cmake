# SPDX-License-Identifier: Apache-2.0
# The promised bounds on memory, trace by trace.
if(TARGET fallow AND TARGET fallow_shared AND FLW_DEMO)
  add_executable(deal_streams deal_streams.c)
  flw_target(deal_streams)
  target_link_libraries(deal_streams PRIVATE flw_trace)
  add_test(NAME property.trace_figures COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/trace_figures.sh
    $<TARGET_FILE:fallow> $<TARGET_FILE:deal_streams> ${FLW_DEMO}
    ${FALLOW_TRACE_DIR})
  add_test(NAME property.steady_passes COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/steady_passes.sh
    $<TARGET_FILE:fallow> $<TARGET_FILE:deal_streams> ${FLW_DEMO} ${FALLOW_TRACE_DIR})
  add_test(NAME property.against_pytorch COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/against_pytorch.sh
    $<TARGET_FILE:fallow> ${FLW_DEMO} ${FALLOW_TRACE_DIR})
  add_test(NAME property.streams_figures COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/streams_figures.sh
    $<TARGET_FILE:fallow>)
  set_tests_properties(property.streams_figures PROPERTIES LABELS property TIMEOUT 300)
  find_program(FALLOW_PYTHON python3)
  if(FALLOW_PYTHON)
    file(GLOB snapshots ${FALLOW_TRACE_DIR}/*.pickle.xz)
    add_test(NAME property.owners COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/owners.py
      $<TARGET_FILE:fallow> ${snapshots})
    add_test(NAME property.round_trip COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/round_trip.py
      $<TARGET_FILE:fallow> ${snapshots})
    set_tests_properties(property.owners property.round_trip PROPERTIES LABELS "property;slow" TIMEOUT 600)
    add_test(NAME property.ranks COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/ranks.py $<TARGET_FILE:fallow>)
    add_test(NAME property.profiles COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/profiles.py $<TARGET_FILE:fallow>
      ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/json/torch.json.gz)
    if(NOT FALLOW_SANITIZE) # valgrind runs no sanitizer
      add_test(NAME property.linear_cost COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/linear_cost.py
        $<TARGET_FILE:fallow>)
      set_tests_properties(property.linear_cost PROPERTIES LABELS "property;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
    endif()
    set_tests_properties(property.ranks property.profiles PROPERTIES LABELS property TIMEOUT 300)
  endif()
  set_tests_properties(property.trace_figures property.steady_passes property.against_pytorch
    PROPERTIES LABELS "property;slow" TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
