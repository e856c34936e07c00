"""The command `vaswani-transformer`: looks which of its commands is meant, and tells mistakes in one line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from .errors import InputError

# What each module of `commands` is for.
COMMANDS = {
    "train": "train a model on parallel text",
    "translate": "translate lines of text",
    "evaluate": "score translations of a test set: BLEU and chrF++",
    "average": "average the last checkpoints of a run",
    "push": "publish a model on the Hub",
    "export": "write a model for CTranslate2 or ONNX Runtime",
    "demo": "serve a page that translates, for a browser",
    "attention": "draw what a translation attends to",
    "positions": "draw the encodings of a model's positions",
    "schedule": "draw the learning rate of recipes",
}


class MessageHandler(logging.Handler):
    """Tells the package's messages to the person who waits."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of `record`."""
        print(record.getMessage(), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0; 2 for a mistake in what was given, told in one line; 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logger = logging.getLogger(__package__)
    if not logger.handlers:
        logger.addHandler(MessageHandler())
        logger.setLevel(logging.INFO)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(usage())
            return 0
        if arguments[0] == "--version":
            from . import __version__

            print(f"vaswani-transformer {__version__}")
            return 0
        if arguments[0] not in COMMANDS:
            from .training_arguments import nearest

            raise InputError(
                f"unknown command {arguments[0]}{nearest(arguments[0], COMMANDS)}; there are {', '.join(COMMANDS)}"
            )
        _quieten_libraries()
        return load_command(arguments[0]).run(arguments[1:])
    except InputError as error:
        print(f"vaswani-transformer: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough; Python's own flush at exit must not complain.
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"vaswani-transformer: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("vaswani-transformer: interrupted", file=sys.stderr)
        return 130


def load_command(name: str) -> ModuleType:
    """The module of a command, with its `create_parser` and `run`; only then is what it needs imported."""
    return import_module(f".commands.{name}", __package__)


def usage() -> str:
    """What `vaswani-transformer --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: vaswani-transformer COMMAND [options]\n\n"
        "The Transformer of 2017 for translation.\n\n"
        f"{commands}\n\n"
        "`vaswani-transformer COMMAND --help` tells the options of one."
    )


def _quieten_libraries() -> None:
    """No reports of loading, saving and retrying; progress bars only where a person sees them."""
    import datasets
    import huggingface_hub
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    huggingface_hub.utils.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        huggingface_hub.utils.disable_progress_bars()
