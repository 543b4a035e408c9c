# SPDX-License-Identifier: Apache-2.0
# The mutation suite: the library's sources a second time, with their planted faults, under the stress
# program. Nothing of it is installed.
if(NOT TARGET flw_test_pool OR NOT TARGET flw_pool OR FALLOW_SANITIZE)
  return() # a sanitizer would catch faults in place of the checker
endif()
set(sources)
foreach(layer base driver section memory heap record pool arena)
  get_target_property(files flw_${layer} SOURCES)
  get_target_property(folder flw_${layer} SOURCE_DIR)
  foreach(file ${files})
    list(APPEND sources ${folder}/${file})
  endforeach()
endforeach()
foreach(file client.c client_capture.c overlap.c pool_under_test.c sim.c)
  list(APPEND sources ${PROJECT_SOURCE_DIR}/tests/support/${file})
endforeach()
add_executable(stress_mutant mutant_arena.c mutant_main.c mutant_scenario.c
  quiescence.c quiescence_model.c stress_arena_run.c stress_draw.c stress_fault.c stress_others.c
  stress_rare.c stress_run.c stress_settings.c stress_sleep.c stress_step.c ${sources})
flw_target(stress_mutant)
target_compile_definitions(stress_mutant PRIVATE FLW_MUTATION=1 FALLOW_STATIC=1)
target_include_directories(stress_mutant PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(stress_mutant PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(stress_mutant fallow-simcuda)

flw_add_script(NAME stress.mutation SCRIPT mutation.py LABELS slow TIMEOUT 3600
  ARGUMENTS ${PROJECT_SOURCE_DIR}/src/base/mutant.h $<TARGET_FILE:stress_mutant>)
if(TEST stress.mutation)
  set_tests_properties(stress.mutation PROPERTIES RUN_SERIAL ON)
endif()
