# SPDX-License-Identifier: Apache-2.0
# Programs for a real device that also run on the simulated one; run.sh calls them on a GPU.
if(TARGET fallow_shared)
  add_executable(gpu_stress gpu_stress.c gpu_stress_rounds.c gpu_stress_steps.c)
  flw_target(gpu_stress)
  target_link_libraries(gpu_stress PRIVATE test_support fallow_shared Threads::Threads)
  foreach(form "streams --seed 1" "capture --seed 2 --capture" "sleep --seed 3 --sleep" "share --seed 4 --share"
      "threads --seed 5 --threads 3 --capture --sleep --share")
    separate_arguments(form)
    list(POP_FRONT form name)
    add_test(NAME gpu.stress_${name}_on_sim COMMAND gpu_stress --device sim --ops 3000 ${form})
    set_tests_properties(gpu.stress_${name}_on_sim PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
  endforeach()
endif()
# What is to be asked of the first real driver: here only that the program works.
add_executable(first_run first_run.c first_run_memory.c first_run_order.c)
flw_target(first_run)
target_link_libraries(first_run PRIVATE test_support flw_base Threads::Threads)
add_test(NAME gpu.first_run_on_sim COMMAND first_run --device sim)
set_tests_properties(gpu.first_run_on_sim PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
# Plain clients of the driver for clients.sh: one linked with it, one that finds it by itself. The former is
# linked with the simulated one, which has the driver's name; which one it gets is decided when it starts.
foreach(client plain plain_linked)
  add_executable(client_${client} clients/plain.c)
  flw_target(client_${client})
  target_link_libraries(client_${client} PRIVATE ${CMAKE_DL_LIBS})
endforeach()
target_compile_definitions(client_plain_linked PRIVATE LINKED=1)
target_link_libraries(client_plain_linked PRIVATE simcuda-libcuda)
set_target_properties(client_plain_linked PROPERTIES SKIP_BUILD_RPATH ON)
# What of clients.sh needs no GPU: the plain C clients with and without the preload library, on the simulated
# driver. Not with a sanitizer, whose runtime would have to come first.
if(TARGET fallow-preload AND TARGET fallow_shared)
  add_test(NAME gpu.clients_on_sim COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/clients.sh --device sim --no-build
    --build ${PROJECT_BINARY_DIR} --out ${CMAKE_CURRENT_BINARY_DIR}/clients.json)
  set_tests_properties(gpu.clients_on_sim PROPERTIES LABELS gpu TIMEOUT 300
    PASS_REGULAR_EXPRESSION "\n1[2-9] passed, 0 failed" SKIP_RETURN_CODE 77)
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  # Without its framework each client says so and is skipped; nothing else can be tried here.
  add_test(NAME gpu.client_scripts COMMAND sh -c
    "for script in '${CMAKE_CURRENT_SOURCE_DIR}'/clients/*.py; do \
'${Python3_EXECUTABLE}' -B \"$script\" >client.out 2>client.err; code=$?; echo \"$script: $code $(tail -n 1 client.err)\"; \
case $code in 0 | 77) ;; *) exit 1 ;; esac; done")
  set_tests_properties(gpu.client_scripts PROPERTIES LABELS gpu TIMEOUT 600
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  # Without a GPU only its command line can be tried.
  add_test(NAME gpu.record_traces_usage COMMAND sh -c
    "${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/record_traces.py --only none 2>&1 | grep -q 'there are train'")
  set_tests_properties(gpu.record_traces_usage PROPERTIES LABELS gpu TIMEOUT 240)
  if(TARGET fallow AND TARGET fallow-kernels)
    # Every module has a PyTorch sequence, or a reason for having none; where torch is, each runs once.
    add_test(NAME gpu.kernels_torch COMMAND sh -c "'$<TARGET_FILE:fallow>' bench kernels --json >kernel_cases.json && \
'${Python3_EXECUTABLE}' '${CMAKE_CURRENT_SOURCE_DIR}/kernels_torch.py' --cases kernel_cases.json --device cpu 2>kernel_cases.err; \
code=$?; cat kernel_cases.err; if grep -q 'no sequence for' kernel_cases.err; then exit 1; fi; exit $code")
    set_tests_properties(gpu.kernels_torch PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
endif()
