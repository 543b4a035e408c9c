# SPDX-License-Identifier: Apache-2.0
# fallow-preload is not built with a sanitizer, which would have to be the first library there.
if(TARGET fallow AND TARGET fallow-preload AND TARGET simcuda-libcuda)
  add_executable(preload_watched watched.c)
  flw_target(preload_watched)
  target_link_libraries(preload_watched PRIVATE simcuda-libcuda ${CMAKE_DL_LIBS})
  set_target_properties(preload_watched PROPERTIES OUTPUT_NAME watched BUILD_WITH_INSTALL_RPATH ON) # LD_LIBRARY_PATH names it
  add_test(NAME preload.top COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/top.sh $<TARGET_FILE:fallow>
    $<TARGET_FILE:fallow-preload> $<TARGET_FILE:preload_watched> $<TARGET_FILE_DIR:simcuda-libcuda>
    ${CMAKE_CURRENT_BINARY_DIR}/top)
  set_tests_properties(preload.top PROPERTIES LABELS preload TIMEOUT 240 SKIP_RETURN_CODE 77)
endif()
