"""What is exported for ONNX Runtime computes what the model computes, and decodes as it does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Refused, assert_damage_is_told, needs_tatoeba, tatoeba_test
from test_peers import SOURCES, TARGETS, build, unchanged, weights_of
from transformers import PreTrainedTokenizerBase

from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.onnx_export import DECODER, ENCODER, export_onnx
from vaswani_transformer.translation import load_pipeline

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The shipped checkpoint; not to be changed."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    assert main(["export", "tatoeba-en-de", "--format", "onnx", "--output", str(folder)]) == 0
    return folder


def run(path: Path, **inputs: Any) -> dict[str, np.ndarray]:
    """What the graph gives, by name, on onnxruntime alone."""
    from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(inputs)
    names = [one.name for one in session.get_outputs()]
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return dict(zip(names, session.run(names, arrays), strict=True))


@torch.no_grad()
def assert_equal_logits(
    model: VaswaniForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Feed a target in three pieces, of none, one and many tokens before, and compare with the model in one pass."""
    batch = tokenizer(SOURCES[:5], return_tensors="pt", padding=True)
    targets = tokenizer(TARGETS[:5], return_tensors="pt", padding=True)["input_ids"]
    expected = model(**batch, decoder_input_ids=targets)
    mask = batch["attention_mask"]
    encoded = run(folder / ENCODER, **batch)
    states = torch.from_numpy(encoded.pop("last_hidden_state"))
    torch.testing.assert_close(states * mask[..., None], expected.encoder_last_hidden_state * mask[..., None])
    config = model.config
    empty = np.zeros((5, config.num_attention_heads, 0, config.head_dim), dtype=np.float32)
    past = {f"past.{layer}.{part}": empty for layer in range(config.decoder_layers) for part in ("key", "value")}
    logits = []
    for piece in (targets[:, :1], targets[:, 1:2], targets[:, 2:]):
        found = run(folder / DECODER, input_ids=piece, encoder_attention_mask=mask, **encoded, **past)
        logits.append(torch.from_numpy(found.pop("logits")))
        past = {name.replace("present", "past"): value for name, value in found.items()}
    torch.testing.assert_close(torch.cat(logits, dim=1), expected.logits, rtol=1e-4, atol=1e-4)


def test_the_graphs_give_the_logits_of_the_shipped_checkpoint(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase],
    exported: Path,
) -> None:
    assert_equal_logits(*shipped, exported)


# All options at once: an export takes seconds.
SHAPE = {
    "norm_first": True,
    "attention_bias": True,
    "activation_function": "gelu",
    "head_dim": 5,
    "positional_encoding": "learned",
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def test_other_shapes_too(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model, folder = build(len(tokenizer) + 3, **SHAPE), tmp_path / "new" / "model"
    weights, attention = weights_of(model), model.config._attn_implementation
    export_onnx(model, tokenizer, folder)
    assert unchanged(model, weights)
    assert (model.config._attn_implementation, model.dtype) == (attention, torch.float32)
    assert_equal_logits(model, tokenizer, folder)
    # Learned positions end both sides.
    pipeline = load_pipeline(str(folder))
    assert len(pipeline(SOURCES[0], return_tensors=True)[0]["translation_token_ids"]) <= 64
    with pytest.raises(InputError, match="longer than the 64 that the model can read"):
        pipeline("a " * 64)


def test_the_folder_translates_as_the_model_does(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join([*SOURCES, " ", SOURCES[0]]) + "\n")
    for flags in ([], ["--num-beams", "1"], ["--length-penalty", "-2", "--batch-tokens", "40"]):
        found = []
        for model in ("tatoeba-en-de", str(exported)):
            assert main(["translate", model, "--input", str(text), *flags]) == 0
            found.append(capsys.readouterr().out.splitlines())
        assert len(found[0]) == len(SOURCES) + 2
        assert sum(ours == theirs for ours, theirs in zip(*found, strict=True)) >= len(SOURCES) + 1


def test_arguments_of_generate_hold(exported: Path) -> None:
    ours, theirs = load_pipeline("tatoeba-en-de"), load_pipeline(str(exported))
    for settings in (
        {"num_beams": 6, "num_return_sequences": 3},
        {"length_penalty_type": "transformers", "length_penalty": 2.0},
        {"max_new_tokens": 4},
        {"no_repeat_ngram_size": 1, "num_beams": 2},
    ):
        assert ours(SOURCES[:8], **settings) == theirs(SOURCES[:8], **settings)
    with pytest.raises(ValueError, match="an exported model gives translations alone"):
        theirs(SOURCES[0], return_alignments=True)


@needs_tatoeba
def test_greedy_tokens_are_those_of_the_model(exported: Path) -> None:
    sources, _ = tatoeba_test(200)
    found = [
        [
            one["translation_token_ids"].tolist()
            for one in load_pipeline(model)(sources, num_beams=1, return_tensors=True)
        ]
        for model in ("tatoeba-en-de", str(exported))
    ]
    # Of the longest of a batch each has as much filling as its batch asks for.
    stripped = [[[token for token in tokens if token] for tokens in side] for side in found]
    assert sum(ours == theirs for ours, theirs in zip(*stripped, strict=True)) >= 198


def test_a_damaged_folder_is_told_in_one_line(exported: Path, tmp_path: Path, refused: Refused) -> None:
    damages = [
        (ENCODER, None),
        (ENCODER, b"not a graph"),
        (DECODER, b""),
        ("config.json", None),
        ("generation_config.json", b"["),
        ("tokenizer_config.json", b"{"),
    ]
    assert_damage_is_told(exported, damages, tmp_path, refused)


def test_without_onnx_the_extra_is_named(
    tokenizer: PreTrainedTokenizerBase,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    for package in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'vaswani-transformer\[onnx\]'"):
        export_onnx(build(len(tokenizer)), tokenizer, tmp_path / "model")
    refused(["translate", str(exported)], "pip install 'vaswani-transformer[onnx]'")
    refused(
        ["export", "tatoeba-en-de", "--format", "onnx", "--output", str(tmp_path / "x")], "vaswani-transformer[onnx]"
    )
    assert not (tmp_path / "x").exists()
