"""The exception for what a user can put right."""


class InputError(ValueError):
    """Something given is missing, malformed or contradictory; the text says what, and what to do.

    The command line prints it as one line and exits with code 2. A `ValueError`, so that callers from Python
    may treat it as they treat those of transformers.
    """
