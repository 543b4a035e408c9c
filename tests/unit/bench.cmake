# SPDX-License-Identifier: Apache-2.0
# The bench and the doctor of the `fallow` command, without the command.
if(COMMAND flw_add_test AND TARGET flw_bench)
  flw_add_test(unit bench SOURCES test_bench.c LIBRARIES flw_bench flw_driver flw_base TIMEOUT 120)
  flw_add_test(unit doctor SOURCES test_doctor.c LIBRARIES flw_bench flw_driver flw_base TIMEOUT 120)
  foreach(name bench doctor)
    if(TARGET test_unit_${name} AND TARGET fallow-simcuda)
      add_dependencies(test_unit_${name} fallow-simcuda)
    endif()
  endforeach()
endif()
