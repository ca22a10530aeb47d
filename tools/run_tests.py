#!/usr/bin/env python3
"""Runs ctest for each preset named (see CMakePresets.json) and ends in a line that counts the tests.

    tools/run_tests.py release asan
"""
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def counts(junit: Path) -> tuple[int, int, int, list[str]]:
    """(passed, failed, skipped, names of the skipped) of a ctest report."""
    passed = failed = 0
    skipped = []
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        if case.find("failure") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped.append(case.get("name") or "?")
        else:
            passed += 1
    return passed, failed, len(skipped), skipped


def main(presets: list[str]) -> int:
    if not presets:
        print(__doc__, file=sys.stderr)
        return 2
    total = [0, 0, 0]
    skipped: set[str] = set()
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for preset in presets:
            junit = Path(folder) / f"{preset}.xml"
            print(f"== ctest --preset {preset}", flush=True)
            run = subprocess.run(["ctest", "--preset", preset, "--output-junit", str(junit)], cwd=ROOT, check=False)
            bad |= run.returncode != 0
            if junit.exists():
                *found, names = counts(junit)
                total = [a + b for a, b in zip(total, found)]
                skipped.update(names)
    for name in sorted(skipped):
        print(f"skipped: {name}")
    if total[0] == 0:
        print("no test ran", file=sys.stderr)
        bad = True
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped", flush=True)
    return 1 if bad or total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
