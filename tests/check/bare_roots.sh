#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The README's commands where nothing is installed: makes minimal roots of Debian bookworm and trixie, unpacks
# the committed sources there and runs the lines of README.md's first shell block, word for word. In a root of
# bullseye (glibc 2.31) installs the wheel of tools/wheel and uses it, without a compiler.
#
#   bare_roots.sh [--suites 'bookworm trixie bullseye'] <folder for the roots>
#
# In bookworm: the first command as root with nothing else installed, twice; and as an ordinary user without sudo, with
# gcc 11, CMake 3.22 and make, no optional library, and a blank in the folder's name. In trixie, where gcc and clang are
# newer: the second command, reduced to the stage `quick`; then clang builds everything with warnings as errors. The
# compiler's log must have no warning. FALLOW_TEST_ALL=1 runs both commands in both suites, with all stages.
#
# Needs root (chroot, mounts in a namespace of their own) and debootstrap, which it installs. Packages are taken from the
# archive of this machine's settings.
set -u
suites='bookworm trixie bullseye'
if [ "${1-}" = --suites ]; then
    suites=$2
    shift 2
fi
roots=${1:?usage: bare_roots.sh [--suites LIST] FOLDER}
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

die() {
    echo "bare_roots: $1" >&2
    exit 1
}

# This machine cannot do it, and nothing was tested.
cannot() {
    echo "bare_roots: $1" >&2
    exit 77
}

[ "$(id -u)" = 0 ] || cannot "needs root, for chroot"
unshare --mount true 2>/dev/null || cannot "this machine lets root mount nothing (a container without the privilege?)"
mkdir -p "$roots" && roots=$(cd "$roots" && pwd) || exit 1

# ------------------------------------------------------------------------------------------- roots ---

# Print the archive of this machine's packages.
mirror() {
    # shellcheck disable=SC2016 # apt fills in the names
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 2>/dev/null |
        awk '$1 !~ /-(security|updates|backports)$/ { print $2; exit }'
}

# make_root SUITE FOLDER: a minimal root with this machine's apt settings
make_root() {
    local suite=$1 root=$2 uri
    uri=$(mirror)
    [ -n "$uri" ] || { apt-get update -qq && uri=$(mirror); }
    [ -n "$uri" ] || cannot "apt names no archive: see /etc/apt/sources.list"
    debootstrap --variant=minbase "$suite" "$root" "$uri" >"$root.log" 2>&1 ||
        { tail -5 "$root.log" >&2; cannot "debootstrap of $suite failed; is '$suite' in the archive of this machine's packages?"; }
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
    cp -r /etc/apt/apt.conf.d /etc/apt/auth.conf* "$root/etc/apt/" 2>/dev/null
    [ ! -f /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$root/etc/apt/"
    true
}

# unpack ROOT FOLDER: the sources with uncommitted changes
unpack() {
    local commit
    commit=$(git stash create 2>/dev/null)
    mkdir -p "$1/$2"
    git archive "${commit:-HEAD}" | tar x -C "$1/$2"
}

# inside ROOT USER FOLDER LINE: runs the line by bash in the root, with proc, dev and shm of its own, and an
# environment with nothing of ours but the way to the network
inside() {
    local root=$1 user=$2 folder=$3 line=$4 home=/root
    [ "$user" = root ] || home=/home/$user
    # shellcheck disable=SC2016 # the shells inside expand these
    ROOT=$root unshare --mount --pid --fork --kill-child bash -c '
        mount --make-rprivate / && mount -t proc proc "$ROOT/proc" && mount -t tmpfs tmpfs "$ROOT/dev" &&
        for node in null zero full random urandom tty; do : >"$ROOT/dev/$node"; mount --bind "/dev/$node" "$ROOT/dev/$node"; done &&
        mkdir -p "$ROOT/dev/shm" "$ROOT/dev/pts" && mount -t tmpfs tmpfs "$ROOT/dev/shm" && chmod 1777 "$ROOT/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$ROOT/dev/pts" && ln -sf pts/ptmx "$ROOT/dev/ptmx" &&
        ln -sf /proc/self/fd "$ROOT/dev/fd" &&
        ln -sf /proc/self/fd/0 "$ROOT/dev/stdin" && ln -sf /proc/self/fd/1 "$ROOT/dev/stdout" &&
        ln -sf /proc/self/fd/2 "$ROOT/dev/stderr" && exec "$@"' - \
        chroot "$root" /usr/bin/env -i HOME="$home" USER="$user" LANG=C.UTF-8 TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        ${STAGES:+FALLOW_TEST_STAGES="$STAGES"} FOLDER="$folder" LINE="$line" \
        setpriv --reuid="$user" --regid="$user" --init-groups bash -c 'cd "$FOLDER" && eval "$LINE"' </dev/null
}

# ------------------------------------------------------------------------------------------ checks ---

# The lines of README.md's first shell block, without their comments.
readme_lines() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md |
        sed -e 's/[[:space:]]*#.*$//' -e '/^$/d'
}

failed=0
count=0

# expect TEXT COMMAND...: print one line for each check
expect() {
    local what=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "  ok      $what"
    else
        failed=$((failed + 1))
        echo "  FAILED  $what"
    fi
}

# ran NAME ROOT USER FOLDER LINE: true if the line succeeds; its output is in $log
ran() {
    local name=$1 began=$SECONDS
    shift
    log=$roots/$suite.$name.log
    inside "$@" >"$log" 2>&1
    local code=$?
    echo "          $name: $((SECONDS - began)) s"
    [ $code = 0 ] || { tail -30 "$log"; return 1; }
}

# The four rows and the lines after them are those of tools/README.md.
table=$(sed -n '/^live bytes /,/^```$/p' tools/README.md | sed '$d')
has_table() {
    [[ -n $table && $(<"$log") == *"$table"* ]]
}

last_line_calls() {
    inside "$1" "$2" / "$(tail -1 "$log"); fallow --version" | grep -q '^fallow [0-9]'
}

no_warning() {
    ! grep -n 'warning:' "$1" | head -5 | grep .
}

# says TEXT: true if the last log contains the text
says() {
    grep -qF -- "$1" "$log"
}

steps_at_most() {
    local steps
    steps=$(grep -cE '^\[[ 0-9%]+(/[0-9]+)?\] (Building|Linking|Generating)' "$1")
    echo "          $steps compiled, linked or generated"
    [ "$steps" -gt 100 ] && [ "$steps" -le "$2" ]
}

# ------------------------------------------------------------------------------------------- runs ---

# The first command, twice.
first_command() {
    local root=$1
    expect "root: $first" ran first "$root" root /root/fallow "$first"
    expect 'root: it ends with the table' has_table
    expect 'root: its last line makes fallow callable' last_line_calls "$root" root
    expect 'root: at most 320 steps' steps_at_most "$root/root/fallow/build/quickstart.log" 320
    expect 'root: no warning' no_warning "$root/root/fallow/build/quickstart.log"
    expect 'root: a second run' ran again "$root" root /root/fallow "$first"
    expect 'root: the table once more' has_table
    expect 'root: nothing was installed again' bash -c "! grep -q installing '$log'"
}

second_command() {
    local root=$1
    STAGES=${all:-quick} expect "root: $second (stages: ${all:-quick})" ran second "$root" root /root/fallow "$second"
    expect 'root: tests ran, none failed' says ' tests passed, 0 failed'
    expect 'root: no warning by gcc' no_warning "$root/root/fallow/build/quick.log"
    expect 'root: clang builds everything without a warning' ran clang "$root" root /root/fallow \
        'apt-get install -y -qq --no-install-recommends clang >/dev/null && CC=clang cmake --preset dev -B build/clang -DCMAKE_C_FLAGS_DEBUG=-O0 && cmake --build build/clang'
}

oldest_built() {
    grep -q 'CMAKE_C_COMPILER_VERSION "11\.' "$1"/CMakeFiles/3.22.*/CMakeCCompiler.cmake
}

# gcc 11 is bookworm's package, CMake 3.22 PyPI's; root installs both. pip uses this machine's settings and certificates,
# copied after the root's own package has written its certificates.
as_user() {
    local root=$1 tree=$1/home/user/'a folder'
    inside "$root" root / 'apt-get update -qq && ln -s gcc-11 /usr/bin/cc && useradd --create-home --shell /bin/bash user &&
        apt-get install -y -qq --no-install-recommends gcc-11 libc6-dev make python3-pip' >"$roots/$suite.user.log" 2>&1 &&
        { cp /etc/pip.conf "$root/etc/" 2>/dev/null
            cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"; } &&
        inside "$root" root / 'pip install --quiet --break-system-packages "cmake==3.22.*"' >>"$roots/$suite.user.log" 2>&1 ||
        { tail -5 "$roots/$suite.user.log"; die "the root with gcc 11 and CMake 3.22 was not made"; }
    unpack "$root" 'home/user/a folder'
    chown -R --reference="$root/home/user" "$root/home/user"
    expect "user: $first" ran user_first "$root" user '/home/user/a folder' "$first"
    expect 'user: it ends with the table' has_table
    expect 'user: its last line makes fallow callable' last_line_calls "$root" user
    expect 'user: says what is lost' says 'without libzstd-dev: .zst traces are refused'
    expect 'user: no warning' no_warning "$tree/build/quickstart.log"
    expect 'user: gcc 11 and CMake 3.22 built it' oldest_built "$tree/build/quickstart"
}

built_wheel() {
    log=$roots/$suite.build.log
    rm -rf "$roots/wheel"
    tools/wheel --no-device-code "$roots/wheel" x86_64 >"$log" 2>&1
}

# Skip this suite without PyPI, or if the archive has no bullseye.
with_wheel() {
    local root=$1
    (make_root "$suite" "$root") || { echo "  skipped wheel: no root of $suite"; return; }
    built_wheel
    case $? in
        77) echo "  skipped wheel: $(tail -1 "$log")"; return ;;
        0) expect 'wheel: built by tools/wheel' true ;;
        *) tail -30 "$log"; expect 'wheel: built by tools/wheel' false; return ;;
    esac
    inside "$root" root / 'apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv' \
        >"$roots/$suite.python.log" 2>&1 ||
        { tail -5 "$roots/$suite.python.log"; die "the root with Python was not made"; }
    unpack "$root" root/fallow
    cp "$roots"/wheel/fallow-*.whl "$root/root/"
    expect 'wheel: installed and used' ran use "$root" root /root \
        'fallow/tests/check/wheel.sh /root/fallow none python3 /root/work /root/fallow-*.whl'
}

command -v debootstrap >/dev/null || {
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
} || cannot "debootstrap could not be installed"

{ read -r first; read -r second; } < <(readme_lines)
case $first:$second in
    tools/quickstart:tools/quickstart*) ;;
    *) die "README.md's first shell block starts with '$first', '$second'" ;;
esac
all=
[ -z "${FALLOW_TEST_ALL-}" ] || all='quick sanitize slow dev tsan'
for suite in $suites; do
    began=$SECONDS
    base=$roots/$suite
    rm -rf "$base" "$base.user"
    if [ "$suite" = bullseye ]; then
        with_wheel "$base"
        echo "$suite: $((SECONDS - began)) s"
        [ $failed != 0 ] || rm -rf "$base" "$roots/wheel"
        continue
    fi
    make_root "$suite" "$base"
    [ "$suite" != bookworm ] || cp -a "$base" "$base.user"
    echo "$suite: a minimal root in $((SECONDS - began)) s"
    unpack "$base" root/fallow
    if [ "$suite" != bookworm ] || [ -n "$all" ]; then second_command "$base"; fi
    if [ "$suite" = bookworm ] || [ -n "$all" ]; then first_command "$base"; fi
    [ "$suite" != bookworm ] || as_user "$base.user"
    [ $failed != 0 ] || rm -rf "$base" "$base.user"
    echo "$suite: $((SECONDS - began)) s"
done
echo "README's commands and the wheel in bare roots of $suites: $((count - failed)) of $count as promised"
[ $failed = 0 ] && [ $count -gt 0 ]
