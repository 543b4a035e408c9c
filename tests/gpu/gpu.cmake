# SPDX-License-Identifier: Apache-2.0
# Programs for a real device that also run on the simulated one; first.sh calls them on a GPU.
if(TARGET fallow_shared)
  add_executable(gpu_stress gpu_stress.c gpu_stress_rounds.c gpu_stress_steps.c)
  flw_target(gpu_stress)
  target_link_libraries(gpu_stress PRIVATE test_support fallow_shared Threads::Threads)
  set(ops 3000)
  if(FALLOW_SANITIZE STREQUAL "thread") # which lets one thread run at a time, each twenty times as long
    set(ops 800)
  endif()
  foreach(form "streams --seed 1" "capture --seed 2 --capture" "sleep --seed 3 --sleep" "share --seed 4 --share"
      "segments --seed 7 --threads 3 --capture --segments"
      "threads --seed 5 --threads 3 --capture --sleep --share")
    separate_arguments(form)
    list(POP_FRONT form name)
    add_test(NAME gpu.stress_${name}_on_sim COMMAND gpu_stress --device sim --ops ${ops} ${form})
    set_tests_properties(gpu.stress_${name}_on_sim PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
  endforeach()
endif()
# Programs that query a driver. The long kernel is compiled if kernels are.
add_library(flw_gpu_bed STATIC bed.c)
flw_target(flw_gpu_bed)
target_link_libraries(flw_gpu_bed PUBLIC test_support flw_base Threads::Threads)
target_include_directories(flw_gpu_bed PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(flw_gpu_bed PRIVATE FLW_SPIN_PTX="${CMAKE_CURRENT_SOURCE_DIR}/spin.ptx")
set(spin_files ${CMAKE_CURRENT_SOURCE_DIR}/spin.ptx)
get_property(flags GLOBAL PROPERTY FLW_NVCC_FLAGS)
if(flags)
  set(spin_image ${CMAKE_CURRENT_BINARY_DIR}/spin.fatbin)
  list(FILTER flags INCLUDE REGEX "code=sm_")
  add_custom_command(OUTPUT ${spin_image} COMMAND ${FALLOW_NVCC} -fatbin ${flags} -o ${spin_image}
    ${CMAKE_CURRENT_SOURCE_DIR}/spin.ptx DEPENDS spin.ptx COMMENT "Kernel spin" VERBATIM)
  target_compile_definitions(flw_gpu_bed PRIVATE FLW_SPIN_IMAGE="${spin_image}")
  list(APPEND spin_files ${spin_image})
endif()
set_source_files_properties(bed.c PROPERTIES OBJECT_DEPENDS "${spin_files}")
add_executable(first_run first_run.c first_run_memory.c first_run_order.c)
add_executable(device_probe device_probe.c)
add_executable(vmm_probe vmm_probe.c vmm_probe_kinds.c vmm_probe_times.c)
foreach(program first_run device_probe vmm_probe)
  flw_target(${program})
  target_link_libraries(${program} PRIVATE flw_gpu_bed)
endforeach()
# Here only that the programs work.
add_test(NAME gpu.first_run_on_sim COMMAND first_run --device sim)
add_test(NAME gpu.device_probe_on_sim COMMAND device_probe --device sim --attributes)
set_tests_properties(gpu.device_probe_on_sim PROPERTIES PASS_REGULAR_EXPRESSION "\"simulated\":true.*\"well\":true")
set(tests gpu.first_run_on_sim gpu.device_probe_on_sim)
foreach(question reserve creates ipc life unmap access fill)
  add_test(NAME gpu.vmm_${question}_on_sim COMMAND vmm_probe --device sim ${question})
  list(APPEND tests gpu.vmm_${question}_on_sim)
endforeach()
# Each call in the model has a cost, idle and behind work.
foreach(load idle behind)
  set(regular "\"call\":\"cuMemCreate\",\"bytes\":2097152,[^\n]*\"load\":\"${load}\",[^\n]*\"us_median\":[1-9]")
  add_test(NAME gpu.vmm_life_${load}_has_times COMMAND vmm_probe --device sim life)
  set_tests_properties(gpu.vmm_life_${load}_has_times PROPERTIES PASS_REGULAR_EXPRESSION "${regular}"
    FAIL_REGULAR_EXPRESSION "\"us_median\":0.00")
  list(APPEND tests gpu.vmm_life_${load}_has_times)
endforeach()
add_test(NAME gpu.vmm_unmap_waits COMMAND vmm_probe --device sim life)
set_tests_properties(gpu.vmm_unmap_waits PROPERTIES ENVIRONMENT FALLOW_SIMCUDA=slow
  PASS_REGULAR_EXPRESSION "\"call\":\"cuMemUnmap\",[^\n]*\"load\":\"behind\",[^\n]*\"waited\":true")
list(APPEND tests gpu.vmm_unmap_waits)
set_tests_properties(${tests} PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
# A driver that refuses is queried too.
flw_add_under_profiles(gpu.vmm LABELS gpu TIMEOUT 240 PROFILES ${FLW_PROFILES_WITH_VMM} ${FLW_PROFILES_REFUSING}
    refusing:cuMemMap refusing:cuMemSetAccess refusing:cuMemAddressReserve
  COMMAND sh -c "for question in reserve creates ipc life unmap access fill; do \
'$<TARGET_FILE:vmm_probe>' --device sim $question || { echo \"$question ended with $?\"; exit 1; }; done")
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
# The part of clients.sh that needs no GPU: the plain C clients with and without the preload library, on the simulated
# driver. Not with a sanitizer, since its runtime must be loaded first.
if(TARGET fallow-preload AND TARGET fallow_shared)
  add_test(NAME gpu.clients_on_sim COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/clients.sh --device sim
    --bundle ${PROJECT_BINARY_DIR} --out ${CMAKE_CURRENT_BINARY_DIR}/clients.json)
  set_tests_properties(gpu.clients_on_sim PROPERTIES LABELS gpu TIMEOUT 300
    PASS_REGULAR_EXPRESSION "\n1[2-9] passed, 0 failed" SKIP_RETURN_CODE 77)
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  # Without its framework each client prints a sentence and is skipped; nothing else can be tried here.
  add_test(NAME gpu.client_scripts COMMAND sh -c
    "for script in '${CMAKE_CURRENT_SOURCE_DIR}'/clients/*.py; do \
'${Python3_EXECUTABLE}' -B \"$script\" >client.out 2>client.err; code=$?; echo \"$script: $code $(tail -n 1 client.err)\"; \
case $code in 0 | 77) ;; *) exit 1 ;; esac; done")
  set_tests_properties(gpu.client_scripts PROPERTIES LABELS gpu TIMEOUT 600
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  # Without a GPU only its command line can be tried.
  add_test(NAME gpu.torch_tour_usage COMMAND sh -c
    "${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/torch_tour.py none 2>&1 | grep -q 'plain|plugin'")
  set_tests_properties(gpu.torch_tour_usage PROPERTIES LABELS gpu TIMEOUT 240)
  # Skipped where there is no torch; on a CPU it shows that the program works.
  foreach(kind serve train)
    add_test(NAME gpu.transformer_${kind} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/transformer.py ${kind}
      --device cpu --steps 3 --warm 1 --hidden 64 --heads 4 --layers 2 --batch 4 --length 128)
    set_tests_properties(gpu.transformer_${kind} PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
  endforeach()
  if(TARGET fallow AND TARGET fallow-kernels)
    # Every module has a PyTorch sequence, or a reason for having none; where torch is, each runs once.
    add_test(NAME gpu.kernels_torch COMMAND sh -c "'$<TARGET_FILE:fallow>' bench kernels --json >kernel_cases.json && \
'${Python3_EXECUTABLE}' '${CMAKE_CURRENT_SOURCE_DIR}/kernels_torch.py' --cases kernel_cases.json --device cpu 2>kernel_cases.err; \
code=$?; cat kernel_cases.err; if grep -q 'no sequence for' kernel_cases.err; then exit 1; fi; exit $code")
    set_tests_properties(gpu.kernels_torch PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
endif()
# All that bundle.sh packs.
get_property(kernel_tests GLOBAL PROPERTY FLW_PLAIN_kernel)
add_custom_target(gpu_programs DEPENDS fallow fallow_shared fallow-kernels fallow-preload fallow-simcuda simcuda-libcuda
  driver_conformance gpu_stress first_run device_probe vmm_probe client_plain client_plain_linked ${kernel_tests})
if(CMAKE_CROSSCOMPILING)
  return()
endif()
# From this build: steps that crash, hang and print half a line; both calls as on a GPU machine, with the
# simulated driver under the name of the real one.
if(NOT FALLOW_SANITIZE)
  add_test(NAME gpu.real_name COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/calls_test.sh
    0 ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/real_name)
  set_tests_properties(gpu.real_name PROPERTIES LABELS "gpu;slow" TIMEOUT 700 PROCESSORS 2)
  add_test(NAME gpu.first_rehearsal COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/first_test.sh
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/first_rehearsal)
  set_tests_properties(gpu.first_rehearsal PROPERTIES LABELS "gpu;slow" TIMEOUT 240 SKIP_RETURN_CODE 77)
endif()
if(Python3_FOUND)
  add_test(NAME gpu.digest COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/digest_test.py
    --conformance $<TARGET_FILE:driver_conformance> --probe $<TARGET_FILE:vmm_probe> --compiler ${CMAKE_C_COMPILER})
  set_tests_properties(gpu.digest PROPERTIES LABELS gpu TIMEOUT 240 SKIP_RETURN_CODE 77)
endif()
# Build the bundle, and run both calls in a root with nothing else. The longest test starts first.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT FALLOW_SANITIZE)
  add_test(NAME gpu.bundle_in_an_empty_root COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/empty_root.sh
    ${CMAKE_CURRENT_BINARY_DIR}/empty_root)
  set_tests_properties(gpu.bundle_in_an_empty_root PROPERTIES LABELS "gpu;slow" TIMEOUT 1800 SKIP_RETURN_CODE 77 COST 1000)
endif()
