"""The training loop, on Accelerate."""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object, set_seed
from datasets import Dataset
from safetensors import SafetensorError
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from .batching import EpochBatches, TokenBatchSampler, TranslationCollator, batches_by_tokens, prefetch
from .checkpoints import (
    RunFolder,
    TrainingState,
    average_weights,
    copy_weights,
    generator_states,
    moments_by_name,
    read_weights,
)
from .encoded_corpus import EncodedPairs, EpochCorpus, pair_lengths
from .errors import InputError, is_disk_full
from .interruption import TrainingInterrupted, interruptible
from .logging_window import LoggingWindow
from .modeling_vaswani import VaswaniForConditionalGeneration
from .optimization import DropoutWarmup, create_optimizer, learning_rate_at
from .sharding import check_parallelism, gather, prepare_sharded, whole
from .training_arguments import TranslationTrainingArguments

logger = logging.getLogger(__name__)

Evaluate = Callable[[VaswaniForConditionalGeneration], dict[str, float]]

# A GPU works behind its host, which waits for it only this often: to see the losses, and where there are several
# processes to agree on whether to go on.
UPDATES_PER_LOOK = 10


def resolve_mixed_precision(mixed_precision: str) -> str:
    """`auto` as bf16 where the hardware multiplies in it (GPUs from Ampere on, CPUs with AVX512-BF16 or AMX)."""
    if mixed_precision != "auto":
        return mixed_precision
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "no"


def create_accelerator(arguments: TranslationTrainingArguments) -> Accelerator:
    """Accelerate's view of the devices that it was launched on, in the arguments' precision, with their trackers.

    Raises:
        InputError: If the precision is not the device's, or the model would be cut in a way that is not supported.
    """
    accelerator = Accelerator(
        mixed_precision=resolve_mixed_precision(arguments.mixed_precision),
        log_with=arguments.report_to or None,
        project_dir=arguments.output_dir,
    )
    check_parallelism(accelerator)
    if accelerator.mixed_precision == "fp16" and accelerator.device.type == "cpu":
        raise InputError("mixed_precision=fp16 needs a GPU; choose bf16, or auto")
    return accelerator


@dataclass(frozen=True)
class Epoch:
    """A pass over the training text: the pairs, and the batches that they are taken in."""

    number: int
    pairs: EncodedPairs | Dataset
    batches: EpochBatches


class TranslationTrainer:
    """Trains a model on encoded pairs by the paper's recipe (section 5).

    Args:
        arguments: The settings.
        accelerator: From [`create_accelerator`].
        model: From [`build_model`].
        tokenizer: Saved beside the model.
        train_dataset: Encoded pairs, from `tokenize_corpus`; from `apply_bpe_dropout` or as a `StreamedCorpus`, others
            in each epoch.
        validation_dataset: Encoded pairs for the validation loss.
        evaluate: Scores translations of the model, for example `{"bleu": 27.3}`; called at each validation.
    """

    def __init__(
        self,
        arguments: TranslationTrainingArguments,
        accelerator: Accelerator,
        model: VaswaniForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        train_dataset: EncodedPairs | EpochCorpus | Dataset,
        validation_dataset: EncodedPairs | Dataset,
        evaluate: Evaluate | None = None,
    ) -> None:
        self.arguments = arguments
        self.tokenizer = tokenizer
        self.evaluate = evaluate
        self.train_dataset = train_dataset
        self.validation_dataset = validation_dataset
        self.folder = RunFolder(arguments.output_dir)
        self.collate = TranslationCollator(model.config.pad_token_id)
        self.accelerator = accelerator
        if accelerator.device.type == "cpu" and accelerator.mixed_precision == "bf16":
            # The fused kernel's backward pass in bf16 is several times slower on a CPU than plain products.
            model.set_attn_implementation("eager")
        freeze(model, arguments.freeze)
        if arguments.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        if arguments.torch_compile:
            model.compile(dynamic=True)
        betas = (arguments.adam_beta1, arguments.adam_beta2)
        optimizer = create_optimizer(model, betas, arguments.adam_epsilon)
        self.dropout_warmup = DropoutWarmup(model, arguments.dropout_warmup_steps)
        if accelerator.is_fsdp2:
            # A piece of the model cannot validate: the main process has a whole one for that, on the host until then.
            whole_model = copy.deepcopy(model) if accelerator.is_main_process else None
            self.model, self.optimizer = prepare_sharded(accelerator, model, optimizer)
            if whole_model is not None:
                self.whole_model = accelerator.prepare_model(whole_model, evaluation_mode=True)
        else:
            self.model, self.optimizer = accelerator.prepare(model, optimizer)
        if accelerator.process_index:
            # The processes start from one model and then draw their own dropout.
            set_seed(arguments.seed + accelerator.process_index)
        if isinstance(train_dataset, EpochCorpus):
            self.corpus = train_dataset.fingerprint
        else:
            # Two corpora with sentences of the same lengths in the same order are one for all that we can tell.
            self.corpus = hashlib.sha256(pair_lengths(train_dataset).tobytes()).hexdigest()
        self.state = TrainingState(processes=accelerator.num_processes, corpus=self.corpus)
        self._epoch: Epoch | None = None

    @property
    def bare_model(self) -> VaswaniForConditionalGeneration:
        """The model without Accelerate's wrapping."""
        return self.accelerator.unwrap_model(self.model)

    def train(self) -> Path:
        """Train until the first of the arguments' limits.

        Returns:
            The run folder, which holds the best model.

        Raises:
            TrainingInterrupted: On Ctrl-C or SIGTERM, after a checkpoint of the last whole update.
            InputError: If the loss is no longer finite, the disk is full, or the checkpoint to resume from does not
                fit.
        """
        try:
            folder = self._train()
            # Not `end_training`, which takes the processes' group away from the model that still uses it.
            for tracker in self.accelerator.trackers:
                tracker.finish()
            return folder
        except (OSError, SafetensorError) as error:
            if not is_disk_full(error):
                raise
            raise InputError(
                f"{self.folder.path}: the disk is full, and the run stopped after update {self.state.step}; "
                f"{self._last_checkpoint()}; make room, and go on with --resume"
            ) from error

    def _train(self) -> Path:
        arguments = self.arguments
        if arguments.resume:
            self._resume()
        if arguments.report_to:
            self.accelerator.init_trackers("vaswani-transformer", config=_flat(arguments))
        started = time.monotonic() - self.state.seconds
        limit = self._last_step()
        progress = tqdm(
            total=limit,
            initial=self.state.step,
            desc="Training",
            unit="update",
            disable=not self.accelerator.is_main_process,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        )
        if self.state.step and self._finished(limit, time.monotonic() - started):
            self._finish(progress)
            progress.close()
            return self.folder.path
        window = LoggingWindow(self.state.window_loss, self.state.window_tokens, self.state.window_tokens)
        self.model.train()
        # Several processes stop together, and none while others wait for it.
        alone = self.accelerator.num_processes == 1
        with (
            progress,
            interruptible() as interrupted,
            closing(
                prefetch(
                    self.batches(self.state.epoch, self.state.batch),
                    stop=lambda: alone and self._finished(limit, time.monotonic() - started, bool(interrupted)),
                )
            ) as batches,
        ):
            while not self._finished(limit, time.monotonic() - started, bool(interrupted), UPDATES_PER_LOOK):
                batch = next(batches, None)
                if batch is None:  # time was up while a window of a stream was prepared
                    break
                self.state.epoch, self.state.batch, inputs, tokens = batch
                loss = self.update(inputs, tokens)
                self.state.step += 1
                self.state.seconds = time.monotonic() - started
                window.add(self.state, loss, tokens)
                progress.update()
                steps = (UPDATES_PER_LOOK, arguments.logging_steps, arguments.eval_steps, arguments.save_steps)
                if any(self.state.step % every == 0 for every in steps):
                    self._look(window)
                if self.state.step % arguments.logging_steps == 0:
                    self._log(window, progress, limit)
                    window = LoggingWindow()
                if self.state.step % arguments.eval_steps == 0:
                    pause = time.monotonic()
                    self._validate(progress)
                    window.started += time.monotonic() - pause
                if self.state.step % arguments.save_steps == 0:
                    self._save_checkpoint(window)
            self._look(window)
            if self.state.step % arguments.save_steps:
                self._save_checkpoint(window)
            if not self._finished(limit, time.monotonic() - started):
                raise TrainingInterrupted(*interrupted[:1])
            self._finish(progress)
        return self.folder.path

    def _finish(self, progress: tqdm) -> None:
        """Validate the last update, unless that is done."""
        if self.state.validated_step < self.state.step:
            self._validate(progress)
            if self.accelerator.is_main_process:
                self.folder.save_state(self.state)

    def batches(self, epoch: int, done: int) -> Iterator[tuple[int, int, list[dict[str, torch.Tensor]], int]]:
        """Epoch, its batches up to this one, and what [`prepare`] gives, for all batches after `done` of `epoch`."""
        while True:
            drawn = self.epoch(epoch)
            for number in range(done, len(drawn.batches)):
                yield epoch, number + 1, *self.prepare(drawn, drawn.batches[number])
            epoch, done = epoch + 1, 0

    def epoch(self, number: int) -> Epoch:
        """The pairs and the batches of epoch `number`.

        Raises:
            InputError: If a pair does not fit `batch_tokens`, or the pairs do not fill a batch.
        """
        if self._epoch is None or self._epoch.number != number:
            pairs = (
                self.train_dataset.epoch(number) if isinstance(self.train_dataset, EpochCorpus) else self.train_dataset
            )
            sampler = TokenBatchSampler(
                pair_lengths(pairs),
                self.arguments.batch_tokens,
                parts=self.accelerator.num_processes * self.arguments.gradient_accumulation_steps,
                seed=self.arguments.seed,
                # A window of a stream may have little that is clean.
                may_be_less=number > 0,
            )
            self._epoch = Epoch(number, pairs, sampler.epoch(number))
        return self._epoch

    def prepare(self, epoch: Epoch, parts: list[np.ndarray]) -> tuple[list[dict[str, torch.Tensor]], int]:
        """One of the batches of `epoch` for [`update`].

        Returns:
            The padded pairs of each forward pass of this process, and the target tokens of all processes.
        """
        tokens = int(sum(epoch.batches.lengths[part, 1].sum() for part in parts))
        inputs = []
        for part in parts[self.accelerator.process_index :: self.accelerator.num_processes]:
            # The devices must run the model equally often to exchange gradients, so an empty part takes a pair that
            # counts elsewhere, without its labels.
            inputs.append(self._pad(epoch.pairs, part if len(part) else parts[0][:1]))
            if not len(part):
                inputs[-1]["labels"].fill_(-100)
        return inputs, tokens

    def update(self, inputs: list[dict[str, torch.Tensor]], tokens: int) -> torch.Tensor:
        """Make one update on what [`prepare`] gives, without waiting for the device.

        Returns:
            This process's part of the loss of a target token, on the device; their sum over the processes is the loss.
        """
        accelerator = self.accelerator
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(self.state.step + 1)
        self.dropout_warmup.set(self.state.step + 1)
        total = torch.zeros((), device=accelerator.device)
        for number, part in enumerate(inputs, 1):
            with nullcontext() if number == len(inputs) else accelerator.no_sync(self.model):
                # The mean runs over the target tokens of the whole update. DDP averages over the processes, so
                # each counts its own part as many times as there are processes.
                loss = self.model(
                    **self._to_device(part),
                    label_smoothing=self.arguments.label_smoothing_factor,
                    num_items_in_batch=tokens,
                ).loss
                accelerator.backward(loss * accelerator.num_processes)
            total += loss.detach()
        if self.arguments.max_grad_norm:
            accelerator.clip_grad_norm_(self.model.parameters(), self.arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def _look(self, window: LoggingWindow) -> None:
        """Wait for the device, and end the run if a loss is not finite."""
        if (found := window.look(self.accelerator)) is not None:
            raise InputError(self._explain_divergence(*found))

    def _pad(self, dataset: EncodedPairs | Dataset, indices: np.ndarray) -> dict[str, torch.Tensor]:
        """The padded pairs of `dataset` at `indices`, on the host."""
        columns = dataset[indices]
        inputs = self.collate(columns["input_ids"], columns["labels"])
        if inputs["attention_mask"].all():
            del inputs["attention_mask"]
        elif self.bare_model.config._attn_implementation == "sdpa":
            # As scaled_dot_product_attention takes it: of a mask with two axes transformers asks whether all of it is
            # one, and so waits for the device.
            inputs["attention_mask"] = inputs["attention_mask"][:, None, None].bool()
        if self.accelerator.device.type == "cuda":
            inputs = {name: tensor.pin_memory() for name, tensor in inputs.items()}
        return inputs

    def _to_device(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self.accelerator.device, non_blocking=True) for name, tensor in inputs.items()}

    def _validate(self, progress: tqdm) -> None:
        """Record the validation loss and scores, and save the model where it is the best so far."""
        model = self._model_to_validate()
        if self.accelerator.is_main_process:
            model.eval()
            # Validating more or less often must not change the training, so it draws from no generator of its.
            device = self.accelerator.device
            with torch.random.fork_rng([device] if device.type == "cuda" else []), self._averaged_weights(model):
                scores = {"validation_loss": self._validation_loss(model)}
                if not math.isfinite(scores["validation_loss"]):
                    raise InputError(self._explain_divergence(scores["validation_loss"], self.state))
                if self.evaluate is not None:
                    scores.update(self.evaluate(model))
                use_bleu = self.arguments.metric_for_best_model == "bleu" and "bleu" in scores
                score = scores["bleu"] if use_bleu else -scores["validation_loss"]
                best = self.state.best_score is None or score >= self.state.best_score
                if best:
                    self.state.best_score, self.state.best_step = score, self.state.step
                    self.folder.save_best(model, self.tokenizer)
                self.state.validations_since_best = 0 if best else self.state.validations_since_best + 1
            model.train()
            if self.accelerator.is_fsdp2:
                model.to("cpu")  # the device is for the training
            self._record(**scores)
            text = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in scores.items())
            progress.write(f"update {self.state.step}: {text}{' (best so far)' if best else ''}", file=sys.stderr)
        self.state.validated_step = self.state.step
        # The first process alone validates, and all must stop at once.
        self.state.validations_since_best = broadcast_object_list([self.state.validations_since_best])[0]

    def _model_to_validate(self) -> VaswaniForConditionalGeneration:
        """The model, on the main process with all its weights; all processes must ask."""
        accelerator, model = self.accelerator, self.bare_model
        if accelerator.is_fsdp2:
            weights = gather(model.named_parameters(), keep=accelerator.is_main_process)
            if accelerator.is_main_process:
                model = self.whole_model.to(accelerator.device)
                copy_weights(model, weights)
        return model

    @contextmanager
    def _averaged_weights(self, model: VaswaniForConditionalGeneration) -> Iterator[None]:
        """Inside, `model` has the mean of its weights and those of the newest checkpoints (section 6.1)."""
        others = self.arguments.average_last - 1
        # Not one that an interruption or a best score left between two others, nor one of this very update, which
        # counts already.
        regular = self.folder.steps(self.arguments.save_steps)
        steps = [folder for folder in regular if folder != self.folder.step(self.state.step)]
        if not (others and steps):
            yield
            return
        own = {name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()}
        copy_weights(model, average_weights([own, *map(read_weights, steps[-others:])]))
        try:
            yield
        finally:
            copy_weights(model, own)

    @torch.no_grad()
    def _validation_loss(self, model: VaswaniForConditionalGeneration) -> float:
        """Cross-entropy of a target token of the validation pairs, without smoothing."""
        lengths = pair_lengths(self.validation_dataset)
        order = lengths.max(axis=1).argsort(kind="stable")
        loss = tokens = 0.0
        for batch in batches_by_tokens(lengths, order, self.arguments.batch_tokens):
            inputs = self._to_device(self._pad(self.validation_dataset, batch))
            loss += model(**inputs, label_smoothing=0.0, num_items_in_batch=1).loss.item()
            tokens += int(lengths[batch, 1].sum())
        return loss / tokens

    def _log(self, window: LoggingWindow, progress: tqdm, limit: int | None) -> None:
        """Record the mean loss since the last record, and show it."""
        loss, rate, speed = window.mean_loss, self._rate(), window.tokens_per_second
        self._record(loss=loss, learning_rate=rate, target_tokens_per_second=speed)
        text = f"loss {loss:.3f}, lr {rate:.2e}, {speed:,.0f} target tokens/s, {self._minutes_left(limit)}"
        progress.set_postfix_str(text, refresh=False)

    def _explain_divergence(self, loss: float, state: TrainingState) -> str:
        return (
            f"the loss is {loss} at update {state.step}, batch {state.batch} of epoch {state.epoch}; "
            f"lower learning_rate, raise warmup_steps or set max_grad_norm; {self._last_checkpoint()}"
        )

    def _last_checkpoint(self) -> str:
        steps = self.folder.steps()
        return f"the last checkpoint is {steps[-1]}" if steps else "there is no checkpoint yet"

    def _save_checkpoint(self, window: LoggingWindow) -> None:
        self.state.window_loss, self.state.window_tokens = window.loss, window.tokens
        model, optimizer, on_main = self.bare_model, self.optimizer.optimizer, self.accelerator.is_main_process
        if not all(whole(parameter).isfinite().all() for parameter in model.parameters()):
            raise InputError(self._explain_divergence(math.nan, self.state))
        generators = gather_object([generator_states()])
        weights = gather(model.named_parameters(), keep=on_main)
        moments = gather(moments_by_name(model, optimizer), keep=on_main)
        if on_main:
            if self.accelerator.scaler is not None:
                self.state.gradient_scaler = self.accelerator.scaler.state_dict()
            self.folder.save_checkpoint(weights, moments, self.state, generators)
            self.folder.remove_old(self.arguments.keep_checkpoints, self.arguments.save_steps, self.state.best_step)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Bring this process to the newest checkpoint."""
        accelerator = self.accelerator
        if accelerator.is_main_process:
            for line in self.folder.set_damaged_aside():
                logger.warning(f"{line}, and the run goes on from the one before")
        accelerator.wait_for_everyone()
        saved = self.folder.load_checkpoint(self.bare_model, self.optimizer.optimizer, accelerator.process_index)
        if saved.step and saved.corpus != self.corpus:
            one_text = not isinstance(self.train_dataset, EpochCorpus)
            now = f" (there are {len(self.train_dataset):,} now)" if one_text else ""
            raise InputError(
                f"{self.folder.path}: the training pairs are not those of the run any more{now}; resume it on "
                "the same corpus, with the same settings of cleaning"
            )
        if saved.step and saved.processes != accelerator.num_processes and accelerator.is_main_process:
            logger.warning(
                f"The run began on {saved.processes} processes and goes on with {accelerator.num_processes}: batches, "
                "loss and schedule stay the same, but for rounding; dropout is drawn anew"
            )
        if saved.gradient_scaler is not None and accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(saved.gradient_scaler)
        self.state = replace(saved, processes=accelerator.num_processes, corpus=self.corpus)
        if accelerator.is_main_process:
            self.folder.forget_records_after(self.state.step)
        accelerator.wait_for_everyone()

    def _record(self, **values: Any) -> None:
        if self.accelerator.is_main_process:
            place = {"step": self.state.step, "epoch": self.state.epoch, "seconds": round(self.state.seconds, 1)}
            self.folder.record(**place, **values)
        self.accelerator.log(values, step=self.state.step)

    def _rate(self, step: int | None = None) -> float:
        arguments = self.arguments
        step = self.state.step if step is None else step
        return learning_rate_at(step, self.bare_model.config.d_model, arguments.warmup_steps, arguments.learning_rate)

    def _last_step(self) -> int | None:
        limits = []
        if self.arguments.max_steps is not None:
            limits.append(self.arguments.max_steps)
        if self.arguments.num_train_epochs is not None:
            batches = len(self.epoch(0).batches)  # as long as the first, whatever the others' words are cut into
            limits.append(max(1, round(self.arguments.num_train_epochs * batches)))
        return min(limits) if limits else None

    def _finished(self, limit: int | None, seconds: float, interrupted: bool = False, every: int = 1) -> bool:
        """Whether to stop before the next update: at the limit, out of time, or interrupted.

        Several processes ask one another, which waits for their devices, only after each `every` updates.
        """
        minutes = self.arguments.max_minutes
        stop = interrupted or (minutes is not None and seconds >= 60 * minutes)
        if self.accelerator.num_processes > 1:
            # Clocks and signals differ by process, and all must stop at the same update: the first decides.
            stop = self.state.step % every == 0 and bool(
                self.accelerator.reduce(torch.tensor(float(stop), device=self.accelerator.device)).item()
            )
        patience = self.arguments.early_stopping_patience
        stop = stop or (patience is not None and self.state.validations_since_best >= patience)
        return stop or (limit is not None and self.state.step >= limit)

    def _minutes_left(self, limit: int | None) -> str:
        left = []
        if limit is not None:
            left.append(self.state.seconds / self.state.step * (limit - self.state.step))
        if self.arguments.max_minutes is not None:
            left.append(60 * self.arguments.max_minutes - self.state.seconds)
        return f"{max(0.0, min(left)) / 60:.0f} min left" if left else "until no validation is better"


def _flat(arguments: TranslationTrainingArguments) -> dict[str, Any]:
    """The settings as trackers take them: numbers and texts, without paths."""
    places = ("output_dir", "init_from", "dataset_name", "cache_dir")
    settings = {name: value for name, value in asdict(arguments).items() if name not in places}
    return {name: value for name, value in settings.items() if isinstance(value, int | float | str | bool)}


def freeze(model: nn.Module, parts: list[str]) -> None:
    """Leave the parameters out of the training whose names are one of `parts` or lie under it.

    Raises:
        InputError: If a part is none of the model, or nothing is left to train.
    """
    for part in parts:
        within = [own for name, own in model.named_parameters() if f"{name}.".startswith(f"{part}.")]
        if not within:
            names = [name for name, _ in model.named_modules() if name and name.count(".") < 2]
            raise InputError(f"freeze: the model has no part {part}; it has {', '.join(names)} and their parts")
        for parameter in within:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("freeze: nothing of the model is left to train; freeze less")


def build_model(
    arguments: TranslationTrainingArguments, tokenizer: PreTrainedTokenizerBase
) -> VaswaniForConditionalGeneration:
    """A freshly initialised model for `arguments` and `tokenizer`, drawn from the arguments' seed."""
    set_seed(arguments.seed)
    config = arguments.model_config()
    config.vocab_size = len(tokenizer)
    return VaswaniForConditionalGeneration(config)
