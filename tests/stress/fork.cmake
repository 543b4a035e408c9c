# SPDX-License-Identifier: Apache-2.0
# Forks beside threads at work: on the C library's malloc, on a jemalloc that is preloaded, and on one that is
# part of the program and so begins after every library's constructor.
if(NOT TARGET fallow_shared OR FALLOW_SANITIZE MATCHES "thread") # which has no threads after such a fork
  return()
endif()
flw_add_test(stress fork SOURCES fork_beside.c PLAIN LIBRARIES fallow_shared test_support)
if(FALLOW_SANITIZE)
  return() # a sanitizer has a malloc of its own
endif()
if(FALLOW_JEMALLOC_LIBRARY)
  flw_add_test(stress fork_preloaded SOURCES fork_beside.c PLAIN LIBRARIES fallow_shared test_support
    ARGUMENTS libjemalloc ENVIRONMENT LD_PRELOAD=${FALLOW_JEMALLOC_LIBRARY})
endif()
if(FALLOW_JEMALLOC_PIC)
  flw_add_test(stress fork_own_malloc SOURCES fork_beside.c PLAIN ARGUMENTS fork_own_malloc
    LIBRARIES fallow_shared test_support -Wl,--no-as-needed fallow-simcuda ${FALLOW_JEMALLOC_PIC} m)
endif()
