"""Start a program that dies with its parent; run as a script, before the program replaces it.

    python -I -S launch.py PARENT_PID PROGRAM ARG...

A handler between fork and exec would need `preexec_fn`, which is unsafe in a process with threads;
a separate small interpreter is not. It imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends; leave at once if it already has."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the call above: then nobody would ever send the signal.
    if os.getppid() != parent:
        os._exit(1)


def main(argv: list[str]) -> None:
    die_with_parent(int(argv[0]))
    os.execv(argv[1], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
