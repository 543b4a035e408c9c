# SPDX-License-Identifier: Apache-2.0
# A run through a recorded pool, and its recording replayed.
if(TARGET fallow AND TARGET fallow_shared AND COMMAND flw_add_test)
  flw_add_test(property record_replay SOURCES test_record_replay.c
    LIBRARIES fallow_shared test_support flw_trace TIMEOUT 300)
  if(TARGET test_property_record_replay)
    add_dependencies(test_property_record_replay fallow fallow-simcuda)
    set_property(TEST property.record_replay APPEND PROPERTY ENVIRONMENT
      "FALLOW_COMMAND=$<TARGET_FILE:fallow>")
    if(FLW_DEMO)
      set_property(TEST property.record_replay APPEND PROPERTY ENVIRONMENT "FALLOW_DEMO=${FLW_DEMO}")
    endif()
  endif()
endif()
