"""What is exported for CTranslate2 computes what the model computes, and translates as it does."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Refused, assert_damage_is_told, needs_tatoeba, tatoeba_test
from test_peers import SHAPES, SOURCES, TARGETS, build, unchanged, weights_of
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.cli import main
from vaswani_transformer.ctranslate2_export import QUANTIZATIONS, ctranslate2_length_penalty, export_ctranslate2
from vaswani_transformer.errors import InputError
from vaswani_transformer.evaluation import score_translations
from vaswani_transformer.translation import load_pipeline, translate


@torch.no_grad()
def log_probabilities(
    model: VaswaniForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, source: str, target: list[int]
) -> torch.Tensor:
    """Ours of each token of `target`, `</s>` included."""
    labels = torch.tensor([target])
    logits = model(**tokenizer(source, return_tensors="pt"), labels=labels).logits
    return logits.log_softmax(-1)[0].gather(1, labels[0, :, None])[:, 0]


def load_translator(folder: Path, **options: Any) -> Any:
    """CTranslate2's `Translator` on as many threads as torch has, for it sets OpenMP's number for torch too."""
    import ctranslate2

    return ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads(), **options)


def assert_equal_scores(
    model: VaswaniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    source_texts: list[str] = SOURCES,
    target_texts: list[str] = TARGETS,
) -> None:
    translator = load_translator(folder, compute_type="float32")
    sources, targets = (
        [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(side)["input_ids"]]
        for side in (source_texts, target_texts)
    )
    scores = translator.score_batch(sources, [tokens[:-1] for tokens in targets])  # it adds </s>
    for source, target, score in zip(source_texts, target_texts, scores, strict=True):
        expected = log_probabilities(model, tokenizer, source, tokenizer(target)["input_ids"])
        torch.testing.assert_close(torch.tensor(score.log_probs), expected, rtol=0, atol=1e-3)


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
    pytest.importorskip("ctranslate2")
    # More embeddings than the tokenizer has entries, as a resized model may have.
    model = build(len(tokenizer) + 3, **shape)
    weights = weights_of(model)
    export_ctranslate2(model, tokenizer, tmp_path / "model")
    assert unchanged(model, weights)
    assert_equal_scores(model, tokenizer, tmp_path / "model")


@pytest.mark.parametrize("quantization", [None, "int8", "int8_bfloat16", "float16"])
def test_ctranslate2_translates_as_our_model_does(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase],
    tmp_path: Path,
    quantization: str | None,
) -> None:
    pytest.importorskip("ctranslate2")
    model, tokenizer = shipped
    weights = weights_of(model)
    export_ctranslate2(model, tokenizer, tmp_path / "new" / "model", quantization)
    assert unchanged(model, weights)  # quantization works in place
    translator = load_translator(tmp_path / "new" / "model")
    assert translator.compute_type.startswith("int8" if str(quantization).startswith("int8") else "float32")
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
        export_ctranslate2(model, tokenizer, tmp_path)
    folder = tmp_path / "model"
    with pytest.raises(InputError, match="CTranslate2 has no activation mish; it has relu"):
        export_ctranslate2(build(len(tokenizer), activation_function="mish"), tokenizer, folder)
    with pytest.raises(InputError, match="the tokenizer has 500 entries and the model 499"):
        export_ctranslate2(build(499), tokenizer, folder)
    with pytest.raises(ValueError, match="int9"):
        export_ctranslate2(model, tokenizer, folder, "int9")
    assert not folder.exists()


def test_without_ctranslate2_the_extra_is_named(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ctranslate2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"pip install 'vaswani-transformer\[ctranslate2\]'"):
        export_ctranslate2(build(len(tokenizer)), tokenizer, tmp_path / "model")


@pytest.fixture(scope="module")
def exported(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The shipped checkpoint in float32; not to be changed."""
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("exported") / "model"
    export_ctranslate2(*shipped, folder)
    return folder


def test_the_command_writes_a_folder_that_translates_as_the_model_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    folder, text = str(tmp_path / "my model"), tmp_path / "text"
    assert main(["export", "tatoeba-en-de", "--format", "ctranslate2", "--output", folder]) == 0
    told = capsys.readouterr().err
    assert f"vaswani-transformer translate '{folder}'\n" in told
    assert "the paper's length penalty, ((5 + n) / 6)^1.4. " in told
    assert "give it length_penalty=0.93, and beam_size=4\n" in told
    text.write_text("\n".join([*SOURCES, " ", SOURCES[0]]) + "\n")
    for flags in ([], ["--num-beams", "1"], ["--length-penalty", "0", "--batch-tokens", "40"]):
        found = []
        for model in ("tatoeba-en-de", folder):
            assert main(["translate", model, "--input", str(text), *flags]) == 0
            found.append(capsys.readouterr().out.splitlines())
        assert len(found[0]) == len(found[1]) == len(SOURCES) + 2
        assert found[1][len(SOURCES) :] == ["", found[1][0]]
        assert sum(ours == theirs for ours, theirs in zip(*found, strict=True)) >= len(SOURCES) - 2


def test_the_paper_s_penalty_chooses(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase], exported: Path
) -> None:
    model, tokenizer = shipped
    pipeline = load_pipeline(str(exported))
    firsts = {}
    for alpha in (-3.0, 0.0, 1.4, 9.0):
        for source in SOURCES[:6]:
            settings = {"length_penalty": alpha, "num_beams": 6, "num_return_sequences": 6}
            found = pipeline(source, return_tensors=True, **settings)
            targets = [[token for token in one["translation_token_ids"].tolist()[1:] if token] for one in found]
            assert len(set(map(tuple, targets))) == 6
            sums = [float(log_probabilities(model, tokenizer, source, target).sum()) for target in targets]
            scores = [total / ((5 + len(target)) / 6) ** alpha for total, target in zip(sums, targets, strict=True)]
            assert scores == pytest.approx(sorted(scores, reverse=True), rel=1e-3)
            firsts.setdefault(source, {})[alpha] = len(targets[0])
    assert all(lengths[-3.0] <= lengths[9.0] for lengths in firsts.values())
    assert any(lengths[-3.0] < lengths[9.0] for lengths in firsts.values())
    stock = pipeline(SOURCES[0], length_penalty=1.0, length_penalty_type="transformers")
    assert stock == load_pipeline("tatoeba-en-de")(SOURCES[0], length_penalty=1.0, length_penalty_type="transformers")


def test_the_advised_penalty_rises_as_the_paper_s() -> None:
    for alpha in (0.6, 1.4):
        own = ctranslate2_length_penalty(alpha)
        step = 1e-4
        paper = alpha * (math.log(5 + 10 + step) - math.log(5 + 10 - step))
        assert own * (math.log(10 + step) - math.log(10 - step)) == pytest.approx(paper, rel=1e-6)


def test_the_folder_needs_neither_torch_nor_this_package(exported: Path, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "ctranslate2" in block)
    guard = "import sys\nsys.modules.update(torch=None, transformers=None, vaswani_transformer=None)\n"
    (tmp_path / "exported").symlink_to(exported)
    command = [sys.executable, "-c", guard + program]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found == "Wo ist das Buch?\n"


def test_quantizations_are_those_of_ctranslate2() -> None:
    pytest.importorskip("ctranslate2")
    from ctranslate2.specs import model_spec

    assert model_spec.ACCEPTED_MODEL_TYPES == QUANTIZATIONS


def test_an_exported_model_says_what_it_cannot_do(
    exported: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, refused: Refused
) -> None:
    pipeline = load_pipeline(str(exported))
    for settings, text in (
        ({"early_stopping": True, "top_k": 5}, "can be told num_beams, .*; leave early_stopping, top_k out"),
        ({"num_return_sequences": 5}, r"`num_return_sequences` \(5\) has to be smaller or equal to `num_beams` \(4\)"),
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"length_penalty_type": "marian"}, "length_penalty_type must be"),
        ({"return_alignments": True}, "an exported model gives translations alone"),
    ):
        with pytest.raises(ValueError, match=text):
            pipeline(SOURCES[0], **settings)
    with pytest.raises(InputError, match=r"a source of 1,\d+ tokens is longer than the 1,024 that the model can read"):
        pipeline("book " * 1100)
    learned = build(len(tokenizer), positional_encoding="learned", max_position_embeddings=8)
    export_ctranslate2(learned, tokenizer, tmp_path / "learned")
    small = load_pipeline(str(tmp_path / "learned"))
    assert len(small("a", return_tensors=True)[0]["translation_token_ids"]) <= 8 + 2
    with pytest.raises(InputError, match="longer than the 8 that the model can read"):
        small("a b c d e f g h i")
    refused(["translate", str(exported), "--dtype", "bfloat16"], "has the precision of its files; leave --dtype out")
    picture = ["--output", str(tmp_path / "x.png")]
    refused(["attention", str(exported), "A sentence.", *picture], "an exported model gives translations alone")
    refused(["push", str(exported), "user/name", "--dry-run"], "model.safetensors")


def test_a_damaged_folder_is_told_in_one_line(exported: Path, tmp_path: Path, refused: Refused) -> None:
    damages = [
        ("model.bin", b""),
        ("model.bin", b"not a model"),
        ("config.json", None),
        ("config.json", b"{}"),
        ("generation_config.json", None),
        ("tokenizer.json", None),
        ("tokenizer.json", b"{"),
        ("shared_vocabulary.json", None),
    ]
    assert_damage_is_told(exported, damages, tmp_path, refused)


def test_mistakes_of_the_command(tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output", str(tmp_path / "new")]
    for arguments, text in (
        (["tatoeba-en-de", "--format", "onnx", "--quantization", "int8", *output], "--quantization is CTranslate2's"),
        (["tatoeba-en-de", "--format", "marian", *output], "invalid choice"),
        (["tatoeba-en-de", "--format", "ctranslate2", "--quantization", "int3", *output], "invalid choice"),
        (["tatoeba-en-de", *output], "--format"),
        (["tatoeba-en-de", "--format", "onnx", "--output", str(tmp_path)], "exists already; choose another --output"),
        ([str(tmp_path / "no"), "--format", "onnx", *output], "no such model folder"),
    ):
        refused(["export", *arguments], text)
    assert not (tmp_path / "new").exists()
    with pytest.raises(SystemExit, match="0"):
        main(["export", "--help"])
    assert "CTranslate2, or ONNX Runtime" in " ".join(capsys.readouterr().out.split())


def test_an_export_that_fails_leaves_nothing(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ctranslate2")
    model, tokenizer = shipped

    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(tokenizer), "save_pretrained", fail)
    with pytest.raises(KeyboardInterrupt):
        export_ctranslate2(model, tokenizer, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@needs_tatoeba
def test_forced_text_has_our_probabilities(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase], exported: Path
) -> None:
    sources, targets = tatoeba_test(200)
    assert_equal_scores(*shipped, exported, sources, targets)


@needs_tatoeba
@pytest.mark.slow
def test_int8_translates_as_well(
    shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase], tmp_path: Path
) -> None:
    """Prints the BLEU of both on Tatoeba's test set."""
    pytest.importorskip("ctranslate2")
    export_ctranslate2(*shipped, tmp_path / "int8", "int8")
    sources, references = tatoeba_test()
    found = []
    for model in ("tatoeba-en-de", str(tmp_path / "int8")):
        predictions = list(translate(load_pipeline(model), sources))
        found.append(score_translations(predictions, references)["bleu"])
    print(f"BLEU {found[0]:.2f}, in int8 {found[1]:.2f}")
    assert found[1] >= found[0] - 0.3
