# SPDX-License-Identifier: Apache-2.0
# `fallow report` from outside, and what its sheets are made of.
if(TARGET fallow AND TARGET fallow-simcuda AND TARGET fallow_shared AND COMMAND flw_add_test)
  flw_add_test(unit report SOURCES test_report.c TIMEOUT 240)
  if(TARGET test_unit_report)
    add_dependencies(test_unit_report fallow fallow-simcuda)
    set_property(TEST unit.report APPEND PROPERTY ENVIRONMENT
      "FALLOW_COMMAND=$<TARGET_FILE:fallow>"
      "FALLOW_GOLDEN=${CMAKE_CURRENT_SOURCE_DIR}/golden_report"
      "FALLOW_CORPUS=${PROJECT_SOURCE_DIR}/tests/fuzz/corpus")
    if(FLW_DEMO)
      set_property(TEST unit.report APPEND PROPERTY ENVIRONMENT "FALLOW_DEMO=${FLW_DEMO}")
    endif()
  endif()
endif()
if(COMMAND flw_add_test)
  set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
  flw_add_test(unit sheet
    SOURCES test_sheet.c ${tool}/report/heapview.c ${tool}/report/sheet.c ${tool}/tool_host.c
    LIBRARIES flw_base)
  flw_add_test(unit packing
    SOURCES test_packing.c ${tool}/report/packing.c ${tool}/tool_host.c LIBRARIES flw_base)
  if(TARGET test_unit_packing)
    target_include_directories(test_unit_packing PRIVATE ${tool})
  endif()
  if(TARGET test_unit_sheet)
    target_include_directories(test_unit_sheet PRIVATE ${tool})
  endif()
endif()
