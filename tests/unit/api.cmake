# SPDX-License-Identifier: Apache-2.0
# The promises of the public header, on the simulated device.
foreach(module api api_addresses api_capture api_debug api_driver api_edges api_handles api_life api_lookup api_peer api_runs
  api_settings api_share api_sleep api_sleep_others api_source api_steps api_uses api_waits)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow_shared test_support)
endforeach()
foreach(module beside_arena beside_plugin beside_pool)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow_shared test_support)
endforeach()
if(TARGET fallow_shared AND TARGET test_unit_beside_pool AND NOT FALLOW_SANITIZE) # whose runtime is not ours
  add_test(NAME unit.beside_all COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/beside.sh $<TARGET_FILE:fallow_shared>
    $<TARGET_FILE:test_unit_beside_arena> $<TARGET_FILE:test_unit_beside_plugin> $<TARGET_FILE:test_unit_beside_pool>)
  set_tests_properties(unit.beside_all PROPERTIES LABELS unit SKIP_RETURN_CODE 77)
endif()
foreach(module arena_capture arena_checks arena_dlpack arena_lease arena_persist arena_streams)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow_shared test_support)
endforeach()
if(NOT FALLOW_SANITIZE) # whose shadow is addresses, and whose malloc is not the C library's
  flw_add_test(unit api_host_limits SOURCES test_api_host_limits.c LIBRARIES fallow_shared test_support)
endif()
flw_add_test(unit arena_faults SOURCES test_arena_faults.c LIBRARIES fallow_shared test_support
  TIMEOUT 900 LABELS slow)
foreach(module plugin plugin_graphs)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow_shared test_support)
endforeach()
flw_add_test(unit plugin_settings SOURCES test_plugin_settings.c LIBRARIES flw_core)
flw_add_test(unit arena_layout SOURCES test_arena_layout.c LIBRARIES flw_core test_support)
foreach(module recorder recorder_end)
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES fallow_shared test_support flw_trace)
endforeach()
