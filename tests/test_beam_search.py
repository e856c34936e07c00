"""The paper's beam search: against enumeration, a search in plain Python, and transformers' own search."""

from __future__ import annotations

import gzip
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import profile
from transformers import (
    AutoTokenizer,
    CompileConfig,
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    WatermarkingConfig,
    set_seed,
)
from transformers.generation import GenerationMixin, StoppingCriteria, StoppingCriteriaList

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.generation_vaswani import (
    BeamSearch,
    GNMTLengthPenalty,
    GreedySearch,
    SharedBeamCache,
    SharedBeamLayer,
    best_continuations,
)
from vaswani_transformer.translation import PRETRAINED

TATOEBA = Path(__file__).parents[2] / "shared" / "data" / "tatoeba-en-de" / "test.tsv.gz"
END = 2
Scored = tuple[float, tuple[int, ...]]


class StockModel(VaswaniForConditionalGeneration):
    """The same model with transformers' own search and its copies of the encoder's states for each beam."""

    _beam_search = GenerationMixin._beam_search
    _sample = GenerationMixin._sample
    # A static method in some versions of transformers.
    _expand_inputs_for_generation = vars(GenerationMixin)["_expand_inputs_for_generation"]

    @property
    def _reorder_cache(self) -> None:
        raise AttributeError("as in any model that has none")


def build(
    vocab_size: int = 40, model_class: type = VaswaniForConditionalGeneration, seed: int = 0, **overrides: Any
) -> VaswaniForConditionalGeneration:
    """A small model whose translations differ from source to source, and whose ends are early or late."""
    small = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "d_ff": 24, "num_attention_heads": 2}
    torch.manual_seed(seed)
    model = model_class(VaswaniConfig(vocab_size=vocab_size, **{"tie_word_embeddings": False, **small, **overrides}))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=1.0 if "embed_tokens" in name else 0.2)
    model.lm_head.weight.data *= 2.5
    model.lm_head.weight.data[END] *= 2.5
    return model.eval()


def sources(vocab_size: int = 40, lengths: tuple[int, ...] = (7, 5, 2, 6, 3, 1)) -> dict[str, torch.Tensor]:
    """Random sources, padded on the right."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, vocab_size, (length,), generator=generator)
    return {"input_ids": ids, "attention_mask": ids.ne(0).long()}


def texts(sequences: torch.Tensor, prompt: int = 1) -> list[list[int]]:
    """Generated tokens of each row up to and with the end."""
    rows = [row[prompt:] for row in sequences.tolist()]
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def without_filling(sequences: torch.Tensor) -> list[list[int]]:
    """Rows without the ends or padding that follow them, for batches of different widths."""
    rows = sequences.tolist()
    for row in rows:
        while row[-1] in (0, END):
            row.pop()
    return rows


def log_probabilities(model: VaswaniForConditionalGeneration, source: torch.Tensor, target: tuple[int, ...]) -> list:
    """Of each token to follow `target`, computed without a cache."""
    with torch.no_grad():
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([[1, *target]]), use_cache=False).logits
    return logits[0, -1].double().log_softmax(-1).tolist()


def gnmt(score: float, length: int, alpha: float) -> float:
    """Equation 14 of Wu et al. (2016) without its coverage term."""
    return score / (math.pow(5 + length, alpha) / math.pow(5 + 1, alpha))


def plain_beam_search(
    model: VaswaniForConditionalGeneration, source: torch.Tensor, beams: int, alpha: float, limit: int
) -> list[Scored]:
    """The best translations, best first, found step by step over lists."""
    running: list[Scored] = [(0.0, ())]
    ended: list[Scored] = []
    for length in range(1, limit + 1):
        continuations = [
            (score + probability, (*target, token))
            for score, target in running
            for token, probability in enumerate(log_probabilities(model, source, target))
        ]
        continuations.sort(reverse=True)
        best = continuations[:beams]
        ended += [(gnmt(s, length, alpha), t) for s, t in best if t[-1] == END or length == limit]
        running = [(s, t) for s, t in continuations if t[-1] != END][:beams]
    return sorted(ended, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_the_penalty_is_gnmt_s(length: int, alpha: float) -> None:
    assert length ** GNMTLengthPenalty(alpha) == pytest.approx(((5 + length) / 6) ** alpha)


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 2.0])
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_translations(alpha: float) -> None:
    vocabulary, limit = 5, 4
    for seed in range(3):
        model = build(vocabulary, seed=seed)
        source = torch.tensor([[4, 3, 4, 2]])
        scores: dict[tuple[int, ...], float] = {(): 0.0}
        complete: list[Scored] = []
        for length in range(1, limit + 1):
            grown = {}
            for target, score in scores.items():
                for token, probability in enumerate(log_probabilities(model, source, target)):
                    grown[(*target, token)] = score + probability
            complete += [(gnmt(s, length, alpha), t) for t, s in grown.items() if t[-1] == END or length == limit]
            scores = {target: score for target, score in grown.items() if target[-1] != END}
        assert len(complete) == sum(4 ** (n - 1) for n in range(1, limit)) + 5 * 4 ** (limit - 1)
        found = model.generate(
            source, num_beams=5 * 4**3, max_new_tokens=limit, length_penalty=alpha, num_return_sequences=3
        )
        best = [list(target) for _, target in sorted(complete, reverse=True)[:3]]
        assert texts(found) == best


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("beams", [2, 3, 5])
def test_any_beam_finds_what_a_plain_search_finds(beams: int, alpha: float) -> None:
    model = build(12)
    batch = sources(12)
    limit = 6
    options = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": limit, "length_penalty": alpha}
    found = texts(model.generate(**batch, **options))
    detailed = model.generate(**batch, **options, return_dict_in_generate=True, output_scores=True)
    assert texts(detailed.sequences) == found
    lengths = set()
    for row, length in enumerate(batch["attention_mask"].sum(1).tolist()):
        expected = plain_beam_search(model, batch["input_ids"][row : row + 1, :length], beams, alpha, limit)[:beams]
        mine = slice(row * beams, (row + 1) * beams)
        assert found[mine] == [list(target) for _, target in expected]
        scores = [score for score, _ in expected]
        assert detailed.sequences_scores[mine].tolist() == pytest.approx(scores, abs=1e-4)
        lengths |= {len(target) for _, target in expected}
    assert len(lengths) > 2  # or there was nothing to penalise


@pytest.mark.parametrize("early_stopping", ["never", False, True])
def test_it_stops_as_the_rule_says(early_stopping: bool | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence whose running beam can win under the longest length, and not under the present one."""
    steps = []
    step = BeamSearch.step
    monkeypatch.setattr(BeamSearch, "step", lambda self, logits: steps.append(len(logits)) or step(self, logits))
    config = GenerationConfig(
        num_beams=2,
        num_return_sequences=1,
        max_length=21,
        length_penalty=GNMTLengthPenalty(0.6),
        early_stopping=early_stopping,
    )
    config._eos_token_tensor, config._pad_token_tensor = torch.tensor([END]), torch.tensor(0)
    from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

    criteria = StoppingCriteriaList([MaxLengthCriteria(21), EosTokenCriteria(END)])
    search = BeamSearch(torch.tensor([[1]]), config, LogitsProcessorList(), criteria)
    # After each beam: the end with probability 0.3, then token 3 with 0.6; a hundredth for each other.
    probabilities = torch.full((1, 2, 12), 0.01)
    probabilities[..., END], probabilities[..., 3] = 0.3, 0.6
    while not search.done.all():
        search.step(probabilities.log())
    length, ended, alpha = 0, [], 0.6
    while True:  # the same by hand: the best running beam is always token 3 repeated, the ends follow it
        length += 1
        running = length * math.log(0.6)
        ended = sorted([*ended, gnmt((length - 1) * math.log(0.6) + math.log(0.3), length, alpha)], reverse=True)[:2]
        if length == 20:
            break
        full = len(ended) == 2
        if early_stopping == "never" and gnmt(running, 20, alpha) <= ended[0]:
            break
        if early_stopping is False and full and gnmt(running, length, alpha) <= ended[-1]:
            break
        if early_stopping is True and full:
            break
    assert len(steps) == length
    assert length < 20


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 2},
        {"num_return_sequences": 4},
        {"length_penalty": 0.0},
        {"length_penalty": -1.0},
        {"early_stopping": False},
        {"early_stopping": True},
        {"max_new_tokens": 4},
        {"max_length": 9},
        {"min_new_tokens": 6},
        {"min_length": 6, "max_length": 12},
        {"min_new_tokens": 12, "max_new_tokens": 12},
        {"min_new_tokens": 5, "decoder_input_ids": torch.tensor([[1, 8, 9]] * 6), "eos_token_id": [2, 5]},
        {"bad_words_ids": [[7], [11, 12], [END]]},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.7},
        {"forced_bos_token_id": 9},
        {"forced_eos_token_id": END, "max_new_tokens": 5},
        {"suppress_tokens": [5, 8]},
        {"encoder_no_repeat_ngram_size": 1},
        {"encoder_repetition_penalty": 1.4},
        {"renormalize_logits": True, "bad_words_ids": [[6]]},
        {"prefix_allowed_tokens_fn": lambda sentence, tokens: [END, 3 + sentence, 11 + sentence, 30]},
        {"eos_token_id": [2, 5, 9]},
        {"eos_token_id": None, "max_new_tokens": 20},
        {"decoder_input_ids": torch.tensor([[1, 8, 9]] * 6)},
        {"decoder_input_ids": torch.tensor([[8, 9]] * 6)},
        {"max_time": 1000.0},
        # These may raise a score, so that a running beam may yet beat what has ended.
        {"exponential_decay_length_penalty": (3, 1.3), "max_new_tokens": 20},
        {"sequence_bias": [[[END], 6.0]]},
        {"sequence_bias": [[[9], 6.0]]},
        {"watermarking_config": WatermarkingConfig(bias=5.0)},
        {"eos_token_id": [2, 99], "min_new_tokens": 4},
    ],
    ids=lambda options: "-".join(options) or "defaults",
)
def test_beams_that_share_give_what_transformers_own_search_gives(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []
    original = VaswaniForConditionalGeneration._search
    monkeypatch.setattr(
        VaswaniForConditionalGeneration,
        "_search",
        lambda self, *args, **kwargs: shared.append(1) or original(self, *args, **kwargs),
    )
    stock = {"length_penalty_type": "transformers", "max_new_tokens": 30}
    if "max_length" in options:
        del stock["max_new_tokens"]
    for seed in range(3):
        model = build(seed=seed)
        expected = build(model_class=StockModel, seed=seed).generate(**sources(), **{**stock, **options})
        assert not shared
        found = model.generate(**sources(), **{**stock, **options})
        assert torch.equal(found, expected)
        assert shared.pop()
        # and the one with a row for each beam, by which scores are returned
        detailed = model.generate(**sources(), **{**stock, **options}, return_dict_in_generate=True)
        assert torch.equal(detailed.sequences, expected)
        assert not shared
    assert len(set(map(tuple, texts(found)))) > 1


@pytest.mark.parametrize(
    "options",
    [{}, {"eos_token_id": [2, 5, 9]}, {"max_new_tokens": 3}, {"eos_token_id": None}, {"min_new_tokens": 4}],
)
def test_greedy_search_gives_what_transformers_gives(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    step = GreedySearch.step
    monkeypatch.setattr(GreedySearch, "step", lambda self, logits: rows.append(len(logits)) or step(self, logits))
    options = {"num_beams": 1, "max_new_tokens": 20, **options}
    for seed in range(3):
        found = build(seed=seed).generate(**sources(), **options)
        steps = len(rows)
        detailed = build(seed=seed).generate(**sources(), **options, return_dict_in_generate=True)
        expected = build(model_class=StockModel, seed=seed).generate(**sources(), **options)
        assert torch.equal(found, expected)
        assert torch.equal(detailed.sequences, expected)
        assert len(rows) == steps
    assert len({tuple(text) for text in texts(found)}) > 1
    if options["eos_token_id"] if "eos_token_id" in options else options["max_new_tokens"] == 20:
        assert min(rows) < 6


def test_a_stopping_criterion_of_the_caller_s_sees_every_beam_of_every_sentence() -> None:
    class Stop(StoppingCriteria):
        """Ends the second half of the rows after three tokens, the others after six."""

        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            rows = torch.arange(len(input_ids))
            return torch.where(rows < len(input_ids) // 2, input_ids.shape[1] >= 7, input_ids.shape[1] >= 4)

    options = {"length_penalty_type": "transformers", "suppress_tokens": [END], "max_new_tokens": 30}
    found = build().generate(**sources(), **options, stopping_criteria=StoppingCriteriaList([Stop()]))
    expected = build(model_class=StockModel).generate(
        **sources(), **options, stopping_criteria=StoppingCriteriaList([Stop()])
    )
    assert torch.equal(found, expected)
    assert [len(row) for row in without_filling(found)] == [7] * 3 + [4] * 3


def test_a_logits_processor_may_keep_what_it_is_given() -> None:
    class Record(LogitsProcessor):
        """Keeps the scores, and copies to compare them with."""

        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []
            self.copies: list[torch.Tensor] = []

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.kept.append(scores)
            self.copies.append(scores.clone())
            return scores

    for num_beams in (1, 4):
        record = Record()
        options = {"num_beams": num_beams, "max_new_tokens": 8, "logits_processor": LogitsProcessorList([record])}
        build().generate(**sources(), **options)
        assert len(record.kept) > 3
        assert all(itertools.starmap(torch.equal, zip(record.kept, record.copies, strict=True)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_search_takes_the_first_of_equals(dtype: torch.dtype) -> None:
    found = []
    for model_class in (VaswaniForConditionalGeneration, StockModel):
        model = build(200, model_class=model_class)
        model.lm_head.weight.data[100:] = model.lm_head.weight.data[:100]  # every token has an equal
        found.append(model.to(dtype).generate(**sources(), num_beams=1, max_new_tokens=12))
    assert torch.equal(*found)
    assert found[0].max() < 100


def test_a_limit_beyond_all_memory_is_only_a_limit() -> None:
    model = build()
    found = model.generate(**sources(lengths=(4,)), num_beams=1, max_new_tokens=10**12, eos_token_id=[2, 8, 34])
    assert found.shape[1] < 100


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 1, "return_dict_in_generate": True},
        {"num_beams": 1, "do_sample": True},
        {"num_beams": 4},
        {"num_beams": 4, "return_dict_in_generate": True},
    ],
)
def test_a_sentence_s_limit_holds_where_nothing_ends_a_translation(options: dict[str, Any]) -> None:
    found = build().generate(**sources(lengths=(7, 1)), **options, eos_token_id=None)
    sequences = found if isinstance(found, torch.Tensor) else found.sequences
    assert sequences.shape == (2, 1 + 57)
    assert sequences[1, 1 + 51 :].tolist() == [0] * 6


@pytest.mark.parametrize("num_beams", [1, 4])
def test_the_encoder_s_output_may_be_a_tuple(num_beams: int) -> None:
    model, batch = build(), sources()
    encoded = model.get_encoder()(**batch, return_dict=False)
    found = model.generate(encoder_outputs=encoded, attention_mask=batch["attention_mask"], num_beams=num_beams)
    assert torch.equal(found, model.generate(**batch, num_beams=num_beams))


@pytest.mark.parametrize("num_beams", [1, 4])
def test_one_mask_may_serve_all_sources(num_beams: int) -> None:
    model = build()
    ids = sources(lengths=(7, 7, 7))["input_ids"]
    mask = torch.ones(1, 7, dtype=torch.long)
    found = model.generate(ids, attention_mask=mask, num_beams=num_beams)
    assert torch.equal(found, model.generate(ids, attention_mask=mask.expand(3, -1), num_beams=num_beams))


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generating_in_the_midst_of_checkpointed_training(num_beams: int) -> None:
    # transformers' checkpointed layers go without their cache: whatever that gives, it gives here too
    found = []
    for model_class in (VaswaniForConditionalGeneration, StockModel):
        model = build(model_class=model_class, dropout=0.0).train()
        model.gradient_checkpointing_enable()
        options = {"num_beams": num_beams, "max_new_tokens": 8, "length_penalty_type": "transformers"}
        found.append(model.generate(**sources(), **options))
    assert torch.equal(*found)


def test_a_folder_that_leaves_the_settings_open_means_the_paper_s(tmp_path: Path) -> None:
    model = build()
    expected = model.generate(**sources())
    model.save_pretrained(tmp_path)
    for settings in (None, '{"eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}'):
        (tmp_path / "generation_config.json").unlink(missing_ok=True)
        if settings:
            (tmp_path / "generation_config.json").write_text(settings)
        loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path)
        assert torch.equal(loaded.generate(**sources()), expected)
        assert not torch.equal(loaded.generate(**sources(), num_beams=1), expected)


def test_a_logits_processor_of_the_caller_s_sees_every_beam_of_every_sentence() -> None:
    class Favour(LogitsProcessor):
        """Another favourite token for each row."""

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            assert len(input_ids) == len(scores) == 6 * 4
            scores = scores.clone()
            scores[torch.arange(24), 5 + torch.arange(24) % 30] += 2.0
            return scores

    options = {"length_penalty_type": "transformers", "max_new_tokens": 12}
    found, expected = (
        model.generate(**sources(), **options, logits_processor=LogitsProcessorList([Favour()]))
        for model in (build(), build(model_class=StockModel))
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 1}, {"num_beams": 1, "num_return_sequences": 5}, {"num_beams": 3, "num_return_sequences": 2}],
    ids=["sample", "several-samples", "beam-sample"],
)
def test_sampling_draws_what_transformers_draws(options: dict[str, Any]) -> None:
    options = {**options, "do_sample": True, "top_k": 20, "max_new_tokens": 12, "length_penalty_type": "transformers"}
    drawn = []
    for model in (build(), build(model_class=StockModel)):
        set_seed(5)
        drawn.append(model.generate(**sources(), **options))
    assert torch.equal(*drawn)
    set_seed(6)
    assert not torch.equal(drawn[0], build().generate(**sources(), **options))


@pytest.mark.parametrize("penalty_type", ["gnmt", "transformers"])
@pytest.mark.parametrize("prefix", [None, [1, 8, 9]], ids=["no-prefix", "prefix"])
def test_scores_are_those_of_forced_decoding(penalty_type: str, prefix: list[int] | None) -> None:
    model = build()
    options = {"num_return_sequences": 3, "max_new_tokens": 15, "length_penalty_type": penalty_type}
    if prefix:
        options["decoder_input_ids"] = torch.tensor([prefix] * 6)
    outputs = model.generate(**sources(), **options, return_dict_in_generate=True, output_scores=True)
    prompt = len(prefix or [1])
    repeated = {name: tensor.repeat_interleave(3, dim=0) for name, tensor in sources().items()}
    with torch.no_grad():
        logits = model(**repeated, decoder_input_ids=outputs.sequences[:, :-1]).logits
    steps = logits.log_softmax(-1).gather(2, outputs.sequences[:, 1:, None]).squeeze(2)[:, prompt - 1 :]
    lengths = torch.tensor([len(text) for text in texts(outputs.sequences, prompt)])
    totals = (steps * (torch.arange(steps.shape[1]) < lengths[:, None])).sum(1)
    penalties = ((5 + lengths) / 6) ** 0.6 if penalty_type == "gnmt" else lengths**0.6
    torch.testing.assert_close(outputs.sequences_scores, totals / penalties, rtol=0, atol=1e-4)
    transitions = model.compute_transition_scores(outputs.sequences, outputs.scores, outputs.beam_indices)
    torch.testing.assert_close(transitions.sum(1), totals, rtol=0, atol=1e-4)
    assert len(set(lengths.tolist())) > 1


@pytest.mark.parametrize("options", [{"num_beams": 4}, {"num_beams": 1}, {"num_beams": 4, "use_cache": False}])
def test_a_sentence_s_limit_is_its_own(options: dict[str, Any]) -> None:
    model = build()
    lengths = (7, 2, 4)
    together = model.generate(**sources(lengths=lengths), **options, suppress_tokens=[END])
    assert together.shape == (3, 1 + 7 + 50)
    for row, length in enumerate(lengths):
        single = sources(lengths=lengths)["input_ids"][row : row + 1, :length]
        alone = model.generate(single, **options, suppress_tokens=[END])
        assert alone.shape == (1, 1 + length + 50)
        assert together[row, : 1 + length + 50].tolist() == alone[0].tolist()
        assert not set(together[row, 1 + length + 50 :].tolist()) - {0, END}


def test_every_sentence_gets_its_own_translation_as_others_leave() -> None:
    model = build()
    batch = sources(lengths=tuple(torch.randint(1, 9, (40,), generator=torch.Generator().manual_seed(3)).tolist()))
    together = without_filling(model.generate(**batch))
    alone = []
    for row, length in enumerate(batch["attention_mask"].sum(1).tolist()):
        alone += without_filling(model.generate(batch["input_ids"][row : row + 1, :length]))
    assert together == alone
    assert len({len(text) for text in alone}) > 3


def test_finished_sentences_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    step = BeamSearch.step
    monkeypatch.setattr(BeamSearch, "step", lambda self, logits: rows.append(len(logits)) or step(self, logits))
    build().generate(**sources())
    assert rows[0] == 6
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] < 6


def test_a_step_waits_for_its_device_once() -> None:
    """A number that Python looks at is a synchronisation on a GPU."""
    looks = []
    for steps in (9, 17):
        with profile() as profiler:
            build().generate(**sources(), eos_token_id=None, max_new_tokens=steps)
        looks.append(sum(event.name == "aten::_local_scalar_dense" for event in profiler.events()))
    # Eight more steps: one look each at how many sentences are done, and one when room is made.
    assert looks[1] - looks[0] == 8 + 1


def test_the_source_is_there_once_whatever_the_number_of_beams() -> None:
    model = build()
    encoded = []
    attention = model.model.decoder.layers[0].encoder_attn
    attention.k_proj.register_forward_hook(lambda _, inputs, output: encoded.append(tuple(inputs[0].shape)))
    for options in (
        {"num_beams": 4},
        {"num_beams": 4, "return_dict_in_generate": True},
        {"num_beams": 1, "do_sample": True, "num_return_sequences": 3},
    ):
        model.generate(**sources(), **options, max_new_tokens=4)
        assert encoded.pop() == (6, 7, 16)
        assert not encoded
    outputs = model.generate(**sources(), num_beams=4, max_new_tokens=4, return_dict_in_generate=True)
    assert outputs.past_key_values.cross_attention_cache.layers[0].keys.shape[0] == 6
    assert outputs.past_key_values.self_attention_cache.layers[0].keys.shape[0] == 24


def test_attentions_have_a_row_for_each_beam() -> None:
    model, stock = build(), build(model_class=StockModel)
    options = {"num_beams": 3, "max_new_tokens": 5, "length_penalty_type": "transformers"}
    found, expected = (
        each.generate(**sources(), **options, return_dict_in_generate=True, output_attentions=True)
        for each in (model, stock)
    )
    for ours, theirs in itertools.chain(
        zip(found.cross_attentions, expected.cross_attentions, strict=True),
        zip(found.decoder_attentions, expected.decoder_attentions, strict=True),
    ):
        for layer, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(layer, other, rtol=0, atol=1e-5)


def test_the_step_compiles_whole_and_seldom() -> None:
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], mode: str) -> Any:
        graphs.append(graph)
        return graph

    model = build()
    batch = sources(lengths=(7, 5, 2, 6, 3, 1, 4, 4, 8, 2))
    expected = model.generate(**batch)
    assert expected.shape[1] > 4 * 8  # room was made several times, and sentences left
    options = {"compile_config": CompileConfig(fullgraph=True, backend=count)}
    assert torch.equal(model.generate(**batch, **options), expected)
    first = len(graphs)
    assert 0 < first < 8
    assert torch.equal(model.generate(**batch, **options), expected)
    assert len(graphs) == first


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_runs_in_every_precision(dtype: torch.dtype, attention: str) -> None:
    model = build().to(dtype)
    model.set_attn_implementation(attention)
    options = {"num_return_sequences": 2, "max_new_tokens": 12}
    found = model.generate(**sources(), **options)
    detailed = model.generate(**sources(), **options, return_dict_in_generate=True)
    if dtype == torch.float64:
        assert torch.equal(found, detailed.sequences)
    assert found.shape[0] == 12


def test_the_cache_keeps_what_beams_need_in_new_slots() -> None:
    cache = SharedBeamCache(DynamicCache(), layers=1, beams=2)
    layer = cache.self_attention_cache.layers[0]
    assert isinstance(layer, SharedBeamLayer)
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randn(3, 1, 2, 4, generator=generator)
    layer.update(prompt, -prompt)
    histories = prompt.transpose(1, 2).flatten(2)[:, None].expand(-1, 2, -1, -1)  # (sentences, beams, length, width)
    cache.choose(torch.zeros(3, 2, dtype=torch.long))
    for step in range(40):
        mask = cache.next_mask(torch.float32)
        new = torch.randn(len(histories), 1, 2, 4, generator=generator)
        keys, values = layer.update(new, -new)
        histories = torch.cat((histories, new.transpose(1, 2)), dim=2)
        for sentence, beam in itertools.product(range(len(histories)), range(2)):
            seen = mask[sentence, 0, beam] == 0
            assert seen.sum() == histories.shape[2]
            expected = histories[sentence, beam]
            torch.testing.assert_close(keys[sentence, 0, cache.slots[sentence, beam]], expected)
            torch.testing.assert_close(values[sentence, 0, cache.slots[sentence, beam]], -expected)
            assert seen[cache.slots[sentence, beam]].all()
        parents = torch.randint(0, 2, (len(histories), 2), generator=generator)
        cache.choose(parents)
        histories = histories.gather(1, parents[..., None, None].expand(-1, -1, *histories.shape[2:]))
        if step == 20:
            rows = torch.tensor([0, 2])
            cache.keep(rows)
            histories = histories[rows]
    assert layer.keys.shape[-2] < 2 + 40 * 2  # what no beam needs was forgotten


@pytest.mark.parametrize("vocab_size", [5, 64, 512, 1000, 1021, 37_000])
@pytest.mark.parametrize("k", [2, 8, 12])
def test_the_best_continuations_are_those_of_a_sort(vocab_size: int, k: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    values = torch.randn(3, 4, vocab_size, generator=generator)
    values[1] = -math.inf  # a sentence of which a processor forbids nearly all
    values[1, 2, 3] = 0.0
    scores = torch.randn(3, 4, generator=generator) * 3
    best, beams, tokens = best_continuations(values, scores, k)
    expected = (values + scores[..., None]).flatten(1).sort(dim=1, descending=True)
    assert torch.equal(best, expected.values[:, :k])
    assert torch.equal((beams * vocab_size + tokens)[[0, 2]], expected.indices[[0, 2], :k])
    assert (beams[1, 0], tokens[1, 0]) == (2, 3)
    assert ((tokens >= 0) & (tokens < vocab_size)).all()


def test_a_new_model_has_the_paper_s_settings_and_saves_them(tmp_path: Path) -> None:
    model = build()
    model.save_pretrained(tmp_path)
    for settings in (model.generation_config, GenerationConfig.from_pretrained(tmp_path)):
        assert (settings.num_beams, settings.length_penalty) == (4, 0.6)
        assert (settings.length_penalty_type, settings.early_stopping) == ("gnmt", "never")
        assert (settings.decoder_start_token_id, settings.eos_token_id, settings.pad_token_id) == (1, 2, 0)


def test_the_stock_penalty_is_one_setting(tmp_path: Path) -> None:
    model = build()
    options = {"num_return_sequences": 4, "length_penalty": 2.0}
    stock = build(model_class=StockModel).generate(**sources(), **options, max_new_tokens=30)
    options["max_new_tokens"] = 30
    assert not torch.equal(model.generate(**sources(), **options)[:, : stock.shape[1]], stock)
    assert torch.equal(model.generate(**sources(), **options, length_penalty_type="transformers"), stock)
    model.generation_config.length_penalty_type = "transformers"
    assert torch.equal(model.generate(**sources(), **options), stock)
    model.save_pretrained(tmp_path)
    model = VaswaniForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(model.generate(**sources(), **options), stock)
    config = GenerationConfig(num_beams=4, **options, length_penalty_type="transformers", early_stopping="never")
    assert torch.equal(build().generate(**sources(), generation_config=config), stock)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_penalty_type": "fairseq"}, 'length_penalty_type must be "gnmt" or "transformers", got \'fairseq\''),
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"lenght_penalty": 1.0}, "lenght_penalty"),
        ({"num_return_sequences": 5}, "num_return_sequences"),
        ({"decoder_input_ids": torch.tensor([[1, 5, 6]] * 6), "max_length": 2}, "`max_length` is set to 2"),
        ({"decoder_input_ids": torch.tensor([[1, 5, 6]] * 6), "max_length": 3}, "`max_length` is set to 3"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"low_memory": True}, "low_memory"),
    ],
)
def test_settings_that_cannot_be_met(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build().generate(**sources(), **options)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("shape", [(0, 5), (2, 0)], ids=["no-sentence", "no-token"])
def test_a_batch_of_nothing_is_an_error_that_says_so(shape: tuple[int, int], num_beams: int) -> None:
    empty = torch.zeros(shape, dtype=torch.long)
    with pytest.raises(ValueError, match="at least one sequence of at least one token"):
        build().generate(empty, attention_mask=empty, num_beams=num_beams)


def test_a_beam_wider_than_the_vocabulary() -> None:
    # 12 beams over 5 tokens: transformers' search, and the right answers
    model = build(5)
    source = torch.tensor([[4, 3, 4, 2]])
    found = model.generate(source, num_beams=12, num_return_sequences=12, max_new_tokens=4)
    expected = plain_beam_search(model, source, 12, 0.6, 4)[:12]
    assert texts(found) == [list(target) for _, target in expected]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_source_of_only_padding_disturbs_no_other(num_beams: int, attention: str) -> None:
    model = build()
    model.set_attn_implementation(attention)
    batch = sources()
    expected = without_filling(model.generate(**batch, num_beams=num_beams))
    batch["input_ids"][1], batch["attention_mask"][1] = 0, 0
    found = model.generate(**batch, num_beams=num_beams)
    found_texts = without_filling(found)
    assert found_texts[:1] + found_texts[2:] == expected[:1] + expected[2:]
    assert ((found >= 0) & (found < 40)).all()
    outputs = model.generate(**batch, num_beams=4, return_dict_in_generate=True, output_scores=True)
    assert outputs.sequences_scores.isfinite().all()


def test_a_source_longer_than_any_seen_in_training() -> None:
    model = build(max_position_embeddings=8)
    found = model.generate(**sources(lengths=(300, 3)), suppress_tokens=[END])
    assert found.shape == (2, 1 + 300 + 50)
    learned = build(positional_encoding="learned", max_position_embeddings=8)
    with pytest.raises(ValueError, match="the learned positions end at 8"):
        learned.generate(**sources(lengths=(9,)))
    with pytest.raises(ValueError, match="the learned positions end at 8"):
        learned.generate(**sources(lengths=(3,)), max_new_tokens=20, suppress_tokens=[END])


def check_against_transformers(texts_to_translate: list[str], batch_size: int) -> None:
    folder = PRETRAINED / "tatoeba-en-de"
    model = VaswaniForConditionalGeneration.from_pretrained(folder).eval()
    stock = StockModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {"length_penalty_type": "transformers", "max_new_tokens": 60, "num_return_sequences": 2}
    ordered = sorted(texts_to_translate, key=len)
    for start in range(0, len(ordered), batch_size):
        batch = tokenizer(ordered[start : start + batch_size], padding=True, return_tensors="pt")
        expected = stock.generate(**batch, **options, return_dict_in_generate=True, output_scores=True)
        found = model.generate(**batch, **options, return_dict_in_generate=True, output_scores=True)
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(found.sequences_scores, expected.sequences_scores, rtol=0, atol=1e-4)
        assert torch.equal(model.generate(**batch, **options), expected.sequences)


def test_the_shipped_checkpoint_under_the_stock_penalty_is_transformers_search() -> None:
    check_against_transformers([pair["en"] for pair in generate_pairs("test", 40)], 20)


@pytest.mark.slow
@pytest.mark.skipif(not TATOEBA.is_file(), reason="the Tatoeba test set is not in ../shared/data")
def test_the_whole_test_set_under_the_stock_penalty_is_transformers_search() -> None:
    with gzip.open(TATOEBA, "rt", encoding="utf-8") as file:
        check_against_transformers([line.split("\t")[0] for line in file], 50)
