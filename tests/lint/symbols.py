#!/usr/bin/env python3
"""A kernel object gives the linker nothing outside its instruction set's namespace (see src/ops/cpu_kernels.h).

A weak or global symbol with a common name, compiled for AVX-512 too, could be the one that the linker keeps for everybody:
an older machine would die of it. Usage: symbols.py BUILD_DIR | --self-test
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lint

DEFINED_FOR_OTHERS = set("TDBRGSCWVui")  # nm's letters for what other objects see; U, w, v: used and not defined
FOLDER = re.compile(r"lily_ops_(\w+)\.dir$")


def own(symbol: str, isa: str) -> bool:
    """Itanium mangling: a name in lily::ops::ISA, something of its (guard, local static), or an extern "C" of it."""
    return re.match(rf"_Z(?:GV|GR|TV|TI|TS)?Z?NK?4lily3ops{len(isa)}{isa}", symbol) is not None


def strangers(objects: Path, isa: str) -> list[str]:
    run = subprocess.run(["nm", "-P", str(objects)], capture_output=True, text=True, check=True)
    found = []
    for line in run.stdout.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[1] in DEFINED_FOR_OTHERS and not own(fields[0], isa):
            found.append(f"{fields[1]} {fields[0]}")
    return found


def demangled(symbols: list[str]) -> list[str]:
    if not symbols or not shutil.which("c++filt"):
        return symbols
    run = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def check(build: Path) -> list[str]:
    folders = [(path, found.group(1)) for path in build.rglob("lily_ops_*.dir") if (found := FOLDER.search(path.name))]
    objects = [(path, isa) for folder, isa in folders for path in sorted(folder.rglob("*.o"))]
    if not objects:
        return [f"{build}: no kernel objects (lily_ops_*.dir): was it built?"]
    return [f"{path.relative_to(build)}: {symbol}" for path, isa in objects
            for symbol in demangled(strangers(path, isa))]


def self_test() -> list[str]:
    good = """namespace lily::ops::avx2 {
      static int twice(int x) { return 2 * x; }
      template <class T> T thrice(T x) { static T calls; return calls += 3 * x; }
      int run(int x) { return twice(x) + thrice(x); }
      extern const int kernels; const int kernels = 1; }"""
    bad = {
        "an inline function of a header": "inline int half(int x) { return x / 2; } int (*lily_use)(int) = half;",
        "a function of another namespace": "namespace lily::ops { int run() { return 1; } }",
        "another set's function": "namespace lily::ops::avx512 { int run() { return 1; } }",
        "a template of the library": "#include <vector>\nnamespace lily::ops::avx2 {\n"
                                     "void f(std::vector<int>& v) { v.push_back(1); } }",
    }
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        target = build / "lily_ops_avx2.dir"
        target.mkdir()

        def problems_of(source: str) -> list[str]:
            (target / "a.cpp").write_text(source)
            subprocess.run(["c++", "-std=c++20", "-O0", "-c", "a.cpp", "-o", "a.o"], cwd=target, check=True)
            return check(build)

        if problems := problems_of(good):
            wrong.append(f"good code: {problems}")
        wrong += [f"not found: {what}" for what, source in bad.items() if not problems_of(source)]
        (target / "a.o").unlink()
        if not check(build):
            wrong.append("a build without kernel objects passes")
    return wrong


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.platform == "darwin" or not shutil.which("nm"):
        print("skipped: reads ELF objects with nm")
        return lint.SKIP
    problems = self_test() if sys.argv[1] == "--self-test" else check(Path(sys.argv[1]))
    print("\n".join(problems[:60] + [f"{len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
