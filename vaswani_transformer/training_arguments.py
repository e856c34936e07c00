"""All settings of a training run: the flags of `train`, the keys of a recipe and their help."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NoReturn, get_origin, get_type_hints

import yaml
from transformers.activations import ACT2FN
from transformers.hf_argparser import HfArg, HfArgumentParser

from .configuration_vaswani import VaswaniConfig
from .errors import InputError

# Those of Accelerate whose packages have their names.
TRACKERS = ("tensorboard", "wandb", "trackio", "swanlab", "mlflow")


@dataclass
class TranslationTrainingArguments:
    """Settings of a training run; each is a flag of `vaswani-transformer train` and a key of a YAML recipe.

    Raises:
        InputError: If a value lies outside its range or two values contradict each other.
    """

    output_dir: str = HfArg(default="", help="Folder of the run; the best model is saved in it.")

    # Corpus
    source_lang: str = HfArg(default="en", help="Code of the source language.")
    target_lang: str = HfArg(default="de", help="Code of the target language.")
    train_file: list[str] = HfArg(
        default_factory=list,
        help="Training text: one .tsv, .csv, .jsonl or .parquet table, or two plain-text files, source and target.",
    )
    validation_file: list[str] = HfArg(default_factory=list, help="Validation text, likewise.")
    tsv_columns: list[str] = HfArg(
        default_factory=list, help="Languages of a .tsv table's two columns; source and target if not given."
    )
    dataset_name: str | None = HfArg(default=None, help="builtin:en-de, or a data set on the Hub, in place of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of the Hub's data set.")
    train_split: str = HfArg(default="train", help="Split of the data set to train on.")
    validation_split: str = HfArg(default="validation", help="Split of the data set to validate on.")
    max_length: int = HfArg(default=256, help="Drop training pairs with a longer side, in tokens.")
    max_length_ratio: float = HfArg(
        default=3.0, help="Drop training pairs whose sides' lengths in tokens differ by more."
    )
    streaming: bool = HfArg(
        default=False,
        help="Read the training text window by window, and keep none of it on the disk but the windows at hand; for "
        "text larger than the disk. An epoch is a window.",
    )
    streaming_window: int = HfArg(default=1_000_000, help="Pairs of a window, which are shuffled among themselves.")
    bpe_dropout: float = HfArg(
        default=0.0,
        help="Skip each merge of byte pairs with this probability, anew in each epoch, so that the model sees words "
        "in many pieces; 0.1 helps where there is little text (Provilkov et al. 2020).",
    )
    cache_dir: str | None = HfArg(
        default=None,
        help="Folder in which the tokenized text is kept for the next run; the user's cache (HF_HOME) if not given.",
    )

    # Model: a preset, and what differs from it
    preset: Literal["base", "big", "tiny"] = HfArg(
        default="base", help="The paper's base or big model, or one for a CPU."
    )
    vocab_size: int | None = HfArg(
        default=None, help="Entries of the joint byte-pair vocabulary; the preset's if not given."
    )
    d_model: int | None = HfArg(
        default=None, help="Width of the model; the preset's if not given, as all that follow."
    )
    encoder_layers: int | None = HfArg(default=None, help="Number of encoder layers.")
    decoder_layers: int | None = HfArg(default=None, help="Number of decoder layers.")
    num_attention_heads: int | None = HfArg(default=None, help="Heads of every attention.")
    head_dim: int | None = HfArg(default=None, help="Width of a head; d_model / num_attention_heads if not given.")
    d_ff: int | None = HfArg(default=None, help="Width of the feed-forward sublayers' inner layer.")
    activation_function: str | None = HfArg(default=None, help="Activation of the feed-forward sublayers.")
    dropout: float | None = HfArg(default=None, help="Dropout of sublayers and embeddings.")
    attention_dropout: float | None = HfArg(default=None, help="Dropout of attention weights.")
    activation_dropout: float | None = HfArg(default=None, help="Dropout inside the feed-forward sublayers.")
    attention_bias: bool | None = HfArg(default=None, help="Whether attention projections have biases.")
    norm_first: bool | None = HfArg(
        default=None, help="Whether sublayers normalise their input instead of the sum after them."
    )
    positional_encoding: str | None = HfArg(default=None, help="sinusoidal or learned.")
    tie_word_embeddings: bool | None = HfArg(
        default=None, help="Whether embeddings and output projection share one matrix."
    )
    dropout_warmup_steps: int = HfArg(
        default=0,
        help="Updates over which all dropout rises linearly from none, for small models with much of it; the paper's "
        "0 has it from the start.",
    )
    init_from: str | None = HfArg(
        default=None,
        help="Begin with the weights, shape and vocabulary of this run folder, model on the Hub or shipped one.",
    )
    freeze: list[str] = HfArg(
        default_factory=list,
        help="Parts of the model to leave as they are, such as model.encoder, which has the shared embeddings.",
    )

    # Optimization (sections 5.3 and 5.4)
    batch_tokens: int = HfArg(
        default=25_000, help="Most source or target positions, padding included, in one update over all devices."
    )
    gradient_accumulation_steps: int = HfArg(
        default=1, help="Forward passes into which each device cuts its part of an update."
    )
    learning_rate: float | None = HfArg(
        default=None,
        help="Learning rate at the end of warm-up; the paper's (d_model * warmup_steps)^-0.5 if not given.",
    )
    warmup_steps: int = HfArg(
        default=4000, help="Updates of linear warm-up; afterwards the rate falls with the root of the step."
    )
    adam_beta1: float = HfArg(default=0.9, help="Adam's beta_1.")
    adam_beta2: float = HfArg(default=0.98, help="Adam's beta_2.")
    adam_epsilon: float = HfArg(default=1e-9, help="Adam's epsilon.")
    max_grad_norm: float = HfArg(default=0.0, help="Clip the gradient's norm to this; 0 does not clip, as the paper.")
    label_smoothing_factor: float = HfArg(default=0.1, help="Label smoothing in training.")
    mixed_precision: Literal["auto", "no", "bf16", "fp16"] = HfArg(
        default="auto",
        help="Precision of training; auto is bf16 where the hardware computes in it, else none; fp16 needs a GPU.",
    )
    gradient_checkpointing: bool = HfArg(
        default=False, help="Compute activations again in the backward pass: less memory, more time."
    )
    torch_compile: bool = HfArg(
        default=False, help="Compile the model with torch.compile; the first updates are slow."
    )
    seed: int = HfArg(default=1, help="Seed of initialisation, all dropout, batch order and the built-in corpus.")

    # Stopping: whichever comes first
    max_steps: int | None = HfArg(default=None, help="Stop after this many updates.")
    num_train_epochs: float | None = HfArg(default=None, help="Stop after this many passes over the corpus.")
    max_minutes: float | None = HfArg(default=None, help="Stop after this many minutes.")
    early_stopping_patience: int | None = HfArg(
        default=None, help="Stop after so many validations in a row that found no better model."
    )

    # Validation and checkpoints
    logging_steps: int = HfArg(default=50, help="Updates between records in metrics.jsonl.")
    eval_steps: int = HfArg(default=1000, help="Updates between validations.")
    eval_sentences: int = HfArg(
        default=500, help="Validation sentences to translate for BLEU and chrF; 0 translates none."
    )
    eval_num_beams: int = HfArg(default=1, help="Beams of these translations.")
    metric_for_best_model: Literal["bleu", "loss"] = HfArg(default="bleu", help="What the best model is best in.")
    save_steps: int = HfArg(default=1000, help="Updates between checkpoints.")
    average_last: int = HfArg(
        default=1,
        help="Validate, and save as the best model, the mean of the current weights and those of the newest "
        "checkpoints, so many in all; 1 is the current weights alone. The paper averages 5 (base) or 20 (big).",
    )
    report_to: list[str] = HfArg(
        default_factory=list, help="Trackers that get the records too, such as tensorboard or wandb."
    )
    keep_checkpoints: int = HfArg(default=5, help="Checkpoints to keep; the oldest go first.")
    resume: bool = HfArg(default=False, help="Go on with the run in output_dir from its last checkpoint.")

    def __post_init__(self) -> None:
        """Check ranges and combinations."""
        if not self.output_dir:
            raise InputError("output_dir is missing; give the run a folder, for example --output-dir runs/my-model")
        if bool(self.train_file) == bool(self.dataset_name):
            found = "both" if self.dataset_name else "neither"
            raise InputError(f"give either train_file or dataset_name to train on, got {found}")
        if self.validation_file and not self.train_file:
            raise InputError("validation_file goes with train_file; with dataset_name use validation_split")
        if self.train_file and not self.validation_file:
            raise InputError("train_file needs validation_file, pairs to validate on that are not trained on")
        if self.dataset_name and Path(self.dataset_name).is_dir():
            # A folder is none of the Hub's data sets, wherever its name is read again.
            self.dataset_name = str(Path(self.dataset_name).resolve())
        if self.source_lang == self.target_lang:
            raise InputError(f"source_lang and target_lang must differ, got {self.source_lang} twice")
        if self.streaming and self.num_train_epochs is not None:
            raise InputError(
                "num_train_epochs counts passes over the corpus, which streaming knows none of; use max_steps"
            )
        limits = (self.max_steps, self.num_train_epochs, self.max_minutes, self.early_stopping_patience)
        if all(limit is None for limit in limits):
            raise InputError("say when to stop: max_steps, num_train_epochs, max_minutes or early_stopping_patience")
        at_least_one = (
            "max_length streaming_window batch_tokens gradient_accumulation_steps warmup_steps logging_steps "
            "eval_steps eval_num_beams save_steps average_last keep_checkpoints max_steps early_stopping_patience"
        )
        for name in at_least_one.split():
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("eval_sentences", "max_grad_norm", "dropout_warmup_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        for name in ("learning_rate", "num_train_epochs", "max_minutes", "adam_epsilon"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0 and finite, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed must be at least 0 and below 2^32, got {self.seed}")
        if self.activation_function is not None and self.activation_function not in ACT2FN:
            raise InputError(
                f"unknown activation_function {self.activation_function}{nearest(self.activation_function, ACT2FN)}"
            )
        if self.dropout_warmup_steps and self.torch_compile:
            raise InputError(
                "dropout_warmup_steps would compile the model anew at each update; choose it or torch_compile"
            )
        for name in ("bpe_dropout", "label_smoothing_factor", "adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if not self.max_length_ratio >= 1:
            raise InputError(f"max_length_ratio must be at least 1, got {self.max_length_ratio}")
        if self.average_last > self.keep_checkpoints + 1:
            raise InputError(
                f"average_last={self.average_last} needs keep_checkpoints of at least {self.average_last - 1}, got "
                f"{self.keep_checkpoints}"
            )
        if self.metric_for_best_model == "bleu" and self.eval_sentences == 0:
            raise InputError("metric_for_best_model=bleu needs eval_sentences above 0, or choose loss")
        for tracker in self.report_to:
            if tracker not in TRACKERS:
                raise InputError(
                    f"unknown tracker {tracker}{nearest(tracker, TRACKERS)}; there are {', '.join(TRACKERS)}"
                )
            if find_spec(tracker) is None:
                raise InputError(f"report_to {tracker} needs a package: pip install {tracker}")
        self.model_config()

    def model_config(self) -> VaswaniConfig:
        """The configuration of the model: the preset with what these arguments change.

        Raises:
            InputError: If the configuration refuses a value.
        """
        names = {model_field.name for model_field in fields(VaswaniConfig)} & {own.name for own in fields(self)}
        changes = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        try:
            return getattr(VaswaniConfig, self.preset)(**changes, max_position_embeddings=self.max_length)
        except Exception as error:  # huggingface_hub's strict dataclasses wrap a ValueError in their own
            raise InputError(f"model: {str(error.__cause__ or error).strip()}") from error

    def continue_config(self, config: VaswaniConfig) -> VaswaniConfig:
        """The configuration of the model that `init_from` names, with what these arguments may change: dropout.

        Raises:
            InputError: If they ask for another shape.
        """
        changes = {}
        for model_field in fields(VaswaniConfig):
            value = getattr(self, model_field.name, None)
            if value is None or value == getattr(config, model_field.name):
                continue
            if "dropout" not in model_field.name:
                raise InputError(
                    f"init_from: {self.init_from} has {model_field.name} {getattr(config, model_field.name)}, and "
                    f"{value} is asked for; leave {model_field.name} out"
                )
            changes[model_field.name] = value
        if config.positional_encoding == "sinusoidal":
            changes["max_position_embeddings"] = max(self.max_length, config.max_position_embeddings)
        elif self.max_length > config.max_position_embeddings:
            raise InputError(
                f"init_from: {self.init_from} has positions for {config.max_position_embeddings} tokens, and "
                f"max_length is {self.max_length}; lower max_length"
            )
        return VaswaniConfig(**{**config.to_dict(), **changes})


def default_settings() -> dict[str, Any]:
    """The defaults of all settings: what a run had of those that its version did not know."""
    return {
        own.name: own.default if own.default_factory is MISSING else own.default_factory()
        for own in fields(TranslationTrainingArguments)
    }


# What a resumed run may change; all else would make it another run.
MAY_CHANGE = frozenset(
    {
        *("output_dir", "resume", "train_file", "validation_file", "tsv_columns", "cache_dir"),
        *("max_steps", "num_train_epochs", "max_minutes", "early_stopping_patience"),
        *("logging_steps", "eval_steps", "save_steps", "report_to", "gradient_checkpointing", "torch_compile"),
        *("eval_sentences", "eval_num_beams", "metric_for_best_model", "average_last", "keep_checkpoints"),
        *("learning_rate", "max_grad_norm", "gradient_accumulation_steps"),
    }
)


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Tells the default of an option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, []) else super()._get_help_string(action)


class ArgumentParser(HfArgumentParser):
    """A parser that raises [`InputError`] in one line, and names the nearest flag for one it does not know."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise InputError(message)

    def parse_strictly(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse `arguments`; an unknown one is an error."""
        namespace, unknown = self.parse_known_args(list(arguments))
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            raise InputError(f"unknown argument {unknown[0]}{nearest(unknown[0].split('=')[0], known)}")
        return namespace


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" for the known word nearest to `word`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def read_recipe(path: str | Path) -> list[str]:
    """The keys of a YAML recipe as the flags that they stand for.

    Raises:
        InputError: If the file is missing or not a mapping, or a key is unknown.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: " + ("is a folder, expected a recipe" if path.is_dir() else "no such recipe"))
    try:
        text = path.read_text(encoding="utf-8")
        recipe = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: expected lines of `key: value`, found {type(recipe).__name__}")
    keys = [node.value for node, _ in yaml.compose(text).value]
    kinds = get_type_hints(TranslationTrainingArguments)
    flags: list[str] = []
    for key, value in recipe.items():
        if key not in kinds:
            raise InputError(f"{path}: unknown key {key}{nearest(str(key), kinds)}")
        if keys.count(key) > 1:
            raise InputError(f"{path}: the key {key} stands there {keys.count(key)} times")
        takes_list, takes_bool = get_origin(kinds[key]) is list, kinds[key] in (bool, bool | None)
        if isinstance(value, dict) or (isinstance(value, list) and not takes_list):
            raise InputError(f"{path}: {key} takes one value, found {value}")
        if isinstance(value, bool) and not takes_bool:
            raise InputError(f"{path}: {key} takes no yes or no; put the word in quotes if it is meant as text")
        values = value if isinstance(value, list) else [value]
        if value is not None and values:
            flags += [f"--{key}", *map(str, values)]
    return flags


def create_training_parser() -> ArgumentParser:
    """The parser of `train`: `--config` and a flag for each field of [`TranslationTrainingArguments`]."""
    parser = ArgumentParser(
        TranslationTrainingArguments,
        prog="vaswani-transformer train",
        description="Train a model on parallel text. Settings come from a recipe, from flags, or both.",
    )
    parser.add_argument("--config", metavar="RECIPE.yaml", help="A recipe: settings as YAML keys. Flags win over it.")
    return parser


def parse_training_arguments(arguments: Sequence[str]) -> TranslationTrainingArguments:
    """Settings from `--config RECIPE.yaml` and flags, which win over the recipe.

    Raises:
        InputError: If a key, a flag or a value is wrong.
    """
    parser = create_training_parser()
    recipe = parser.parse_strictly(arguments).config
    settings = vars(parser.parse_strictly([*(read_recipe(recipe) if recipe else []), *arguments]))
    settings.pop("config")
    return TranslationTrainingArguments(**settings)
