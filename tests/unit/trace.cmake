# SPDX-License-Identifier: Apache-2.0
# The trace model and its readers.
flw_add_test(unit trace_manifest PLAIN SOURCES test_trace_manifest.c LIBRARIES flw_trace
  ARGUMENTS ${FALLOW_TRACE_DIR})
flw_add_test(unit trace_demo PLAIN SOURCES test_trace_demo.c LIBRARIES flw_trace
  ARGUMENTS ${PROJECT_SOURCE_DIR}/tools/fallow/demo.ftext.xz)
flw_add_test(unit trace_kineto_shared PLAIN SOURCES test_trace_kineto_shared.c LIBRARIES flw_trace
  ARGUMENTS ${FALLOW_TRACE_DIR})
flw_add_test(unit trace_minimalloc_shared PLAIN SOURCES test_trace_minimalloc_shared.c LIBRARIES flw_trace
  ARGUMENTS ${FALLOW_TRACE_DIR})
set(modules pickle trace_addressmap trace_codec trace_foreign trace_kineto trace_pytorch trace_text)
if(LIBLZMA_INCLUDE_DIR)
  list(APPEND modules trace_input) # it packs archives of its own
endif()
foreach(module ${modules})
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES flw_trace)
endforeach()
