# SPDX-License-Identifier: Apache-2.0
# `fallow replay` from outside.
if(TARGET fallow AND COMMAND flw_add_test)
  flw_add_test(unit replay SOURCES test_replay.c TIMEOUT 120)
  if(TARGET test_unit_replay)
    add_dependencies(test_unit_replay fallow)
    set_property(TEST unit.replay APPEND PROPERTY ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
    if(TARGET fallow-simcuda)
      add_dependencies(test_unit_replay fallow-simcuda)
      set_property(TEST unit.replay APPEND PROPERTY ENVIRONMENT
        "FALLOW_DEMO=${PROJECT_SOURCE_DIR}/tools/fallow/demo.ftext.xz")
    endif()
  endif()
endif()
if(COMMAND flw_add_test)
  set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
  flw_add_test(unit replay_program
    SOURCES test_replay_program.c ${tool}/program.c ${tool}/tool_host.c LIBRARIES flw_trace)
  if(TARGET test_unit_replay_program)
    target_include_directories(test_unit_replay_program PRIVATE ${tool})
  endif()
endif()
