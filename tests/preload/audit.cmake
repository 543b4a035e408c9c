# SPDX-License-Identifier: Apache-2.0
# The audit of fills: the tracker by itself; `fallow audit` over a program, with the simulated driver under
# the driver's name. The preload library is not built under sanitizers.
if(COMMAND flw_add_test)
  flw_add_test(preload audit SOURCES test_audit.c LIBRARIES flw_audit flw_base)
endif()
if(TARGET fallow-preload)
  add_executable(audit_client audit_client.c)
  flw_target(audit_client)
  target_link_libraries(audit_client PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(audit_client simcuda-libcuda)
endif()
