"""What needs a CUDA device: `pytest -m gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, CompileConfig

from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.cli import main
from vaswani_transformer.corpora import open_corpus
from vaswani_transformer.preprocessing import learn_tokenizer, tokenize_corpus
from vaswani_transformer.training import TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import parse_training_arguments
from vaswani_transformer.translation import PRETRAINED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def test_training_on_a_gpu_follows_the_cpu(small_run: list[str], tmp_path: Path) -> None:
    losses = {}
    for device, environment in (("gpu", {}), ("cpu", {"ACCELERATE_USE_CPU": "true"})):
        command = [sys.executable, "-m", "vaswani_transformer", "train", *small_run, "--dropout", "0"]
        command += ["--learning-rate", "0.001", "--max-steps", "10", "--output-dir", str(tmp_path / device)]
        subprocess.run(command, check=True, env={**os.environ, **environment})
        lines = (tmp_path / device / "metrics.jsonl").read_text().splitlines()
        losses[device] = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
    assert losses["gpu"] == pytest.approx(losses["cpu"], rel=1e-3)


def test_bf16_training_and_translation_on_a_gpu(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--mixed-precision", "bf16", "--max-steps", "20", "--output-dir", str(tmp_path / "a")]
    assert main(["train", *flags]) == 0
    (tmp_path / "in.txt").write_text("Tom is here.\n\nThe dog sleeps.\n")
    files = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]
    assert main(["translate", str(tmp_path / "a"), *files]) == 0
    assert len((tmp_path / "out.txt").read_text().split("\n")) == 4


def test_an_update_does_not_wait_for_the_gpu(small_run: list[str], tmp_path: Path) -> None:
    settings = parse_training_arguments([*small_run, "--max-steps", "1", "--output-dir", str(tmp_path)])
    corpus = open_corpus(settings.train_file)
    tokenizer = learn_tokenizer(corpus, 500)
    pairs, _ = tokenize_corpus(corpus, tokenizer)
    model = build_model(settings, tokenizer)
    trainer = TranslationTrainer(settings, create_accelerator(settings), model, tokenizer, pairs, pairs)
    trainer.model.train()
    epoch = trainer.epoch(0)
    first, second = (trainer.prepare(epoch, epoch.batches[number]) for number in (0, 1))
    trainer.update(*first)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = trainer.update(*second)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_beams_that_share_are_transformers_search_on_a_gpu(attention: str) -> None:
    folder = PRETRAINED / "tatoeba-en-de"
    model = VaswaniForConditionalGeneration.from_pretrained(folder, attn_implementation=attention).cuda().eval()
    texts = [pair["en"] for pair in generate_pairs("test", 64)]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt").to("cuda")
    expected = model.generate(**batch, return_dict_in_generate=True).sequences  # with a row for each beam
    assert torch.equal(model.generate(**batch), expected)
    assert torch.equal(model.generate(**batch, compile_config=CompileConfig(mode="default")), expected)
    assert torch.equal(model.cpu().generate(**batch.to("cpu")), expected.cpu())
