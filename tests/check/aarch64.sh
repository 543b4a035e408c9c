#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything for aarch64 with the distribution's cross compiler, without a warning, and runs the unit,
# property, kernel, stress and preload tests under qemu's user emulation. The preload's dlsym, which is
# assembly, runs in preload.reach. At the end builds the wheel and uses it there.
#
#   aarch64.sh <build folder>
#
# As root it installs the compiler and qemu if they are missing. The arm64 libraries are unpacked from this machine's
# archive into <build folder>/root, not installed.
#
# The emulator orders memory as x86 does, which reorders less than any ARM machine. check.asym_model covers that, on a
# model of ARMv8's memory.
set -u
build=${1:?usage: aarch64.sh BUILD-FOLDER}
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
mkdir -p "$build" && build=$(cd "$build" && pwd) || exit 1
jobs=$(nproc 2>/dev/null || echo 2)
libraries='libcmocka-dev libjemalloc-dev liblzma-dev zlib1g-dev libzstd-dev python3'

# Tests of these kinds that do not run, with the reason.
left_out='unit.api_host_limits      the emulator sets no limit of memory for itself
unit.arena_faults         thousands of worlds, each with a pool
unit.report               fifty reports of whole traces, which take the emulator minutes
unit.report_files         the same for files
unit.report_snapshots     the same for snapshots
unit.report_page          the same for pages
unit.replay               whole traces through each policy
unit.gen_command          generated traces of each kind
unit.bench_kernels        loops that measure
unit.arena_plan           a search among numbers, which takes the emulator most of a minute
property.host_bytes       a million blocks, which take the emulator a minute
stress.recorded           a shell starts the programs
preload.audit_command     the command starts a program with LD_PRELOAD, itself
preload.run_command       the command starts a program with LD_PRELOAD, itself
preload.trace             the command starts a program with LD_PRELOAD, itself
preload.summary           the command starts a program with LD_PRELOAD, itself
preload.top               a shell starts the programs
preload.dlsym_cost        Valgrind counts the instructions of this machine alone'

say() {
    echo "aarch64: $1"
}

die() {
    echo "aarch64: $1" >&2
    exit 1
}

# Something is missing on this machine, and nothing was tested.
cannot() {
    echo "aarch64: $1" >&2
    exit 77
}

has() {
    command -v "$1" >/dev/null 2>&1
}

if [ "$(uname -m)" = aarch64 ]; then
    say "this machine is one: the other stages are the test"
    exit 0
fi

# ---------------------------------------------------------------------------------------- packages ---

missing_packages() {
    has aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu
    has qemu-aarch64-static || has qemu-aarch64 || echo qemu-user-static
    has cmake || echo cmake
    has ninja || echo ninja-build
    has pkg-config || echo pkg-config
}

install_missing() {
    local packages
    packages=$(missing_packages | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    has apt-get || cannot "missing: $packages- by Debian's names; install them, then run this again"
    [ "$(id -u)" = 0 ] || cannot "missing: $packages- ask root for: apt-get install $packages"
    say "installing $packages"
    # shellcheck disable=SC2086 # a list of words
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $packages; } </dev/null >"$build/apt.log" 2>&1 ||
        { tail -5 "$build/apt.log" >&2; cannot "apt-get install $packages failed: is there a network?"; }
}

# ------------------------------------------------------------------------------------- build, tests ---

build_all() {
    say "building in $build with $jobs jobs"
    { cmake --preset aarch64 -B "$build" && cmake --build "$build" -j "$jobs"; } </dev/null >"$build/build.log" 2>&1 ||
        { tail -40 "$build/build.log" >&2; die "the build failed; all of it: $build/build.log"; }
}

# names CTEST-ARGUMENTS...: of tests
names() {
    ctest --test-dir "$build" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p'
}

kinds='^(unit|property|kernel|stress|preload)$'

# Print the tests that do not run, and check that each name is a test.
say_left_out() {
    local all of_kinds name reason
    all=$(names)
    of_kinds=$(names -L "$kinds")
    say "$(wc -l <<<"$all") tests; of other kinds than ${kinds//[^a-z|]/}, left out: $(comm -23 <(sort <<<"$all") <(sort <<<"$of_kinds") | wc -l)"
    while read -r name reason; do
        grep -qxF "$name" <<<"$of_kinds" || die "$0 leaves out $name, which is no test"
        say "left out: $name: $reason"
    done <<<"$left_out"
}

# run_tests GIB CTEST-ARGUMENTS...: runs tests with GIB of address space, besides the emulator's 256 GiB (aarch64.cmake)
run_tests() {
    # Under emulation each reserved page costs time and memory. A pool sizes its tables by the limit.
    ulimit -v $(((256 + $1) << 20)) || die "cannot limit the address space to $((256 + $1)) GiB"
    shift
    ctest --test-dir "$build" -j "$jobs" --output-on-failure --no-tests=error "$@" </dev/null
}

# run_apart NAME GIB CTEST-ARGUMENTS...: run_tests that prints only failures and a summary
run_apart() {
    local name=$1 log status=0
    log=$build/test.${name// /_}.log
    run_tests "${@:2}" >"$log" || { status=1; grep -vE '^ *Start|   Passed ' "$log"; }
    say "$name: $(summary "$log")"
    return $status
}

# summary LOG: one line
summary() {
    grep -E '^[0-9]+% tests passed' "$1" || echo 'no test ran'
}

# Tests that need tables for all addresses or for 66,000 streams, which do not fit into 11 GiB. With 44 GiB most other
# tests would take twice the time.
large_tables='^(unit[.](api|pool_settings)|property[.]model_fallow)$'

test_wheel() {
    rm -rf "$build/wheel"
    tools/wheel --no-device-code "$build/wheel" aarch64 >"$build/wheel.log" 2>&1
    case $? in
        0) tests/check/wheel.sh "$PWD" none python3 "$build/wheel.test" "$build"/wheel/fallow-*.whl "$build/root" ;;
        77) say "the wheel is not tested: $(tail -1 "$build/wheel.log")" ;;
        *) tail -30 "$build/wheel.log"; return 1 ;;
    esac
}

# Many ARM servers have pages of 64 KiB. An emulator of these on a machine of 4 KiB starts no program that has
# jemalloc in it, and newer versions have no such mode.
large_pages='^(unit[.](pool_(calls|memory|sharing|sleep)|arena_lease|arena_persist|stats_file|heap|heap_edges|page_map|publish|recorder|run_cache|simcuda|simcuda_memory)|stress[.](faults|one_thread|quiescence_pool_3|sleeps))$'

test_large_pages() {
    local emulator
    emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
    export QEMU_PAGESIZE=65536
    if ! "$emulator" "$build/root/lib/ld-linux-aarch64.so.1" --list-diagnostics | grep -qx dl_pagesize=0x10000; then
        say "this version of qemu emulates no pages of 64 KiB: nothing is tested with them"
        return 0
    fi
    run_apart "pages of 64 KiB" 11 -R "$large_pages"
}

install_missing
# shellcheck disable=SC2086 # a list of words
tools/debian_root arm64 "$build/root" $libraries || exit
began=$SECONDS
build_all
built=$SECONDS
say_left_out
except=$(awk '{ gsub(/\./, "[.]", $1); printf "%s%s", sep, $1; sep = "|" }' <<<"$left_out")
status=0
(run_tests 11 -L "$kinds" -E "^($except)\$|$large_tables") | tee "$build/test.log"
[ "${PIPESTATUS[0]}" = 0 ] || status=1
(run_apart "large tables" 44 -R "$large_tables") || status=1
(test_large_pages) || status=1
FALLOW_AARCH64_ROOT=$build/root tests/check/asym_arm.sh . || status=1
test_wheel || status=1
say "the order of memory is not shown here, the emulator's is x86's: check.asym_model models ARMv8's"
say "built in $((built - began)) s, tested in $((SECONDS - built)) s: $(summary "$build/test.log")"
exit $status
