# SPDX-License-Identifier: Apache-2.0
# The promises of libfallow-host, on the simulated device.
if(TARGET fallow-host AND COMMAND flw_add_test)
  flw_add_test(unit host SOURCES test_host.c LIBRARIES fallow-host test_support TIMEOUT 240)
  flw_add_test(unit host_edges SOURCES test_host_edges.c LIBRARIES fallow-host test_support)
endif()
