# SPDX-License-Identifier: Apache-2.0
# `fallow run`, `fallow record` and the tracer. Libraries for programs of the system are built without a sanitizer,
# since its runtime would have to be the first library there.
flw_add_test(preload tracer SOURCES test_tracer.c ${PROJECT_SOURCE_DIR}/src/preload/tracer.c
  ${PROJECT_SOURCE_DIR}/src/preload/filename.c ${PROJECT_SOURCE_DIR}/src/preload/log.c LIBRARIES flw_trace flw_core)
if(TARGET fallow)
  add_library(preload_stand_in MODULE stand_in.c)
  target_compile_features(preload_stand_in PRIVATE c_std_11)
  target_compile_definitions(preload_stand_in PRIVATE _GNU_SOURCE)
  target_include_directories(preload_stand_in PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  add_executable(static_exit static_exit.c)
  target_compile_options(static_exit PRIVATE -fno-stack-protector -fno-pie)
  target_link_options(static_exit PRIVATE -nostdlib -static -no-pie)
  flw_add_transcript(preload run_command FILE cases/run_command.cases
    ENVIRONMENT "STAND_IN_LIBRARY=$<TARGET_FILE:preload_stand_in>" "STATIC_EXIT=$<TARGET_FILE:static_exit>")
endif()
if(TARGET fallow AND TARGET fallow-preload)
  add_executable(preload_alloc_client alloc_client.c)
  flw_target(preload_alloc_client)
  target_link_libraries(preload_alloc_client PRIVATE simcuda-libcuda ${CMAKE_DL_LIBS})
  target_link_options(preload_alloc_client PRIVATE -Wl,-z,lazy) # the empty driver has little
  set_target_properties(preload_alloc_client PROPERTIES BUILD_WITH_INSTALL_RPATH ON) # LD_LIBRARY_PATH names it
  add_library(preload_empty_driver SHARED empty_driver.c)
  flw_target(preload_empty_driver)
  set_target_properties(preload_empty_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/empty-driver)
  foreach(module trace summary)
    flw_add_transcript(preload ${module} FILE cases/${module}.cases
      ENVIRONMENT "ALLOC_CLIENT=$<TARGET_FILE:preload_alloc_client>"
        "DRIVER_FOLDER=$<TARGET_FILE_DIR:simcuda-libcuda>" "RIVAL=$<TARGET_FILE:preload_rival_exports>")
  endforeach()
  find_program(FALLOW_PYTHON python3)
  mark_as_advanced(FALLOW_PYTHON)
  if(FALLOW_PYTHON AND NOT FALLOW_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    add_executable(preload_each_step ${PROJECT_SOURCE_DIR}/tests/example/each_step.c)
    target_link_libraries(preload_each_step PRIVATE simcuda-libcuda)
    add_test(NAME preload.stacks COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/stacks.py
      $<TARGET_FILE:fallow> $<TARGET_FILE_DIR:simcuda-libcuda> $<TARGET_FILE:preload_each_step>)
    set_tests_properties(preload.stacks PROPERTIES LABELS preload TIMEOUT 240)
  endif()
endif()
