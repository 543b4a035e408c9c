# SPDX-License-Identifier: Apache-2.0
# `fallow report` from outside, and the parts of its page and analyses.
set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
if(TARGET fallow)
  flw_add_transcript(unit report FILE cases/report.cases
    ENVIRONMENT FALLOW_GOLDEN=${CMAKE_CURRENT_SOURCE_DIR}/golden_report
      FALLOW_CORPUS=${PROJECT_SOURCE_DIR}/tests/fuzz/corpus ${FLW_DEMO_ENVIRONMENT})
  if(ZLIB_INCLUDE_DIR)
    set(zlib FALLOW_ZLIB=1)
  endif()
  flw_add_transcript(unit report_files FILE cases/report_files.cases ENVIRONMENT ${zlib} ${FLW_DEMO_ENVIRONMENT})
  flw_add_transcript(unit report_snapshots FILE cases/report_snapshots.cases
    ENVIRONMENT SNAPSHOT=${CMAKE_CURRENT_SOURCE_DIR}/snapshot.py)
  flw_add_test(unit report_page SOURCES test_report_page.c ${tool}/report/heapview.c LIBRARIES flw_page flw_trace flw_base)
endif()
flw_add_test(unit analysis INCLUDES ${tool} LIBRARIES flw_tool flw_trace flw_base
  SOURCES test_analysis.c ${tool}/report/heapview.c ${tool}/report/owner.c ${tool}/report/analysis.c
    ${tool}/common/program.c)
flw_add_test(unit packing INCLUDES ${tool} LIBRARIES flw_base
  SOURCES test_packing.c ${tool}/report/packing.c ${tool}/common/tool_host.c)
