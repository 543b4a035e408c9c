#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.bundle_in_an_empty_root: makes the bundle, a root with the C library, bash, coreutils and four text tools, and
# runs both calls there on the simulated device as libcuda.so.1. (gpu.first_rehearsal has steps that crash and hang.)
#
#   empty_root.sh <scratch folder>
#
# Needs a namespace to mount in: root's, or a user's; else exit 77. FALLOW_TEST_ALL=1 compiles kernels too, and runs the
# calls on the simulated device by its own name.
set -u
mkdir -p "$1" && scratch=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
root=$scratch/root bundle=$scratch/bundle

enter=(unshare --mount)
"${enter[@]}" mount -t tmpfs tmpfs /mnt 2>/dev/null || enter+=(--user --map-root-user)
"${enter[@]}" mount -t tmpfs tmpfs /mnt 2>/dev/null ||
    { echo "empty_root: this machine lets nobody mount and chroot: not run" >&2; exit 77; }

# ---- the bundle

kernels=(--without-kernels) devices=0
[ -z "${FALLOW_TEST_ALL-}" ] || { kernels=() devices='sim 0'; }
began=$SECONDS
"$here/bundle.sh" --out "$bundle" "${kernels[@]}" || exit 1
echo "the bundle took $((SECONDS - began)) s"

# ---- the root

programs='bash sh env cat head tail tr wc date uname mktemp sync timeout cp mv rm mkdir chmod dirname basename sleep
    printf echo true false sort cut id mkfifo sed grep awk diff cmp'
rm -rf "$root"
mkdir -p "$root"/{usr/bin,usr/lib,usr/lib64,tmp,dev,proc,out} || exit 1
for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
for program in $programs; do
    path=$(PATH=/usr/bin:/bin command -v "$program") || true
    path=/usr/bin/$program
    [ -e "$path" ] || path=/bin/$program
    [ -e "$path" ] || { echo "empty_root: this machine has no $program" >&2; exit 77; }
    cp -L "$path" "$root/usr/bin/$program"
    ldd "$path" | grep -oE '/[^ ]+\.so[^ ]*'
done | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
done
# The bundle may need more of the C library than these programs.
for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do
    library=$(ldconfig -p | sed -n "s/^.*\t*$name (libc6.*) => //p" | head -n 1)
    if [ -n "$library" ]; then mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"; fi
done
cp -r "$bundle" "$root/bundle" || exit 1
if find "$root" | grep -E 'cmocka|jemalloc|lzma|zstd|libz\.|libstdc|libgcc|python3|cmake|/(cc|gcc|clang|nvcc|ld)$' | grep -v '/bundle/'; then
    echo "empty_root: the root is not empty" >&2
    exit 1
fi
echo "the root has $(find "$root" -type f | grep -cv '/bundle/') files beside the bundle"

inside() { # COMMAND...
    # shellcheck disable=SC2016 # the shell inside expands
    ROOT=$root "${enter[@]}" bash -c '
        mount --make-rprivate / 2>/dev/null
        mount --rbind /proc "$ROOT/proc" && mount -t tmpfs tmpfs "$ROOT/dev" && mkdir "$ROOT/dev/shm" && chmod 1777 "$ROOT/dev/shm" &&
        for node in null zero random urandom; do : >"$ROOT/dev/$node" && mount --bind "/dev/$node" "$ROOT/dev/$node"; done &&
        ln -s /proc/self/fd "$ROOT/dev/fd" && exec chroot "$ROOT" "$@"' - \
        /usr/bin/env -i PATH=/usr/bin HOME=/tmp "$@" </dev/null
}

# ---- the runs

failed=0
expect() {
    local what=$1
    shift
    if ! "$@"; then
        echo "FAILED: $what"
        failed=1
    fi
}
for device in $devices; do
    expect "the calls on device $device" inside /bundle/tests/gpu/calls_test.sh $device /bundle /out/calls
done
inside /bundle/tests/gpu/first.sh /bundle/tests/gpu/call_a.sh --device 0 --out /out/none >"$scratch/none.log" 2>&1
expect 'without a driver: exit 77' [ $? = 77 ]
expect 'without a driver: says so' grep -q 'no CUDA device can be used here' "$scratch/none.log"
[ $failed = 0 ] || exit 1
rm -rf "$root"
echo "the bundle runs where nothing is installed"
