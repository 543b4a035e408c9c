# SPDX-License-Identifier: Apache-2.0
# The simulated driver's own tests; the conformance cases are a suite of their own.
foreach(module simcuda simcuda_memory)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES test_support)
endforeach()
