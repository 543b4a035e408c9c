# SPDX-License-Identifier: Apache-2.0
# How a test is added. cmocka is searched once; without cmocka its tests are not built.
#
#   flw_add_test(<kind> <module> SOURCES a.c ... [LIBRARIES target ...] [ARGUMENTS arg ...]
#                [DEPENDS target ...] [INCLUDES folder ...] [DEFINITIONS NAME=value ...]
#                [ENVIRONMENT NAME=value ...] [TIMEOUT seconds] [LABELS more ...] [PLAIN])
#
# makes the program test_<kind>_<module>, named <kind>.<module> in ctest, label <kind>, default
# timeout 240 s, exit 77 = skipped; the label slow keeps a test out of the quick tier. PLAIN: the program
# uses no cmocka and is built always. DEPENDS: files that the program runs or opens, built before the program. Where
# cmocka is absent the target is absent too: so nothing outside of this call may name it (check.bare_build);
# the plain programs of a kind are in the global property FLW_PLAIN_<kind>.
#   flw_add_script(NAME <kind>.<module> SCRIPT file [ARGUMENTS arg ...] [LABELS more ...] [TIMEOUT seconds])
#
# makes a test of a script in the current folder, with the same defaults. A Python script needs python3, else there is
# no test. Arguments must not be empty.
# ENVIRONMENT may name a program that the test starts: NAME=$<TARGET_FILE:...>, and nothing else in it, so
# that it starts under an emulator too (emulate.cmake).
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
endif()
if(TARGET PkgConfig::CMOCKA)
  set(FLW_CMOCKA PkgConfig::CMOCKA)
else()
  find_path(CMOCKA_INCLUDE cmocka.h)
  find_library(CMOCKA_LIBRARY cmocka)
  mark_as_advanced(CMOCKA_INCLUDE CMOCKA_LIBRARY)
  if(CMOCKA_INCLUDE AND CMOCKA_LIBRARY)
    add_library(flw_cmocka INTERFACE)
    target_include_directories(flw_cmocka SYSTEM INTERFACE ${CMOCKA_INCLUDE})
    target_link_libraries(flw_cmocka INTERFACE ${CMOCKA_LIBRARY})
    set(FLW_CMOCKA flw_cmocka)
  endif()
endif()
if(FLW_CMOCKA)
  message(STATUS "fallow: tests use cmocka")
else()
  message(STATUS "fallow: cmocka not found, its tests are not built (install libcmocka-dev)")
endif()
find_package(Threads REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/emulate.cmake)

function(flw_add_test kind module)
  cmake_parse_arguments(PARSE_ARGV 2 TEST "PLAIN" "TIMEOUT"
    "SOURCES;LIBRARIES;ARGUMENTS;DEPENDS;INCLUDES;DEFINITIONS;ENVIRONMENT;LABELS")
  if(TEST_UNPARSED_ARGUMENTS OR NOT TEST_SOURCES)
    message(FATAL_ERROR "flw_add_test(${kind} ${module}): needs SOURCES; unknown: ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TEST_PLAIN AND NOT FLW_CMOCKA)
    return()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 240)
  endif()
  set(program test_${kind}_${module})
  if(TEST_PLAIN)
    set_property(GLOBAL APPEND PROPERTY FLW_PLAIN_${kind} ${program})
  endif()
  add_executable(${program} ${TEST_SOURCES})
  flw_target(${program})
  target_compile_options(${program} PRIVATE -Wno-unused-parameter) # of cmocka: void **state
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${TEST_INCLUDES})
  target_compile_definitions(${program} PRIVATE ${TEST_DEFINITIONS} ${FLW_EMULATOR_DEFINITION})
  target_link_libraries(${program} PRIVATE ${TEST_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT TEST_PLAIN)
    target_link_libraries(${program} PRIVATE ${FLW_CMOCKA})
  endif()
  if(TEST_DEPENDS)
    add_dependencies(${program} ${TEST_DEPENDS})
  endif()
  flw_emulate_programs(TEST_ENVIRONMENT)
  add_test(NAME ${kind}.${module} COMMAND ${program} ${TEST_ARGUMENTS})
  set_tests_properties(${kind}.${module} PROPERTIES
    LABELS "${kind};${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${TEST_ENVIRONMENT}")
endfunction()

# flw_add_transcript(<kind> <module> FILE cases [ENVIRONMENT NAME=value ...])
# runs a file of shell commands with transcript.py, which describes the form; without Python it is left out.
find_package(Python3 COMPONENTS Interpreter QUIET)
set(FLW_TRANSCRIPT ${CMAKE_CURRENT_LIST_DIR}/transcript.py)
function(flw_add_transcript kind module)
  cmake_parse_arguments(PARSE_ARGV 2 TEST "" "FILE" "ENVIRONMENT")
  if(NOT Python3_FOUND OR NOT TARGET fallow)
    return()
  endif()
  list(APPEND TEST_ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
  flw_emulate_programs(TEST_ENVIRONMENT)
  add_test(NAME ${kind}.${module} COMMAND ${Python3_EXECUTABLE} -B ${FLW_TRANSCRIPT} ${CMAKE_CURRENT_SOURCE_DIR}/${TEST_FILE})
  set_tests_properties(${kind}.${module} PROPERTIES LABELS ${kind} TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${TEST_ENVIRONMENT}")
endfunction()

find_program(FALLOW_PYTHON python3)
mark_as_advanced(FALLOW_PYTHON)
function(flw_add_script)
  cmake_parse_arguments(PARSE_ARGV 0 TEST "" "NAME;SCRIPT;TIMEOUT" "ARGUMENTS;LABELS")
  set(command ${CMAKE_CURRENT_SOURCE_DIR}/${TEST_SCRIPT})
  if(NOT TEST_SCRIPT MATCHES "[.]sh$")
    if(NOT FALLOW_PYTHON)
      return()
    endif()
    list(PREPEND command ${FALLOW_PYTHON} -B)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 240)
  endif()
  string(REGEX REPLACE "[.].*" "" kind ${TEST_NAME})
  add_test(NAME ${TEST_NAME} COMMAND ${command} ${TEST_ARGUMENTS} COMMAND_EXPAND_LISTS)
  set_tests_properties(${TEST_NAME} PROPERTIES LABELS "${kind};${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT}
    SKIP_RETURN_CODE 77)
endfunction()
