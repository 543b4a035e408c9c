# SPDX-License-Identifier: Apache-2.0
# Random programs under the rule checker: more than 10^7 operations in a release build, a twentieth in other builds,
# with slower operations. One line for each combination of settings.
if(NOT TARGET flw_test_pool)
  return()
endif()
add_executable(stress_pool stress_pool.c stress_draw.c stress_fault.c stress_others.c
  stress_rare.c stress_run.c stress_settings.c stress_sleep.c stress_step.c)
flw_target(stress_pool)
target_link_libraries(stress_pool PRIVATE flw_test_pool)

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

if(TARGET fallow_shared)
  add_executable(stress_arena stress_arena.c stress_arena_run.c)
  flw_target(stress_arena)
  target_link_libraries(stress_arena PRIVATE flw_test_pool)
  foreach(threads 1 2 6)
    math(EXPR ops "200000 / ${FLW_STRESS_DIVISOR}")
    add_test(NAME stress.arena_${threads} COMMAND stress_arena --ops ${ops} --threads ${threads})
    set_tests_properties(stress.arena_${threads} PROPERTIES LABELS stress TIMEOUT 300)
  endforeach()
  math(EXPR ops "20000 / ${FLW_STRESS_DIVISOR}") # poison and red zones; scratch is forbidden between leases
  add_test(NAME stress.arena_checks COMMAND stress_arena --ops ${ops} --checks 3)
  set_tests_properties(stress.arena_checks PROPERTIES LABELS stress TIMEOUT 300)
  math(EXPR ops "100000 / ${FLW_STRESS_DIVISOR}")
  add_test(NAME stress.arena_few_addresses COMMAND stress_arena --ops ${ops} --threads 2 --addresses 96 --source 1)
  add_test(NAME stress.arena_segments COMMAND stress_arena --ops ${ops} --threads 2 --source 2)
  set_tests_properties(stress.arena_few_addresses stress.arena_segments PROPERTIES LABELS stress TIMEOUT 300)
  add_executable(races races.c)
  flw_target(races)
  target_link_libraries(races PRIVATE flw_test_pool)
  foreach(race misuse wild capture handle)
    add_test(NAME stress.${race}_race COMMAND races ${race})
    set_tests_properties(stress.${race}_race PROPERTIES LABELS stress TIMEOUT 240)
  endforeach()
  set_tests_properties(stress.capture_race stress.handle_race PROPERTIES LABELS "stress;slow")
  flw_add_stress(one_thread 1500000 --threads 1 --validate 20000)
  flw_add_stress(two_threads 1500000 --threads 2 --streams 4)
  flw_add_stress(eight_threads 1500000 --threads 8 --streams 2 --schedule random)
  flw_add_stress(small_limit 500000 --threads 2 --limit 100000000)
  flw_add_stress(tiny_limit 300000 --threads 1 --limit 25165824 --most 4194304)
  flw_add_stress(memory_first 1000000 --threads 2 --economy 1 --limit 200000000)
  flw_add_stress(speed_first 1000000 --threads 2 --streams 6 --economy 2 --limit 200000000)
  flw_add_stress(clock 1000000 --threads 2 --schedule clock --lag 200000)
  flw_add_stress(completed_only 500000 --threads 2 --reuse 1)
  flw_add_stress(same_stream_only 500000 --threads 2 --reuse 2)
  flw_add_stress(without_vmm 1000000 --threads 2 --without-vmm --limit 400000000)
  flw_add_stress(debug_checks 60000 --threads 2 --checks 30 --most 262144)
  flw_add_stress(sleeps 400000 --threads 3 --sleep --foreign --share --oom --limit 200000000 --validate 5000)
  flw_add_stress(dying_streams 300000 --threads 2 --dies 1 --foreign)
  flw_add_stress(ended_streams 300000 --threads 1 --dies 1)
  flw_add_stress(shared_streams_die 300000 --threads 4 --streams 2 --dies 1)
  flw_add_stress(one_handle 300000 --threads 3 --sleep --foreign --share --oom --one-handle 2097152 --limit 300000000 --most 16777216 --validate 2000)
  flw_add_stress(small_ranges 300000 --threads 3 --streams 4 --range 67108864 --share --sleep --foreign --validate 5000)
  flw_add_stress(context_order 600000 --threads 3 --order 1 --helper)
  flw_add_stress(faults 300000 --threads 3 --faults 1 --sleep --share --rounds 4)
  flw_add_stress(corners 40000 --draw --rounds 50) # ever other settings, the context's end among them
  foreach(module tiny_limit corners)
    set_tests_properties(stress.${module} PROPERTIES LABELS "stress;slow")
  endforeach()
  # One seed under each driver that programs meet.
  math(EXPR ops "600000 / ${FLW_STRESS_DIVISOR}")
  set(command stress_pool --seed 4711 --ops ${ops} --threads 3 --limit 200000000 --validate 5000)
  flw_add_under_profiles(stress.pool LABELS stress TIMEOUT 300
    PROFILES ${FLW_PROFILES_WITHOUT} refusing=NOT_SUPPORTED COMMAND ${command})
  flw_add_under_profiles(stress.pool LABELS stress TIMEOUT 300
    PROFILES ${FLW_PROFILES_WITH_VMM} COMMAND ${command} --sleep --share --foreign --oom)
  # Refused in mid-run, requests fail, and those that wait for others take long: fewer of them.
  math(EXPR ops "60000 / ${FLW_STRESS_DIVISOR}")
  flw_add_under_profiles(stress.pool LABELS stress TIMEOUT 300
    PROFILES refusing:cuMemCreate@40=NOT_PERMITTED refusing:cuMemMap@60=UNKNOWN refusing:cuMemSetAccess@20
    COMMAND stress_pool --seed 4711 --ops ${ops} --threads 3 --limit 200000000 --validate 500)
  # Memory that the driver does not take back stays: no more than the statistics count.
  flw_add_under_profiles(stress.pool LABELS stress TIMEOUT 300
    PROFILES refusing:cuMemUnmap=NOT_SUPPORTED refusing:cuMemUnmap@50=UNKNOWN refusing:cuMemRelease@9
      refusing:cuMemAddressFree refusing:cuMemUnmap,refusing:cuMemCreate@30
    COMMAND stress_pool --seed 4711 --ops ${ops} --threads 3 --limit 200000000 --validate 500 --sleep --share)
  flw_add_under_profiles(stress.without_vmm LABELS stress TIMEOUT 300
    PROFILES refusing:cuMemFree@20 refusing:cuMemAlloc@12
    COMMAND stress_pool --seed 4711 --ops ${ops} --threads 3 --limit 200000000 --validate 500 --without-vmm)
  flw_add_under_profiles(stress.clock LABELS stress TIMEOUT 300 # where time passes
    PROFILES slow COMMAND ${command} --schedule clock --lag 200000)
  if(TARGET fallow) # the recording of a run with captures, retired streams and failures is whole
    math(EXPR ops "1000000 / ${FLW_STRESS_DIVISOR}")
    set(recording ${CMAKE_CURRENT_BINARY_DIR}/stress.ftrace)
    add_test(NAME stress.recorded COMMAND sh -c
      "$<TARGET_FILE:stress_pool> --ops ${ops} --threads 3 --streams 3 --limit 200000000 --record ${recording} && $<TARGET_FILE:fallow> trace verify ${recording} && $<TARGET_FILE:fallow> trace info ${recording}")
    set_tests_properties(stress.recorded PROPERTIES LABELS stress TIMEOUT 300
      FAIL_REGULAR_EXPRESSION "lost frees;unknown frees;missing")
  endif()
endif()
