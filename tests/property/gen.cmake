# SPDX-License-Identifier: Apache-2.0
# Generated traces against recorded ones.
flw_add_test(property gen_recorded SOURCES test_gen_recorded.c LIBRARIES flw_trace
  ENVIRONMENT FALLOW_TRACE_DIR=${FALLOW_TRACE_DIR})
