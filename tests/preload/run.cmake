# SPDX-License-Identifier: Apache-2.0
# `fallow run` and `fallow record`. What is preloaded into programs of the system is built
# without a sanitizer, which would have to be the first library there.
if(TARGET fallow AND FLW_CMOCKA)
  add_library(preload_stand_in MODULE stand_in.c)
  target_compile_features(preload_stand_in PRIVATE c_std_11)
  target_compile_definitions(preload_stand_in PRIVATE _GNU_SOURCE)
  target_include_directories(preload_stand_in PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_executable(static_exit static_exit.c)
  target_compile_options(static_exit PRIVATE -fno-stack-protector -fno-pie)
  target_link_options(static_exit PRIVATE -nostdlib -static -no-pie)
  flw_add_test(preload run_command SOURCES test_run_command.c TIMEOUT 240)
  target_include_directories(test_preload_run_command PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_dependencies(test_preload_run_command fallow preload_stand_in static_exit)
  set_property(TEST preload.run_command APPEND PROPERTY ENVIRONMENT
    "FALLOW_COMMAND=$<TARGET_FILE:fallow>;STAND_IN_LIBRARY=$<TARGET_FILE:preload_stand_in>;STATIC_EXIT=$<TARGET_FILE:static_exit>")
endif()
