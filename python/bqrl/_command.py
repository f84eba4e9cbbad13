"""The `bqrl` command that the package installs: the same Rust code as the program that cargo builds."""

from __future__ import annotations

import signal
import sys

from . import _bqrl


def main() -> None:
    # Python's own handlers would wait for Python code to run again; the command has its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_bqrl.main(sys.argv))
