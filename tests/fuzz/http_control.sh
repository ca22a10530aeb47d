#!/bin/sh
# http_control.sh PROGRAM SEEDS DICTIONARY: the HTTP fuzzer finds each fault planted for it, and says so in these words.
set -eu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
finds() {  # FAULT WORDS
  mkdir "$out/$1"
  begin=$(date +%s)
  if LILY_FUZZ_PLANTED=$1 "$(dirname "$0")/run.sh" "$program" "$seeds" "$dictionary" "$out/$1" 60 >"$out/$1.log" 2>&1; then
    echo "FAILED: $1 was not found"
    exit 1
  fi
  grep -q "$2" "$out/$1.log" || { echo "FAILED: $1 was not called '$2':"; tail -n 40 "$out/$1.log"; exit 1; }
  echo "$1: found in $(($(date +%s) - begin)) s"
}
program=$1 seeds=$out/seeds dictionary=$3
mkdir "$seeds"
cp "$2/gets" "$2/heads" "$2/texts" "$seeds"  # the fewer, the sooner
finds memory 'heap-use-after-free'
finds undefined 'signed integer overflow'
finds leak 'detected memory leaks'
finds reply 'no JSON'
finds silence 'neither answered nor closed'
finds health 'not healthy'
finds probe "the probe's answer was"
seeds=$2
finds framing 'without a certain end'
