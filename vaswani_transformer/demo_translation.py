"""What the demo computes for one visitor: the sentences of a text, their best translations, scores and alignments."""

from __future__ import annotations

import threading
import unicodedata
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from .attention import BYTES, Attention, read_attention
from .errors import InputError
from .pipeline_vaswani import (
    TranslationPipeline,
    Word,
    align_words,
    aligning_layer,
    compute_attentions,
    find_words,
    sentence_spans,
)

# The most that one visitor may ask for at a time: others wait meanwhile.
MOST_CHARACTERS = 5_000
MOST_SENTENCES = 100
MOST_BEAMS = 10
# Those further down are worth little, and to align them all would be slow.
MOST_CANDIDATES = 5
LARGEST_ALPHA = 3.0
# Without the two that join letters of some scripts, and emoji.
JOINERS = "\u200c\u200d"


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence.

    Args:
        text: The translation.
        log_probability: Of all its tokens, the end included, given the source.
        tokens: How many they are.
        score: `log_probability` over the paper's penalty, ((5 + tokens) / 6)^alpha: what the search compares.
        words: Each word's start and end in `text`, and the number of the source's word that it is aligned with.
    """

    text: str
    log_probability: float
    tokens: int
    score: float
    words: list[tuple[int, int, int]]


@dataclass(frozen=True)
class TranslatedSentence:
    """A sentence and what became of it.

    Args:
        source: The sentence.
        words: Start and end of its words in characters.
        candidates: Its translations, best first; none where there is a `problem`.
        problem: Why it is not translated.
        remark: What makes the translation doubtful.
    """

    source: str
    words: list[tuple[int, int]]
    candidates: list[Candidate]
    problem: str = ""
    remark: str = ""


class DemoTranslator:
    """Translates for several visitors, one at a time, and keeps nothing of what they write.

    Args:
        pipeline: The model and its tokenizer.
        language: Code of the language by whose rules a text is split into sentences; English ones where there are
            none for it.
    """

    def __init__(self, pipeline: TranslationPipeline, language: str = "en") -> None:
        self.pipeline = pipeline
        self.language = language
        self.known = known_characters(pipeline.tokenizer)
        self._one_at_a_time = threading.Lock()

    def translate(self, text: object, beams: object, alpha: object) -> list[TranslatedSentence]:
        """The sentences of `text` with their best translations; one that cannot be translated says why.

        Raises:
            InputError: If there is no text or too much of it, or `beams` or `alpha` is not what it must be.
        """
        text = clean(text)
        search = search_settings(beams, alpha)
        spans = sentence_spans(text, self.language)
        if len(spans) > MOST_SENTENCES:
            raise InputError(
                f"This text has {len(spans):,} sentences, and the demo takes {MOST_SENTENCES} at a time: send it in "
                "parts. For whole files there is the command vaswani-transformer translate."
            )
        sentences = [text[start:end] for start, end in spans]
        problems = [self.problem(sentence) for sentence in sentences]
        readable = [sentence for sentence, problem in zip(sentences, problems, strict=True) if not problem]
        count = search["num_beams"]
        with self._one_at_a_time:
            results = self.pipeline(readable, return_tensors=True, num_return_sequences=count, **search)
            # One translation of each is a list of dictionaries, several are a list of lists.
            found = iter([result] if count == 1 else result for result in results)
            return [
                TranslatedSentence(sentence, [], [], problem)
                if problem
                else self._align(
                    sentence, [each["translation_token_ids"].tolist() for each in next(found)], float(alpha)
                )
                for sentence, problem in zip(sentences, problems, strict=True)
            ]

    def attention(self, sentence: object, beams: object, alpha: object, words: bool) -> Attention:
        """The attention weights of one sentence and its best translation; see [`read_attention`].

        Raises:
            InputError: If the sentence is none that the demo translates, or `beams` or `alpha` is not what it must be.
        """
        sentence = clean(sentence)
        search = search_settings(beams, alpha)
        if problem := self.problem(sentence):
            raise InputError(problem)
        with self._one_at_a_time:
            return read_attention(self.pipeline, sentence, words=words, **search)

    def problem(self, sentence: str) -> str:
        """Why `sentence` is not translated; nothing if it is.

        Of characters that were too rare in training to have a token the model has learned next to nothing. Where
        they are most of a sentence it makes up a fluent one of its own, which nobody should take for a translation.
        """
        foreign = self.foreign(sentence)
        visible = sum(not character.isspace() for character in sentence)
        if len(foreign) > visible / 2:
            return (
                f"Not translated: the model hardly knows these characters ({listed(foreign)}), and would make "
                "something up. It reads the languages that it was trained on."
            )
        longest = self.pipeline.longest_source
        tokens = len(self.pipeline.tokenizer(sentence)["input_ids"])
        if longest is not None and tokens > longest:
            return (
                f"Not translated: {tokens:,} tokens are more than the {longest:,} that the model was trained on. "
                "Divide it into shorter sentences."
            )
        return ""

    def foreign(self, sentence: str) -> list[str]:
        """The characters of `sentence`, each as often as it is there, that have no token of their own.

        Rare quotation marks and the like do no harm.
        """
        rare = (character for character in sentence if character not in self.known and not character.isspace())
        return [character for character in rare if not unicodedata.category(character).startswith("P")]

    def _align(self, sentence: str, sequences: list[list[int]], alpha: float) -> TranslatedSentence:
        """`sentence` with its translations, which one forward pass scores and aligns."""
        tokenizer, model = self.pipeline.tokenizer, self.pipeline.model
        source = tokenizer(sentence)["input_ids"]
        # What follows the end only fills a row. Some sequences spell the same text with other tokens.
        whole = [until_end(sequence, tokenizer.eos_token_id) for sequence in sequences]
        texts: dict[str, list[int]] = {}
        for sequence in whole:
            texts.setdefault(tokenizer.decode(sequence, skip_special_tokens=True), sequence)
        best = dict(list(texts.items())[:MOST_CANDIDATES])
        longest = max(map(len, best.values()))
        padded = [sequence + [tokenizer.pad_token_id] * (longest - len(sequence)) for sequence in best.values()]
        inputs = torch.tensor([source] * len(best), device=model.device)
        with torch.no_grad():
            outputs = compute_attentions(
                model,
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                decoder_input_ids=torch.tensor(padded, device=model.device),
            )
        log_probabilities = outputs.logits.float().log_softmax(dim=-1).cpu()
        attention = outputs.cross_attentions[aligning_layer(len(outputs.cross_attentions))].mean(dim=1)
        words = find_words(tokenizer, source, sentence)
        candidates = []
        for row, (text, sequence) in enumerate(best.items()):
            written = sequence[1:]  # the first starts the decoder, and is none of the translation
            total = float(log_probabilities[row, range(len(written)), written].sum())
            candidates.append(
                Candidate(
                    text=text,
                    log_probability=total,
                    tokens=len(written),
                    score=total / ((5 + len(written)) / 6) ** alpha,
                    words=aligned(attention[row], words, find_words(tokenizer, sequence, text)),
                )
            )
        foreign = self.foreign(sentence)
        remark = f"The model hardly knows {listed(foreign)}, and may garble it." if foreign else ""
        return TranslatedSentence(sentence, [(word.start, word.end) for word in words], candidates, remark=remark)


def aligned(attention: torch.Tensor, source: list[Word], target: list[Word]) -> list[tuple[int, int, int]]:
    """Start and end of each word of the target, and the number of the source's word that it is aligned with."""
    numbers = {word.start: number for number, word in enumerate(source)}
    return [
        (each["target_start"], each["target_end"], numbers[each["source_start"]])
        for each in align_words(attention, source, target)
    ]


def until_end(tokens: list[int], end: int) -> list[int]:
    """`tokens` up to the first `end`, which is among them; all if there is none."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def known_characters(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """The characters that a token of the vocabulary holds whole.

    A byte-level vocabulary spells any other with two to four bytes: its learning never met them often enough.
    """
    known: set[str] = set()
    for token, place in tokenizer.get_vocab().items():
        if place not in tokenizer.all_special_ids:
            known.update(bytes(BYTES[character] for character in token).decode("utf-8", errors="ignore"))
    return known


def clean(text: object) -> str:
    """`text` as it can be shown and translated: Unicode NFC, without what is neither seen nor white space.

    Raises:
        InputError: If nothing is left, it is too long or no text.
    """
    if not isinstance(text, str):
        raise InputError("Expected a text to translate.")
    if len(text) > MOST_CHARACTERS:
        raise InputError(
            f"This text has {len(text):,} characters, and the demo takes {MOST_CHARACTERS:,} at a time: send it in "
            "parts. For whole files there is the command vaswani-transformer translate."
        )
    # Control characters, halves of surrogate pairs, and marks that turn the direction of what follows.
    seen = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs") or c.isspace() or c in JOINERS)
    cleaned = unicodedata.normalize("NFC", "".join(seen))
    if not cleaned.strip():
        raise InputError("Write something to translate, or take one of the examples.")
    return cleaned


def search_settings(beams: object, alpha: object) -> dict[str, int | float | str]:
    """The arguments of `generate()` for so many beams and the paper's length penalty.

    Raises:
        InputError: If one is no number or out of its range.
    """
    if not is_number(beams) or not 1 <= beams <= MOST_BEAMS or beams != int(beams):
        raise InputError(f"Beams must be a whole number from 1 to {MOST_BEAMS}.")
    if not is_number(alpha) or not 0 <= alpha <= LARGEST_ALPHA:
        raise InputError(f"Alpha must be a number from 0 to {LARGEST_ALPHA:g}.")
    if beams == 1:  # a greedy search compares nothing
        return {"num_beams": 1}
    return {"num_beams": int(beams), "length_penalty": float(alpha), "length_penalty_type": "gnmt"}


def is_number(value: object) -> bool:
    """Whether `value` is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def listed(characters: list[str]) -> str:
    """The first few different ones of `characters`."""
    different = list(dict.fromkeys(characters))
    return " ".join(different[:8]) + (" …" if len(different) > 8 else "")
