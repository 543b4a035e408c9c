# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET flw_test_pool)
  return()
endif()
# A sample of the positions, each answer beginning at another one: a world costs a sanitizer ten times as much.
# FALLOW_TEST_ALL=1 takes them all.
set(FLW_FAULT_STEP 5)
if(FALLOW_SANITIZE)
  set(FLW_FAULT_STEP 13)
endif()
add_executable(test_pool_faults test_pool_faults.c bed.c)
flw_target(test_pool_faults)
target_link_libraries(test_pool_faults PRIVATE flw_test_pool)
if(TARGET fallow_shared)
  add_test(NAME fault.pool_fallow COMMAND test_pool_faults --every ${FLW_FAULT_STEP})
  set_tests_properties(fault.pool_fallow PROPERTIES LABELS "fault;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
if(TARGET fallow_shared)
  flw_add_under_profiles(fault.pool_fallow LABELS fault slow TIMEOUT 300
    PROFILES ${FLW_PROFILES_WITH_VMM} ${FLW_PROFILES_WITHOUT} refusing=NOT_SUPPORTED
    COMMAND test_pool_faults --every 29)
endif()
if(TARGET fallow_shared) # whatever the driver refuses, from whichever call on
  add_executable(test_refusals test_refusals.c)
  flw_target(test_refusals)
  target_link_libraries(test_refusals PRIVATE flw_test_pool)
  add_test(NAME fault.refusals COMMAND test_refusals --every ${FLW_FAULT_STEP})
  set_tests_properties(fault.refusals PROPERTIES LABELS "fault;slow" TIMEOUT 300)
endif()
if(TARGET fallow_shared)
  add_executable(test_sleep_faults test_sleep_faults.c)
  flw_target(test_sleep_faults)
  target_link_libraries(test_sleep_faults PRIVATE flw_test_pool)
  add_test(NAME fault.sleep COMMAND test_sleep_faults --every ${FLW_FAULT_STEP})
  set_tests_properties(fault.sleep PROPERTIES LABELS "fault;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
  flw_add_under_profiles(fault.sleep LABELS fault slow TIMEOUT 300
    PROFILES ${FLW_PROFILES_WITH_VMM} COMMAND test_sleep_faults --every 53)
  flw_add_under_profiles(fault.sleep LABELS fault TIMEOUT 240 # short enough for every run
    PROFILES no-fabric,slow,host-pageable ${FLW_PROFILES_WITHOUT} COMMAND test_sleep_faults --every 97)
endif()
