"""The `bqrl` command that the package installs: the same Rust code as the program that cargo builds."""

from __future__ import annotations

import signal
import sys

from . import _bqrl, _train


def main() -> None:
    if _train.is_gymnasium(sys.argv[1:]):
        sys.exit(_train.main(sys.argv[2:]))
    # Python's own handlers would wait for Python code to run again; the command has its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_bqrl.main(sys.argv))
