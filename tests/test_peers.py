"""The same weights in other engines: what they compute is what our model computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from peers import ctranslate2_twin, marian_twin
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.errors import InputError
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


@pytest.fixture(scope="module")
def shipped() -> tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]:
    return load_model("tatoeba-en-de")


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


@torch.no_grad()
def log_probabilities(
    model: VaswaniForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, source: str, target: str
) -> torch.Tensor:
    """Ours of each token of `target`, `</s>` included."""
    labels = tokenizer(target, return_tensors="pt")["input_ids"]
    logits = model(**tokenizer(source, return_tensors="pt"), labels=labels).logits
    return logits.log_softmax(-1)[0].gather(1, labels[0, :, None])[:, 0]


def load_translator(folder: Path, **options: Any) -> Any:
    """CTranslate2's `Translator` on as many threads as torch has, for it sets OpenMP's number for torch too."""
    import ctranslate2

    return ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads(), **options)


def assert_equal_scores(
    model: VaswaniForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    pytest.importorskip("ctranslate2")
    weights = weights_of(model)
    ctranslate2_twin(model, tokenizer, folder)
    assert unchanged(model, weights)
    translator = load_translator(folder, compute_type="float32")
    sources, targets = (
        [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(side)["input_ids"]] for side in (SOURCES, TARGETS)
    )
    scores = translator.score_batch(sources, [tokens[:-1] for tokens in targets])  # it adds </s>
    for source, target, score in zip(SOURCES, TARGETS, scores, strict=True):
        expected = log_probabilities(model, tokenizer, source, target)
        torch.testing.assert_close(torch.tensor(score.log_probs), expected, rtol=0, atol=1e-3)


def test_ctranslate2_gives_the_probabilities_of_the_shipped_checkpoint(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase], tmp_path: Path
) -> None:
    assert_equal_scores(*shipped, tmp_path / "model")


@pytest.mark.parametrize(
    "shape",
    [
        *SHAPES,
        {"norm_first": True, "attention_bias": True},
        {"positional_encoding": "learned", "max_position_embeddings": 64},
        {"head_dim": 5, "activation_function": "gelu_new"},
    ],
    ids=str,
)
def test_ctranslate2_gives_our_probabilities(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, shape: dict[str, Any]
) -> None:
    # More embeddings than the tokenizer has entries, as a resized model may have.
    assert_equal_scores(build(len(tokenizer) + 3, **shape), tokenizer, tmp_path / "model")


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_ctranslate2_translates_as_our_model_does(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase],
    tmp_path: Path,
    quantization: str | None,
) -> None:
    pytest.importorskip("ctranslate2")
    model, tokenizer = shipped
    weights = weights_of(model)
    ctranslate2_twin(model, tokenizer, tmp_path / "new" / "model", quantization)
    assert unchanged(model, weights)  # quantization works in place
    translator = load_translator(tmp_path / "new" / "model")
    assert translator.compute_type == ("int8_float32" if quantization else "float32")
    read = AutoTokenizer.from_pretrained(tmp_path / "new" / "model")
    results = translator.translate_batch(
        [read.convert_ids_to_tokens(ids) for ids in read(SOURCES)["input_ids"]], beam_size=1, max_decoding_length=60
    )
    found = [read.decode(read.convert_tokens_to_ids(result.hypotheses[0])) for result in results]
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    sequences = model.generate(**batch, num_beams=1, max_new_tokens=60)
    expected = tokenizer.batch_decode(sequences, skip_special_tokens=True)
    equal = sum(ours == theirs for ours, theirs in zip(expected, found, strict=True))
    assert equal >= (len(SOURCES) // 2 if quantization else len(SOURCES) - 1)


def test_ctranslate2_refuses_what_it_cannot_hold(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = build(len(tokenizer))
    with pytest.raises(InputError, match="exists already; choose another folder"):
        ctranslate2_twin(model, tokenizer, tmp_path)
    folder = tmp_path / "model"
    with pytest.raises(InputError, match="CTranslate2 has no activation mish; it has relu"):
        ctranslate2_twin(build(len(tokenizer), activation_function="mish"), tokenizer, folder)
    with pytest.raises(InputError, match="the tokenizer has 500 entries and the model 499"):
        ctranslate2_twin(build(499), tokenizer, folder)
    with pytest.raises(ValueError, match="int9"):
        ctranslate2_twin(model, tokenizer, folder, "int9")
    assert not folder.exists()


def test_without_ctranslate2_the_extra_is_named(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ctranslate2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"pip install 'vaswani-transformer\[bench\]'"):
        ctranslate2_twin(build(len(tokenizer)), tokenizer, tmp_path / "model")
