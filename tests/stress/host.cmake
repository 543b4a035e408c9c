# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET fallow-host)
  return()
endif()
flw_add_test(stress host SOURCES test_host.c host_run.c LIBRARIES fallow-host test_support PLAIN TIMEOUT 240)

# The library's sources once more, with the faults planted; nothing of it is installed. Here jemalloc is
# linked by the program itself, where a sanitizer's malloc would meet it.
if(FALLOW_SANITIZE)
  return()
endif()
get_target_property(files flw_host SOURCES)
get_target_property(folder flw_host SOURCE_DIR)
list(TRANSFORM files PREPEND ${folder}/)
flw_add_test(stress host_planted SOURCES test_host.c host_run.c ${files}
  LIBRARIES test_support flw_section flw_base fallow_shared flw_jemalloc DEFINITIONS FLW_HOST_PLANTS=1 PLAIN)
