# SPDX-License-Identifier: Apache-2.0
# A run through a recorded pool, and its recording replayed.
if(TARGET fallow)
  flw_add_test(property record_replay SOURCES test_record_replay.c
    LIBRARIES fallow_shared test_support flw_trace DEPENDS fallow fallow-simcuda TIMEOUT 300
    ENVIRONMENT "FALLOW_COMMAND=$<TARGET_FILE:fallow>" ${FLW_DEMO_ENVIRONMENT})
endif()
