# SPDX-License-Identifier: Apache-2.0
"""check.circles_<layer>: no file of a layer depends on itself through other files. The dependencies are those of the
object files; check.layers covers headers.

  circles.py LAYER NM OBJECT...

Prints the dependencies within and between circles. Exit 1: there are some, or a planted circle was not found.
"""
import collections
import subprocess
import sys


def circles(symbols):
    """symbols: (file, symbol, kind of nm). Return {(file, needed file): symbols} of the files in and between circles."""
    owner = {symbol: file for file, symbol, kind in symbols if kind in "ABCDGRSTVW"}
    needs = collections.defaultdict(list)
    for file, symbol, kind in symbols:
        if kind == "U" and owner.get(symbol, file) != file:
            needs[file, owner[symbol]].append(symbol)
    while True:  # a file that needs no other, or that no other needs, is in no circle
        users, needed = {a for a, _ in needs}, {b for _, b in needs}
        kept = {edge: names for edge, names in needs.items() if edge[0] in needed and edge[1] in users}
        if len(kept) == len(needs):
            return kept
        needs = kept


def missed_plants():
    """Plants: top over middle over ground, beside over all. Each row: changed files, and the files in circles."""
    tree = {"ground": "T:sink B:ground", "middle": "T:half U:sink", "top": "T:fall U:half",
            "beside": "T:all U:fall U:half U:ground"}
    for planted, expected in (({}, ""), ({"middle": "T:half U:sink U:all"}, "beside middle top"),
                              ({"ground": "T:sink U:fall"}, "ground middle top"),
                              ({"ground": "T:sink U:word", "middle": "D:word T:half U:sink"}, "ground middle")):
        symbols = [(file, symbol.split(":")[1], symbol[0])
                   for file, text in {**tree, **planted}.items() for symbol in text.split()]
        if " ".join(sorted({file for edge in circles(symbols) for file in edge})) != expected:
            yield f"planted: {planted}"


def main(layer, nm, *objects):
    lines = subprocess.run([nm, "-P", "-A", "-g", *objects], capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.rsplit(".o: ", 1) for line in lines]  # PATH.o: SYMBOL KIND ...
    symbols = [(path.split(".dir/")[-1], *rest.split()[:2]) for path, rest in words]
    found = list(missed_plants())
    found += [f"{layer}/{a} -> {b}: {' '.join(names)}" for (a, b), names in sorted(circles(symbols).items())]
    print("\n".join([*found, f"{len(objects)} files of {layer}, {len(found)} dependencies in circles"]))
    return int(bool(found) or not symbols)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
