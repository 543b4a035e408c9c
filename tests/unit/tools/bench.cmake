# SPDX-License-Identifier: Apache-2.0
# The bench and the doctor of the `fallow` command, without the command.
if(TARGET fallow)
  flw_add_transcript(unit bench_command FILE cases/bench.cases)
  flw_add_test(unit bench SOURCES test_bench.c LIBRARIES flw_bench flw_driver flw_base
    DEPENDS fallow-simcuda LABELS slow)
  flw_add_test(unit bench_sweep SOURCES test_bench_sweep.c LIBRARIES flw_bench flw_driver flw_base
    DEPENDS fallow-simcuda)
  flw_add_test(unit doctor SOURCES test_doctor.c LIBRARIES flw_bench flw_driver flw_base
    DEPENDS fallow-simcuda simcuda-libcuda
    ENVIRONMENT "FALLOW_TEST_LIBCUDA=$<TARGET_FILE:simcuda-libcuda>")
  if(TARGET fallow-kernels)
    flw_add_test(unit bench_kernels SOURCES test_bench_kernels.c LIBRARIES flw_bench flw_driver flw_base
      DEPENDS fallow fallow-simcuda INCLUDES ${PROJECT_SOURCE_DIR}/kernels
      ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
  endif()
endif()
