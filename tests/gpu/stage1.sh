# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this, and has the names
#
# Stage 1, nine minutes: what only hardware can answer, the most important first, what may break the device last.

# What it is, and what calls cost.
step attributes 30 device_probe --device "$device" --attributes
step doctor 60 fallow doctor --device "$device" --json
step first_run 90 first_run --device "$device"
for question in reserve creates ipc life unmap access fill; do
    step "vmm.$question" 75 vmm_probe --device "$device" "$question"
done

# cuda.h's sentences, one a process. A case that hands the driver something dead comes at the very end.
conformance() { # calm | risky
    local kind name driver=()
    [ "$simulated" = false ] || driver=(sim)
    if ! "$bin/driver_conformance" --list >"$work/cases" 2>"$work/err"; then
        missing conformance "driver_conformance lists no case: $(tail -n 1 "$work/err")"
        return
    fi
    while read -r kind name; do
        [ "$kind" != "$1" ] || step "conformance.$name" 30 driver_conformance "${driver[@]}" --case "$name"
    done <"$work/cases"
}
conformance calm

# Random programs over a pool, judged by contents. Simulated memory is this machine's.
ops=20000
[ "$simulated" = false ] || ops=3000
step stress.streams 60 gpu_stress --device "$device" --ops $ops --seed 1
step stress.captures 60 gpu_stress --device "$device" --ops $ops --seed 2 --capture
step stress.segments 60 gpu_stress --device "$device" --ops $ops --seed 7 --threads 4 --capture --segments
step stress.sleep 60 gpu_stress --device "$device" --ops $ops --seed 3 --sleep
step stress.share 60 gpu_stress --device "$device" --ops $ops --seed 4 --share
step stress.threads 60 gpu_stress --device "$device" --ops $ops --seed 5 --threads 4
step stress.all 90 gpu_stress --device "$device" --ops $ops --seed 6 --threads 4 --capture --sleep --share

# PyTorch, once plain and once with Fallow, the results compared to the bit.
clients() { # NAME...: clients of clients.sh, each run and its comparison a step
    local name
    for name in "$@"; do
        on_77=missing step "client.$name" 100 bash "$tests/clients.sh" --device "$asked" --bundle "$bundle" \
            --work "$work/clients" --out - --limit 45 --only "$name"
    done
}
clients torch_uncached torch_plugin torch_graph torch_plugin_graph c_dlopen

# Every kernel module against its definition in C.
for program in "$bin"/test_kernel_*; do
    [ -e "$program" ] || continue
    step "kernel.${program##*/test_kernel_}" 60 "${program##*/}" --device "$device" --seed 1
done

# Times: hits, deferred frees, threads; a generated serving trace under Fallow, cudaMalloc and cudaMallocAsync.
for shape in pair replace grow holes deferred streams threads handoff; do
    step "bench.$shape" 30 fallow bench "$shape" --device "$device" --json
done
step gen 60 fallow gen serve llama-3-8b --mode graph --steps 100 -o "$work/serve.ftext"
step replay.serve 90 fallow replay "$work/serve.ftext" --device "$device" --json -
step bench.kernels 90 fallow bench kernels --device "$device" --json

conformance risky
