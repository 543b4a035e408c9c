# SPDX-License-Identifier: Apache-2.0
# Generated traces against recorded ones.
flw_add_test(property gen_recorded SOURCES test_gen_recorded.c LIBRARIES flw_trace
  ENVIRONMENT FALLOW_TRACE_DIR=${FALLOW_TRACE_DIR})
if(TARGET fallow)
  add_test(NAME property.gen_figures COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gen_figures.sh $<TARGET_FILE:fallow>)
  set_tests_properties(property.gen_figures PROPERTIES LABELS "property;slow" TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME property.frame_calls COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/frame_calls.sh $<TARGET_FILE:fallow>)
  set_tests_properties(property.frame_calls PROPERTIES LABELS property TIMEOUT 240)
endif()
