"""A whole run: from the settings over corpora, tokenizer, model and loop to the run folder."""

from __future__ import annotations

import logging
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import datasets
import xxhash
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import PreTrainedTokenizerBase

from .bpe_dropout import apply_bpe_dropout
from .checkpoints import RunFolder
from .corpora import ParallelCorpus, open_corpora
from .corpus_cache import cache_root
from .encoded_corpus import EncodedCorpus, EpochCorpus
from .errors import InputError
from .evaluation import score_translations
from .interruption import TrainingInterrupted
from .model_card import update_card
from .modeling_vaswani import VaswaniForConditionalGeneration
from .pipeline_vaswani import TranslationPipeline
from .preprocessing import CleaningReport, learn_tokenizer, tokenize_corpus
from .streaming import StreamedCorpus
from .training import Evaluate, TranslationTrainer, build_model, create_accelerator
from .training_arguments import MAY_CHANGE, TranslationTrainingArguments
from .translation import load_model, translate

logger = logging.getLogger(__name__)


def run_training(settings: TranslationTrainingArguments) -> int:
    """Train a model as `settings` say, and tell of it.

    Returns:
        0; 128 and the signal after Ctrl-C or SIGTERM.

    Raises:
        InputError: If the text, the run folder or the settings do not allow it.
    """
    accelerator = create_accelerator(settings)
    say = accelerator.on_main_process(logger.info)
    folder = RunFolder(settings.output_dir)
    folder.check(asdict(settings), MAY_CHANGE, settings.resume)
    train_text, validation_text = open_corpora(settings)
    held_out = list(islice(validation_text, settings.eval_sentences))

    model = tokenizer = None
    if settings.init_from:
        model, tokenizer = _initial_model(settings)
    # Each process looks into the cache: one makes what is not there yet, and the others on its machine wait.
    if settings.resume:
        tokenizer = folder.load_tokenizer()
    elif tokenizer is None:
        vocab_size = settings.model_config().vocab_size
        tokenizer = learn_tokenizer(train_text, vocab_size, settings.cache_dir, settings.streaming)
    limits = {"max_length": settings.max_length, "cache_dir": settings.cache_dir}
    validation_pairs, validation_report = tokenize_corpus(validation_text, tokenizer, **limits)
    say(f"Validation text: {validation_report}")
    train_pairs = _prepare_training_text(train_text, tokenizer, settings, accelerator)
    if not validation_report.kept:
        raise InputError("no pairs are left to validate on: look at the counts above, and at max_length")

    score = None
    if held_out:
        sources, references = map(list, zip(*held_out, strict=True))
        score = create_scorer(tokenizer, sources, references, settings)
    if model is None:
        model = build_model(settings, tokenizer)
    trainer = TranslationTrainer(settings, accelerator, model, tokenizer, train_pairs, validation_pairs, score)
    try:
        return _train(trainer, folder, settings)
    finally:
        if isinstance(train_pairs, StreamedCorpus):
            train_pairs.close()


def _train(trainer: TranslationTrainer, folder: RunFolder, settings: TranslationTrainingArguments) -> int:
    """Make or go on with the run folder, and train; the exit code."""
    accelerator, model = trainer.accelerator, trainer.bare_model
    say = accelerator.on_main_process(logger.info)
    if not settings.resume:
        say(f"Batches: {trainer.epoch(0).batches}")  # what is wrong with them is found before there is a folder
    if accelerator.is_main_process and settings.resume:
        folder.save_settings(asdict(settings))
    elif accelerator.is_main_process:
        folder.create(asdict(settings), trainer.tokenizer)
    accelerator.wait_for_everyone()
    say(
        f"Model: {model.num_parameters():,} parameters on {accelerator.num_processes} × {accelerator.device.type}, "
        f"precision {accelerator.mixed_precision}"
    )
    try:
        trainer.train()
    except TrainingInterrupted as interruption:
        say(f"Stopped after update {trainer.state.step}. To go on, give the same command with --resume.")
        return 128 + interruption.signal_number
    except KeyboardInterrupt:
        last = folder.steps()[-1].name if folder.steps() else "the beginning"
        say(f"Stopped at once. To go on from {last}, give the same command with --resume.")
        return 130
    finally:
        if accelerator.is_main_process and folder.weights.is_file():
            _draw_training_curve(folder)
            update_card(folder.path)
    if isinstance(trainer.train_dataset, StreamedCorpus) and accelerator.is_local_main_process:
        trainer.train_dataset.remove()
    say(f"The best model, of update {trainer.state.best_step}, is in {folder.path}")
    return 0


def _prepare_training_text(
    text: ParallelCorpus,
    tokenizer: PreTrainedTokenizerBase,
    settings: TranslationTrainingArguments,
    accelerator: Accelerator,
) -> EncodedCorpus | EpochCorpus:
    """Clean and encode the training text, or the first window of it."""
    say = accelerator.on_main_process(logger.info)

    def prepare(
        text: ParallelCorpus, cache_dir: str | Path | None
    ) -> tuple[EncodedCorpus | EpochCorpus, CleaningReport]:
        pairs, report = tokenize_corpus(
            text,
            tokenizer,
            max_length=settings.max_length,
            max_length_ratio=settings.max_length_ratio,
            # To know of duplicates a text must be read twice.
            drop_duplicates=not settings.streaming,
            cache_dir=cache_dir,
        )
        if not settings.bpe_dropout:
            return pairs, report
        corpus = apply_bpe_dropout(
            pairs,
            tokenizer,
            settings.bpe_dropout,
            seed=settings.seed,
            max_length=min(settings.max_length, settings.batch_tokens),
            cache_dir=cache_dir,
        )
        return corpus, report

    if settings.streaming:
        datasets.disable_progress_bars()  # those of the windows would cross that of the training
        say(f"Training text: in windows of {settings.streaming_window:,} pairs, duplicates among them")
        run = xxhash.xxh3_128_hexdigest(str(Path(settings.output_dir).resolve()).encode())
        folder = cache_root(settings.cache_dir) / f"stream-{run}"
        return StreamedCorpus(text, settings.streaming_window, prepare, folder, accelerator.is_local_main_process)
    prepared, report = prepare(text, settings.cache_dir)
    say(f"Training text: {report}")
    if not report.kept:
        raise InputError("no pairs are left to train on: look at the counts above, at max_length and max_length_ratio")
    return prepared


def _draw_training_curve(folder: RunFolder) -> None:
    from .training_curve import draw_training_curve

    try:
        draw_training_curve(folder.read_records(folder.metrics), folder.curve)
    except ImportError:
        logger.info(f"Without matplotlib there is no {folder.curve.name}; pip install matplotlib")
    except (InputError, OSError) as error:
        logger.info(f"{folder.curve.name} is not drawn: {error}")


def _initial_model(
    settings: TranslationTrainingArguments,
) -> tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]:
    """The model that `init_from` names, with the dropout of `settings`, and its tokenizer."""
    set_seed(settings.seed)
    loaded, tokenizer = load_model(settings.init_from)
    config = settings.continue_config(loaded.config)
    model = VaswaniForConditionalGeneration(config)
    model.load_state_dict(loaded.state_dict())
    return model, tokenizer


def create_scorer(
    tokenizer: PreTrainedTokenizerBase,
    sources: list[str],
    references: list[str],
    settings: TranslationTrainingArguments,
) -> Evaluate:
    """What scores a model at each validation: BLEU and chrF++ of its translations of `sources`."""

    def score(model: VaswaniForConditionalGeneration) -> dict[str, float]:
        pipeline = TranslationPipeline(model, tokenizer=tokenizer, device=model.device)
        predictions = list(translate(pipeline, sources, num_beams=settings.eval_num_beams))
        scores = score_translations(predictions, references)
        return {"bleu": scores["bleu"], "chrf++": scores["chrf++"]}

    return score
