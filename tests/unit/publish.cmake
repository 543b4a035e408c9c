# SPDX-License-Identifier: Apache-2.0
# What a process posts of its pools, and `fallow top`, which reads it.
add_executable(top_target top_target.c)
flw_target(top_target)
target_link_libraries(top_target PRIVATE fallow_shared flw_driver flw_base Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(top_target fallow-simcuda)
foreach(module board bulletin)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES flw_board flw_base)
endforeach()
flw_add_test(unit publish SOURCES test_publish.c LIBRARIES fallow_shared test_support flw_board)
if(TARGET fallow)
  flw_add_test(unit top SOURCES test_top.c DEPENDS fallow top_target
    ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>" "FALLOW_TOP_TARGET=$<TARGET_FILE:top_target>")
endif()
