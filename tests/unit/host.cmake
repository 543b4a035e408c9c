# SPDX-License-Identifier: Apache-2.0
# The promises of libfallow-host, on the simulated device.
if(TARGET fallow-host)
  foreach(module beside_host host host_edges host_streams)
    flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow-host test_support)
  endforeach()
  if(TARGET test_unit_beside_host AND NOT FALLOW_SANITIZE)
    add_test(NAME unit.beside_all_host COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/beside.sh $<TARGET_FILE:fallow-host>
      $<TARGET_FILE:test_unit_beside_host>)
    set_tests_properties(unit.beside_all_host PROPERTIES LABELS unit SKIP_RETURN_CODE 77)
  endif()
endif()
