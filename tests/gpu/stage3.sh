# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this, and has the names
#
# Stage 3: compute-sanitizer on the kernels that use shared memory; bundle.sh lists them. initcheck is left out:
# it does not see memory that was mapped.

if [ ! -r "$bundle/shared_memory.txt" ]; then
    missing sanitizer "$bundle has no shared_memory.txt: it is no bundle"
    return
fi
sanitizer=$(command -v compute-sanitizer || command -v "${CUDA_HOME-/usr/local/cuda}/bin/compute-sanitizer" || echo compute-sanitizer)
while read -r module; do
    for tool in racecheck memcheck; do
        if [ "$simulated" = true ]; then
            missing "$tool.$module" "needs a GPU"
        else
            step "$tool.$module" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/test_kernel_$module" \
                --device "$device" --seed 1
        fi
    done
done <"$bundle/shared_memory.txt"
