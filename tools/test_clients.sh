#!/bin/sh
# Real clients of the HTTP server, for tests/server/test_clients.py, in a virtual environment of their own: build/clients.
# Does nothing when they are there. Without PyPI, venv or Python 3.11 it says so and ends well: the tests are skipped.
set -eu
cd "$(dirname "$0")/.."
PINNED="openai==3.57.0 langchain-openai==1.7.4 langchain-core==1.8.3 litellm==1.110.2 httpx==0.28.1"
VENV=build/clients

say() { echo "test_clients: $*" >&2; }
give_up() {
  rm -rf "$VENV"
  say "$*: the tests of real clients will be skipped"
  exit 0
}

if [ -x "$VENV/bin/python" ] && [ "$(cat "$VENV/pinned" 2>/dev/null)" = "$PINNED" ]; then exit 0; fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || give_up "Python is older than 3.11"
rm -rf "$VENV"
mkdir -p build
python3 -m venv "$VENV" >/dev/null 2>&1 || give_up "python3 -m venv does not work here"
say "installing $PINNED"
# shellcheck disable=SC2086  # a list of words on purpose
"$VENV/bin/pip" install -q --disable-pip-version-check --only-binary :all: $PINNED || give_up "the packages could not be had"
echo "$PINNED" >"$VENV/pinned"
