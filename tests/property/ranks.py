# SPDX-License-Identifier: Apache-2.0
#
# property.ranks: the output of `fallow report merge` for a job, compared with this script's own count over the
# snapshots behind the records; records merged in any order and any grouping, some of them twice, give the same bytes;
# a folder of one snapshot a rank gives the same. Snapshots are made here: some run out of memory, some have no clock,
# no stacks, or other owners. Records that are cut or changed anywhere are refused by name, or still are sums.
#
#   ranks.py FALLOW
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile

PAGE = 2 << 20
START_US = 1700000000000000
LINES = [f"layer_{i}" for i in range(30)]
failures = []


def check(is_right, what):
    if not is_right:
        failures.append(what)


def frames(name):
    return [{"filename": "/home/me/train/model.py", "line": 10 + LINES.index(name), "name": name}]


def owner(name):
    return f"{name} (model.py:{10 + LINES.index(name)})"


def make(draw, rank, runs_out, has_clock=True, has_stacks=True):
    """(snapshot, facts): a rank that takes blocks of pages, each from the driver, and frees a few."""
    events = []
    live, time_us, address, peak = {}, START_US + draw.randrange(2000000), 1 << 40, (0, {})
    steps = []

    def say(action, size, at, name, **more):
        event = {"action": action, "size": size, "stream": 0, "frames": frames(name) if has_stacks else []}
        event.update(more if at is None else dict(more, addr=at))
        if has_clock:
            event["time_us"] = time_us
        events.append(event)

    for _ in range(draw.randrange(20, 60)):
        time_us += draw.randrange(1, 100000)
        if live and draw.random() < 0.3:
            at, (size, name) = draw.choice(sorted(live.items()))
            del live[at]
            say("free_requested", size, at, name)
            say("free_completed", size, at, name)
            say("segment_free", size, at, name)
        else:
            size, name = PAGE * draw.randrange(1, 50), LINES[int(len(LINES) * draw.random() ** 3)]
            say("segment_alloc", size, address, name)
            say("alloc", size, address, name)
            live[address] = (size, name)
            address += size + PAGE
        held = sum(size for size, _ in live.values())
        steps.append((time_us, held))
        if held > peak[0]:
            peak = (held, by_owner(live, has_stacks))
    facts = {"rank": rank, "peak": peak, "steps": steps, "has_code": has_stacks, "oom": None, "limit": None}
    if runs_out:
        time_us += draw.randrange(1, 1000)
        asked, free, name = PAGE * 100, draw.randrange(1, PAGE * 100), draw.choice(LINES)
        say("oom", asked, None, name, device_free=free)
        held = sum(size for size, _ in live.values())
        facts["oom"] = {"us": time_us, "asked": asked, "free": free, "held": held, "by": owner(name),
                        "owners": by_owner(live, has_stacks)}
        facts["limit"] = max(held + free, peak[0])
    facts["end_us"] = time_us
    segments = [{"device": 0, "address": at, "total_size": size, "stream": 0, "segment_type": "large",
                 "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": size, "active_size": size,
                 "requested_size": size, "frames": [],
                 "blocks": [{"address": at, "size": size, "requested_size": size, "state": "active_allocated",
                             "frames": frames(name) if has_stacks else []}]} for at, (size, name) in live.items()]
    return {"segments": segments, "device_traces": [events]}, facts


def by_owner(live, has_stacks):
    held = {}
    for size, name in live.values():
        whose = owner(name) if has_stacks else size_class(size)
        held[whose] = held.get(whose, 0) + size
    return held


def size_class(size):
    bound = PAGE
    while bound < size:
        bound *= 2
    return f"up to {bound >> 20} MiB"


def expect_job(said, job, where):
    """Figures by this script, of the ranks that have stacks; of sizes where none has."""
    check(said["ranks"] == len(job), f"{where}: {said['ranks']} ranks of {len(job)}")
    ran_out = [facts for facts in job if facts["oom"]]
    coded = [facts for facts in job if facts["has_code"]] or job
    check(said["out_of_memory"] == len(ran_out), f"{where}: {said['out_of_memory']} ran out")
    check(said["compared_by_owner"] == len(coded), f"{where}: {said['compared_by_owner']} compared")
    # The first rank out of memory, and the owners of which it held more.
    first = said["first_out_of_memory"]
    if not ran_out:
        check(first is None, f"{where}: {first} ran out")
    else:
        wanted = min(ran_out, key=lambda facts: facts["oom"]["us"])
        oom = wanted["oom"]
        told = [first[key] for key in ("rank", "time_ns", "asked_bytes", "held_bytes", "device_free_bytes", "by_clock")]
        check(told == [wanted["rank"], oom["us"] * 1000, oom["asked"], oom["held"], oom["free"], True],
              f"{where}: first {told}, not {oom}")
        check(first["owner"] == (oom["by"] if wanted["has_code"] else None), f"{where}: by {first['owner']}")
        others = [facts["peak"][1] for facts in coded if facts is not wanted]
        more = {}
        if wanted in coded and others:
            for name, size in oom["owners"].items():
                mean = sum(held.get(name, 0) for held in others) // len(others)
                if size > mean:
                    more[name] = (size, mean, max(held.get(name, 0) for held in others))
        told = {row["owner"]: (row["bytes"], row["others_mean_bytes"], row["others_most_bytes"])
                for row in first["more_than_others"]}
        check(told == more, f"{where}: more than others {told}, not {more}")
    # Imbalance.
    if len(coded) > 1:
        uneven = {}
        for name in {name for facts in coded for name in facts["peak"][1]}:
            held = [facts["peak"][1].get(name, 0) for facts in coded]
            if max(held) > sum(held) // len(held):
                uneven[name] = (max(held), sum(held) // len(held))
        told = {row["owner"]: (row["bytes"], row["mean_bytes"]) for row in said["imbalance"]}
        check(told == uneven, f"{where}: imbalance {told}, not {uneven}")
        excess = [row["bytes"] - row["mean_bytes"] for row in said["imbalance"]]
        check(excess == sorted(excess, reverse=True), f"{where}: imbalance is out of order")
        for row in said["imbalance"]:
            facts = next(facts for facts in coded if facts["rank"] == row["rank"])
            check(facts["peak"][1].get(row["owner"]) == row["bytes"], f"{where}: rank {row['rank']} has no {row}")
    # Limits.
    known = [facts["limit"] for facts in job if facts["limit"]]
    places = said["by_nearness_to_the_limit"]
    check(sorted(row["rank"] for row in places) == sorted(facts["rank"] for facts in job), f"{where}: limits of whom")
    shares = [row["share"] for row in places]
    check(not known or shares == sorted(shares, reverse=True), f"{where}: shares are out of order")
    for row in places:
        facts = next(facts for facts in job if facts["rank"] == row["rank"])
        limit = facts["limit"] or (min(known) if known else None)
        told = [row["peak_held_bytes"], row["limit_bytes"], row["limit_is_its_own"]]
        check(told == [facts["peak"][0], limit, facts["limit"] is not None], f"{where}: limit {told} of {facts['rank']}")
    if known and "clock" not in where:
        expect_timeline(places, job, min(known), where)


def expect_timeline(places, job, least, where):
    """Moment by moment. Records have 200 steps with the most of each, so that shares of time differ a little."""
    times = sorted({us for facts in job for us, _ in facts["steps"]} | {facts["end_us"] for facts in job})
    led, all_us = {}, 0
    for begin, end in zip(times, times[1:]):
        best = None
        for facts in job:
            now = [held for us, held in facts["steps"] if us <= begin]
            if now and begin < facts["end_us"]:
                share = now[-1] / (facts["limit"] or least)
                if best is None or share > best[0]:
                    best = (share, facts["rank"])
        if best:
            led[best[1]] = led.get(best[1], 0) + end - begin
            all_us += end - begin
    told_ns = sum(row["nearest_for_ns"] for row in places)
    check(abs(told_ns - all_us * 1000) < 0.02 * all_us * 1000, f"{where}: {told_ns} ns of {all_us} us led")
    for row in places:
        there = row["nearest_for_ns"] / 1000 / all_us
        mine = led.get(row["rank"], 0) / all_us
        check(abs(there - mine) < 0.05, f"{where}: rank {row['rank']} led {there:.3f}, not {mine:.3f}")


def run(*arguments, text=None):
    done = subprocess.run([FALLOW, "report"] + list(arguments), input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=240)
    if done.returncode != 0:
        failures.append(f"fallow report {' '.join(arguments[:4])} ...: {done.stderr.strip()}")
    return done.stdout


def merge_in_groups(draw, lines, folder):
    """One text of records out of many files, by a tree of random shape."""
    texts = [line + "\n" for line in lines]
    while len(texts) > 1:
        draw.shuffle(texts)
        taken = [texts.pop() for _ in range(min(len(texts), draw.randrange(2, 5)))]
        if draw.random() < 0.3:
            taken.append(draw.choice(taken))  # twice
        if draw.random() < 0.3:
            texts.append("".join(taken))  # as one file, unmerged
            continue
        paths = []
        for i, text in enumerate(taken):
            paths.append(os.path.join(folder, f"part{i}"))
            with open(paths[-1], "w") as file:
                file.write(text)
        texts.append(run("merge", "--json-lines", *paths))
    return texts[0]


def check_job(draw, folder, count, **settings):
    where = f"{count} ranks {settings}"
    job, paths = [], []
    for rank in range(count):
        runs_out = settings.get("runs_out", 0.5) > draw.random()
        has_stacks = settings.get("stacks", 1) > draw.random()
        snapshot, facts = make(draw, rank, runs_out, settings.get("clock", True), has_stacks)
        name = draw.choice([f"oom_rank{rank}.pickle", f"snap.rank_{rank}-2.pickle", f"Rank-{rank}.pickle"])
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "wb") as file:
            pickle.dump(snapshot, file)
        job.append(facts)
    lines = [run("--json-lines", path).strip() for path in paths]
    check(all("\n" not in line for line in lines), f"{where}: a record has several lines")
    check(sorted(lines) == sorted(run("--json-lines", folder).splitlines()), f"{where}: of a folder other records")
    whole = run("merge", "-", "--json", "-", text="\n".join(lines))
    for _ in range(3):
        merged = merge_in_groups(draw, lines, folder + ".parts")
        check(sorted(set(merged.splitlines())) == sorted(lines), f"{where}: merging changes records")
        check(run("merge", "-", "--json", "-", text=merged) == whole, f"{where}: a grouping changes the job")
    said = json.loads(whole)["job"]
    expect_job(said, job, where)
    of_folder = json.loads(run(folder, "--no-times", "--policy", "bound", "--json", "-"))
    check(of_folder.get("job") == said, f"{where}: the folder's job is another")
    text = run("merge", "-", text="\n".join(lines))
    uneven = [row for row in said["imbalance"] if row["bytes"] - row["mean_bytes"] >= 1 << 20]
    check(("\nimbalance, " in text) == bool(uneven), f"{where}: imbalance of less than 1 MiB")
    even = re.search("\nno owner has on one rank 1 MiB more", text)
    check(bool(even) == (said["compared_by_owner"] > 1 and not uneven), f"{where}: balance is not told")
    check(said["out_of_memory"] > 0 or " ranks; none ran out" in text, f"{where}: none is a number")
    check(text in run(folder, "--no-times", "--policy", "bound"), f"{where}: the folder's text is another")
    page = os.path.join(folder + ".parts", "page.html")
    run(folder, "--no-times", "--policy", "bound", "--html", page)
    with open(page) as file:
        said_there = re.search('"job": ?("a job of (?:[^"\\\\]|\\\\.)*")', file.read())
        check(said_there and json.loads(said_there.group(1)).split() == text.split(), f"{where}: the page's is another")
    for line in text.splitlines():
        check(len(line) <= 100, f"{where}: {len(line)} columns: {line}")
    return said, text


def refuse(arguments, status, said, text=None, **environment):
    done = subprocess.run([FALLOW, "report"] + arguments, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=60, env=dict(os.environ, **environment))
    check(done.returncode == status and re.search(said, done.stderr) and done.stderr.count("\n") == 1,
          f"{arguments}: status {done.returncode}, '{done.stderr}'")
    check(done.stdout == "", f"{arguments}: printed '{done.stdout}'")


def check_beside(draw, folder):
    """Other files beside a job's snapshots change nothing; two snapshots of one rank are reported."""
    for rank in range(3):
        with open(os.path.join(folder, f"snap_rank{rank}.pickle"), "wb") as file:
            pickle.dump(make(draw, rank, False)[0], file)
    job = "\n" + run("merge", "-", text=run("--json-lines", folder))
    page = os.path.join(folder, "out.html")
    for beside in ("", "README.txt", "rank0.log"):
        if beside:
            with open(os.path.join(folder, beside), "w") as file:
                file.write("loss 0.5\n")
        done = subprocess.run([FALLOW, "report", folder, "--policy", "bound", "--html", page], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
        check(done.returncode == 0 and job in done.stdout, f"beside {beside}: {done.stdout}")
        check(".html" not in done.stderr, f"beside {beside}: {done.stderr}")
    os.link(os.path.join(folder, "snap_rank2.pickle"), os.path.join(folder, "again_rank2.pickle"))
    done = subprocess.run([FALLOW, "report", folder, "--policy", "bound"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    check("a job of" not in done.stdout and "rank 2 has several traces, and ranks are not compared" in done.stderr,
          f"a rank twice: {done.stdout}{done.stderr}")


def check_starved(draw, folder):
    """Ranks that ran out while they had nothing, on a device that others had filled."""
    job, paths = [], []
    for rank in range(3):
        snapshot, facts = make(draw, rank, True)
        if rank != 1:
            ran_out = dict(snapshot["device_traces"][0][-1], device_free=0)
            snapshot = {"segments": [], "device_traces": [[ran_out]]}
            facts = dict(facts, peak=(0, {}), limit=None, end_us=facts["oom"]["us"], steps=[(facts["oom"]["us"], 0)],
                         oom=dict(facts["oom"], free=0, held=0, owners={}))
        paths.append(os.path.join(folder, f"rank{rank}.pickle"))
        with open(paths[-1], "wb") as file:
            pickle.dump(snapshot, file)
        job.append(facts)
    whole = run("merge", "-", "--json", "-", text=run("--json-lines", folder))
    if whole:
        expect_job(json.loads(whole)["job"], job, "starved, of no clock")
    text = run(folder, "--policy", "bound")
    check(not re.search(r"\b(nan|inf)\b", text), f"starved: {text}")
    check(run("merge", "-", text=run("--json-lines", folder)) in text, "starved: the folder's text is another")


def large(more, count):
    """A moment that is as large as it may be, and more."""
    owners = [{"owner": f"o{i}", "bytes": 1 if i else 1 + more, "blocks": 1} for i in range(count)]
    return {"bytes": more + count, "blocks": count, "rest_bytes": 0, "rest_blocks": 0, "owners": owners}


def check_damage(draw, folder):
    path = os.path.join(folder, "snap_0.pickle")
    damaged = os.path.join(folder, "damaged")
    with open(path, "wb") as file:
        pickle.dump(make(draw, 0, True)[0], file)
    line = run("--json-lines", path)
    for _ in range(150):
        with open(damaged, "w") as file:
            file.write(line[:draw.randrange(len(line) - 1)])
        refuse(["merge", damaged], 1, "^fallow: .*damaged: ")
    for _ in range(300):
        bad = list(line)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.choice('0123456789{}[],:"\\eu x\n')
        done = subprocess.run([FALLOW, "report", "merge", "-"], input="".join(bad), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
        check(done.returncode in (0, 1), f"status {done.returncode} of {''.join(bad)}")
    other = line.replace('"fallow_rank":1', '"fallow_rank":2')
    refuse(["merge", "-"], 1, "a record of schema 2, and this fallow reads 1; write it anew", text=other)
    refuse(["merge", "-"], 1, "its sums are wrong", text=re.sub(r'"blocks":[0-9]+', '"blocks":999', line, count=1))
    said = json.loads(line)
    owners = said["at_peak"]["owners"]
    for changed, wrong in (({"limit_bytes": 0}, "limit_bytes is 0"),
                           ({"device": None}, "a number is null that cannot be unknown"),
                           ({"held": [[0, 0], [0, 0]]}, "the times of held do not ascend to span_ns"),
                           ({"held": [[said["span_ns"] + 1, 0]]}, "the times of held do not ascend to span_ns"),
                           ({"peak_held_bytes": 1}, "more is held than peak_held_bytes"),
                           ({"at_peak": dict(said["at_peak"], owners=owners[:1] + owners)}, "an owner is there twice"),
                           ({"at_peak": large(1 << 48, 1)}, "a moment has more than 256 TiB"),
                           ({"at_peak": large(0, 201)}, "a moment has more than 200 owners"),
                           ({"held": [[at, 0] for at in range(201)], "span_ns": 201}, "held has more than 200 steps"),
                           ({"events": (1 << 62) + 1}, "a number is above 2^62")):
        refuse(["merge", "-"], 1, f"{re.escape(wrong)}; it is no record", text=json.dumps(dict(said, **changed)))
    for fits in ({"at_peak": large((1 << 48) - 1, 1)}, {"at_peak": large(0, 200)}, {"events": 1 << 62}):
        run("merge", "-", text=json.dumps(dict(said, **fits)))
    refuse(["merge", "-"], 1, "something is missing", text=line.replace('"events"', '"happenings"'))
    refuse(["merge", "-"], 1, "something is said twice", text=line.replace('"events":', '"span_ns":5,"events":'))
    refuse(["merge", "-"], 1, "it is empty", text=" \n")
    refuse(["merge", "/nowhere/x"], 1, "/nowhere/x")
    refuse(["merge"], 2, "report merge needs files that fallow report --json-lines wrote")
    refuse(["merge", "x", "--json", "-", "--json-lines"], 2, "use one of them")
    for option, value in (("--html", "x"), ("--policy", "bound"), ("--lag", "1")):
        refuse(["--json-lines", path, option, value], 2, "--json-lines replays nothing")
    check(run("merge", "-", "--json-lines", text=line + "\n\n" + line) == line, "twice the same is not once")
    later = line.replace('{"fallow_rank":1,', '{"fallow_rank":1,"of_a_later_version":[{"x":[1,2]}],')
    check(run("merge", "-", "--json-lines", text=later) == line, "what is not known is not stepped over")
    # Two records of one rank: the one that ran out is compared. Letters of a terminal's are not passed on.
    quiet = json.loads(line)
    quiet.update(oom_count=0, title="quiet\u001b[2J")
    both = line + json.dumps(quiet)
    said = json.loads(run("merge", "-", "--json", "-", text=both))["job"]
    check((said["ranks"], said["records"], said["out_of_memory"]) == (1, 2, 1), f"of two records of a rank: {said}")
    quiet["rank"] = None
    text = run("merge", "-", text=json.dumps(quiet))
    check("quiet?[2J" in text and "\033" not in text, f"a title as it is: {text}")
    check(text.startswith("a job of 1 rank; none ran out"), f"one rank: {text}")
    alone = dict(json.loads(line), rank=9, has_code=False)
    several = [json.loads(line), alone, dict(alone, events=1)]
    text = run("merge", "-", text="\n".join(map(json.dumps, several)))
    check("a job of 2 ranks" in text and "\n1 record is left out" in text
          and "\n1 rank is not compared by owner" in text, f"one of each: {text}")
    same = [json.dumps(dict(json.loads(line), rank=rank, title=f"same{rank}")) for rank in range(2)]
    text = run("merge", "-", text="\n".join(same))
    check("\nno owner has on one rank 1 MiB more at its peak than the mean of 2\n" in text, f"ranks alike: {text}")
    # By rules that begin alike for longer than a record keeps, two ranks are not compared; by one they are.
    ranks = [run("--json-lines", path, "--owner", "model|" + "x" * 600 + end).replace('"rank":0', f'"rank":{i}')
             for i, end in enumerate("aab")]
    for number in (2, 3):
        job = json.loads(run("merge", "-", "--json", "-", text="\n".join(ranks[:number])))["job"]
        check((job["ranks"], job["compared_by_owner"]) == (number, 2), f"{number} ranks of long rules: {job}")
    # A limit of the caller's; the rank of the process.
    job = json.loads(run("merge", "-", "--limit", "80G", "--json", "-", text=json.dumps(dict(quiet, limit_bytes=None))))
    check(job["job"]["by_nearness_to_the_limit"][0]["limit_bytes"] == 80 << 30, f"--limit: {job}")
    for name, own, rank in (("snap_7.pickle", "5", 7), ("r.pickle", "5", 5), ("r.pickle", "x", None),
                            ("rank3/s_1.pickle.xz", "5", 3), ("frank3.pickle", "", None), ("s_12.ftrace", "", 12),
                            ("r.pickle", str(1 << 62), 1 << 62), ("r.pickle", str((1 << 62) + 1), None)):
        there = os.path.join(folder, name)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        os.rename(path, there)
        os.environ["RANK"] = own
        told = json.loads(run("--json-lines", there))["rank"]
        check(told == rank, f"{name} with RANK={own}: rank {told}")
        os.rename(there, path)
    os.environ.pop("RANK")
    # Change a record to values that it cannot have; each change is undone.
    most = 1 << 62
    for begin_ns, asked, free, known in ((most, most, 5, [most, most, 5]), (most + 1, most + 1, most + 1, [None] * 3)):
        with open(os.path.join(folder, "long.ftext"), "w") as file:
            file.write("#fallow-trace 1\ndevice 0\nstream 0\nfields times\n"
                       f"begin_ns {begin_ns}\nA 1 0 8 0\nO 2 {asked} 0 free={free}\n")
        line = run("--json-lines", file.name)
        said = json.loads(line)
        check([said[key] for key in ("begin_ns", "asked_bytes", "free_bytes")] == known, f"{line}")
        run("merge", "-", text=line)


def check_records(draw, folder):
    """Records are no traces, and traces no records: the error names the kind. Values that no record can have are
    refused."""
    path = os.path.join(folder, "snap_0.pickle")
    with open(path, "wb") as file:
        pickle.dump(make(draw, 0, False)[0], file)
    record = run("--json-lines", path)
    for count in (1, 2):
        with open(os.path.join(folder, "records.jsonl"), "w") as file:
            file.write(record * count)
        refuse([file.name], 1, "no trace but records of traces, .*; fallow report merge reads them$")
        done = subprocess.run([FALLOW, "report", folder, "--policy", "bound"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
        check(done.returncode == 0 and "fallow report merge reads them; left out" in done.stderr, done.stderr)
    refuse(["merge", path], 1, "it is no object; it is no record of fallow report --json-lines")
    # A missing requirement is reported, and nothing is written for that rank; the other ranks of a folder are written.
    most, most_held = 1 << 62, 1 << 48
    for last_ns, size, wrong in ((most, most_held, None), (most + 1, 1, "longer than 2\\^62 ns"),
                                 (1, most_held + 1, "more than 256 TiB")):
        with open(os.path.join(folder, "long.ftext"), "w") as file:
            file.write(f"#fallow-trace 1\ndevice 0\nstream 0\nfields times\nA 0 0 {size} 0\nF {last_ns} 0 0\n")
        if wrong is None:
            run("merge", "-", text=run("--json-lines", file.name))
            continue
        refuse(["--json-lines", file.name], 1, f"long.ftext: it .*{wrong}, which is more than")
        done = subprocess.run([FALLOW, "report", folder, "--json-lines"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True, timeout=60)
        check(done.returncode == 0 and done.stdout == record, f"the others, {wrong}: {done.stdout}")


def call(*arguments, text=b""):
    done = subprocess.run([FALLOW, "report", *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60)
    check(done.returncode == 0, f"{arguments}: status {done.returncode}, {done.stderr}")
    return done.stdout


def check_names(draw, folder):
    """Names are the same to every reader of JSON; a record that another program wrote is the same record."""
    snapshot = make(draw, 0, False)[0]
    names = {}
    for event in snapshot["device_traces"][0]:
        was = event["frames"][0]["name"]
        names[was] = f"entra\u00eener_\U0001f525_{was}"
        event["frames"] = [{"filename": "/home/me/mod\u00e8le.py", "line": LINES.index(was) + 10, "name": names[was]}]
    path = os.path.join(os.fsencode(folder), b"caf\xc3\xa9 \xff\xc3 \xed\xa0\x80_0.pickle")
    with open(path, "wb") as file:
        pickle.dump(snapshot, file)
    title = os.fsdecode(os.path.basename(path))
    line = call("--json-lines", path)
    told = json.loads(line.decode())
    owners = {row["owner"] for row in told["at_peak"]["owners"]}
    check(told["title"] == title, f"title {ascii(told['title'])}, not {ascii(title)}")
    wanted = {f"{name} (mod\u00e8le.py:{LINES.index(was) + 10})" for was, name in names.items()}
    check(owners and owners <= wanted, f"owners {ascii(owners)}")
    told["title"] = title = title + "\\ \" / \b\f\n\r\t\x7f"
    line = call("merge", "-", "--json-lines", text=json.dumps(told).encode())
    check(json.loads(line.decode()) == told, f"of {ascii(told['title'])}: {line}")
    for other in (json.dumps(told, ensure_ascii=False).encode(errors="surrogateescape"), json.dumps(told).encode(),
                  json.dumps(told).replace("/", "\\/").encode()):
        check(call("merge", "-", "--json-lines", text=other + line) == line, f"another record: {other}")
    # A report that another program wrote anew is no other report.
    base = os.path.join(folder, "base.json")
    said = json.loads(call(path, "--policy", "bound", "--no-times", "--json", "-").decode())
    check(said["traces"][0]["title"] == os.path.basename(os.fsdecode(path)), f"{ascii(said['traces'][0]['title'])}")
    with open(base, "wb") as file:
        file.write(json.dumps(said, ensure_ascii=False).encode(errors="surrogateescape"))
    call(path, "--policy", "bound", "--no-times", "--baseline", base)
    text = call("diff", base, path).decode(errors="surrogateescape")
    check("caf\u00e9 " in text and "\\" not in text, f"diff: {ascii(text)}")


def main():
    os.environ.pop("RANK", None)
    draw = random.Random(int(os.environ.get("FALLOW_TEST_SEED", "20")))
    print("seed", os.environ.get("FALLOW_TEST_SEED", "20"))
    cases = [(2, {}), (3, {"runs_out": 0}), (7, {"runs_out": 1}), (12, {"stacks": 0.7}), (5, {"stacks": 0}),
             (40, {"runs_out": 0.1})]
    for count, settings in cases:
        with tempfile.TemporaryDirectory() as root:
            folder = os.path.join(root, "job")
            os.mkdir(folder)
            os.mkdir(folder + ".parts")
            check_job(draw, folder, count, **settings)
    with tempfile.TemporaryDirectory() as root:
        check_damage(draw, root)
    with tempfile.TemporaryDirectory() as root:
        check_starved(draw, root)
    with tempfile.TemporaryDirectory() as root:
        check_beside(draw, root)
    with tempfile.TemporaryDirectory() as root:
        check_records(draw, root)
    with tempfile.TemporaryDirectory() as root:
        check_names(draw, root)
    with tempfile.TemporaryDirectory() as root:  # without a clock nobody is first
        paths = []
        for rank in range(3):
            paths.append(os.path.join(root, f"s_{rank}.pickle"))
            with open(paths[-1], "wb") as file:
                pickle.dump(make(draw, rank, True, has_clock=False)[0], file)
        said = json.loads(run("merge", "-", "--json", "-", text=run("--json-lines", *paths)))["job"]
        check(said["first_out_of_memory"]["by_clock"] is False, "without a clock one is first")
        check(all(row["nearest_for_ns"] is None for row in said["by_nearness_to_the_limit"]), "time without a clock")
        text = run("merge", "-", text=run("--json-lines", *paths))
        check("which rank was first is unknown" in text, "without a clock the text names a first")
    for failure in failures[:20]:
        print(failure)
    print(f"{len(failures)} wrong")
    return 1 if failures else 0


FALLOW = sys.argv[1]
sys.exit(main())
