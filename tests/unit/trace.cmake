# SPDX-License-Identifier: Apache-2.0
# The trace model and its readers.
foreach(part manifest demo)
  add_executable(test_trace_${part} test_trace_${part}.c)
  flw_target(test_trace_${part})
  target_link_libraries(test_trace_${part} PRIVATE flw_trace)
endforeach()
add_test(NAME unit.trace_manifest COMMAND test_trace_manifest ${FALLOW_TRACE_DIR})
add_test(NAME unit.trace_demo
  COMMAND test_trace_demo ${PROJECT_SOURCE_DIR}/tools/fallow/demo.ftext.xz)
set_tests_properties(unit.trace_manifest unit.trace_demo PROPERTIES
  LABELS unit TIMEOUT 60 SKIP_RETURN_CODE 77)
if(COMMAND flw_add_test)
  foreach(module pickle trace_addressmap trace_pytorch trace_text trace_input)
    flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES flw_trace)
  endforeach()
endif()
