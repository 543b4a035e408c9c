# SPDX-License-Identifier: Apache-2.0
# The promised bounds on memory, trace by trace.
find_program(FALLOW_PYTHON python3)
function(flw_add_figures test labels name) # arguments of figures.py, beside the command
  add_test(NAME property.${name} COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/figures.py ${test}
    $<TARGET_FILE:fallow> ${ARGN})
  set_tests_properties(property.${name} PROPERTIES LABELS "${labels}" TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()
if(TARGET fallow AND FALLOW_PYTHON)
  flw_add_figures(generated "property;slow" gen_figures)
  flw_add_figures(frames property frame_calls)
endif()
if(TARGET fallow AND TARGET fallow_shared AND FLW_DEMO AND FALLOW_PYTHON)
  flw_add_figures(traces "property;slow" trace_figures ${FLW_DEMO} ${FALLOW_TRACE_DIR})
  flw_add_figures(passes "property;slow" steady_passes ${FLW_DEMO} ${FALLOW_TRACE_DIR})
  flw_add_figures(pytorch "property;slow" against_pytorch ${FLW_DEMO} ${FALLOW_TRACE_DIR})
  flw_add_figures(streams property streams_figures)
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
