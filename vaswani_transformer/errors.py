"""The exception for what a user can put right, and how to tell of another."""


class InputError(ValueError):
    """Something given is missing, malformed or contradictory; the text says what, and what to do.

    The command line prints it as one line and exits with code 2. A `ValueError`, so that callers from Python
    may treat it as they treat those of transformers.
    """


def one_line(error: BaseException) -> str:
    """The text of `error`, or of what caused it, in one line of at most 200 characters."""
    text = " ".join(str(error.__cause__ or error).split())
    return text[:200] or type(error).__name__
