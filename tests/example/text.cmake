# SPDX-License-Identifier: Apache-2.0
# The texts: each document is run in a shell of its own (documents.py has the rules), and what it was made of is
# compared. They run programs of this build tree and compile others against it, so it has to be complete, this
# machine's own, and free of sanitizers, whose runtimes would have to come before the preload.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND)
  return()
endif()
add_test(NAME example.text_rules COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/test_documents.py)
set_tests_properties(example.text_rules PROPERTIES LABELS example TIMEOUT 240)
if(FALLOW_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT FALLOW_INSTALL OR NOT FLW_CMOCKA OR NOT FLW_DEMO OR NOT TARGET fallow
   OR NOT TARGET fallow_shared OR NOT TARGET fallow-preload OR NOT TARGET fallow-host)
  return()
endif()
foreach(folder . include/fallow src src/preload src/simcuda kernels tools tests .github)
  set(document ${folder}/README.md)
  set(name ${folder})
  if(folder STREQUAL ".")
    set(document README.md)
    set(name top)
  elseif(folder STREQUAL ".github")
    set(document .github/CONTRIBUTING.md)
    set(name contributing)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/${document})
    string(REPLACE "/" "_" name ${name})
    set(first --readme README.md)
    if(name STREQUAL "top")
      set(first)
    endif()
    add_test(NAME example.text_${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/documents.py
      ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${document} ${first})
    set_tests_properties(example.text_${name} PROPERTIES LABELS example TIMEOUT 240 SKIP_RETURN_CODE 77)
  endif()
endforeach()
add_test(NAME example.picture COMMAND ${Python3_EXECUTABLE} -B
  ${PROJECT_SOURCE_DIR}/tools/fallow/report/page_picture.py --check ${PROJECT_BINARY_DIR})
set_tests_properties(example.picture PROPERTIES LABELS example TIMEOUT 240)
