# SPDX-License-Identifier: Apache-2.0
# One function sets language, warnings, visibility and sanitizers for every target of the project.
find_path(FALLOW_CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
mark_as_advanced(FALLOW_CUDA_INCLUDE)
if(FALLOW_CUDA_H AND FALLOW_CUDA_INCLUDE)
  set(FALLOW_USES_CUDA_H ON)
else()
  set(FALLOW_USES_CUDA_H OFF)
endif()
message(STATUS "fallow: driver types from ${FALLOW_USES_CUDA_H} (cuda.h), sanitizer '${FALLOW_SANITIZE}'")

# A library that registers functions with threads (thread-specific data), forks or the driver stays loaded
# after a dlclose, because they will call its code.
function(flw_stays_loaded name)
  target_link_options(${name} PRIVATE -Wl,-z,nodelete)
endfunction()

function(flw_target name)
  target_compile_features(${name} PRIVATE c_std_11)
  set_target_properties(${name} PROPERTIES
    C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wpointer-arith -Wcast-align -Wwrite-strings -Wvla -Wundef -fno-strict-aliasing
    -fno-semantic-interposition
    # Valgrind 3.19 stops at clang's DWARF 5; the option adds no debug information by itself.
    $<$<C_COMPILER_ID:Clang>:-fdebug-default-version=4>)
  target_compile_definitions(${name} PRIVATE
    _GNU_SOURCE FLW_CHECK_LEVEL=${FALLOW_CHECK_LEVEL})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  if(FALLOW_USES_CUDA_H)
    target_compile_definitions(${name} PRIVATE FLW_USES_CUDA_H=1)
    target_include_directories(${name} SYSTEM PRIVATE ${FALLOW_CUDA_INCLUDE})
  endif()
  if(FALLOW_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${FALLOW_SANITIZE} -fno-omit-frame-pointer -g1)
    target_link_options(${name} PRIVATE -fsanitize=${FALLOW_SANITIZE})
    if(FALLOW_SANITIZE STREQUAL "thread")
      target_compile_definitions(${name} PRIVATE FLW_TSAN=1)
    endif()
    if(FALLOW_SANITIZE MATCHES "undefined")
      target_compile_options(${name} PRIVATE -fno-sanitize-recover=undefined)
    endif()
  endif()
endfunction()
