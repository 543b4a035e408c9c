# SPDX-License-Identifier: Apache-2.0
# Target flw_jemalloc if jemalloc is found: host memory of the command, small blocks of libfallow-host. libfallow
# itself never links jemalloc, because Python could not open such a library.
find_path(FALLOW_JEMALLOC_INCLUDE jemalloc/jemalloc.h)
find_library(FALLOW_JEMALLOC_LIBRARY jemalloc)
mark_as_advanced(FALLOW_JEMALLOC_INCLUDE FALLOW_JEMALLOC_LIBRARY)
if(FALLOW_JEMALLOC_INCLUDE AND FALLOW_JEMALLOC_LIBRARY)
  add_library(flw_jemalloc INTERFACE)
  target_include_directories(flw_jemalloc SYSTEM INTERFACE ${FALLOW_JEMALLOC_INCLUDE})
  target_link_libraries(flw_jemalloc INTERFACE ${FALLOW_JEMALLOC_LIBRARY})
endif()
