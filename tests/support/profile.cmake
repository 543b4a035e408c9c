# SPDX-License-Identifier: Apache-2.0
# Tests that run once under each profile of the simulated driver (src/simcuda/README.md).
#
#   flw_add_under_profiles(<name> PROFILES profile ... COMMAND program arg ... [LABELS label ...]
#                          [TIMEOUT seconds])
#
# adds a test <name>_profile_<profile> for each, with an underscore for each character that is not a letter. None may
# be skipped: with an unknown profile the simulated driver does not start.
set(FLW_PROFILES_WITH_VMM no-fabric old slow host-pageable no-fabric,slow)
set(FLW_PROFILES_WITHOUT vgpu)
# At the creation of a pool, in the middle of its life, and when memory is released.
set(FLW_PROFILES_REFUSING refusing=NOT_SUPPORTED refusing:cuMemCreate@3=NOT_PERMITTED refusing:cuMemUnmap)

function(flw_add_under_profiles name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT" "PROFILES;COMMAND;LABELS")
  foreach(profile IN LISTS TEST_PROFILES)
    string(REGEX REPLACE "[^a-zA-Z0-9]+" "_" word ${profile})
    add_test(NAME ${name}_profile_${word} COMMAND ${TEST_COMMAND})
    set_tests_properties(${name}_profile_${word} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT}
      ENVIRONMENT "FALLOW_SIMCUDA=${profile}")
  endforeach()
endfunction()
