# SPDX-License-Identifier: Apache-2.0
# FLW_NVCC_FLAGS: nvcc's flags for a kernel; empty, with a message, if no suitable nvcc is installed.
# FLW_KERNEL_GENERATIONS: "sm_80 sm_90", the generations with device code.
# The architectures are those of FALLOW_KERNEL_GENERATIONS that this nvcc supports, and PTX of the first and the
# last of them for generations between and after. The definition (the C twin) specifies every rounding, so
# the compiler fuses no product with a sum (-fmad=false); a kernel that fuses calls fmaf, as its twin does.
set(FLW_NVCC_FLAGS)
set(FALLOW_KERNEL_GENERATIONS "80;90;100" CACHE STRING "Compute capabilities, times ten, that kernels are compiled for")
find_program(FALLOW_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
mark_as_advanced(FALLOW_NVCC)
if(NOT FALLOW_NVCC)
  message(STATUS "fallow: no nvcc, the kernels serve the simulated device only")
  return()
endif()
execute_process(COMMAND ${FALLOW_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
set(generations)
foreach(generation IN LISTS FALLOW_KERNEL_GENERATIONS)
  if(known MATCHES "sm_${generation}[^0-9]")
    list(APPEND generations ${generation})
    list(APPEND FLW_NVCC_FLAGS -gencode arch=compute_${generation},code=sm_${generation})
  endif()
endforeach()
if(NOT generations)
  message(STATUS "fallow: ${FALLOW_NVCC} knows none of sm_${FALLOW_KERNEL_GENERATIONS}; the kernels serve the simulated device only")
  return()
endif()
list(TRANSFORM generations PREPEND sm_ OUTPUT_VARIABLE names)
list(JOIN names " " FLW_KERNEL_GENERATIONS)
list(GET generations 0 first)
list(GET generations -1 last)
foreach(generation ${first} ${last})
  list(APPEND FLW_NVCC_FLAGS -gencode arch=compute_${generation},code=compute_${generation})
endforeach()
list(REMOVE_DUPLICATES FLW_NVCC_FLAGS)
# "-gencode" was there more than once: put it back before each architecture.
list(REMOVE_ITEM FLW_NVCC_FLAGS -gencode)
list(TRANSFORM FLW_NVCC_FLAGS PREPEND -gencode=)
list(APPEND FLW_NVCC_FLAGS -std=c++17 -O3 -fmad=false -lineinfo -Werror all-warnings)

# An nvcc that refuses the host's compiler, or lacks its headers, must not break a build that can do without.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.cu
  "#include <cuda_bf16.h>\n#include <cuda_fp8.h>\nextern \"C\" __global__ void nothing() {}\n")
execute_process(COMMAND ${FALLOW_NVCC} -fatbin ${FLW_NVCC_FLAGS} -o ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.fatbin
  ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.cu RESULT_VARIABLE failed ERROR_VARIABLE why OUTPUT_QUIET)
if(failed)
  string(REGEX REPLACE "\n.*" "" why "${why}")
  message(STATUS "fallow: ${FALLOW_NVCC} does not work here (${why}); the kernels serve the simulated device only")
  set(FLW_NVCC_FLAGS)
else()
  message(STATUS "fallow: kernels for ${FLW_KERNEL_GENERATIONS} by ${FALLOW_NVCC}")
endif()
