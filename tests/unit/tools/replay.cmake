# SPDX-License-Identifier: Apache-2.0
# `fallow replay` and `fallow trace` from outside, then the parts of a replay, of its tables and of `fallow top`.
if(TARGET fallow)
  if(NOT FALLOW_SANITIZE) # a sanitizer's runtime must be preloaded first
    add_library(jumping_clock MODULE jumping_clock.c)
    flw_target(jumping_clock)
    set(clock_environment "FALLOW_CLOCK=$<TARGET_FILE:jumping_clock>")
  endif()
  flw_add_transcript(unit replay FILE cases/replay.cases
    ENVIRONMENT ${FLW_DEMO_ENVIRONMENT} ${clock_environment})
  flw_add_transcript(unit trace_command FILE cases/trace_command.cases)
endif()
set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
flw_add_test(unit replay_program INCLUDES ${tool} LIBRARIES flw_trace
  SOURCES test_replay_program.c ${tool}/common/program.c ${tool}/common/tool_host.c)
flw_add_test(unit without_wait INCLUDES ${tool} LIBRARIES flw_trace
  SOURCES test_without_wait.c ${tool}/common/tool_host.c ${tool}/policies/recorded.c)
flw_add_test(unit policy_setting INCLUDES ${tool} LIBRARIES flw_base
  SOURCES test_policy_setting.c ${tool}/policies/setting.c ${tool}/common/command.c)
flw_add_test(unit pytorch_model INCLUDES ${tool} LIBRARIES flw_base
  SOURCES test_pytorch_model.c ${tool}/common/tool_host.c ${tool}/policies/pytorch_heap.c
    ${tool}/policies/pytorch_model.c)
flw_add_test(unit tabular INCLUDES ${tool} LIBRARIES flw_base m
  SOURCES test_tabular.c ${tool}/common/command.c ${tool}/common/figures.c ${tool}/common/tabular.c ${tool}/common/terminal.c
    ${tool}/common/tool_host.c)
