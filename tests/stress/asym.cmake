# SPDX-License-Identifier: Apache-2.0
# The locks of base as they are shipped: the asymmetric one with a real membarrier, and both between a
# real-time thread and an ordinary one.
flw_add_test(stress asym SOURCES test_asym.c LIBRARIES flw_base TIMEOUT 240)
flw_add_test(stress realtime SOURCES test_realtime.c LIBRARIES flw_base TIMEOUT 240)
if(TARGET fallow_shared AND TARGET flw_test_pool)
  flw_add_test(stress realtime_pool SOURCES test_realtime_pool.c LIBRARIES fallow_shared test_support
    DEPENDS fallow-simcuda TIMEOUT 240)
  # ThreadSanitizer's build uses no membarrier; there the test shows that races between hits are detected.
  if(FALLOW_SANITIZE STREQUAL "thread")
    flw_add_test(stress hit_race SOURCES test_hit_race.c LIBRARIES fallow_shared test_support
      DEPENDS fallow-simcuda TIMEOUT 240)
  else()
    foreach(error eperm enomem)
      flw_add_test(stress refused_${error} SOURCES test_refused.c LIBRARIES flw_test_pool PLAIN
        ARGUMENTS ${error} TIMEOUT 240)
    endforeach()
  endif()
endif()
