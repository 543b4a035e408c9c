# SPDX-License-Identifier: Apache-2.0
# The trace model and its readers.
add_executable(test_trace_manifest test_trace_manifest.c)
flw_target(test_trace_manifest)
target_link_libraries(test_trace_manifest PRIVATE flw_trace)
add_test(NAME unit.trace_manifest COMMAND test_trace_manifest ${FALLOW_TRACE_DIR})
set_tests_properties(unit.trace_manifest PROPERTIES LABELS unit TIMEOUT 60 SKIP_RETURN_CODE 77)
add_executable(test_trace_demo test_trace_demo.c)
flw_target(test_trace_demo)
target_link_libraries(test_trace_demo PRIVATE flw_trace)
add_test(NAME unit.trace_demo
  COMMAND test_trace_demo ${PROJECT_SOURCE_DIR}/tools/fallow/demo.ftext.xz)
set_tests_properties(unit.trace_demo PROPERTIES LABELS unit TIMEOUT 60 SKIP_RETURN_CODE 77)
