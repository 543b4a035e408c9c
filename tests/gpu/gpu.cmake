# SPDX-License-Identifier: Apache-2.0
# Programs for a real device that also run on the simulated one; run.sh calls them on a GPU.
if(TARGET fallow_shared)
  add_executable(gpu_stress gpu_stress.c)
  flw_target(gpu_stress)
  target_link_libraries(gpu_stress PRIVATE test_support fallow_shared)
  add_test(NAME gpu.stress_on_sim COMMAND gpu_stress --device sim --ops 4000 --seed 1)
  add_test(NAME gpu.capture_on_sim COMMAND gpu_stress --device sim --ops 3000 --seed 2 --capture)
  set_tests_properties(gpu.stress_on_sim gpu.capture_on_sim PROPERTIES
    LABELS gpu TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  # Without a GPU only its command line can be tried.
  add_test(NAME gpu.record_traces_usage COMMAND sh -c
    "${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/record_traces.py --only none 2>&1 | grep -q 'there are train'")
  set_tests_properties(gpu.record_traces_usage PROPERTIES LABELS gpu TIMEOUT 60)
  if(TARGET fallow AND TARGET fallow-kernels)
    # Every module has a PyTorch sequence, or a reason for having none; where torch is, each runs once.
    add_test(NAME gpu.kernels_torch COMMAND sh -c "'$<TARGET_FILE:fallow>' bench kernels --json >kernel_cases.json && \
'${Python3_EXECUTABLE}' '${CMAKE_CURRENT_SOURCE_DIR}/kernels_torch.py' --cases kernel_cases.json --device cpu 2>kernel_cases.err; \
code=$?; cat kernel_cases.err; if grep -q 'no sequence for' kernel_cases.err; then exit 1; fi; exit $code")
    set_tests_properties(gpu.kernels_torch PROPERTIES LABELS gpu TIMEOUT 120 SKIP_RETURN_CODE 77
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
endif()
