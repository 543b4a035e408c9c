# SPDX-License-Identifier: Apache-2.0
# The target `docs`: the API reference, in BUILD/reference/html. Part of no other target.
find_program(FALLOW_DOXYGEN doxygen)
mark_as_advanced(FALLOW_DOXYGEN)
set(FLW_REFERENCE_DIR ${PROJECT_BINARY_DIR}/reference)
configure_file(Doxyfile.in ${CMAKE_CURRENT_BINARY_DIR}/Doxyfile @ONLY)
if(FALLOW_DOXYGEN)
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E make_directory ${FLW_REFERENCE_DIR}
    COMMAND ${FALLOW_DOXYGEN} ${CMAKE_CURRENT_BINARY_DIR}/Doxyfile
    COMMENT "API reference in ${FLW_REFERENCE_DIR}/html" VERBATIM)
else()
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "no doxygen: install it, then configure again"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
