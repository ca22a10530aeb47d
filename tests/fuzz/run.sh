#!/bin/sh
# run.sh PROGRAM SEEDS DICTIONARY CORPUS SECONDS: fuzzes for SECONDS, keeping what it finds in CORPUS.
set -eu
mkdir -p "$4"
exec "$1" -max_total_time="$5" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
  -dict="$3" -artifact_prefix="$4/crash-" "$4" "$2"
