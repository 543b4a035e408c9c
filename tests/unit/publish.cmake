# SPDX-License-Identifier: Apache-2.0
# What a process posts of its pools, and `fallow top`, which reads it.
if(COMMAND flw_add_test)
  flw_add_test(unit board SOURCES test_board.c LIBRARIES flw_board flw_base TIMEOUT 120)
endif()
if(TARGET fallow_shared AND COMMAND flw_add_test)
  flw_add_test(unit publish SOURCES test_publish.c LIBRARIES fallow_shared test_support flw_board TIMEOUT 120)
endif()
