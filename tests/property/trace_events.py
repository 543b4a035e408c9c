# SPDX-License-Identifier: Apache-2.0
#
# The requirements of the Trace Event Format's specification for a file in JSON's object form, which Perfetto and
# chrome://tracing read: for the kinds of event that are written here. A module of property.owners.
import json
import math

COMMON = {"ph": str, "name": str, "pid": int, "tid": int, "ts": float}
SCOPES = ("g", "p", "t")
NAMED = ("process_name", "thread_name")


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def read(content):
    """The document; whatever is no JSON, or no UTF-8, even behind an escape, is an error."""
    document = json.loads(content.decode(), parse_float=float, parse_int=int, parse_constant=refuse)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def is_kind(value, kind):
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)


class Checker:
    def __init__(self):
        self.wrong = []
        self.last, self.open, self.slices = {}, {}, {}  # by thread, by thread, by category and id

    def expect(self, holds, event, rule):
        if not holds:
            self.wrong.append(f"{rule}: {json.dumps(event)[:200]}")

    def take_duration(self, event):
        """Begins and ends nest on each thread; an end has a begin, of its name."""
        names = self.open.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            names.append(event["name"])
        else:
            self.expect(names and names[-1] == event["name"], event, "an end is not of what began last on its thread")
            del names[-1:]

    def take_slice(self, event):
        """An asynchronous pair has a category and an id in its process, which no other has while it is open."""
        number = (event.get("id2") or {}).get("local")
        self.expect(is_kind(event.get("cat"), str) and is_kind(number, str), event, "no category, or no id")
        place, is_begin = (event["pid"], event.get("cat"), number), event["ph"] == "b"
        self.expect((place in self.slices) != is_begin, event, "begins twice, or ends before it begins")
        if is_begin:
            self.slices[place] = event["name"]
        else:
            self.expect(self.slices.pop(place, event["name"]) == event["name"], event, "an end of another name")

    def take_counter(self, event):
        values = event.get("args") or {}
        self.expect(values and all(is_kind(v, float) and math.isfinite(v) for v in values.values()), event, "counts nothing")

    def take_name(self, event):
        numbers = all(is_kind(event.get(key), int) for key in ("pid", "tid"))
        self.expect(numbers and event.get("name") in NAMED and is_kind((event.get("args") or {}).get("name"), str), event,
                    "names nothing")

    def take(self, event):
        if event.get("ph") == "M":
            return self.take_name(event)
        for key, kind in COMMON.items():
            if not is_kind(event.get(key), kind):
                return self.expect(False, event, f"no {key}")
        thread = (event["pid"], event["tid"])
        self.expect(0 <= event["ts"] < 2 ** 64 and self.last.get(thread, 0) <= event["ts"], event, "time falls on its thread")
        self.last[thread] = event["ts"]
        self.expect(isinstance(event.get("args", {}), dict), event, "arguments are no object")
        take = {"B": self.take_duration, "E": self.take_duration, "b": self.take_slice, "e": self.take_slice,
                "C": self.take_counter}.get(event["ph"])
        if take:
            take(event)
        else:
            self.expect(event["ph"] == "i" and event.get("s", "t") in SCOPES, event, "a kind that is not written here")


def broken_rules(document):
    """One line for each breach."""
    checker = Checker()
    checker.expect(document.get("displayTimeUnit", "ms") in ("ms", "ns"), {}, "displayTimeUnit")
    for event in document["traceEvents"]:
        checker.take(event)
    return checker.wrong
