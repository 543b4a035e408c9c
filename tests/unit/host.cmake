# SPDX-License-Identifier: Apache-2.0
# The promises of libfallow-host, on the simulated device.
if(TARGET fallow-host)
  foreach(module host host_edges host_streams)
    flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow-host test_support)
  endforeach()
endif()
