# SPDX-License-Identifier: Apache-2.0
# libfallow.a: the library as one object in an archive, with everything but the C library. The objects
# are joined by a relocatable link, then every name that is not public becomes local, so that a program may
# have names of its own like ours. Public names stay visible, by FALLOW_API in the headers.
if(FALLOW_SANITIZE OR NOT CMAKE_OBJCOPY)
  message(STATUS "fallow: no libfallow.a (not with a sanitizer, nor without objcopy)")
  return()
endif()
find_package(Threads REQUIRED)
separate_arguments(flags UNIX_COMMAND "${CMAKE_C_FLAGS}")
if(CMAKE_C_COMPILER_TARGET)
  list(APPEND flags ${CMAKE_C_COMPILE_OPTIONS_TARGET}${CMAKE_C_COMPILER_TARGET})
endif()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND flags -flinker-output=nolto-rel) # machine code, whatever the objects are
endif()
set(joined ${CMAKE_CURRENT_BINARY_DIR}/fallow.o)
add_custom_command(OUTPUT ${joined}
  COMMAND ${CMAKE_C_COMPILER} ${flags} -r -nostdlib -o ${joined}
    -Wl,--whole-archive $<TARGET_FILE:flw_core> -Wl,--no-whole-archive
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${joined}
  DEPENDS flw_core COMMENT "One object of libfallow" VERBATIM)

add_library(fallow_static STATIC ${joined})
add_library(fallow::fallow_static ALIAS fallow_static)
set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(fallow_static PROPERTIES OUTPUT_NAME fallow LINKER_LANGUAGE C)
target_include_directories(fallow_static INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(fallow_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# A shared object that contains the archive does not export its names, and is never unloaded, since threads end in the
# archive.
set(is_shared $<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY$<SEMICOLON>MODULE_LIBRARY>)
target_link_options(fallow_static INTERFACE
  "$<${is_shared}:LINKER:--exclude-libs,libfallow.a;LINKER:-z,nodelete>")
