#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu.digest: results that a GPU could have given, made by hand, and the output of digest; simulated ones, which
digest refuses; its hardware.txt before the conformance suite, its costs before a compiler.

  digest_test.py --conformance PROGRAM --probe PROGRAM --compiler CC
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OPTIONS = None
WHERE = "NVIDIA H200, driver 580.95.05 (CUDA 13.0), 2026-12-01"
CASES = ("memory.zero_bytes_are_refused", "memory.double_free_is_refused", "vmm.the_offset_is_zero",
         "event.an_unrecorded_event_is_complete", "copy.memory_that_is_no_more_is_refused", "stream.default_handles_have_ids")


def step(name, result="pass", output="", **more):
    return dict({"step": name, "result": result, "simulated": False, "exit": "0", "seconds": 0.1, "output": output, "errors": ""},
                **more)


def probe(simulated=False):
    return step("device", output=json.dumps({"device": "NVIDIA H200", "driver": 13000, "simulated": simulated, "well": True}))


def life(call, mib, load, least, median, most):
    return json.dumps({"ask": "life", "call": call, "bytes": mib << 20, "result": 0, "name": "CUDA_SUCCESS", "simulated": False,
                       "handles": 1, "load": load, "calls": 9, "us_min": least, "us_median": median, "us_max": most,
                       "us_total": 1, "waited": load == "behind"})


def tour(mode, *rows):
    return "\n".join(json.dumps({"mode": mode, **row}) for row in rows)


class Digest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.hardware = self.write("hardware.txt", "# a comment\n")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="latin-1") as file:
            file.write(text)
        return path

    def results(self, steps, name="results.jsonl", date="2026-12-01", tail="", **head):
        lines = [dict({"head": 1, "steps": "call_a", "simulated": False, "date": date + "T10:00:00Z", "host": "Linux", "device": "0",
                       "budget": 370, "nvidia_smi": "NVIDIA H200, 580.95.05, 143771 MiB, Disabled, Default",
                       "bundle": "commit 0123abc\nmade today"}, **head)]
        lines += steps + [{"end": 1, "seconds": 12, "pass": len(steps)}]
        return self.write(name, "".join(json.dumps(line) + "\n" for line in lines) + tail)

    def digest(self, *arguments):
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "digest"), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def cases(self, *paths):
        code, out, err = self.digest("cases", *paths, "--hardware", self.hardware, "--write")
        self.assertEqual((code, out), (0, ""), err)
        with open(self.hardware, encoding="ascii") as file:
            return file.read(), err

    def conformance(self, only):
        done = subprocess.run([OPTIONS.conformance, "sim", "--hardware", self.hardware, "--only", only], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        return done.returncode, done.stdout

    # ---- refusals

    def test_simulated_results_are_refused(self):
        asked = step("conformance." + CASES[0])
        for what, path in (("head", self.results([probe(), asked], simulated=True)),
                           ("probe", self.results([probe(simulated=True), asked], "probe.jsonl")),
                           ("step", self.results([probe(), dict(asked, simulated=True)], "step.jsonl")),
                           ("silent", self.results([probe(), {"step": "x", "result": "pass"}, asked], "silent.jsonl"))):
            for verb in ("figures", "cases", "costs"):
                code, out, err = self.digest(verb, path, "--hardware", self.hardware)
                self.assertEqual((code, out), (1, ""), what)
                self.assertIn("nothing in it is a GPU's", err)

    def test_one_simulated_file_among_real_ones_is_refused(self):
        real = self.results([probe(), step("conformance." + CASES[0])])
        simulated = self.results([probe(simulated=True)], "simulated.jsonl")
        self.assertEqual(self.digest("cases", real, simulated, "--hardware", self.hardware)[:2], (1, ""))

    def test_a_rehearsal_says_so_and_writes_nothing(self):
        path = self.results([probe(simulated=True), step("conformance." + CASES[0]),
                             step("vmm.life", output=life("cuMemMap", 2, "idle", 1, 2, 3))], simulated=True)
        for verb in ("figures", "cases", "costs"):
            code, out, _ = self.digest(verb, path, "--rehearsal", "--hardware", self.hardware)
            self.assertEqual(code, 0)
            self.assertIn("REHEARSAL", out.splitlines()[0])
        code, out, err = self.digest("cases", path, "--rehearsal", "--write", "--hardware", self.hardware)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("writes nothing", err)

    def test_other_files_are_refused(self):
        for text in ("", "no JSON at all\n", '{"step":"x","result":"pass"}\n'):
            code, _, err = self.digest("figures", self.write("other", text))
            self.assertEqual(code, 1)
            self.assertIn("no results.jsonl", err)
        self.assertEqual(self.digest("figures", os.path.join(self.folder, "none"))[0], 1)
        code, _, err = self.digest("cases", self.results([probe()]), "--hardware", self.hardware)
        self.assertEqual(code, 1)
        self.assertIn("no step asked a case", err)

    # ---- cases

    def test_cases_are_seen_or_contradicted(self):
        steps = [probe(), step("conformance." + CASES[0]), step("conformance." + CASES[1], "fail"),
                 step("conformance." + CASES[2], "skip"), step("conformance." + CASES[3], "died", why="signal 11"),
                 step("conformance." + CASES[4], "fail", broken_since="conformance." + CASES[3])]
        text, err = self.cases(self.results(steps))
        self.assertEqual(text, f"# a comment\n{CASES[3]} contradicted {WHERE}\n{CASES[1]} contradicted {WHERE}\n{CASES[0]} seen {WHERE}\n")
        self.assertIn("3 cases asked; 2 contradicted", err)

    def test_a_case_that_hung_has_no_verdict(self):
        steps = [probe(), step("conformance." + CASES[0]), step("conformance." + CASES[1], "hung", why="ended after 20 s"),
                 step("conformance." + CASES[2], "hung", why="the budget had 3 of its 20 s left"),
                 step("conformance." + CASES[3], "stuck", why="no signal ended it"),
                 step("conformance." + CASES[4], "died", why="signal 14")]  # the case's own alarm
        text, err = self.cases(self.results(steps))
        self.assertEqual(text, f"# a comment\n{CASES[0]} seen {WHERE}\n")
        self.assertIn("1 cases asked; 0 contradicted", err)

    def test_a_contradicted_case_fails_on_the_simulated_driver(self):
        self.cases(self.results([probe(), step("conformance." + CASES[0], "fail"), step("conformance." + CASES[1])]))
        code, out = self.conformance(CASES[0])
        self.assertEqual(code, 1, out)
        self.assertIn(f"fail  {CASES[0]}", out)
        self.assertIn(f"a GPU contradicts it ({WHERE})", out)
        code, out = self.conformance(CASES[1])
        self.assertEqual(code, 0, out)
        self.assertIn("1 seen on hardware", out)

    def test_a_contradiction_stays_until_a_later_day_sees_it(self):
        failing = self.results([probe(), step("conformance." + CASES[0], "fail")], "a", "2026-12-02")
        before = self.results([probe(), step("conformance." + CASES[0])], "b", "2026-12-01")
        same = self.results([probe(), step("conformance." + CASES[0])], "c", "2026-12-02")
        after = self.results([probe(), step("conformance." + CASES[0])], "d", "2026-12-03")
        self.assertIn("contradicted", self.cases(failing)[0])
        self.assertIn("contradicted", self.cases(before)[0])
        self.assertIn("contradicted", self.cases(same)[0])
        self.assertIn("seen", self.cases(after)[0])
        self.assertEqual(self.conformance(CASES[0])[0], 0)

    def test_the_suite_refuses_a_file_that_it_cannot_read(self):
        for text, why in ((f"no.such_case seen {WHERE}\n", "names no case"), (f"{CASES[0]} probably {WHERE}\n", "neither"),
                          (f"{CASES[0]} seen\n", "where"), (f"{CASES[0]} seen {WHERE}\n" * 2, "a second time"),
                          (f"{CASES[0]} seen {'x' * 200}\n", "159"), (f"{CASES[0]} seen {WHERE}", "not ended")):
            self.write("hardware.txt", text)
            code, out = self.conformance(CASES[0])
            self.assertEqual(code, 2, out)
            self.assertIn(why, out)

    def test_the_committed_file_is_read(self):
        self.hardware = os.path.join(HERE, "hardware.txt")
        code, out = self.conformance("memory.")
        self.assertEqual(code, 0, out)

    # ---- half lines

    def test_half_lines_are_named_and_cost_nothing_else(self):
        path = self.results([probe(), step("conformance." + CASES[0])], tail='{"step":"conformance.x","resu')
        text, err = self.cases(path)
        self.assertIn(f"{CASES[0]} seen", text)
        self.assertIn("is no whole object and is left out", err)
        with open(path, encoding="ascii") as file:
            lines = file.readlines()
        cut = self.write("cut", "".join(lines[:3]))
        code, out, err = self.digest("figures", cut)
        self.assertEqual(code, 0)
        self.assertIn("the run was cut off", err)
        self.assertIn("cut off.", out)

    # ---- costs

    def measured(self):
        rows = []
        for mib in (2, 16, 64, 256):
            pages = mib // 2
            rows.append(life("cuMemCreate", mib, "idle", 20 + 1 * pages, 50 + 2 * pages, 999))
            rows.append(life("cuMemCreate", mib, "behind", 60, 70, 90 + 5 * pages))
            rows.append(life("cuMemMap", mib, "idle", 2, 2, 9))
        questions = "\n".join(f"4g: {name}: a record {us} us, a query 0.4 us" for name, us in
                              (("1 streams, idle", 0.5), ("8 streams, idle", 0.75), ("512 streams, busy", 44)))
        doctor = {"driver": {"version": 13000}, "cost of a call": {"cuEventRecord": 812, "cuMemFree 2 MiB": 3000,
                                                                   "cuMemFree 64 MiB": 3000, "reading the clock": 20}}
        return [probe(), step("vmm.life", output="\n".join(rows)), step("first_run", output=questions),
                step("doctor", output=json.dumps(doctor))]

    def test_costs_are_fitted(self):
        code, out, err = self.digest("costs", self.results(self.measured()))
        self.assertEqual(code, 0, err)
        self.assertIn(WHERE, out)
        self.assertIn("{FLW_ENTRY_cuMemCreate, {50000, 20000, 90000}, {2000, 1000, 5000}},", out)
        self.assertIn("{FLW_ENTRY_cuMemMap, {2000, 2000, 9000}, {0}},", out)
        self.assertIn("{FLW_ENTRY_cuCtxRecordEvent, {750, 500, 44000}, {0}},", out)
        self.assertIn("{FLW_ENTRY_cuEventRecord, {812, 812, 812}, {0}},", out)
        self.assertIn("{FLW_ENTRY_cuMemFree_v2, {3000, 3000, 3000}, {0}},", out)

    def test_costs_have_the_form_that_the_model_reads(self):
        _, out, _ = self.digest("costs", self.results(self.measured()))
        with open(os.path.join(ROOT, "src/simcuda/latency.c"), encoding="ascii") as file:
            model = file.read()
        source, count = re.subn(r"(costs\[\] = \{\n).*?(\n\};)", lambda found: found.group(1) + out + found.group(2), model, count=1,
                                flags=re.S)
        self.assertEqual(count, 1)
        path = self.write("latency.c", source)
        done = subprocess.run([OPTIONS.compiler, "-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-D_GNU_SOURCE", "-DFLW_CHECK_LEVEL=0",
                               "-I", os.path.join(ROOT, "src"), "-I", os.path.join(ROOT, "include"), path],
                              stderr=subprocess.PIPE, universal_newlines=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_models_own_costs_come_back(self):
        asked = subprocess.run([OPTIONS.probe, "--device", "sim", "life"], stdout=subprocess.PIPE, universal_newlines=True, check=True)
        path = self.results([probe(simulated=True), step("vmm.life", output=asked.stdout, simulated=True)], simulated=True)
        code, out, err = self.digest("costs", path, "--rehearsal")
        self.assertEqual(code, 0, err)
        with open(os.path.join(ROOT, "src/simcuda/latency.c"), encoding="ascii") as file:
            model = file.read()
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"):
            row = r"\{FLW_ENTRY_%s,\s*\{(\d+)[^}]*\},\s*\{(\d+)" % call  # the first column, typical
            self.assertEqual(re.search(row, out).groups(), re.search(row, model).groups(), call)

    def test_no_costs_are_no_table(self):
        code, out, err = self.digest("costs", self.results([probe()]))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no step measured a call", err)

    # ---- figures

    def test_figures_name_device_driver_date_and_command(self):
        bench = {"bench": "pair", "size": "4096", "simulated": False, "results": {"ns_per_pair": 21.5, "none": None}}
        kernels = {"bench": "kernels", "simulated": False, "cases": [
            {"module": "permute", "case": "bf16", "us": 12.5, "copy_us": 10.0, "launches": 1, "read_bytes": 1024, "write_bytes": 1024}]}
        serving = {"simulated": False, "policies": [{"name": "fallow", "label": "fallow", "peak_reserved_bytes": 1 << 30, "driver_calls": 7,
                                                     "ns_per_op": {"p50": 80.0, "p99": 300.0}}]}
        transformer = {"digest": "a", "ms_median": 1.5, "ms_99": 2.5, "tokens_per_second": 4000, "used_bytes": 1 << 30}
        steps = self.measured() + [
            step("bench.pair", output=json.dumps(bench)), step("bench.kernels", output=json.dumps(kernels)),
            step("kernels.torch", output="module case us\n" + json.dumps({"torch": "2.11", "cases": [
                {"module": "permute", "case": "bf16", "us": 12.5, "torch_us": 99.0, "factor": 7.92},
                {"module": "poison", "case": "1 GiB", "replaces": "no sequence"}]})),
            step("replay.serve", output="a line before\n" + json.dumps(serving)), step("broken", "died", why="signal 6"),
            step("transformer.serve.native", output=json.dumps(transformer)),
            step("transformer.serve.plugin", output=json.dumps(dict(transformer, digest="b"))),
            step("torch.plain", output=tour("plain", {"part": "train", "digest": "c", "ms_median": 1.25})),
            step("torch.plugin", "fail", output=tour("plugin", {"part": "train", "digest": "c"}, {"part": "failure", "right": False},
                                                     {"part": "held", "used_bytes": 7, "fallow": {"alloc_count": 1}})),
            step("racecheck.route", "fail", output="========= RACECHECK SUMMARY: 1 hazard")]
        code, out, err = self.digest("figures", self.results(steps))
        self.assertEqual(code, 0, err)
        for text in (WHERE, "Commit 0123abc", "`tests/gpu/first.sh tests/gpu/call_a.sh --device 0`", "| broken | died | signal 6 |",
                     "| pair | 4096 | ns_per_pair | 21.50 |", "| permute | bf16 | 12.50 | 10.00 | 1 | 2,048 |",
                     "| permute | bf16 | 12.50 | 99.00 | 7.9 |  |", "| poison | 1 GiB |  |  |  | no sequence |",
                     "| fallow | 1,024 | 7 | 80 | 300 |", "| cuMemCreate | 2 MiB | 1 | idle | 9 | 21.00 | 52.00 | 999.00 | 1.00 | no |",
                     "| serve | native | 1.50 | 2.50 | 4,000 | 1,024 |", "`serve` computed **different results**",
                     "| train | plain |  | digest c, ms_median 1.25 |", "| failure | plugin | **no** |  |",
                     "| held | plugin |  | used_bytes 7 |", "`train` computed the same under every allocator",
                     "| racecheck.route | fail | 0.1 | ========= RACECHECK SUMMARY: 1 hazard |"):
            self.assertIn(text, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--conformance", required=True)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--compiler", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
