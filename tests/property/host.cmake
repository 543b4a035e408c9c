# SPDX-License-Identifier: Apache-2.0
if(TARGET fallow-host AND COMMAND flw_add_test)
  flw_add_test(property host_waste SOURCES test_host_waste.c LIBRARIES fallow-host test_support TIMEOUT 240)
endif()
