# SPDX-License-Identifier: Apache-2.0
# The generators of traces, and `fallow gen` from outside.
foreach(module gen gen_serve gen_train)
  flw_add_test(unit ${module} SOURCES test_${module}.c test_gen_bed.c LIBRARIES flw_trace)
endforeach()
if(TARGET fallow)
  flw_add_test(unit gen_command SOURCES test_gen_command.c DEPENDS fallow fallow-simcuda
    ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
endif()
