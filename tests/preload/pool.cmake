# SPDX-License-Identifier: Apache-2.0
# A program on the simulated driver, under the driver's name, with the preload library in front of it. The
# library is not built under sanitizers.
if(TARGET fallow-preload)
  function(add_pool_test name program group settings)
    add_test(NAME preload.pool_${name} COMMAND ${program} ${group})
    set_tests_properties(preload.pool_${name} PROPERTIES LABELS preload TIMEOUT 240 ENVIRONMENT
      "LD_PRELOAD=$<TARGET_FILE:fallow-preload>;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/driver;FALLOW=${settings}")
  endfunction()
  foreach(module pool pool_contexts)
    set(program preload_${module})
    add_executable(${program} test_${module}.c ${PROJECT_SOURCE_DIR}/tests/support/sim.c)
    flw_target(${program})
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${program} PRIVATE flw_driver Threads::Threads ${CMAKE_DL_LIBS})
    add_dependencies(${program} fallow-preload simcuda-libcuda)
  endforeach()
  add_pool_test(cache preload_pool cache mode:cache)
  add_pool_test(contexts preload_pool_contexts cache mode:cache)
  add_pool_test(strict preload_pool strict mode:strict)
  add_pool_test(limit preload_pool limit mode:cache,limit:1G)
  add_pool_test(ipc preload_pool ipc mode:cache,ipc:1)
  add_test(NAME preload.pool_none COMMAND preload_pool none)
  set_tests_properties(preload.pool_none PROPERTIES LABELS preload TIMEOUT 240 ENVIRONMENT
    "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/driver")

  # figures.sh measures the cost; the test only checks that the script runs.
  add_executable(pair_bench pair_bench.c)
  flw_target(pair_bench)
  target_link_libraries(pair_bench PRIVATE ${CMAKE_DL_LIBS})
  add_library(preload_thin_driver SHARED thin_driver.c thin_rest.c)
  flw_target(preload_thin_driver)
  set_target_properties(preload_thin_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/thin-driver)
  add_dependencies(pair_bench fallow-preload simcuda-libcuda preload_thin_driver)
  foreach(shape pair churn)
    add_test(NAME preload.${shape}_bench COMMAND pair_bench ${shape} 4096 20000)
    set_tests_properties(preload.${shape}_bench PROPERTIES LABELS preload TIMEOUT 240 ENVIRONMENT
      "LD_PRELOAD=$<TARGET_FILE:fallow-preload>;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/driver;FALLOW=mode:cache")
  endforeach()
endif()
