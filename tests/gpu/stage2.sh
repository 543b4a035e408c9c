# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this, and has the names
#
# Stage 2: other frameworks and other ways to the driver, each once plain and once with Fallow; the kernels beside
# the PyTorch sequences that they replace, and beside a copy of as many bytes.

clients() {
    local name
    for name in "$@"; do
        on_77=missing step "client.$name" 120 bash "$tests/clients.sh" --device "$asked" --bundle "$bundle" \
            --work "$work/clients" --out - --limit 55 --only "$name"
    done
}

rm -f "$work/out"
step kernels.cases 120 fallow bench kernels --device "$device" --json
cp "$work/out" "$work/kernels.json" 2>/dev/null
if [ "$simulated" = true ]; then
    missing kernels.torch "needs a GPU"
elif [ ! -s "$work/kernels.json" ]; then
    missing kernels.torch "needs what kernels.cases prints: let that run too"
else
    # shellcheck disable=SC2016 # that shell expands it
    on_77=missing step kernels.torch 150 sh -c 'python3 "$1" --cases kernels.json --out kernels_torch.json; code=$?
        cat kernels_torch.json 2>/dev/null; exit $code' - "$tests/kernels_torch.py"
fi
clients linkage surroundings driver_symbolic
clients cupy cupy_plugin jax numba numba_plugin triton bindings
clients torch_cached torch_streams torch_mempool
clients c_linked c_path c_default c_lookup c_fork-before c_fork-after c_destructor c_reset c_contexts c_strict
for form in static shared ptds; do
    clients runtime_${form}_verify runtime_${form}_fork-before runtime_${form}_destructor runtime_${form}_reset
done
clients runtime_calls audit_plain audit_torch audit_cupy
