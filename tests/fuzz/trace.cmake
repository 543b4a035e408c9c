# SPDX-License-Identifier: Apache-2.0
# The readers of traces. Without a fuzzer: corpus, prefixes and seeded mutations, as ctests. With one:
#   CC=clang cmake -B build/fuzz -DFALLOW_FUZZER=ON -DFALLOW_SANITIZE=address
#   build/fuzz/bin/fuzz_pickle -max_len=65536 NEW_CORPUS tests/fuzz/corpus/pickle
option(FALLOW_FUZZER "Link the fuzz targets with libFuzzer (clang) instead of the regression main" OFF)
if(FALLOW_FUZZER)
  foreach(library flw_trace flw_record) # it is the readers' ways that count
    target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
endif()
set(mutations_pickle 600)
set(mutations_text 4000)
set(mutations_ftrace 800)
set(mutations_requests 4000)
foreach(reader json rmm stalloc minimalloc)
  set(mutations_${reader} 2000)
endforeach()
set(source_text fuzz_text.c)
set(source_requests fuzz_requests.c)
set(source_ftrace fuzz_ftrace.c) # the importers have one source and a corpus each
foreach(reader pickle text ftrace json rmm stalloc minimalloc requests)
  if(NOT source_${reader})
    set(source_${reader} fuzz_import.c)
  endif()
  add_executable(fuzz_${reader} ${source_${reader}})
  flw_target(fuzz_${reader})
  target_link_libraries(fuzz_${reader} PRIVATE flw_trace)
  if(FALLOW_FUZZER)
    target_compile_options(fuzz_${reader} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${reader} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(fuzz_${reader} PRIVATE fuzz_text_regression.c)
    add_test(NAME fuzz.${reader}
      COMMAND fuzz_${reader} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${reader} ${mutations_${reader}} 1)
    set_tests_properties(fuzz.${reader} PROPERTIES LABELS fuzz TIMEOUT 240)
  endif()
endforeach()
