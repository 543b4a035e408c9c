# SPDX-License-Identifier: Apache-2.0
# `fallow replay` from outside.
if(TARGET fallow AND COMMAND flw_add_test)
  flw_add_test(unit replay SOURCES test_replay.c TIMEOUT 240)
  if(TARGET test_unit_replay)
    add_dependencies(test_unit_replay fallow)
    set_property(TEST unit.replay APPEND PROPERTY ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
    if(TARGET fallow-simcuda AND FLW_DEMO)
      add_dependencies(test_unit_replay fallow-simcuda simcuda-libcuda)
      set_property(TEST unit.replay APPEND PROPERTY ENVIRONMENT "FALLOW_DEMO=${FLW_DEMO}")
    endif()
  endif()
endif()
# `fallow trace` from outside.
if(TARGET fallow AND COMMAND flw_add_test)
  flw_add_test(unit trace_command SOURCES test_trace_command.c TIMEOUT 240)
  if(TARGET test_unit_trace_command)
    add_dependencies(test_unit_trace_command fallow)
    set_property(TEST unit.trace_command APPEND PROPERTY ENVIRONMENT
      "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
  endif()
endif()
if(COMMAND flw_add_test)
  set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
  flw_add_test(unit replay_program
    SOURCES test_replay_program.c ${tool}/lanes.c ${tool}/program.c ${tool}/tool_host.c LIBRARIES flw_trace)
  flw_add_test(unit policy_setting
    SOURCES test_policy_setting.c ${tool}/policy_setting.c ${tool}/command.c LIBRARIES flw_base)
  flw_add_test(unit pytorch_model
    SOURCES test_pytorch_model.c ${tool}/pytorch_expand.c ${tool}/pytorch_model.c ${tool}/segheap.c
      ${tool}/tool_host.c
    LIBRARIES flw_base)
  flw_add_test(unit policy_peers
    SOURCES test_policy_peers.c ${tool}/command.c ${tool}/deferrals.c ${tool}/policy_bfc.c
      ${tool}/policy_cub.c ${tool}/policy_setting.c ${tool}/segheap.c ${tool}/tool_host.c
      ${tool}/replay_device.c ${tool}/uses.c
    LIBRARIES flw_driver flw_base)
  foreach(test IN ITEMS replay_program policy_setting pytorch_model policy_peers)
    if(TARGET test_unit_${test})
      target_include_directories(test_unit_${test} PRIVATE ${tool})
    endif()
  endforeach()
endif()
if(TARGET flw_page AND COMMAND flw_add_test)
  flw_add_test(unit report_page SOURCES test_report_page.c ${tool}/tool_host.c LIBRARIES flw_page)
endif()
