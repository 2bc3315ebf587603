#!/usr/bin/env python3
"""Adds up meson's test logs: prints "N passed, N failed, N skipped"; exits 1 if one failed or none ran."""

import json
import sys


def outcomes(path):
    """Yields (name, result) of each test in one testlog.json (a JSON object a line)."""
    with open(path, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            yield test["name"], test["result"]


def main(paths):
    passed, failed, skipped = [], [], []
    kinds = {"OK": passed, "EXPECTEDFAIL": passed, "SKIP": skipped}
    for path in paths:
        try:
            for name, result in outcomes(path):
                kinds.get(result, failed).append(f"{path.split('/')[0]}: {name} ({result})")
        except FileNotFoundError:
            failed.append(f"{path}: no test ran")
    for line in failed:
        print("failed:", line)
    for line in skipped:
        print("skipped:", line)
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
