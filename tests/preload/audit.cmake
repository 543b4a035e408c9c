# SPDX-License-Identifier: Apache-2.0
# The audit of fills: the tracker and the findings by themselves; `fallow audit` over a program, with the
# simulated driver under the driver's name. Address and thread sanitizers have no preload library.
flw_add_test(preload audit SOURCES test_audit.c LIBRARIES flw_audit flw_base)
flw_add_test(preload liveblocks SOURCES test_liveblocks.c LIBRARIES flw_audit flw_base)
if(TARGET fallow)
  flw_add_test(preload findings SOURCES test_findings.c LIBRARIES flw_findings flw_audit flw_base)
endif()
if(TARGET fallow AND TARGET fallow-preload)
  add_executable(audit_client audit_client.c)
  flw_target(audit_client)
  target_link_libraries(audit_client PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  flw_add_transcript(preload audit_command FILE cases/audit_command.cases
    ENVIRONMENT "AUDIT_CLIENT=$<TARGET_FILE:audit_client>" AUDIT_SCRIPT=${CMAKE_CURRENT_SOURCE_DIR}/audit_script.py
      "AUDIT_DRIVER=$<TARGET_FILE_DIR:simcuda-libcuda>" "AUDIT_LIBRARY=$<TARGET_FILE:fallow-preload>"
      "RIVAL=$<TARGET_FILE:preload_rival_exports>")
endif()
