"""A program on a pseudo-terminal: what a person at a keyboard sees and does."""
import os
import pty
import select
import signal
import time


class Terminal:
    def __init__(self, args, env=None):
        self.seen = ""     # all output so far
        self.waiting = ""  # of it, what no wait_for has passed
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
            os.execv(args[0], [str(a) for a in args])

    def wait_for(self, text, timeout=60):
        """Reads until `text` has come after what the last call waited for."""
        end = time.monotonic() + timeout
        while text not in self.waiting:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{text!r} did not come in {timeout} s; new: {self.waiting!r}; all: {self.seen!r}")
            try:
                piece = os.read(self.fd, 4096).decode("utf-8", "replace")
            except OSError:  # the other side is gone
                piece = ""
            if not piece:
                raise AssertionError(f"the program ended before {text!r}; new: {self.waiting!r}")
            self.waiting += piece
            self.seen += piece
        self.waiting = self.waiting.split(text, 1)[1]

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def ended(self, timeout=20):
        """Waits for the end; the exit status, or minus the signal's number."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:
                    pass
        raise AssertionError(f"still running after {timeout} s: {self.seen!r}")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.fd)
