# SPDX-License-Identifier: Apache-2.0
# One thread: nothing for TSan to see.
if(TARGET fallow-host AND NOT FALLOW_SANITIZE STREQUAL "thread")
  flw_add_test(property host_waste SOURCES test_host_waste.c LIBRARIES fallow-host test_support TIMEOUT 240)
endif()
