# SPDX-License-Identifier: Apache-2.0
# Memory that names no stream against its model: by the pool, and by the driver's own calls with the preload
# library in front (not built under sanitizers). tests/README.md has the long run.
if(NOT TARGET fallow_shared)
  return()
endif()
add_executable(stress_quiescence quiescence.c quiescence_main.c quiescence_model.c
  ${PROJECT_SOURCE_DIR}/tests/support/sim.c)
flw_target(stress_quiescence)
target_include_directories(stress_quiescence PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(stress_quiescence PRIVATE fallow_shared flw_driver Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(stress_quiescence fallow-simcuda simcuda-libcuda)
function(flw_add_quiescence name)
  add_test(NAME stress.quiescence_${name} COMMAND stress_quiescence ${ARGN})
  set_tests_properties(stress.quiescence_${name} PROPERTIES LABELS stress TIMEOUT 300)
endfunction()
flw_add_quiescence(pool_1 --ops 60000 --threads 1 --contexts 1)
flw_add_quiescence(pool_3 --ops 60000 --threads 3 --contexts 3)
if(TARGET flw_preload)
  add_executable(stress_quiescence_hooks quiescence.c quiescence_hooks.c quiescence_main.c quiescence_model.c
    ${PROJECT_SOURCE_DIR}/tests/support/sim.c $<TARGET_OBJECTS:flw_preload>
    $<TARGET_OBJECTS:flw_preload_settings>)
  flw_target(stress_quiescence_hooks)
  target_include_directories(stress_quiescence_hooks PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(stress_quiescence_hooks PRIVATE flw_audit flw_core Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(stress_quiescence_hooks simcuda-libcuda)
  add_test(NAME stress.quiescence_hooks
    COMMAND stress_quiescence_hooks --ops 60000 --threads 3 --contexts 3 --through driver)
  set_tests_properties(stress.quiescence_hooks PROPERTIES LABELS stress TIMEOUT 300 ENVIRONMENT
    "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/driver;FALLOW=mode:cache")
endif()
if(TARGET fallow-preload)
  foreach(threads 1 4)
    flw_add_quiescence(driver_${threads} --ops 60000 --threads ${threads} --contexts 3 --through driver)
    set_property(TEST stress.quiescence_driver_${threads} PROPERTY ENVIRONMENT
      "LD_PRELOAD=$<TARGET_FILE:fallow-preload>;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/driver;FALLOW=mode:cache")
  endforeach()
endif()
