# SPDX-License-Identifier: Apache-2.0
# The simulated driver's own tests; the conformance cases are a suite of their own.
if(COMMAND flw_add_test)
  flw_add_test(unit simcuda SOURCES test_simcuda.c LIBRARIES test_support)
endif()
