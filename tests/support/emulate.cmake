# SPDX-License-Identifier: Apache-2.0
# Cross-built tests: ctest runs them under CMAKE_CROSSCOMPILING_EMULATOR; this file adds the emulation of programs that
# the tests start, since the kernel starts no program of another machine. Natively the file does nothing.
#
#   FLW_EMULATOR_DEFINITION          the definition with which emulator.h is compiled
#   flw_emulate_programs(<list>)     in values NAME=$<TARGET_FILE:...> of the list, puts in the place of a
#                                    program a script that runs it under the emulator
set(FLW_EMULATOR_DEFINITION)
if(CMAKE_CROSSCOMPILING)
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "\",\"" words)
  set(FLW_EMULATOR_DEFINITION FLW_EMULATOR="${words}",)
endif()

function(flw_write_emulating target script)
  get_property(is_written GLOBAL PROPERTY FLW_EMULATING_${target})
  if(NOT is_written)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "' '" words)
    file(GENERATE OUTPUT ${script} CONTENT "#!/bin/sh\nexec '${words}' '$<TARGET_FILE:${target}>' \"$@\"\n"
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    set_property(GLOBAL PROPERTY FLW_EMULATING_${target} TRUE)
  endif()
endfunction()

function(flw_emulate_programs list)
  if(NOT CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(values)
  foreach(value IN LISTS ${list})
    set(type)
    if(value MATCHES "^([^=]+=)[$]<TARGET_FILE:([^>]+)>$")
      set(name ${CMAKE_MATCH_1})
      set(target ${CMAKE_MATCH_2})
      get_target_property(type ${target} TYPE)
    endif()
    if(type STREQUAL "EXECUTABLE")
      set(script ${PROJECT_BINARY_DIR}/emulating/${target})
      flw_write_emulating(${target} ${script})
      set(value ${name}${script})
    endif()
    list(APPEND values "${value}")
  endforeach()
  set(${list} "${values}" PARENT_SCOPE)
endfunction()
