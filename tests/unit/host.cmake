# SPDX-License-Identifier: Apache-2.0
# The promises of libfallow-host, on the simulated device.
if(TARGET fallow-host AND COMMAND flw_add_test)
  flw_add_test(unit host SOURCES test_host.c LIBRARIES fallow-host test_support TIMEOUT 240)
  foreach(module host_edges host_streams)
    flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow-host test_support)
  endforeach()
endif()
