# SPDX-License-Identifier: Apache-2.0
# White-box tests of base, memory, heap and arena.
if(COMMAND flw_add_test)
  flw_add_test(unit base_bits SOURCES test_base_bits.c)
  flw_add_test(unit base SOURCES test_base.c LIBRARIES flw_base)
  flw_add_test(unit size_class SOURCES test_size_class.c LIBRARIES flw_core)
  flw_add_test(unit run_index SOURCES test_run_index.c LIBRARIES flw_core)
  flw_add_test(unit run_cache SOURCES test_run_cache.c LIBRARIES test_support flw_core)
  flw_add_test(unit page_map SOURCES test_page_map.c LIBRARIES test_support fallow_shared TIMEOUT 240)
  flw_add_test(unit domain SOURCES test_domain.c LIBRARIES test_support flw_core)
  flw_add_test(unit heap SOURCES test_heap.c LIBRARIES test_support flw_core)
  flw_add_test(unit arena_plan SOURCES test_arena_plan.c LIBRARIES flw_core TIMEOUT 240)
  flw_add_test(unit source SOURCES test_source.c LIBRARIES test_support flw_core)
endif()
