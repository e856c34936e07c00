"""The loops that the training benchmark compares, and its count of their work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedTokenizerBase

from trainers import TRAINERS, MarianTrainer, Trainer, Work, load_trainer, save, train_for, training_flops, work_of
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.corpora import open_corpus
from vaswani_transformer.preprocessing import tokenize_corpus
from vaswani_transformer.training_arguments import TranslationTrainingArguments, parse_training_arguments

LOOPS = [name for name in TRAINERS if name != "matrix products alone"]


@pytest.fixture
def folder(corpus_files: dict[str, Path], tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> Path:
    corpus = open_corpus([str(corpus_files["train"])], source_lang="en", target_lang="de")
    save(tokenize_corpus(corpus, tokenizer)[0], tokenizer, tmp_path)
    return tmp_path


@pytest.fixture
def settings(small_run: list[str], tmp_path: Path) -> TranslationTrainingArguments:
    return parse_training_arguments([*small_run, "--max-steps", "1", "--output-dir", str(tmp_path / "run")])


@pytest.mark.parametrize("options", [{}, {"head_dim": 5, "encoder_layers": 1, "num_attention_heads": 3}])
def test_flops_are_those_that_torch_counts(options: dict[str, int]) -> None:
    shape = {"vocab_size": 50, "d_model": 16, "d_ff": 24, "encoder_layers": 2, "decoder_layers": 3}
    config = VaswaniConfig.tiny(**{**shape, **options})
    model = VaswaniForConditionalGeneration(config)
    model.set_attn_implementation("eager")
    source, target = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 4))
    with FlopCounterMode(display=False) as counter:
        model(source, labels=target, label_smoothing=0.1).loss.backward()
    found = training_flops(config, torch.tensor([7, 7, 7]), torch.tensor([4, 4, 4]))
    assert found == counter.get_total_flops()


def test_padding_is_no_work() -> None:
    config = VaswaniConfig.tiny(vocab_size=50)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    inputs = {"input_ids": torch.ones(2, 3), "attention_mask": mask, "labels": torch.tensor([[5, 2], [2, -100]])}
    flops = sum(training_flops(config, torch.tensor([s]), torch.tensor([t])) for s, t in ((3, 2), (1, 1)))
    expected = Work(target_tokens=3, tokens=7, positions=10, flops=flops)
    assert work_of(config, inputs) == expected
    assert work_of(config, {**inputs, "attention_mask": mask[:, None, None].bool()}) == expected
    del inputs["attention_mask"]
    assert work_of(config, inputs).tokens == 3 + 6
    assert expected + expected == Work(6, 14, 20, 2 * flops)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_trains(name: str, bf16: bool, settings: TranslationTrainingArguments, folder: Path) -> None:
    trainer: Trainer = load_trainer(name, settings, folder, bf16)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    work = [trainer.update() for _ in range(3)]
    assert all(0 < each.target_tokens < each.tokens <= each.positions for each in work)
    if name != "MarianMTModel, Seq2SeqTrainer":  # whose batches are of sentences: 8
        assert all(each.target_tokens > 200 for each in work)
    moved = [not torch.equal(*pair) for pair in zip(before, trainer.model.parameters(), strict=True)]
    assert sum(moved) > 0.9 * len(moved)
    assert train_for(trainer, 0).target_tokens > 0


def test_a_trainer_that_fails_is_not_waited_for(settings: TranslationTrainingArguments, folder: Path) -> None:
    trainer = MarianTrainer(settings, folder, False)
    trainer.thread._target = lambda: None
    with pytest.raises(RuntimeError, match="Seq2SeqTrainer has ended"):
        trainer.update()


def test_the_products_are_those_of_the_model_s_weights(settings: TranslationTrainingArguments, folder: Path) -> None:
    products = load_trainer("matrix products alone", settings, folder, True)
    with FlopCounterMode(display=False) as counter:
        work = products.update()
    assert work.flops == counter.get_total_flops()
    # As one pair with so many tokens on each side, but for its attention: queries by keys, weights by values.
    config, rows = settings.model_config(), settings.batch_tokens
    attentions = config.encoder_layers + 2 * config.decoder_layers
    pair = training_flops(config, torch.tensor([rows]), torch.tensor([rows]))
    assert work.flops == pair - 3 * 2 * 2 * rows * rows * config.d_model * attentions
