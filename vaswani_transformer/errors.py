"""The exception for what a user can put right, and how to tell of another."""

from __future__ import annotations

import errno
import re


class InputError(ValueError):
    """Something given is missing, malformed or contradictory; the text says what, and what to do.

    The command line prints it as one line and exits with code 2. A `ValueError`, so that callers from Python
    may treat it as they treat those of transformers.
    """


def one_line(error: BaseException) -> str:
    """The text of `error`, or of what caused it, in one line of at most 200 characters."""
    text = " ".join(str(error.__cause__ or error).split())
    return text[:200] or type(error).__name__


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` says that a disk, a quota or the largest file is full.

    safetensors has an exception of its own, which tells the number of the system's error in its text.
    """
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    number = re.search(r"os error (\d+)", str(error))
    return getattr(error, "errno", None) in full or (number is not None and int(number[1]) in full)
