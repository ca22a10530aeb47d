"""Runs the program under test. LILY_BIN is its path, LILY_SOURCE_DIR the project's root; both are set by ctest."""
import array
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get("LILY_SOURCE_DIR", Path(__file__).resolve().parent.parent.parent))
BIN = os.environ.get("LILY_BIN", str(ROOT / "build" / "lily"))
TINY = ROOT / "models" / "tiny"
GOLDEN = ROOT / "tests" / "data" / "golden" / "tiny"


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out_bytes = done.stdout
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")


def lily(*args, stdin=b"", env=None, timeout=300):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run([BIN, *map(str, args)], input=stdin, capture_output=True, timeout=timeout, check=False,
                          env={**os.environ, **(env or {})})
    return Result(done)


def ok(test, *args, **kwargs):
    """Runs and expects success."""
    r = lily(*args, **kwargs)
    test.assertEqual(r.code, 0, f"lily {args}: {r.err}")
    return r


def fails(test, code, words, *args, **kwargs):
    """Runs and expects a failure that one line explains, with every one of `words` in it."""
    r = lily(*args, **kwargs)
    test.assertEqual(r.code, code, f"lily {args}: {r.out[:200]} {r.err}")
    lines = r.err.strip("\n").split("\n")
    test.assertEqual(len(lines), 1, r.err)
    for word in words:
        test.assertIn(word, lines[0])
    test.assertEqual(r.out, "")
    return r


def read_safetensors(path):
    """{name: (shape, array)} of the F32, I32 and I64 tensors."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        values = array.array({"F32": "f", "I32": "i", "I64": "q"}[info["dtype"]])
        values.frombytes(data[8 + length + begin:8 + length + end])
        tensors[name] = (info["shape"], values)
    return tensors


def greedy_cases():
    return json.loads((GOLDEN / "greedy.json").read_text())["cases"]


def main(unittest_module):
    if not Path(BIN).exists():
        sys.exit(f"{BIN} is not there: build the target lily first")
    unittest_module.main()
