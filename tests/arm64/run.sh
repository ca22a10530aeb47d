#!/bin/sh
# Builds the tests of the ops for arm64 in FOLDER and runs them under emulation.
#   tests/arm64/run.sh FOLDER [test_ops options]
set -eu
folder=$1
shift
cmake -S "$(dirname "$0")" -B "$folder" -G Ninja
cmake --build "$folder" --target test_ops
exec qemu-aarch64 -cpu max "$folder/test_ops" "$@"
