"""The same weights in other engines: what they compute is what our model computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from peers import marian_twin
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.translation import load_model

PAIRS = list(generate_pairs("test", 50))
SOURCES, TARGETS = [pair["en"] for pair in PAIRS], [pair["de"] for pair in PAIRS]
SMALL = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "num_attention_heads": 3, "d_ff": 40}
SHAPES = [
    {},
    {"attention_bias": True, "activation_function": "gelu"},
    {"tie_word_embeddings": False, "activation_function": "silu"},
    {"num_attention_heads": 1},
]


def build(vocab_size: int, **overrides: Any) -> VaswaniForConditionalGeneration:
    """A small model with every parameter drawn at random, layer norms and biases too."""
    model = VaswaniForConditionalGeneration(VaswaniConfig(**{**SMALL, "vocab_size": vocab_size, **overrides}))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(noise * 0.3 + (1.0 if parameter.ndim == 1 else 0.0))
    return model.eval()


def weights_of(model: VaswaniForConditionalGeneration) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def unchanged(model: VaswaniForConditionalGeneration, weights: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


@torch.no_grad()
def assert_equal_logits(model: VaswaniForConditionalGeneration, batch: dict, targets: torch.Tensor) -> None:
    weights = weights_of(model)
    twin = marian_twin(model)
    assert twin.dtype == model.dtype == torch.float64
    assert unchanged(model, weights)
    found = twin(**batch, decoder_input_ids=targets).logits
    torch.testing.assert_close(found, model(**batch, decoder_input_ids=targets).logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_marian_gives_our_logits(shape: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    sources = torch.randint(3, 60, (4, 30), generator=generator)
    mask = torch.arange(30) < torch.tensor([30, 21, 1, 8])[:, None]
    targets = torch.randint(0, 60, (4, 25), generator=generator)
    batch = {"input_ids": sources * mask, "attention_mask": mask.long()}
    assert_equal_logits(build(60, **shape).double(), batch, targets)


def test_marian_gives_the_logits_of_the_shipped_checkpoint() -> None:
    model, tokenizer = load_model("tatoeba-en-de")
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    assert not batch["attention_mask"].all()
    targets = tokenizer(TARGETS, return_tensors="pt", padding=True)["input_ids"]
    assert_equal_logits(model.double(), batch, model.prepare_decoder_input_ids_from_labels(targets))


def test_marian_searches_as_our_model_does(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase],
) -> None:
    model, tokenizer = shipped
    batch = tokenizer(SOURCES[:10], return_tensors="pt", padding=True)
    ours, theirs = (each.generate(**batch, num_beams=1, max_new_tokens=40) for each in (model, marian_twin(model)))
    width = max(ours.shape[1], theirs.shape[1])
    ours, theirs = (torch.nn.functional.pad(found, (0, width - found.shape[1])) for found in (ours, theirs))
    assert torch.equal(ours, theirs)


def test_marian_keeps_half_precision_and_takes_what_its_table_holds() -> None:
    twin = marian_twin(build(60).bfloat16(), positions=7)
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.bfloat16}
    start = torch.ones(1, 1, dtype=torch.long)
    assert twin(input_ids=torch.full((1, 7), 5), decoder_input_ids=start).logits.shape == (1, 1, 60)
    with pytest.raises(IndexError):
        twin(input_ids=torch.full((1, 8), 5), decoder_input_ids=start)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"norm_first": True}, "norm_first=True"),
        ({"positional_encoding": "learned"}, "positional_encoding=learned"),
        ({"head_dim": 5}, "head_dim=5, 3 heads, d_model=24"),
        ({"d_model": 26, "head_dim": 8}, "head_dim=8, 3 heads, d_model=26"),
    ],
)
def test_marian_refuses_what_it_cannot_hold(shape: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"MarianMTModel cannot hold this model: .* found {text}"):
        marian_twin(build(60, **shape))
