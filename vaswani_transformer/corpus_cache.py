"""The cache of prepared corpora: what is made once is found again by all that went into it.

    CACHE/NAME-KEY/      one entry, such as the encoded training text, with its digest; may be deleted at any time
    CACHE/NAME-KEY.lock  held by the process that makes or opens the entry, while others wait

An entry is written aside and renamed, so a kill leaves nothing that loads. A damaged one is made anew.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import xxhash
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock

from .checkpoints import write_atomically
from .errors import InputError, one_line

logger = logging.getLogger(__name__)

# A part of every key: raise it where entries of before must not be read any more.
FORMAT = 1
DIGEST = "digest"
BLOCK = 1 << 20

Entry = TypeVar("Entry")


def default_cache_dir() -> Path:
    """`vaswani_transformer` in the folder that `HF_HOME` names, `~/.cache/huggingface` if it is not set."""
    return Path(constants.HF_HOME) / "vaswani_transformer"


def cache_root(cache_dir: str | Path | None) -> Path:
    """The folder of the cache that a user names, or [`default_cache_dir`]."""
    return default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()


def cached(
    cache_dir: str | Path | None,
    name: str,
    key: Mapping[str, Any],
    make: Callable[[Path], None],
    read: Callable[[Path], Entry],
) -> Entry:
    """What `read` gives for the entry of `key`, which `make` makes where there is none yet.

    Of several processes one makes it, and the others wait for it.

    Args:
        cache_dir: Folder of the cache; [`default_cache_dir`] if `None`.
        name: What the entry is, for who looks into the folder.
        key: All that the entry depends on, as JSON can tell it.
        make: Fills the folder that it is given.
        read: Reads the folder that `make` filled.

    Raises:
        InputError: If the cache cannot be written.
    """
    root = cache_root(cache_dir)
    text = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    folder = root / f"{name}-{xxhash.xxh3_128_hexdigest(text.encode())}"
    with ExitStack() as stack:
        with _writing_to(root):
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(WeakFileLock(root / f"{folder.name}.lock"))
        if folder.exists() and not _is_whole(folder):
            logger.warning(f"{folder}: this entry of the cache is damaged; making it anew")
            shutil.rmtree(folder)
        if not folder.exists():
            with _writing_to(root):
                _write_entry(folder, make)
        return read(folder)


def _write_entry(folder: Path, make: Callable[[Path], None]) -> None:
    """Have `make` fill a folder that becomes `folder` once it is whole; nothing is left where it fails."""

    def fill(aside: Path) -> None:
        try:
            aside.mkdir()
            make(aside)
            (aside / DIGEST).write_text(_digest_entry(aside), encoding="ascii")
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    write_atomically(folder, fill)


def _is_whole(folder: Path) -> bool:
    """Whether the files are those that were written."""
    try:
        return (folder / DIGEST).read_bytes() == _digest_entry(folder).encode()
    except OSError:
        return False


def _digest_entry(folder: Path) -> str:
    return digest_files(*sorted(path for path in folder.iterdir() if path.name != DIGEST))


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Inside, a disk that is full or not to be written on is a mistake of the user's.

    Raises:
        InputError: In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{folder}: the prepared corpus cannot be written there ({error.strerror or one_line(error)}); free "
            "space, or choose another folder with --cache-dir"
        ) from error


def digest_files(*paths: Path) -> str:
    """Digest of the bytes of the files, one after the other (XXH3, 128 bits)."""
    digest = xxhash.xxh3_128()
    for path in paths:
        own = xxhash.xxh3_128()
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                own.update(block)
        digest.update(own.digest())
    return digest.hexdigest()
