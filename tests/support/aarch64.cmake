# SPDX-License-Identifier: Apache-2.0
# Toolchain: the distribution's cross compiler for aarch64, a root of the distribution's arm64 libraries,
# and qemu's user emulation for the built programs. tests/check/aarch64.sh makes the root and calls this.
#
# The root serves twice: the compiler takes headers and libraries from it, qemu the files that a program opens.
set(FALLOW_AARCH64_ROOT ${CMAKE_BINARY_DIR}/root CACHE PATH "Folder of the arm64 libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FALLOW_AARCH64_ROOT)
if(NOT EXISTS ${FALLOW_AARCH64_ROOT}/usr/include)
  message(FATAL_ERROR "no arm64 libraries in ${FALLOW_AARCH64_ROOT}: tests/check/aarch64.sh fetches them")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT ${FALLOW_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER) # programs that run during build and test are this machine's
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${FALLOW_AARCH64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${FALLOW_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${FALLOW_AARCH64_ROOT}/usr/share/pkgconfig)
# Programs that the root lacks.
set(FALLOW_PYTHON "" CACHE FILEPATH "Python: none")
set(FALLOW_NVCC "" CACHE FILEPATH "nvcc: none")
# The static one: LD_PRELOAD of a test's environment is for the program, and such a qemu has no use for it.
find_program(FALLOW_QEMU NAMES qemu-aarch64-static qemu-aarch64)
mark_as_advanced(FALLOW_QEMU)
if(NOT FALLOW_QEMU)
  message(FATAL_ERROR "no qemu-aarch64: install qemu-user-static")
endif()
# All addresses in one range that is held from the start: else the emulator gives each new mapping a new place, and
# keeps a descriptor of each page that ever was one.
set(CMAKE_CROSSCOMPILING_EMULATOR ${FALLOW_QEMU} -L ${FALLOW_AARCH64_ROOT} -R 256G)
