"""with_server.py COMMAND…: runs COMMAND with LILY_TEST_URL naming a `lily serve tiny` that lives as long."""
import os
import subprocess
import sys

from serve import Server

with Server() as server:
    done = subprocess.run(sys.argv[1:], env={**os.environ, "LILY_TEST_URL": f"http://127.0.0.1:{server.port}"}, check=False)
sys.exit(done.returncode)
