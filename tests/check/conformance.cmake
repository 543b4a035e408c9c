# SPDX-License-Identifier: Apache-2.0
# The conformance suite: one program for every driver, free of any test framework.
add_executable(driver_conformance
  conformance.c conformance_bed.c conformance_sight.c
  # Cases run in this order.
  conformance_device.c conformance_context.c conformance_memory.c conformance_vmm.c conformance_share.c
  conformance_stream.c conformance_event.c conformance_copy.c conformance_capture.c conformance_capture_modes.c
  conformance_graph.c conformance_mempool.c conformance_forms.c conformance_sim.c conformance_profile.c)
flw_target(driver_conformance)
find_package(Threads REQUIRED)
target_link_libraries(driver_conformance PRIVATE test_support Threads::Threads)
add_test(NAME check.conformance COMMAND driver_conformance sim
  --hardware ${PROJECT_SOURCE_DIR}/tests/gpu/hardware.txt)
set_tests_properties(check.conformance PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
# A case may be skipped only where the list names it for the profile, and then must be.
flw_add_under_profiles(check.conformance LABELS check TIMEOUT 240
  PROFILES ${FLW_PROFILES_WITH_VMM} ${FLW_PROFILES_WITHOUT} ${FLW_PROFILES_REFUSING}
  COMMAND driver_conformance sim --skips ${CMAKE_CURRENT_SOURCE_DIR}/conformance_skips.txt)
if(FALLOW_CUDA_INCLUDE)
  add_test(NAME check.conformance_quotes
    COMMAND driver_conformance --quotes ${FALLOW_CUDA_INCLUDE}/cuda.h)
  set_tests_properties(check.conformance_quotes PROPERTIES LABELS check TIMEOUT 240)
endif()
