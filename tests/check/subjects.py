#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.subjects: the subject of a commit is `area: verb what the program does now`, at most 60 characters.

    subjects.py SOURCE_ROOT            the commits that no remote branch has
    subjects.py SOURCE_ROOT OLD..NEW   these commits

An area is a folder or a file of the tree, in lower case without its extension, or one of AREAS; several are separated
by ", ". The verb is imperative: one of VERBS, which a commit may extend. Merges and reverts keep the subject that git
gives them.
"""
import os
import re
import shutil
import subprocess
import sys

LONGEST = 60
AREAS = set("all build ci comments docs messages names settings style".split())
VERBS = set("""accept add adjust align allocate allow announce answer append apply assert attach avoid batch begin bind bound
branch bring build cache call cap catch change check choose clamp clarify clean clear close collect combine
compare compile complain complete compose compress compute convert copy correct count cover create cut deal
declare decode decrease default define delay delete deny depend describe detect disable document double draw
drop dump embed empty enable encode end enforce enter evict exclude expand expect explain export expose extend
fail fall fence fetch fill find finish fit fix flatten flush fold follow forbid force fork format forward free
gather generate give group grow guard halve handle hash hide hold honour ignore implement import improve
include increase indent index inline insert install introduce invert isolate join judge keep label launch
learn leave let lift limit link list load lock log look lower make map mark match measure merge migrate mirror
model move name never note number offer omit open order overlap own pack parse pass pin place plan plant point
poll port prefer prepare prevent print probe prove provide publish pull push put query quote raise read
rebuild recognise record recover reduce refactor refresh refuse register reject release remove rename render
reorder repair replace replay reply report require rerun reserve reset resize resolve respect restart restate
restore restrict retire retry return reuse revert reword rewrite round route run satisfy save scan search
select send separate serve set share shorten show shrink shut simplify size skip sleep sort specify speed
split stack start state steal stop store stream strip support suppress swap switch take tell test tidy time
trace track translate treat trim try tune turn unify unload unmap unpack update upload use validate verify
wait wake walk warn weaken widen wrap write zero""".split())
PASSING = ("pool: fix a lost wakeup", "tests, top: give texts room for their longest case", "docs: describe the checks",
           "Merge branch 'x'", "prose: count messages", 'Revert "pool: fix a lost wakeup"')
FAILING = ("fix a lost wakeup", "pool: the wakeup is not lost", "pool: Fixed a lost wakeup", "pool: fixes a lost wakeup",
           "nowhere: fix a lost wakeup", "pool: fix " + "a" * 60, "pool: fix a lost wakeup.", "pool:fix a lost wakeup", "")


def git(root, *words):
    return subprocess.run(("git", "-C", root) + words, capture_output=True, text=True)


def find_areas(root):
    words = {part.split(".")[0].lower() or part[1:] for path in git(root, "ls-files").stdout.splitlines()
             for part in path.split("/")}
    return AREAS | words


def find_fault(subject, areas):
    """Return what is wrong with a subject, or None."""
    if re.match(r"Merge |Revert \"", subject):
        return None
    if len(subject) > LONGEST:
        return "%d characters, more than %d" % (len(subject), LONGEST)
    match = re.fullmatch(r"(\S+(?:, \S+)*): ([a-z]+),? .*[^.]", subject)
    if match is None:
        return "is not `area: verb ...` without a full stop"
    unknown = [area for area in match.group(1).split(", ") if area not in areas]
    if unknown:
        return "no folder or file of the tree is called " + unknown[0]
    if match.group(2) not in VERBS:
        return "'%s' is not a verb of VERBS in tests/check/subjects.py" % match.group(2)
    return None


def main(root, revisions):
    if shutil.which("git") is None:
        print("git is missing: no subject is judged")
        return 77
    areas = find_areas(root) | {"pool", "top"}  # those of PASSING, for a tree without git
    assert all(find_fault(subject, areas) is None for subject in PASSING)
    assert all(find_fault(subject, areas) for subject in FAILING)
    if revisions is None and not git(root, "remote").stdout:
        return 0  # the copy of an archive, or a tree without a remote
    log = git(root, "log", "--no-merges", "--format=%h %s", *([revisions] if revisions else ["HEAD", "--not", "--remotes"]))
    if log.returncode != 0:
        print(log.stderr)
        return 1
    faults = [(line, find_fault(line.partition(" ")[2], areas)) for line in log.stdout.splitlines()]
    for line, fault in faults:
        if fault:
            print("%s: %s" % (line, fault))
    return any(fault for _, fault in faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
