"""The built-in English-German parallel corpus `builtin:en-de`, written by our own bilingual grammar.

`grammar` draws a random meaning (a tree of `meaning`: who does what to whom, when, where, why) out of the clauses
of `clauses`, `english` and `german` each put it into words with a full morphology, and `lexicon` holds the words.
The text is generated, so it carries no licence and comes in any size. Every English sentence has exactly one German
translation, determined by the English alone: "you" is always the formal "Sie", the English simple past is the German
perfect (preterite for sein, haben, wissen, mögen and the modals), and every English word has one German word in its
context.

Splits hold out combinations of words. A meaning's combinations are its (adjective, noun) pairs "old+house"
(attributive and predicative alike), its (subject noun, verb) pairs "woman~read" and its (verb, object noun) pairs
"read>book"; a pronoun that takes up a noun counts as that noun. `combination_split` hashes each combination with
CRC-32: of a hundred buckets, 0-4 are held out for "test", 5-9 for "validation", and the rest are free. A sentence
belongs to "test" if it has a test combination, else to "validation" if it has a validation combination, else to
"train". So training shows no held-out combination at all, validation shows no test combination, every test
sentence holds a combination that neither of them shows, and no sentence is in two splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple
from zlib import crc32

from .grammar import Generator

SPLITS = ("train", "validation", "test")

# So many meanings in a row without a new sentence mean that the space is exhausted.
_PATIENCE = 20_000
_MAX_WORDS = 16


class Example(NamedTuple):
    """A sentence pair with the combinations of words that decide its split."""

    en: str
    de: str
    combinations: tuple[str, ...]


@cache
def combination_split(combination: str) -> str:
    """Return the split that `combination` is held out for: "test", "validation", or "train" for none."""
    bucket = crc32(combination.encode()) % 100
    return "test" if bucket < 5 else "validation" if bucket < 10 else "train"


def split_of(combinations: Iterable[str]) -> str:
    """Return the one split that a sentence with these combinations belongs to."""
    splits = {combination_split(combination) for combination in combinations}
    return "test" if "test" in splits else "validation" if "validation" in splits else "train"


def generate_examples(split: str, size: int, seed: int = 0) -> Iterator[Example]:
    """Yield what `generate_pairs` yields, each pair with its combinations."""
    # The checks run at the call, not at the first item.
    if split not in SPLITS:
        raise ValueError(f"expected a split out of {', '.join(SPLITS)}, found {split!r}")
    if size < 0:
        raise ValueError(f"expected a size of 0 or more, found {size}")
    return _examples(split, size, seed)


def _examples(split: str, size: int, seed: int) -> Iterator[Example]:
    generator = Generator(f"builtin:en-de/{split}/{seed}")
    seen: set[int] = set()
    misses = 0
    while len(seen) < size:
        if misses > _PATIENCE:
            raise ValueError(
                f"the grammar gave {len(seen)} distinct pairs for the split {split!r} and no new one in {_PATIENCE} "
                f"attempts, but {size} were asked for: ask for fewer, or add words to the lexicon"
            )
        misses += 1
        meaning = generator.meaning()
        combinations = meaning.combinations()
        if split_of(combinations) != split:
            continue
        en = meaning.en
        if en.count(" ") >= _MAX_WORDS:
            continue
        # 8 bytes per sentence instead of the text; a rare collision of checksums only drops a sentence.
        key = crc32(en.encode()) << 32 | crc32(en[::-1].encode(), 1)
        if key in seen:
            continue
        seen.add(key)
        misses = 0
        yield Example(en, meaning.de, tuple(combinations))


def generate_pairs(split: str, size: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Yield `size` distinct {"en": ..., "de": ...} pairs of `split`.

    The pairs depend on `split` and `seed` alone, on any machine and Python; the first k pairs are the same for
    every `size` of at least k. See the package docstring for what the splits hold out.

    Args:
        split: One of `SPLITS`.
        size: How many pairs; millions are available.
        seed: Another seed gives other sentences, out of the same split.

    Raises:
        ValueError: The split is unknown, the size negative, or larger than what the grammar can say.
    """
    examples = generate_examples(split, size, seed)
    return ({"en": example.en, "de": example.de} for example in examples)
