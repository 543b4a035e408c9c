#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.settings: the table in include/fallow/README.md has every setting of the library, and no other.

    settings.py SOURCE_ROOT
"""
import os
import re
import sys

STRUCTS = (("fallow.h", "fallow_pool_config"), ("host.h", "fallow_host_config"), ("arena.h", "fallow_arena_config"),
           ("trace.h", "fallow_record_config"))
NO_SETTING = re.compile(r"struct_size|reserved_\d|cache_bytes|peer_device_count")
OLD_NAMES = {"decay", "large"}


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def find_settings(root):
    """Return the names of all settings, as the table has them."""
    names = {"only", "skip", "trial"}  # settings.c has no row for these
    for header, struct in STRUCTS:
        body = re.search(r"typedef struct %s \{(.*?)\n\}" % struct, read(root, "include/fallow/" + header), re.S).group(1)
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        names |= {re.sub(r"_bytes$", "", name) if name in ("limit_bytes", "one_handle_bytes") else name
                  for name in re.findall(r"(\w+)(?:\[\d+\])?;", body) if not NO_SETTING.fullmatch(name)}
    for path in ("src/plugin/plugin_settings.c", "src/preload/settings.c"):
        names |= set(re.findall(r'^    \{"(\w+)", (?:FLW_SETTING|TEXT|BYTES|SWITCH)', read(root, path), re.M)) - OLD_NAMES
    return names


def main(root):
    table = read(root, "include/fallow/README.md").split("\n## Settings\n")[1].split("\n## ")[0]
    listed = {name for row in re.findall(r"^\|([^|]*)\|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    settings = find_settings(root)
    errors = ["the table of settings lacks " + name for name in sorted(settings - listed)]
    errors += ["the table of settings lists %s, which is no setting" % name for name in sorted(listed - settings)]
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main(sys.argv[1])
