#!/bin/sh
# with_clients.sh PYTHON ARGS…: runs PYTHON, or says that it is not there and is skipped.
if [ ! -x "$1" ]; then
  echo "SKIPPED: $1 is not there; tools/test_clients.sh makes it where PyPI can be reached"
  exit 77
fi
exec "$@"
