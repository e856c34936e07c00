"""Decoding: the cache against none, `generate()` against loops written out, and the limit on the length."""

import logging
import warnings
from typing import Any

import pytest
import torch
from conftest import TRANSLATIONS, VOCAB, sources
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration


def build(**overrides: Any) -> VaswaniForConditionalGeneration:
    small = {"vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 24}
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(VaswaniConfig(**{**small, "num_attention_heads": 2, **overrides}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model.double().eval()


def one(row: int) -> dict[str, torch.Tensor]:
    """One of `sources()` without its padding."""
    batch = sources()
    ids = batch["input_ids"][row : row + 1, : batch["attention_mask"][row].sum()]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def greedy_loop(model: VaswaniForConditionalGeneration, source: dict[str, torch.Tensor], steps: int) -> list[int]:
    """Translation of one sentence, the whole target computed anew at each step."""
    target = [1]
    while len(target) <= steps and target[-1] != 2:
        with torch.no_grad():
            logits = model(**source, decoder_input_ids=torch.tensor([target]), use_cache=False).logits
        target.append(logits[0, -1].argmax().item())
    return target


def unpad(sequences: torch.Tensor) -> list[list[int]]:
    """Rows up to and with </s>; asserts that only padding follows (</s> after beams: transformers tests `if pad`)."""
    rows = sequences.tolist()
    ends = [row.index(2) + 1 if 2 in row else len(row) for row in rows]
    assert not [token for row, end in zip(rows, ends, strict=True) for token in row[end:] if token not in (0, 2)]
    return [row[:end] for row, end in zip(rows, ends, strict=True)]


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("steps", [[1] * 6, [3, 1, 2]], ids=["one-by-one", "in-pieces"])
def test_cached_decoding_equals_uncached(steps: list[int], attention: str, positions: str, norm_first: bool) -> None:
    model = build(norm_first=norm_first, positional_encoding=positions, max_position_embeddings=7)
    model.set_attn_implementation(attention)
    target = torch.randint(4, VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(**sources(), decoder_input_ids=target, use_cache=False)
        assert expected.past_key_values is None
        encoded = model.get_encoder()(**sources())
        cache, pieces = None, []
        for piece in target.split(steps, dim=1):
            outputs = model(
                encoder_outputs=encoded,
                attention_mask=sources()["attention_mask"],
                decoder_input_ids=piece,
                past_key_values=cache,
                use_cache=True,
            )
            cache = outputs.past_key_values
            pieces.append(outputs.logits)
    assert cache.get_seq_length() == 6
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected.logits, rtol=0, atol=1e-11)


def test_the_encoder_s_keys_and_values_are_computed_once() -> None:
    model = build()
    calls = []
    for layer in model.model.decoder.layers:
        layer.encoder_attn.k_proj.register_forward_hook(lambda *_: calls.append("cross"))
        layer.self_attn.k_proj.register_forward_hook(lambda *_: calls.append("self"))
    model.generate(**sources(), max_new_tokens=5, suppress_tokens=[2])
    assert calls.count("self") == 2 * 5
    assert calls.count("cross") == 2


def test_the_cache_holds_what_was_given_and_grows() -> None:
    model = build()
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    source = sources()
    for length in (1, 2):
        model(**source, decoder_input_ids=torch.full((3, 1), 5), past_key_values=cache, use_cache=True)
        assert cache.self_attention_cache.layers[1].keys.shape == (3, 2, length, 8)
        assert cache.cross_attention_cache.layers[1].keys.shape == (3, 2, 7, 8)


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"cache_implementation": "static"}])
@pytest.mark.parametrize("steps", [5, 58])  # 5: cut before the second sentence's end
def test_greedy_generate_is_the_greedy_loop(
    trained: VaswaniForConditionalGeneration, steps: int, options: dict[str, Any]
) -> None:
    expected = [greedy_loop(trained, one(row), steps) for row in range(3)]
    assert expected == [[1, *row[:steps]] for row in TRANSLATIONS]  # it learnt what it was taught
    limit = {"max_new_tokens": steps} if steps == 5 else {}
    assert unpad(trained.generate(**sources(), **limit, **options)) == expected


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_batch_generates_what_its_sentences_do_alone(
    trained: VaswaniForConditionalGeneration, num_beams: int
) -> None:
    # all beams, also those that the training did not settle
    options = {"num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": 12}
    together = unpad(trained.generate(**sources(), **options))
    alone = [sentence for row in range(3) for sentence in unpad(trained.generate(**one(row), **options))]
    assert together == alone
    assert len({tuple(row) for row in alone}) == 3 * num_beams


def test_beams_follow_their_own_cache(trained: VaswaniForConditionalGeneration) -> None:
    options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 8, "suppress_tokens": [2]}
    options |= {"length_penalty": 1.0, "length_penalty_type": "transformers"}
    cached = trained.generate(**sources(), **options, return_dict_in_generate=True, output_scores=True)
    uncached = trained.generate(**sources(), **options, use_cache=False)
    assert torch.equal(cached.sequences, uncached)
    assert len({tuple(row) for row in cached.sequences.tolist()}) == 12
    # the scores are the mean log-probabilities of the returned sequences, scored from scratch
    repeated = {name: tensor.repeat_interleave(4, dim=0) for name, tensor in sources().items()}
    with torch.no_grad():
        logits = trained(**repeated, decoder_input_ids=cached.sequences[:, :-1], use_cache=False).logits
    scores = logits.log_softmax(-1).gather(2, cached.sequences[:, 1:, None]).squeeze(2).sum(1) / 8
    torch.testing.assert_close(cached.sequences_scores.double(), scores, rtol=1e-5, atol=1e-5)


def test_a_beam_as_wide_as_the_space_finds_the_best_translation() -> None:
    # all 6^3 targets of three tokens that have no end, by brute force
    model = build(vocab_size=9)
    source = {"input_ids": torch.tensor([[4, 7, 5]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    letters = torch.tensor([3, 4, 5, 6, 7, 8])
    targets = torch.cartesian_prod(letters, letters, letters)
    decoder_input_ids = torch.cat([torch.ones(len(targets), 1, dtype=torch.long), targets], dim=1)
    repeated = {name: tensor.expand(len(targets), -1) for name, tensor in source.items()}
    with torch.no_grad():
        logits = model(**repeated, decoder_input_ids=decoder_input_ids[:, :-1], use_cache=False).logits
    logits[..., :3] = -torch.inf
    best = logits.log_softmax(-1).gather(2, targets[..., None]).sum((1, 2)).argmax()
    generated = model.generate(
        **source, num_beams=36, max_new_tokens=3, suppress_tokens=[0, 1, 2], renormalize_logits=True
    )
    assert generated[0, 1:].tolist() == targets[best].tolist()


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("input_kind", ["input_ids", "inputs_embeds", "encoder_outputs"])
@pytest.mark.parametrize("length", [1, 7, 30])
def test_the_default_limit_is_the_source_s_length_plus_50(length: int, input_kind: str, num_beams: int) -> None:
    model = build(encoder_layers=1, decoder_layers=1)
    ids = torch.full((1, length), 5)
    inputs = {
        "input_ids": lambda: ids,
        "inputs_embeds": lambda: model.get_input_embeddings()(ids),
        "encoder_outputs": lambda: model.get_encoder()(ids),
    }[input_kind]()
    generated = model.generate(
        **{input_kind: inputs}, attention_mask=torch.ones_like(ids), num_beams=num_beams, suppress_tokens=[2]
    )
    assert generated.shape == (1, 1 + length + 50)  # the start token is no part of the translation


@pytest.mark.parametrize("hint", [10, 512])
def test_the_default_limit_is_not_cut_by_the_length_seen_in_training(hint: int) -> None:
    model = build(max_position_embeddings=hint)
    assert model.generate(**sources(), suppress_tokens=[2]).shape == (3, 1 + 7 + 50)


@pytest.mark.parametrize(
    ("options", "length"),
    [({"max_new_tokens": 9}, 10), ({"max_length": 9}, 9), ({"max_new_tokens": 80}, 81), ({"max_length": 80}, 80)],
)
def test_a_limit_from_the_caller_wins(options: dict[str, int], length: int) -> None:
    model = build()
    assert model.generate(**sources(), suppress_tokens=[2], **options).shape == (3, length)
    # the call before does not change the default of the next one
    assert model.generate(**sources(), suppress_tokens=[2]).shape == (3, 1 + 7 + 50)


@pytest.mark.parametrize(("field", "value", "length"), [("max_new_tokens", 9, 10), ("max_length", 9, 9)])
def test_a_limit_in_the_generation_config_wins(field: str, value: int, length: int) -> None:
    model = build()
    setattr(model.generation_config, field, value)
    assert model.generate(**sources(), suppress_tokens=[2]).shape == (3, length)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generate_warns_of_nothing(num_beams: int, caplog: pytest.LogCaptureFixture) -> None:
    model = build()
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.generate(**sources(), num_beams=num_beams)
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_learned_positions_end_the_default_limit_where_their_table_ends() -> None:
    torch.manual_seed(0)
    config = VaswaniConfig.tiny(
        vocab_size=50, d_model=16, d_ff=32, positional_encoding="learned", max_position_embeddings=32
    )
    model = VaswaniForConditionalGeneration(config).eval()
    generated = model.generate(torch.full((1, 7), 5), suppress_tokens=[2], do_sample=False)
    assert generated.shape[1] == 32
