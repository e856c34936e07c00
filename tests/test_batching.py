import gzip
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from vaswani_transformer.batching import TokenBatchSampler, TranslationCollator, batches_by_tokens, prefetch
from vaswani_transformer.errors import InputError

TATOEBA = Path(__file__).parents[2] / "shared" / "data" / "tatoeba-en-de" / "train.tsv.gz"


def skewed_lengths(pairs: int, seed: int = 0) -> np.ndarray:
    """Lengths of two sides that resemble everyday sentences: short, correlated, with a long tail."""
    generator = np.random.default_rng(seed)
    common = generator.lognormal(2.3, 0.45, pairs)
    sides = [common * generator.lognormal(mean, 0.15, pairs) for mean in (0.0, 0.1)]
    return np.clip(np.stack(sides, axis=1), 2, 100).astype(np.int64)


def padded_size(lengths: np.ndarray, batch: np.ndarray) -> int:
    """Positions of the wider side, padding included."""
    return len(batch) * max(lengths[batch].max(axis=0))


def padding_waste(lengths: np.ndarray, parts: list[np.ndarray]) -> float:
    """Share of the positions of both sides that hold padding."""
    padded = sum(int(lengths[part].max(axis=0).sum()) * len(part) for part in parts)
    return 1 - int(lengths.sum()) / padded


def whole(parts: list[np.ndarray]) -> list[int]:
    return np.concatenate(parts).tolist()


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("max_tokens", [1, 7, 64, 100, 1000, 10**9])
def test_runs_cover_the_order_and_keep_the_budget(sides: int, max_tokens: int) -> None:
    generator = np.random.default_rng(max_tokens)
    lengths = generator.integers(1, 60, (500, sides))
    for order in (np.arange(500), generator.permutation(500), np.argsort(lengths[:, 0], kind="stable")):
        runs = list(batches_by_tokens(lengths, order, max_tokens))
        assert np.concatenate(runs).tolist() == order.tolist()
        assert all(len(run) == 1 or padded_size(lengths, run) <= max_tokens for run in runs)


def test_runs_are_as_long_as_the_budget_allows() -> None:
    lengths = np.random.default_rng(1).integers(1, 60, (500, 2))
    runs = list(batches_by_tokens(lengths, np.arange(500), 200))
    for run, following in itertools.pairwise(runs):
        assert padded_size(lengths, np.append(run, following[0])) > 200


def test_a_sentence_beyond_the_budget_stands_alone() -> None:
    lengths = np.array([[3, 3], [5, 99], [3, 3], [99, 5], [99, 99], [2, 2]])
    runs = [run.tolist() for run in batches_by_tokens(lengths, np.arange(6), 10)]
    assert runs == [[0], [1], [2], [3], [4], [5]]
    runs = [run.tolist() for run in batches_by_tokens(lengths, np.array([0, 2, 5, 1, 3, 4]), 10)]
    assert runs == [[0, 2, 5], [1], [3], [4]]


def test_the_budget_counts_padding() -> None:
    # 9 + 1 tokens, but 2 * 9 positions.
    lengths = np.array([[9], [1]])
    assert [run.tolist() for run in batches_by_tokens(lengths, np.arange(2), 17)] == [[0], [1]]
    assert [run.tolist() for run in batches_by_tokens(lengths, np.arange(2), 18)] == [[0, 1]]


def test_an_empty_order_has_no_runs_and_a_part_of_the_corpus_is_a_valid_order() -> None:
    lengths = np.array([[4, 4]] * 5)
    assert list(batches_by_tokens(lengths, np.arange(0), 10)) == []
    assert [run.tolist() for run in batches_by_tokens(lengths, np.array([4, 1, 3]), 8)] == [[4, 1], [3]]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_tokens", [100, 500, 4096])
def test_an_epoch_brings_every_pair_once(batch_tokens: int, parts: int) -> None:
    lengths = skewed_lengths(3000)
    sampler = TokenBatchSampler(lengths, batch_tokens, parts, seed=3)
    for number in range(2):
        batches = sampler.epoch(number)
        assert all(len(batch) == parts for batch in batches)
        assert sorted(itertools.chain.from_iterable(map(whole, batches))) == list(range(3000))


@pytest.mark.parametrize("batch_tokens", [100, 500, 4096])
def test_both_sides_of_a_batch_are_within_the_budget(batch_tokens: int) -> None:
    lengths = skewed_lengths(3000)
    batches = TokenBatchSampler(lengths, batch_tokens).epoch(0)
    assert max(padded_size(lengths, np.concatenate(batch)) for batch in batches) <= batch_tokens


def test_the_seed_and_the_epoch_decide_the_batches() -> None:
    lengths = skewed_lengths(3000)

    def epoch(seed: int, number: int) -> list[list[int]]:
        return [whole(batch) for batch in TokenBatchSampler(lengths, 500, seed=seed).epoch(number)]

    assert epoch(5, 2) == epoch(5, 2)
    for other in (epoch(5, 3), epoch(6, 2)):
        assert other != epoch(5, 2)
        # Not only the order of the batches: who is together with whom changes too.
        assert {frozenset(batch) for batch in other} != {frozenset(batch) for batch in epoch(5, 2)}


def test_an_epoch_does_not_depend_on_those_drawn_before() -> None:
    # A resumed run draws only the epoch that it stopped in.
    lengths = skewed_lengths(500)
    sampler = TokenBatchSampler(lengths, 200, seed=1)
    sampler.epoch(0)
    sampler.epoch(7)
    again = TokenBatchSampler(lengths, 200, seed=1)
    assert list(map(whole, sampler.epoch(3))) == list(map(whole, again.epoch(3)))


def test_batches_come_shuffled_not_by_length() -> None:
    lengths = skewed_lengths(3000)
    batches = TokenBatchSampler(lengths, 300).epoch(0)
    means = [lengths[np.concatenate(batch)].mean() for batch in batches]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.3


@pytest.mark.parametrize("parts", [2, 4])
def test_the_number_of_parts_does_not_change_what_an_update_sees(parts: int) -> None:
    lengths = np.concatenate([skewed_lengths(1000), [[299, 300]]])
    expected = list(map(whole, TokenBatchSampler(lengths, 300, parts=1).epoch(1)))
    assert min(map(len, expected)) == 1
    assert list(map(whole, TokenBatchSampler(lengths, 300, parts=parts).epoch(1))) == expected


def test_parts_differ_by_one_pair_at_most() -> None:
    for batch in TokenBatchSampler(skewed_lengths(1000), 500, parts=4).epoch(0):
        sizes = list(map(len, batch))
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_of_fewer_pairs_than_parts_leaves_parts_empty() -> None:
    lengths = np.array([[5, 5]] * 100 + [[200, 200]])
    batches = TokenBatchSampler(lengths, 250, parts=2).epoch(0)
    assert sorted(list(map(len, batch)) for batch in batches) == [[1, 0], [25, 25], [25, 25]]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_little_is_padding_on_skewed_lengths(parts: int) -> None:
    lengths = skewed_lengths(20_000)
    batches = TokenBatchSampler(lengths, 2048, parts).epoch(0)
    waste = padding_waste(lengths, [part for batch in batches for part in batch])
    assert 0 < waste < 0.15
    # Batches in file order show what sorting is worth.
    unsorted = list(batches_by_tokens(lengths, np.arange(len(lengths)), 2048))
    assert padding_waste(lengths, unsorted) > 2 * waste


@pytest.mark.skipif(not TATOEBA.is_file(), reason="the Tatoeba corpus is not in ../shared/data")
def test_little_is_padding_on_tatoeba() -> None:
    with gzip.open(TATOEBA, "rt", encoding="utf-8", newline="\n") as file:
        pairs = [line.rstrip("\n").split("\t") for line in itertools.islice(file, 50_000)]
    # A byte-pair token of these languages holds about four characters; </s> is one more.
    lengths = np.array([[len(side) // 4 + 2 for side in pair] for pair in pairs])
    batches = TokenBatchSampler(lengths, 4096).epoch(0)
    assert padding_waste(lengths, [part for batch in batches for part in batch]) < 0.15


def slow_epoch(lengths: np.ndarray, batch_tokens: int, parts: int, seed: int, number: int) -> list[list[list[int]]]:
    """The same batches, one sentence after the other, in plain lists."""
    generator = np.random.default_rng((seed, number))
    order = generator.permutation(len(lengths)).tolist()

    def place(index: int) -> tuple[int, int]:
        source, target = lengths[index].tolist()
        longer = max(source, target)
        return longer, (source - target) * (-1) ** longer

    batches: list[list[int]] = []
    for index in sorted(order, key=place):
        if not batches or max(lengths[[*batches[-1], index]].max(axis=0)) * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    generator.shuffle(batches)
    return [[part.tolist() for part in np.array_split(batch, parts)] for batch in batches]


@pytest.mark.parametrize(("batch_tokens", "parts"), [(100, 1), (257, 2), (1000, 3), (4096, 4)])
def test_an_epoch_equals_one_that_is_drawn_sentence_by_sentence(batch_tokens: int, parts: int) -> None:
    lengths = skewed_lengths(700, seed=batch_tokens)
    for dtype in (np.int64, np.int32):
        batches = TokenBatchSampler(lengths.astype(dtype), batch_tokens, parts, seed=4).epoch(3)
        found = [[part.tolist() for part in batch] for batch in batches]
        assert found == slow_epoch(lengths, batch_tokens, parts, 4, 3)
        assert batches[-1][0].tolist() == found[-1][0]
        assert len(batches) == len(found)


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_tokens", [100, 500, 4096])
def test_the_padding_share_is_that_of_the_batches(batch_tokens: int, parts: int) -> None:
    lengths = np.concatenate([skewed_lengths(3000), [[99, 100], [100, 3]]])
    batches = TokenBatchSampler(lengths, batch_tokens, parts).epoch(1)
    expected = padding_waste(lengths, [part for batch in batches for part in batch if len(part)])
    assert batches.padding_share() == pytest.approx(expected)
    assert str(batches) == f"{len(batches):,} updates an epoch, {expected:.1%} of the positions are padding"


def test_a_twentieth_of_a_batch_is_padding_at_most() -> None:
    lengths = skewed_lengths(100_000)
    padding = TokenBatchSampler(lengths, 4096).epoch(0).padding_share()
    # The same budget on batches as they come, of sentences of all lengths.
    order = np.random.default_rng(0).permutation(len(lengths))
    unbucketed = padding_waste(lengths, list(batches_by_tokens(lengths, order, 4096)))
    assert padding < 0.05
    assert unbucketed > 0.4


def test_pairs_meet_others_in_each_epoch() -> None:
    # Of the pairs that share a batch, most do not in the next epoch, though similar lengths are together in both.
    lengths = skewed_lengths(20_000)
    sampler = TokenBatchSampler(lengths, 1024)
    batch_of = np.empty((2, len(lengths)), dtype=int)
    for number in range(2):
        for index, batch in enumerate(sampler.epoch(number)):
            batch_of[number, np.concatenate(batch)] = index
    pairs = np.random.default_rng(0).integers(0, len(lengths), (2_000_000, 2))
    together = [batch_of[number][pairs[:, 0]] == batch_of[number][pairs[:, 1]] for number in range(2)]
    assert (together[0] & together[1]).sum() < 0.5 * together[0].sum()


def test_no_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="no pairs"):
        TokenBatchSampler(np.zeros((0, 2), dtype=np.int64), 100)


@pytest.mark.parametrize("longest", [(101, 2), (2, 101)])
def test_a_sentence_that_is_longer_than_a_batch_is_refused(longest: tuple[int, int]) -> None:
    lengths = np.array([[10, 10]] * 50 + [longest])
    with pytest.raises(InputError, match=r"longest sentence has 101 tokens, and batch_tokens=100 has no room"):
        TokenBatchSampler(lengths, 100)
    TokenBatchSampler(lengths, 101)


def test_a_corpus_that_is_smaller_than_a_batch_is_refused() -> None:
    lengths = np.array([[2, 10]] * 100)
    with pytest.raises(InputError, match=r"about 1,000 tokens, less than one batch of batch_tokens=1,001; lower"):
        TokenBatchSampler(lengths, 1001)
    (batch,) = TokenBatchSampler(lengths, 1000).epoch(0)
    assert sorted(whole(batch)) == list(range(100))


def test_the_collator_pads_both_sides_on_the_right() -> None:
    batch = TranslationCollator(pad_token_id=0)([[5, 6, 2], [7, 2]], [[8, 2], [9, 10, 11, 2]])
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[5, 6, 2], [7, 2, 0]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[8, 2, -100, -100], [9, 10, 11, 2]],
    }
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_the_mask_follows_lengths_not_ids() -> None:
    # A sentence may hold the id that pads; only positions past its end are masked.
    batch = TranslationCollator(pad_token_id=9)([[9, 5, 2], [2]], [[2], [2]])
    assert batch["input_ids"].tolist() == [[9, 5, 2], [2, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[2], [2]]


def test_the_collator_takes_columns_as_a_dataset_gives_them() -> None:
    rows = {"input_ids": [[4, 2], [4, 5, 6, 2]], "labels": [[7, 2], [8, 2]]}
    batch = TranslationCollator(pad_token_id=0)(**rows)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert batch["labels"].shape == (2, 2)
    assert batch["attention_mask"].sum() == 6
    assert (batch["labels"] == -100).sum() == 0


def test_prefetching_keeps_the_order_and_runs_ahead_in_another_thread() -> None:
    made, threads = [], set()

    def items() -> Iterator[int]:
        for number in range(6):
            made.append(number)
            threads.add(threading.get_ident())
            yield number

    found = prefetch(items(), ahead=2)
    assert made == []
    assert next(found) == 0
    deadline = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert made == [0, 1, 2]  # two ahead, and no more
    assert list(found) == [1, 2, 3, 4, 5]
    assert threading.get_ident() not in threads


def test_what_fails_while_it_is_prefetched_fails_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("a damaged file")

    found = prefetch(items())
    assert next(found) == 1
    with pytest.raises(InputError, match="a damaged file"):
        next(found)


def test_prefetching_ends_its_thread_with_the_consumer() -> None:
    found = prefetch(iter(range(100)))
    next(found)
    assert any(thread.name.startswith("prefetch") for thread in threading.enumerate())
    found.close()
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


def test_an_item_that_takes_long_is_given_up() -> None:
    given_up = []

    def items() -> Iterator[int]:
        yield 1
        try:
            while True:
                time.sleep(0.01)
        finally:
            given_up.append(threading.current_thread().name)

    found = prefetch(items(), ahead=1)
    assert next(found) == 1
    time.sleep(0.05)
    started = time.monotonic()
    found.close()
    assert time.monotonic() - started < 5
    assert given_up == ["prefetch"]


def test_a_program_ends_while_items_are_made() -> None:
    """In C++, where Python cannot end a thread without ending all by an abort."""
    script = """
import torch
from vaswani_transformer.batching import prefetch

def items():
    while True:
        yield torch.randn(600, 600) @ torch.randn(600, 600)

found = prefetch(items(), ahead=10**9)
next(found)
print("done", flush=True)
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_who_waits_for_an_item_may_stop() -> None:
    release = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        while not release.wait(0.01):
            pass
        yield 2

    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 2

    started = time.monotonic()
    assert list(prefetch(items(), stop=stop)) == [1]
    assert time.monotonic() - started < 5
    release.set()


@pytest.mark.parametrize("count", [0, 3])
def test_a_window_may_have_less_than_a_batch(count: int) -> None:
    sampler = TokenBatchSampler(np.full((count, 2), 5, dtype=np.int32), 100, may_be_less=True)
    assert [sorted(whole(batch)) for batch in sampler.epoch(2)] == ([list(range(count))] if count else [])
