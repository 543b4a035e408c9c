# SPDX-License-Identifier: Apache-2.0
# The asymmetric lock as it is shipped, with a real membarrier.
flw_add_test(stress asym SOURCES test_asym.c LIBRARIES flw_base TIMEOUT 240)
