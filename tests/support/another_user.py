"""This process as a user that is not root, so that permissions of files hold for it."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

ORDINARY = 65_534
_PR_SET_DUMPABLE = 4


@contextmanager
def as_ordinary_user() -> Iterator[int]:
    """Be `ORDINARY` where the tests run as root, and yield the user.

    A process that has changed its user may not be looked into by its children, which is given back here.
    """
    before = os.geteuid()
    os.seteuid(before or ORDINARY)
    try:
        yield os.geteuid()
    finally:
        os.seteuid(before)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
