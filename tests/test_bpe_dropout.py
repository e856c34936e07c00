"""BPE dropout against the tokenizer itself, against tokenizers' unseeded dropout, and in training."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Refused, reset_accelerate
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vaswani_transformer import bpe_dropout
from vaswani_transformer.bpe_dropout import SAMPLES, BpeDropoutCorpus, Merges, apply_bpe_dropout
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.corpora import ParallelCorpus
from vaswani_transformer.encoded_corpus import EncodedCorpus
from vaswani_transformer.errors import InputError
from vaswani_transformer.preprocessing import tokenize_corpus

Segment = Callable[..., BpeDropoutCorpus]
ODD = [("</s> <pad>", "Café, cafe\u0301!  a"), ("don't", "日本 🎉"), ("x" * 70, "."), ("a", "a a a a")]


@pytest.fixture
def pairs(corpus_files: dict[str, Path], tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> EncodedCorpus:
    """The small corpus, and some odd sentences."""
    text = corpus_files["train"].read_text(encoding="utf-8").splitlines()
    rows = [*(tuple(line.split("\t")) for line in text), *ODD]
    return tokenize_corpus(ParallelCorpus("x", lambda: iter(rows), dict), tokenizer, cache_dir=tmp_path)[0]


@pytest.fixture
def segment(pairs: EncodedCorpus, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Segment:
    """Applies BPE dropout to `pairs`."""
    return lambda dropout, **more: apply_bpe_dropout(pairs, tokenizer, dropout, cache_dir=tmp_path, **more)


def test_without_dropout_it_is_the_tokenizer(pairs: EncodedCorpus, segment: Segment) -> None:
    assert list(segment(0.0).epoch(3)) == list(pairs)


def test_every_epoch_spells_the_same_text_in_other_tokens(
    pairs: EncodedCorpus, segment: Segment, tokenizer: PreTrainedTokenizerFast
) -> None:
    corpus = segment(0.2, seed=1)
    epochs = [list(corpus.epoch(number)) for number in range(3)]
    for epoch in epochs:
        for row, cut in zip(pairs, epoch, strict=True):
            for name, tokens in cut.items():
                assert tokens[-1] == tokenizer.eos_token_id
                assert tokenizer.eos_token_id not in tokens[:-1]
                assert tokenizer.decode(tokens[:-1]) == tokenizer.decode(row[name][:-1])
    for one, other in ((0, 1), (1, 2)):
        differing = sum(first != second for first, second in zip(epochs[one], epochs[other], strict=True))
        assert differing > 0.9 * len(pairs)


def test_an_epoch_is_decided_by_its_number_and_the_seed(segment: Segment) -> None:
    first = list(segment(0.2, seed=1).epoch(5))
    assert list(segment(0.2, seed=1).epoch(5)) == first
    assert list(segment(0.2, seed=2).epoch(5)) != first


def test_the_same_pairs_alone_and_together(segment: Segment) -> None:
    epoch = segment(0.2).epoch(0)
    assert epoch.lengths.tolist() == [[len(row["input_ids"]), len(row["labels"])] for row in epoch]
    together = epoch[[7, 3, -1]]
    alone = [epoch[index] for index in (7, 3, len(epoch) - 1)]
    assert together == {name: [row[name] for row in alone] for name in together}


def test_occurrences_of_a_word_are_cut_independently(segment: Segment) -> None:
    (_, target) = segment(0.4).epoch(0)[-1].values()
    corpus = segment(0.4)
    seen = {tuple(corpus.epoch(number)[-1]["labels"]) for number in range(40)}
    assert len(target) >= 5
    assert len(seen) > 5  # four times " a", each in one piece or two


def test_a_pair_that_would_get_too_long_stays_as_it_was(pairs: EncodedCorpus, segment: Segment) -> None:
    limit = int(np.median(pairs.lengths.max(axis=1))) + 1
    free, epoch = segment(0.3).epoch(0), segment(0.3, max_length=limit).epoch(0)
    grown = free.lengths.max(axis=1) > limit
    assert 0 < grown.sum() < len(pairs)
    for index in range(len(pairs)):
        assert epoch[index] == (pairs if grown[index] else free)[index]
    assert epoch.lengths.tolist() == [[len(row["input_ids"]), len(row["labels"])] for row in epoch]


def probabilities(
    symbols: tuple[str, ...], ranks: dict[tuple[str, str], int], dropout: float
) -> dict[tuple[str, ...], float]:
    """What the authors' algorithm 1 makes of `symbols`, with which probability: by hand, all that can happen."""
    possible = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(symbols)) if pair in ranks)
    found = {symbols: dropout ** len(possible)}
    for skipped, (_, place) in enumerate(possible):
        merged = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
        for end, probability in probabilities(merged, ranks, dropout).items():
            found[end] = found.get(end, 0.0) + dropout**skipped * (1 - dropout) * probability
    return found


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["the", "hehehe", "stehen", "children"])
def test_the_distribution_is_the_papers(tokenizer: PreTrainedTokenizerFast, word: str, dropout: float) -> None:
    draws = 20_000
    merges = Merges(tokenizer)
    symbols = merges.symbols(tokenizer(word, add_special_tokens=False)["input_ids"])
    listed = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(listed)}
    expected = probabilities(tuple(tokenizer.convert_ids_to_tokens(symbols)), ranks, dropout)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 3
    cut = merges.merge(np.array([symbols] * draws), dropout, np.random.default_rng(0))
    found = Counter(tuple(tokenizer.convert_ids_to_tokens(row[row >= 0])) for row in cut)
    assert found.keys() <= expected.keys()
    for kind, probability in expected.items():
        deviation = (draws * probability * (1 - probability)) ** 0.5
        assert abs(found[kind] - draws * probability) < 5 * deviation + 2


def test_all_merges_skipped_leaves_characters(tokenizer: PreTrainedTokenizerFast) -> None:
    merges = Merges(tokenizer)
    symbols = merges.symbols(tokenizer("Häuser")["input_ids"])
    assert tokenizer.convert_ids_to_tokens(symbols) == [*"ĠHÃ¤user", "</s>"]
    assert merges.merge(np.array([symbols]), 1.0, np.random.default_rng(0)).tolist() == [symbols]


def test_words_are_cut_in_blocks(monkeypatch: pytest.MonkeyPatch, pairs: EncodedCorpus, segment: Segment) -> None:
    monkeypatch.setattr(bpe_dropout, "BLOCK", 40 * SAMPLES)
    assert list(segment(0.0).epoch(0)) == list(pairs)


def test_text_that_a_tokenizer_reads_otherwise_keeps_its_tokens(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Its own decoding is not what this one would encode to the same tokens: each time it doubles an e."""
    doubling = pickle.loads(pickle.dumps(tokenizer))
    own = doubling.backend_tokenizer.normalizer
    doubling.backend_tokenizer.normalizer = normalizers.Sequence([own, normalizers.Replace("e", "ee")])
    rows = [("the children", "das Haus"), ("a", "b")]
    encoded, _ = tokenize_corpus(ParallelCorpus("x", lambda: iter(rows), dict), doubling, cache_dir=tmp_path)
    assert list(apply_bpe_dropout(encoded, doubling, 0.0, cache_dir=tmp_path).epoch(0)) == list(encoded)
    epoch = apply_bpe_dropout(encoded, doubling, 0.5, cache_dir=tmp_path).epoch(0)
    for row, cut in zip(encoded, epoch, strict=True):
        assert [tokenizer.decode(cut[name]) for name in cut] == [tokenizer.decode(row[name]) for name in row]


def test_a_long_word_is_cut_token_by_token(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    def count(rows: list[tuple[str, str]]) -> int:
        corpus = ParallelCorpus("x", lambda: iter(rows), lambda: {"rows": rows})
        encoded, _ = tokenize_corpus(corpus, tokenizer, cache_dir=tmp_path)
        segmented = apply_bpe_dropout(encoded, tokenizer, 0.1, cache_dir=tmp_path)
        for row, cut in zip(encoded, segmented.epoch(0), strict=True):
            assert tokenizer.decode(cut["labels"]) == tokenizer.decode(row["labels"])
        return len(segmented.starts)

    generator = random.Random(0)
    clauses = ["".join(generator.choices("日本語学校", k=20)) for _ in range(300)]
    assert count([("a", clause) for clause in clauses]) < 50
    assert count([("a", clause[:10]) for clause in clauses]) > 250


def test_the_corpus_is_told_by_its_words(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    def fingerprint(target: str) -> str:
        corpus = ParallelCorpus("x", lambda: iter([("a", target)]), lambda: {"target": target})
        encoded, _ = tokenize_corpus(corpus, tokenizer, cache_dir=tmp_path)
        return apply_bpe_dropout(encoded, tokenizer, 0.1, cache_dir=tmp_path).fingerprint

    assert fingerprint("dog") == fingerprint("dog")
    assert len({fingerprint(target) for target in ("dog", "cat", "dogs")}) == 3


def test_no_pairs(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    corpus = ParallelCorpus("x", lambda: iter([("", "a")]), dict)
    encoded, _ = tokenize_corpus(corpus, tokenizer, cache_dir=tmp_path)
    assert len(apply_bpe_dropout(encoded, tokenizer, 0.1, cache_dir=tmp_path).epoch(0)) == 0


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (models.Unigram([("a", 0.0), ("b", -1.0)], 0), "this one is Unigram"),
        (models.BPE({"a": 0, "b</w>": 1, "ab</w>": 2}, [("a", "b</w>")], end_of_word_suffix="</w>"), "BPE with </w>"),
    ],
)
def test_other_tokenizers_are_refused(model: models.Model, text: str, pairs: EncodedCorpus) -> None:
    other = Tokenizer(model)
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(InputError, match=text):
        apply_bpe_dropout(pairs, PreTrainedTokenizerFast(tokenizer_object=other), 0.1)


def test_training_with_dropped_merges_resumes_exactly(small_run: list[str], tmp_path: Path) -> None:
    def run(folder: str, *flags: str) -> list[dict]:
        reset_accelerate()
        assert main(["train", *small_run, "--output-dir", str(tmp_path / folder), *flags]) == 0
        return RunFolder(tmp_path / folder).read_records(tmp_path / folder / "metrics.jsonl")

    flags = ["--bpe-dropout", "0.1", "--save-steps", "10"]
    whole = run("whole", *flags, "--max-steps", "40")
    assert {record["epoch"] for record in whole} == {0, 1}
    run("parts", *flags, "--max-steps", "23")
    resumed = run("parts", *flags, "--max-steps", "40", "--resume")
    plain = run("plain", "--max-steps", "40")
    losses = [[record["loss"] for record in records if "loss" in record] for records in (whole, resumed, plain)]
    assert losses[0] == losses[1] != losses[2]
    steps = [run(name, *flags, "--num-train-epochs", "3")[-1]["step"] for name in ("three",)]
    run("stopped", *flags, "--num-train-epochs", "3", "--max-steps", "50")
    steps.append(run("stopped", *flags, "--num-train-epochs", "3", "--resume")[-1]["step"])
    assert steps[0] == steps[1]
    first, second = (
        load_file(RunFolder(tmp_path / name).steps()[-1] / "model.safetensors") for name in ("whole", "parts")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_resuming_with_another_share_is_refused(small_run: list[str], tmp_path: Path, refused: Refused) -> None:
    flags = ["train", *small_run, "--output-dir", str(tmp_path / "a"), "--max-steps", "1"]
    assert main([*flags, "--bpe-dropout", "0.1"]) == 0
    reset_accelerate()
    refused([*flags, "--bpe-dropout", "0.2", "--resume"], "bpe_dropout was 0.1 and is 0.2")
    refused([*flags, "--bpe-dropout", "1.5"], "bpe_dropout must be at least 0 and below 1, got 1.5")


def test_words_are_not_counted_by_their_occurrences(pairs: EncodedCorpus, segment: Segment) -> None:
    corpus = segment(0.1)
    words = corpus.words[range(len(corpus.words))]
    assert len(corpus.starts) == len(set(chain.from_iterable(chain(*words.values()))))
