# SPDX-License-Identifier: Apache-2.0
# One thread: nothing for TSan to see, and thousands of worlds to see it in.
if(TARGET fallow-host AND NOT FALLOW_SANITIZE STREQUAL "thread")
  add_executable(test_host_faults test_host_faults.c)
  flw_target(test_host_faults)
  target_link_libraries(test_host_faults PRIVATE fallow-host test_support)
  # Each world costs a sanitizer ten times as much: every ninth position there, every third elsewhere. All with
  # FALLOW_TEST_ALL=1.
  set(step 3)
  if(FALLOW_SANITIZE)
    set(step 9)
  endif()
  add_test(NAME fault.host COMMAND test_host_faults --every ${step})
  set_tests_properties(fault.host PROPERTIES LABELS fault TIMEOUT 240)
  flw_add_under_profiles(fault.host LABELS fault TIMEOUT 240
    PROFILES ${FLW_PROFILES_WITH_VMM} ${FLW_PROFILES_WITHOUT} COMMAND test_host_faults --every 13)
endif()
