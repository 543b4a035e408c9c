# SPDX-License-Identifier: Apache-2.0
# The model of PyTorch's policy against recordings of the real thing.
set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
set(recordings)
if(FLW_DEMO) # the recordings are packed in the same way
  set(recordings FALLOW_TRACE_DIR=${FALLOW_TRACE_DIR})
endif()
flw_add_test(property pytorch_policy INCLUDES ${tool} LIBRARIES flw_trace flw_base ENVIRONMENT ${recordings}
  SOURCES test_pytorch_policy.c ${tool}/common/program.c ${tool}/common/tool_host.c
    ${tool}/policies/pytorch.c ${tool}/policies/pytorch_heap.c ${tool}/policies/pytorch_model.c)
