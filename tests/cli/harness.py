"""What the tests of the command line share: running the program, and typing at it on a pseudo-terminal."""

import fcntl
import os
import pathlib
import pty
import re
import resource
import select
import subprocess
import sys
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "demo" / "model"
PROGRAM = os.environ.get("FIRSTLIGHT_BIN", str(ROOT / "build" / "release" / "firstlight"))
PATIENCE = 120  # seconds for anything to happen, on a busy machine


def main():
    """Runs the calling module's tests; exit code 77 tells ctest that they were skipped."""
    for needed in (pathlib.Path(PROGRAM), MODEL / "config.json"):
        if not needed.exists():
            print(f"SKIPPED: {needed} does not exist")
            sys.exit(77)
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:
        print(f"SKIPPED: no pseudo-terminal to type at ({error})")
        sys.exit(77)
    unittest.main()


def environment(**changes):
    env = {**os.environ, "TERM": "xterm", **changes}
    return {name: value for name, value in env.items() if value is not None}


def run(*arguments, stdin=b"", env=None, limits=None):
    """The finished process; stdout and stderr are text. `limits`: of resources, {resource.RLIMIT_...: most}."""
    def limit():
        for what, most in (limits or {}).items():
            resource.setrlimit(what, (most, most))

    done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE,
                          env=env or environment(), preexec_fn=limit if limits else None)
    done.stdout = done.stdout.decode()
    done.stderr = done.stderr.decode()
    return done


class Terminal:
    """The program on a terminal of its own, 80 columns wide. `screen` is all that it has written."""

    def __init__(self, *arguments, env=None, stdout=None):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")

        def make_controlling():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=theirs, stdout=stdout or theirs,
                                        stderr=theirs, start_new_session=True, preexec_fn=make_controlling,
                                        env=env or environment())
        os.close(theirs)
        self.screen = ""
        self._read = 0
        self._pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)

    def type(self, text):
        os.write(self.ours, text.encode())

    def expect(self, pattern):
        """Waits until the pattern appears after what was matched before; returns the match."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if match := re.search(pattern, self.screen[self._read:]):
                self._read += match.end()
                return match
            if not self._receive(deadline):
                raise AssertionError(f"no {pattern!r} in {self.screen[self._read:][-2000:]!r}")

    def exit_code(self):
        """Waits for the end of the program."""
        deadline = time.monotonic() + PATIENCE
        while self._receive(deadline):
            pass
        return self.process.wait(timeout=PATIENCE)

    def _receive(self, deadline):
        ready, _, _ = select.select([self.ours], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.ours, 65536)
        except OSError:  # the other side was closed
            return False
        self._pending += data
        try:
            text, self._pending = self._pending.decode(), b""
        except UnicodeDecodeError:  # half a character
            return True
        self.screen += text
        return bool(data)
