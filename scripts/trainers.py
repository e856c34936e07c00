"""Loops that train models of one shape on one corpus, behind one interface, and what their work amounts to."""

from __future__ import annotations

import random
import shutil
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from peers import marian_config
from vaswani_transformer import VaswaniConfig
from vaswani_transformer.batching import TranslationCollator, prefetch
from vaswani_transformer.encoded_corpus import EncodedCorpus
from vaswani_transformer.modeling_vaswani import VaswaniSinusoidalPositionalEncoding, shift_tokens_right
from vaswani_transformer.training import TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import TranslationTrainingArguments

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Work:
    """What was trained on: tokens without padding, positions with it, and the model's FLOPs on the tokens."""

    target_tokens: int = 0
    tokens: int = 0
    positions: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def training_flops(config: VaswaniConfig, source_lengths: torch.Tensor, target_lengths: torch.Tensor) -> int:
    """FLOPs of the matrix products of forward and backward passes over pairs of so many tokens (pairs,).

    Two for each multiplication with its addition; the backward pass has two products for each of the forward pass.
    Attention counts all keys of the sentence, those too that the causal mask hides. No padding, no recomputation.
    """
    source, target = source_lengths.double(), target_lengths.double()
    inner = config.num_attention_heads * config.head_dim
    projection, feed_forward = config.d_model * inner, 2 * config.d_model * config.d_ff
    encoder = source * (4 * projection + feed_forward) + 2 * source * source * inner
    decoder = (
        target * (6 * projection + feed_forward)
        + source * 2 * projection  # the keys and values of the source
        + 2 * target * (target + source) * inner
    )
    output = target * config.d_model * config.vocab_size
    return 3 * 2 * int((config.encoder_layers * encoder + config.decoder_layers * decoder + output).sum())


def work_of(config: VaswaniConfig, inputs: dict[str, torch.Tensor]) -> Work:
    """What a padded batch amounts to; its `attention_mask` has the source's positions on the last axis, if any."""
    target_lengths = inputs["labels"].ne(-100).sum(dim=1)
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    source_lengths = mask.flatten(1).sum(dim=1)
    return Work(
        target_tokens=int(target_lengths.sum()),
        tokens=int(target_lengths.sum() + source_lengths.sum()),
        positions=inputs["labels"].numel() + inputs["input_ids"].numel(),
        flops=training_flops(config, source_lengths, target_lengths),
    )


class Trainer(Protocol):
    """A model, its optimizer and its batches."""

    model: nn.Module

    def __init__(self, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> None:
        """Take the pairs and the tokenizer that `folder` holds."""

    def update(self) -> Work:
        """Make one more update."""


class VaswaniTrainer:
    """This package's loop."""

    def __init__(self, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> None:
        settings.mixed_precision = "bf16" if bf16 else "no"
        pairs, tokenizer = load(folder)
        self.model = build_model(settings, tokenizer)
        self.trainer = TranslationTrainer(settings, create_accelerator(settings), self.model, tokenizer, pairs, pairs)
        self.trainer.model.train()
        self.batches = prefetch(self.trainer.batches(0, 0))

    def update(self) -> Work:
        """Make one more update."""
        _, _, inputs, tokens = next(self.batches)
        self.trainer.update(inputs, tokens)
        self.trainer.state.step += 1
        return sum((work_of(self.model.config, part) for part in inputs), Work())


class MarianTrainer:
    """`MarianMTModel` in transformers' `Seq2SeqTrainer`, both with their defaults: 8 sentences a batch, AdamW."""

    def __init__(self, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> None:
        pairs, tokenizer = load(folder)
        config = settings.model_config()
        config.vocab_size = len(tokenizer)
        self.model = MarianMTModel(marian_config(config))
        self.permits, self.made, self.work = threading.Semaphore(0), threading.Semaphore(0), Work()
        this = self

        class CountingTrainer(Seq2SeqTrainer):
            def training_step(self, model: nn.Module, inputs: dict[str, Any], *rest: Any) -> torch.Tensor:
                this.work = work_of(config, inputs)
                return super().training_step(model, inputs, *rest)

        class Pace(TrainerCallback):
            """Waits after each update for the permit to make the next."""

            def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
                this.made.release()
                this.permits.acquire()

        arguments = Seq2SeqTrainingArguments(
            output_dir=str(folder / "marian"),
            bf16=bf16,
            use_cpu=DEVICE == "cpu",  # or it refuses bf16
            max_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = CountingTrainer(
            model=self.model,
            args=arguments,
            train_dataset=pairs,
            data_collator=DataCollatorForSeq2Seq(tokenizer, self.model),
            callbacks=[Pace()],
        )
        self.thread = threading.Thread(target=trainer.train, daemon=True)

    def update(self) -> Work:
        """Make one more update."""
        if self.thread.ident is None:
            self.thread.start()
        else:
            self.permits.release()
        while not self.made.acquire(timeout=1):
            if not self.thread.is_alive():
                raise RuntimeError("Seq2SeqTrainer has ended")
        return self.work


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between one matrix for both embeddings and the output."""

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.positions = VaswaniSinusoidalPositionalEncoding(config.d_model)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_attention_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Hidden states (batch, length, d_model) for `tokens` (batch, length)."""
        states = self.embed_tokens(tokens) * self.config.d_model**0.5
        states = states + self.positions(torch.arange(tokens.shape[1], device=tokens.device), states.dtype)
        return F.dropout(states, self.config.dropout, self.training)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of `labels`."""
        targets = shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)
        ahead = torch.ones(targets.shape[1], targets.shape[1], dtype=torch.bool, device=targets.device).triu(1)
        padding = attention_mask.eq(0)
        states = self.transformer(
            self.embed(input_ids),
            self.embed(targets),
            tgt_mask=ahead,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = F.linear(states, self.embed_tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class PlainLoop:
    """[`TorchTransformer`] with Adam on random batches of 64 sentences."""

    def __init__(self, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> None:
        self.pairs, tokenizer = load(folder)
        config = settings.model_config()
        config.vocab_size = len(tokenizer)
        self.model = TorchTransformer(config).to(DEVICE).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
        self.bf16 = bf16
        self.collate = TranslationCollator(config.pad_token_id)
        self.generator = random.Random(1)

    def update(self) -> Work:
        """Make one more update."""
        columns = self.pairs[self.generator.sample(range(len(self.pairs)), 64)]
        inputs = self.collate(columns["input_ids"], columns["labels"])
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            loss = self.model(**{name: tensor.to(DEVICE) for name, tensor in inputs.items()})
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return work_of(self.model.config, inputs)


class MatrixProducts:
    """The products of one update alone: those of every weight matrix with `batch_tokens` positions, and no others.

    Their rate is what a model's FLOPs a second are measured by.
    """

    def __init__(self, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> None:
        config = settings.model_config()
        config.vocab_size = len(load(folder)[1])
        inner = config.num_attention_heads * config.head_dim
        layers = config.encoder_layers + config.decoder_layers
        attentions = layers + config.decoder_layers
        dtype = torch.bfloat16 if bf16 else torch.float32
        self.products = []
        for inputs, outputs, count in (
            (config.d_model, inner, 3 * attentions),
            (inner, config.d_model, attentions),
            (config.d_model, config.d_ff, layers),
            (config.d_ff, config.d_model, layers),
            (config.d_model, config.vocab_size, 1),
        ):
            states = torch.randn(settings.batch_tokens, inputs, dtype=dtype, device=DEVICE)
            weight = torch.randn(outputs, inputs, dtype=dtype, device=DEVICE)
            self.products.append((states, weight, torch.matmul(states, weight.t()), count))

    def update(self) -> Work:
        """Multiply as one update does."""
        flops = 0
        for states, weight, gradient, count in self.products:
            for _ in range(count):
                torch.matmul(states, weight.t())
                torch.matmul(gradient, weight)
                torch.matmul(gradient.t(), states)
            flops += count * 3 * 2 * states.numel() * weight.shape[0]
        return Work(flops=flops)


TRAINERS: dict[str, type[Trainer]] = {
    "vaswani_transformer": VaswaniTrainer,
    "MarianMTModel, Seq2SeqTrainer": MarianTrainer,
    "torch.nn.Transformer": PlainLoop,
    "matrix products alone": MatrixProducts,
}


def load(folder: Path) -> tuple[EncodedCorpus, Any]:
    """The encoded pairs and the tokenizer that [`save`] wrote."""
    return EncodedCorpus(folder / "pairs"), AutoTokenizer.from_pretrained(folder / "tokenizer")


def save(pairs: EncodedCorpus, tokenizer: Any, folder: Path) -> None:
    """Write encoded pairs and their tokenizer for the trainers, which work in processes of their own."""
    shutil.copytree(pairs.folder, folder / "pairs")
    tokenizer.save_pretrained(folder / "tokenizer")


def load_trainer(trainer: str, settings: TranslationTrainingArguments, folder: Path, bf16: bool) -> Trainer:
    """A trainer of [`TRAINERS`]."""
    return TRAINERS[trainer](settings, folder, bf16)


def train_for(trainer: Trainer, seconds: float) -> Work:
    """Make updates until the time is up, at least one, and wait for the device."""
    deadline = time.monotonic() + seconds
    work = trainer.update()
    while time.monotonic() < deadline:
        work += trainer.update()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return work
