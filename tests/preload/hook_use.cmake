# SPDX-License-Identifier: Apache-2.0
# How programs reach the hooks: clients of every kind, run with and without the preload library.
flw_add_test(preload address_table SOURCES test_address_table.c)
flw_add_test(preload settings LIBRARIES flw_preload_settings flw_base SOURCES test_settings.c)
if(NOT TARGET fallow-preload)
  return() # address and thread sanitizers: see src/preload
endif()
set(here ${CMAKE_CURRENT_SOURCE_DIR})

function(flw_preload_client name)
  add_executable(preload_${name} ${ARGN})
  flw_target(preload_${name})
  find_package(Threads REQUIRED)
  target_link_libraries(preload_${name} PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
endfunction()

flw_preload_client(client client.c)
target_link_options(preload_client PRIVATE -rdynamic)
flw_preload_client(linked linked.c)
target_link_libraries(preload_linked PRIVATE simcuda-libcuda)
set_target_properties(preload_linked PROPERTIES BUILD_WITH_INSTALL_RPATH ON) # LD_LIBRARY_PATH names it
flw_preload_client(runtime_like runtime_like.c)
flw_preload_client(reenter reenter_client.c)
add_library(preload_plugin MODULE plugin.c)
flw_target(preload_plugin)
add_library(preload_early_plugin MODULE plugin.c)
flw_target(preload_early_plugin)
target_compile_definitions(preload_early_plugin PRIVATE PLUGIN_EARLY)
# The same driver three times: with every entry point that a pool needs; so, with two addresses for one;
# with four entry points alone.
foreach(name reentrant apart scant)
  add_library(preload_${name} SHARED reentrant.c $<$<NOT:$<STREQUAL:${name},scant>>:rest_of_driver.c>)
  flw_target(preload_${name})
  target_compile_definitions(preload_${name} PRIVATE $<$<STREQUAL:${name},apart>:APART>)
  target_link_options(preload_${name} PRIVATE -Wl,-Bsymbolic) # a driver's own calls stay inside
  set_target_properties(preload_${name} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/${name})
endforeach()
add_library(preload_echo SHARED echo_driver.c rest_of_driver.c)
flw_target(preload_echo)
set_target_properties(preload_echo PROPERTIES OUTPUT_NAME cuda SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/echo)
flw_preload_client(echo_client echo_client.c)
target_link_libraries(preload_echo_client PRIVATE preload_echo)
set_target_properties(preload_echo_client PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
foreach(kind EXPORTS ANSWERS WATCHES)
  string(TOLOWER rival_${kind} rival)
  add_library(preload_${rival} MODULE interposer.c)
  flw_target(preload_${rival})
  target_compile_definitions(preload_${rival} PRIVATE RIVAL_${kind})
endforeach()

# Programs of a real CUDA runtime, where there is a toolkit.
find_program(FALLOW_NVCC nvcc HINTS /usr/local/cuda/bin)
mark_as_advanced(FALLOW_NVCC)
get_filename_component(toolkit "${FALLOW_NVCC}/../../lib64" ABSOLUTE)
foreach(kind static shared)
  set(program_${kind} "")
  if(FALLOW_NVCC)
    set(program_${kind} ${CMAKE_CURRENT_BINARY_DIR}/runtime_${kind})
    # A toolkit that does not work here leaves an empty file, and its test is skipped.
    add_custom_command(OUTPUT ${program_${kind}}
      COMMAND sh -c "'${FALLOW_NVCC}' -cudart ${kind} -Xlinker '-rpath=${toolkit}' '${here}/runtime.cu' \
-o '${program_${kind}}' || : >'${program_${kind}}'"
      DEPENDS ${here}/runtime.cu COMMENT "nvcc: a program with the ${kind} runtime" VERBATIM)
    list(APPEND programs ${program_${kind}})
  endif()
endforeach()
add_custom_target(preload_runtime ALL DEPENDS ${programs})

# Valgrind and the sanitizers do not mix.
if(NOT FALLOW_SANITIZE)
  flw_preload_client(dlsym_cost dlsym_cost.c)
  add_test(NAME preload.dlsym_cost COMMAND ${here}/dlsym_cost.sh $<TARGET_FILE:preload_dlsym_cost>
    $<TARGET_FILE:fallow-preload> $<TARGET_FILE_DIR:simcuda-libcuda>)
  set_tests_properties(preload.dlsym_cost PROPERTIES LABELS preload TIMEOUT 240 SKIP_RETURN_CODE 77)
endif()
add_test(NAME preload.exports COMMAND ${here}/exports.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE:fallow-preload>)
add_test(NAME preload.hook_types COMMAND ${here}/hook_types.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER}
  "${FALLOW_CUDA_INCLUDE}" ${CMAKE_CURRENT_BINARY_DIR}/hook_types)
set_tests_properties(preload.exports preload.hook_types PROPERTIES LABELS preload TIMEOUT 240 SKIP_RETURN_CODE 77)


find_file(FALLOW_PRELOADED_MALLOC libjemalloc.so.2 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib /usr/lib64)
mark_as_advanced(FALLOW_PRELOADED_MALLOC)
if(FALLOW_PRELOADED_MALLOC)
  set(malloc PRELOADED_MALLOC=${FALLOW_PRELOADED_MALLOC})
endif()
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
flw_add_transcript(preload reach FILE cases/reach.cases ENVIRONMENT "B=$<TARGET_FILE_DIR:preload_client>"
  "LIB=$<TARGET_FILE_DIR:fallow-preload>" HERE=${here} PYTHON_PROGRAM=${Python3_EXECUTABLE} TOOLKIT=${toolkit}
  RUNTIMES=${CMAKE_CURRENT_BINARY_DIR} ${malloc} "EMULATOR=${emulator}")
