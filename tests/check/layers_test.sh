#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.layers_catches: layers.sh finds each kind of offence, planted one at a time in a small tree,
# and passes the clean one.
#
#   layers_test.sh <source root> <scratch folder>
set -eu
script=$1/tests/check/layers.sh
tree=$2
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
failures=0

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/src/base" "$tree/src/driver" "$tree/src/heap/state" "$tree/src/heap/order" "$tree/src/record" \
        "$tree/src/simcuda" "$tree/src/trace" "$tree/include/fallow" "$tree/kernels/common" "$tree/tests/support" "$tree/tests/unit"
    printf '%s\n#include "base/b.h"\n' "$spdx" >"$tree/src/heap/a.c"
    printf '%s\n#include "heap/order/a.h"\n#include "heap/state/a.h"\n' "$spdx" >"$tree/src/heap/order/a.c"
    printf '%s\n#include "heap/order/a.h"\n#include "heap/life.h"\n' "$spdx" >"$tree/src/heap/life.c"
    for folder in bench common policies trace; do
        mkdir -p "$tree/tools/fallow/$folder"
        echo "$spdx" >"$tree/tools/fallow/$folder/$folder.h"
    done
    mv "$tree/tools/fallow/trace/trace.h" "$tree/tools/fallow/trace/verbs.h"
    mkdir -p "$tree/src/trace/trace"
    echo "$spdx" >"$tree/src/trace/trace/trace.h"
    printf '%s\n#include "trace/trace/trace.h"\n#include "policies/policies.h"\n#include "common/common.h"\n#include "verbs.h"\n' \
        "$spdx" >"$tree/tools/fallow/trace/a.c"
    printf '%s\n#include "bench/bench.h"\n' "$spdx" >"$tree/tools/fallow/main.c"
    printf '%s\n#include <cmocka.h>\n' "$spdx" >"$tree/tests/support/test.h"
    printf '%s\n    X(REQUIRED, cuMemFree_v2, (CUdeviceptr pointer)) \\\n    X(REQUIRED, cuInit, (unsigned flags)) \\\n' \
        "$spdx" >"$tree/src/driver/entry_points.h"
}
expect() { # <0 clean, 1 offence> <sentence>
    got=0
    sh "$script" "$tree" >"$tree/out.txt" 2>&1 || got=1
    if [ "$got" != "$1" ]; then
        echo "wrong ($got): $2"
        cat "$tree/out.txt"
        failures=1
    fi
}
plant() { # <file> <line> <sentence>
    fresh
    printf '%s\n%s\n' "$spdx" "$2" >"$tree/$1"
    expect 1 "$3"
}

fresh
expect 0 "a clean tree passes"
plant src/base/x.c '#include "heap/a.h"' "base must not include heap"
plant src/driver/x.c '  #  include "heap/a.h"' "spaces do not hide an include"
plant src/heap/x.h '#include "pool/pool.h"' "heap must not include pool"
plant src/heap/state/x.c '#include "heap/order/a.h"' "a floor must not include one above it"
plant src/heap/order/x.c '#include "heap/life.h"' "a floor must not include what lies on top"
plant src/trace/x.c '#include "driver/driver.h"' "trace must not include driver"
plant src/record/x.c '#include "trace/trace/trace.h"' "record must not include trace"
plant src/simcuda/x.c '#include "driver/driver.h"' "simcuda includes the driver's types only"
plant src/heap/x.c '#include "../tools/t.h"' "src must not include tools"
plant src/heap/x.c '#include <pool/pool.h>' "brackets do not hide an include"
plant kernels/common/x.c '#include "pool/pool.h"' "kernels use the public headers only"
plant include/fallow/x.h '#include "base/bits.h"' "a public header includes public ones only"
plant tests/unit/x.c '#include <cmocka.h>' "cmocka comes through test.h"
plant tests/unit/x.c '    MUST(bed, cuMemFree(memory));' "an entry point has its exported name"
plant tools/fallow/bench.c 'int x;' "the root of the command is for main.c"
plant tools/fallow/common/x.c '#include "policies/policies.h"' "common must not include policies"
plant tools/fallow/common/x.c '#include "bench/bench.h"' "common must not include a subcommand"
plant tools/fallow/policies/x.c '#include "bench/bench.h"' "policies must not include a subcommand"
plant tools/fallow/bench/x.c '#include "trace/verbs.h"' "a subcommand must not include another"
plant tools/fallow/trace/x.c '#include "trace/verbs.h"' "a header of the command's trace is included by its name"
plant src/trace/verbs.h 'int x;' "a header shares its path with one of src"
fresh
printf '%s\n    cu->cuMemFree_v2(memory);\n    cu->cuInit(0);\n' "$spdx" >"$tree/tests/unit/x.c"
expect 0 "exported names pass"
fresh
mkdir "$tree/src/novel"
expect 1 "an unknown layer is named"
fresh
mkdir "$tree/src/heap/novel"
expect 1 "an unknown floor is named"
fresh
{ echo "$spdx"; yes 'int x;' | head -n 801; } >"$tree/src/heap/x.c"
expect 1 "a long file without a reason"
{ printf '/* SPDX-License-Identifier: Apache-2.0\n * Long because it is a table. */\n'; yes 'int x;' | head -n 801; } >"$tree/src/heap/x.c"
expect 0 "a long file with a reason"
fresh
echo 'int x;' >"$tree/src/heap/x.c"
expect 1 "a file without a licence line"
rm -rf "$tree"
[ "$failures" = 0 ] && echo "every planted offence was found"
exit "$failures"
