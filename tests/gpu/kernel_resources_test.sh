#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.kernel_resources_catches: kernel_resources.sh against a cuobjdump that is a script: a kernel within its
# limits passes; a spill, a stack, a lost vector load and a fused multiply-add are named; without the tool or images it
# exits with 77.
#
#   kernel_resources_test.sh <kernel_resources.sh> <scratch folder>
set -u
script=$1
work=$2
rm -rf "$work"
mkdir -p "$work/image" "$work/none" || exit 1
touch "$work/image/alpha.fatbin"
failed=0

# fake STACK INSTRUCTION: the output of the tool for one kernel
fake() {
    cat >"$work/cuobjdump" <<TOOL
#!/bin/sh
cat <<'DUMP'
arch = sm_90
 Function flw_alpha:
  REG:40 STACK:$1 SHARED:1280 LOCAL:0 CONSTANT[0]:632 TEXTURE:0 SURFACE:0 SAMPLER:0
		Function : flw_alpha
        /*0010*/                   LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0020*/              @!P0 STG.E.128 [R2.64], R4 ;
        /*0030*/                   $2 ;
DUMP
TOOL
    chmod +x "$work/cuobjdump"
}

# expect EXIT 'TEXT' LIMITS: the check's exit status and a word of its output
expect() {
    printf '%s\n' "$3" >"$work/limits"
    said=$(CUOBJDUMP="$work/cuobjdump" "$script" --check "$work/limits" "$work/image" 2>&1)
    code=$?
    if [ "$code" != "$1" ] || ! printf '%s\n' "$said" | grep -q -e "$2"; then
        echo "limits '$3': exit $code, not $1 with '$2': $said"
        failed=1
    fi
}

fake 0 EXIT
expect 0 "alpha *sm_90 *40 *0 *1280 *0 *1 *1 *0" "* 0 1 1 0"
expect 0 alpha "* 0 9 9 0
alpha 0 1 1 0 # its own line counts"
expect 1 "1 loads of 16 bytes, fewer than 2" "* 0 2 1 0"
expect 1 "1 stores of 16 bytes, fewer than 2" "alpha 0 1 2 0"
expect 1 "beta: it has limits and no image" "beta 0 0 0 0"
expect 1 "'alpha 0 0': not a name and four numbers" "alpha 0 0"
fake 16 EXIT
expect 1 "alpha for sm_90: 16 bytes of stack" "* 0 0 0 0"
expect 0 alpha "alpha 16 0 0 0"
fake 0 "STL [R1], R5"
expect 1 "it spills" "* 0 0 0 0"
fake 0 "@P1 LDL R5, [R1]"
expect 1 "it spills" "* 0 0 0 0"
fake 0 "@P1 FFMA R5, R4, R3, R5"
expect 1 "1 fused multiply-adds, more than 0: a product is not rounded" "* 0 0 0 0"
expect 0 alpha "* 0 0 0 -"
fake 0 "HFMA2.MMA R5, -RZ, RZ, 0, 0"
expect 0 alpha "* 0 0 0 0"
printf '#!/bin/sh\necho of another version\n' >"$work/cuobjdump"
expect 1 "not understood" "* 0 0 0 0"

CUOBJDUMP="$work/cuobjdump" "$script" "$work/none" 2>/dev/null
if [ $? != 77 ]; then echo "no images: not skipped"; failed=1; fi
cp "$script" "$work/alone.sh" # no build/pypi is near
CUOBJDUMP='' CUDA_HOME="$work/none" PATH=/usr/bin:/bin "$work/alone.sh" "$work/image" >/dev/null 2>&1
code=$?
if [ "$code" != 77 ] && [ ! -x /usr/bin/cuobjdump ] && [ ! -x /bin/cuobjdump ]; then
    echo "no cuobjdump: exit $code, not skipped"
    failed=1
fi
exit $failed
