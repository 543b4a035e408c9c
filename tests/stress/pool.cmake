# SPDX-License-Identifier: Apache-2.0
# Random programs under the rule checker: 10^7 operations in all in a release build, a twentieth of
# them where every operation is dearer. One more line a corner of the pool's life.
if(NOT TARGET flw_test_pool)
  return()
endif()
add_executable(stress_pool stress_pool.c stress_run.c stress_settings.c)
flw_target(stress_pool)
target_link_libraries(stress_pool PRIVATE flw_test_pool)

add_executable(test_misuse_race test_misuse_race.c)
flw_target(test_misuse_race)
target_link_libraries(test_misuse_race PRIVATE flw_test_pool)
add_test(NAME stress.misuse_race COMMAND test_misuse_race)
set_tests_properties(stress.misuse_race PROPERTIES LABELS stress TIMEOUT 120 SKIP_RETURN_CODE 77)

if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT FALLOW_SANITIZE)
  set(FLW_STRESS_DIVISOR 1)
else()
  set(FLW_STRESS_DIVISOR 20)
endif()

function(flw_add_stress module ops)
  math(EXPR ops "${ops} / ${FLW_STRESS_DIVISOR}")
  add_test(NAME stress.${module} COMMAND stress_pool --ops ${ops} ${ARGN})
  set_tests_properties(stress.${module} PROPERTIES LABELS stress TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

flw_add_stress(naive_one_thread 500000 --pool naive --threads 1)
flw_add_stress(naive_two_threads 500000 --pool naive --threads 2 --schedule random)
flw_add_stress(naive_small_limit 500000 --pool naive --threads 2 --limit 100000000)
if(TARGET fallow_shared)
  flw_add_stress(one_thread 1500000 --threads 1 --validate 20000)
  flw_add_stress(two_threads 1500000 --threads 2 --streams 4)
  flw_add_stress(eight_threads 1500000 --threads 8 --streams 2 --schedule random)
  flw_add_stress(small_limit 1000000 --threads 2 --limit 100000000)
  flw_add_stress(tiny_limit 1000000 --threads 1 --limit 25165824 --most 4194304)
  flw_add_stress(memory_first 1000000 --threads 2 --economy 1 --limit 200000000)
  flw_add_stress(clock 1000000 --threads 2 --schedule clock --lag 200000)
  flw_add_stress(completed_only 500000 --threads 2 --reuse 1)
  flw_add_stress(same_stream_only 500000 --threads 2 --reuse 2)
  flw_add_stress(without_vmm 1000000 --threads 2 --without-vmm --limit 400000000)
  flw_add_stress(fast_checks 500000 --threads 2 --checks 1)
  flw_add_stress(debug_checks 60000 --threads 2 --checks 30 --most 262144)
  if(TARGET fallow) # the recording of a run with captures, retired streams and failures is whole
    math(EXPR ops "1000000 / ${FLW_STRESS_DIVISOR}")
    set(recording ${CMAKE_CURRENT_BINARY_DIR}/stress.ftrace)
    add_test(NAME stress.recorded COMMAND sh -c
      "$<TARGET_FILE:stress_pool> --ops ${ops} --threads 3 --streams 3 --limit 200000000 --record ${recording} && $<TARGET_FILE:fallow> trace verify ${recording} && $<TARGET_FILE:fallow> trace info ${recording}")
    set_tests_properties(stress.recorded PROPERTIES LABELS stress TIMEOUT 300
      FAIL_REGULAR_EXPRESSION "lost frees;unknown frees;missing")
  endif()
endif()
