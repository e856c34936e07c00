"""The model card, the README.md of a model's folder and of its repository: what the run's own records say."""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import SafetensorError, safe_open

from .checkpoints import RunFolder, file_digest, write_atomically
from .configuration_vaswani import VaswaniConfig
from .errors import InputError, one_line
from .training_arguments import default_settings

logger = logging.getLogger(__name__)

TEMPLATE = Path(__file__).with_name("model_card_template.md")
# A card with this comment is ours to rewrite; without it the text is the user's own.
MARKER = "<!-- Written by vaswani-transformer from the records of the run."
MOST_ROWS = 12
# A curve of training: its width, and its heights from low to high.
CURVE_WIDTH = 50
HEIGHTS = "▁▂▃▄▅▆▇█"
# The metrics of an evaluation, and their identifiers on the Hub.
METRICS = {"BLEU": "bleu", "chrF++": "chrf"}
REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")


def card_path(folder: Path) -> Path:
    """Where the card of the model in `folder` is."""
    return folder / "README.md"


def own_text(folder: Path) -> str | None:
    """The user's own card in `folder`; `None` where there is none, or one that we wrote.

    Raises:
        InputError: If the card is not UTF-8.
    """
    text = _present_card(folder)
    return None if text is None or MARKER in text else text


def update_card(folder: Path) -> None:
    """Bring the card in `folder` up to date, unless it is the user's own; what goes wrong is told as a warning."""
    try:
        if own_text(folder) is None:
            save_card(folder, render_card(folder, folder.resolve().name))
    except (InputError, OSError) as error:
        logger.warning(f"The model card is left as it was: {error}")


def save_card(folder: Path, text: str) -> None:
    """Write the card of `folder`, replaced at once."""
    write_atomically(card_path(folder).resolve(), lambda path: path.write_text(text, encoding="utf-8"))


def render_card(folder: Path, model: str, license: str | None = None) -> str:
    """The card of the model in `folder`, from its configuration and the records of its run.

    Args:
        folder: A run folder, or any model folder; of what it has no records of the card is silent.
        model: What `from_pretrained` is to be given: the repository, or the folder.
        license: Identifier of the weights' licence; the one that the present card has if not given.

    Raises:
        InputError: If a record is damaged.
    """
    try:
        return _render(folder, model, license)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        raise InputError(
            f"{folder}: no card can be written from training_args.yaml, metrics.jsonl and evaluations.jsonl "
            f"({type(error).__name__}: {one_line(error)}); mend or remove what is damaged, or write a README.md "
            "of your own"
        ) from error


def _render(folder: Path, model: str, license: str | None) -> str:
    run = RunFolder(folder)
    config = VaswaniConfig.from_pretrained(folder)
    settings = run.read_settings()
    averaged = _averaged_steps(run)
    metrics = run.read_records(run.metrics)
    evaluations = _evaluations_of_these_weights(run)
    beams = _search_of(folder).get("num_beams")
    languages = [settings["source_lang"], settings["target_lang"]] if settings else []
    dataset, initial = settings.get("dataset_name"), settings.get("init_from")
    card_data = ModelCardData(
        # The Hub knows codes of ISO 639 alone.
        language=[code for code in map(_language_code, languages) if re.fullmatch("[a-z]{2,3}", code)] or None,
        license=license or _present_license(folder),
        library_name="transformers",
        pipeline_tag="translation",
        tags=[config.model_type, "translation"],
        base_model=initial if initial and "/" in initial and _is_on_the_hub(initial) else None,
        datasets=[dataset] if dataset and _is_on_the_hub(dataset) else None,
        metrics=["bleu", "chrf"] if evaluations else None,
        model_name=model.split("/")[-1] if evaluations else None,
        eval_results=_eval_results(evaluations, beams) or None,
    )
    card = ModelCard.from_template(
        card_data,
        template_path=str(TEMPLATE),
        marker=MARKER,
        name=model.split("/")[-1],
        model=model,
        languages=languages,
        parameters=f"{_count_parameters(folder):,}",
        shape=_shape(config),
        num_beams=beams,
        data=_data(settings),
        builtin=(dataset or "").startswith("builtin:"),
        updates=_length_of(metrics),
        averaged=averaged,
        recipe=yaml.safe_dump(_recipe(settings), sort_keys=False, allow_unicode=True).strip() if settings else None,
        validations=_validation_rows(metrics, None if averaged else settings.get("metric_for_best_model")),
        picture=run.curve.name if run.curve.is_file() else None,
        curves=_curves(metrics),
        scored=_scored(settings),
        scores=[_score_row(evaluation) for evaluation in evaluations],
        signatures=_signatures(evaluations),
        commands=[
            f"vaswani-transformer evaluate {shlex.quote(model)} {evaluation['flags']}" for evaluation in evaluations
        ],
        longest=config.max_position_embeddings,
        sinusoidal=config.positional_encoding == "sinusoidal",
    )
    return f"{card}\n"


def weights_digest(folder: Path) -> str:
    """The SHA-256 of the weights in `folder`, which tells the evaluations of one model from those of another."""
    return file_digest(folder / "model.safetensors")


def public_name(name: str) -> str:
    """The part of the name of a data set or a model that may leave the machine: of a folder's the last."""
    return name if is_for_everyone(name) else Path(name).name


def is_for_everyone(name: str) -> bool:
    """Whether everyone can load a data set by this name: from the Hub, or as the built-in corpus."""
    return name.startswith("builtin:") or _is_on_the_hub(name)


def _language_code(code: str) -> str:
    """A language without its script and its region: `zh` for `zh-CN`, `deu` for `deu_Latn`."""
    return re.split("[-_]", code)[0].lower()


def _is_on_the_hub(dataset: str) -> bool:
    """Whether a data set's name is one of the Hub, rather than a folder's or the built-in corpus'."""
    return REPOSITORY.fullmatch(dataset) is not None and not Path(dataset).exists()


def _present_card(folder: Path) -> str | None:
    if card_path(folder).is_dir():
        raise InputError(f"{card_path(folder)}: is a folder, expected the card; move it away")
    try:
        return card_path(folder).read_text(encoding="utf-8") if card_path(folder).is_file() else None
    except UnicodeDecodeError as error:
        raise InputError(f"{card_path(folder)}: expected UTF-8 ({error}); mend or remove it") from error


def _present_license(folder: Path) -> str | None:
    present = _present_card(folder)
    if present is None:
        return None
    try:
        return ModelCard(present, ignore_metadata_errors=True).data.get("license")
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(
            f"{card_path(folder)}: the metadata at its top cannot be read ({one_line(error)}); mend or remove the card"
        ) from error


def _averaged_steps(run: RunFolder) -> str | None:
    """The updates of whose checkpoints the weights are the mean, for example `8,000, 9,000`."""
    if not run.averaged.is_file():
        return None
    names = json.loads(run.averaged.read_text(encoding="utf-8"))["checkpoints"]
    return ", ".join(f"{int(name.removeprefix('step-')):,}" for name in names)


def _evaluations_of_these_weights(run: RunFolder) -> list[dict[str, Any]]:
    """The newest evaluation of the present weights for each command."""
    records = run.read_records(run.evaluations)
    digest = weights_digest(run.path) if records else None
    return list({record["flags"]: record for record in records if record["weights"] == digest}.values())


def _search_of(folder: Path) -> dict[str, Any]:
    """The model's own settings of `generate()`."""
    path = folder / "generation_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _eval_results(evaluations: list[dict[str, Any]], num_beams: int | None) -> list[EvalResult]:
    """BLEU and chrF++ of each test set, with the model's own search where that was scored, else the newest."""

    def own_search(record: dict[str, Any]) -> bool:
        return (record["num_beams"], record["length_penalty"], record["dtype"]) == (num_beams, None, "float32")

    chosen = {record["data"]: record for record in sorted(evaluations, key=own_search)}
    results = []
    for record in chosen.values():
        on_the_hub = record["dataset_name"] is not None and not record["dataset_name"].startswith("builtin:")
        for metric, identifier in METRICS.items():
            results.append(
                EvalResult(
                    task_type="translation",
                    task_name=f"Translation {record['source_lang']}-{record['target_lang']}",
                    dataset_type=record["dataset_name"] if on_the_hub else "text",
                    dataset_name=record["data"],
                    dataset_config=record["dataset_config_name"],
                    dataset_split=record["split"],
                    metric_type=identifier,
                    metric_name=metric,
                    metric_value=round(record[metric.lower()], 2),
                    metric_args={"signature": record[f"{metric.lower()}_signature"]},
                )
            )
    return results


def _count_parameters(folder: Path) -> int:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping


def _shape(config: VaswaniConfig) -> list[tuple[str, str]]:
    """The model in the terms of the paper's table 3, and what is not the paper's about it."""
    rows = [
        ("N, layers of encoder and decoder", f"{config.encoder_layers} + {config.decoder_layers}"),
        ("d_model", f"{config.d_model:,}"),
        ("d_ff", f"{config.d_ff:,}"),
        ("h, heads", str(config.num_attention_heads)),
        ("d_k = d_v", str(config.head_dim)),
        ("P_drop", str(config.dropout)),
        ("vocabulary, byte pairs of both languages", f"{config.vocab_size:,}"),
    ]
    paper = VaswaniConfig.base()
    names = (
        "activation_function attention_dropout activation_dropout attention_bias norm_first positional_encoding "
        "tie_word_embeddings"
    )
    others = [
        f"`{name}={getattr(config, name)}`" for name in names.split() if getattr(config, name) != getattr(paper, name)
    ]
    return [*rows, ("not the paper's", ", ".join(others))] if others else rows


def _data(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """What was trained and validated on, by names that may leave the machine."""
    if not settings:
        return []
    rows = []
    for use, files, split in (
        ("training", settings["train_file"], settings["train_split"]),
        ("validation", settings["validation_file"], settings["validation_split"]),
    ):
        if settings["dataset_name"]:
            config = f" ({settings['dataset_config_name']})" if settings["dataset_config_name"] else ""
            origin = f"{_code(public_name(settings['dataset_name']))}{config}, split {split}"
        else:
            origin = ", ".join(_code(Path(file).name) for file in files)
        rows.append((use, origin))
    return rows


def _recipe(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults, without the run's place on this machine."""
    recipe = {}
    for name, default in default_settings().items():
        value = settings.get(name)
        if name in ("output_dir", "resume", "cache_dir") or value in (None, default):
            continue
        if name in ("train_file", "validation_file"):
            value = [Path(file).name for file in value]
        elif name in ("dataset_name", "init_from"):
            value = public_name(value)
        recipe[name] = value
    return recipe


def _length_of(metrics: list[dict[str, Any]]) -> str | None:
    if not metrics:
        return None
    last = metrics[-1]
    minutes = round(last["seconds"] / 60)
    return f"{last['step']:,} updates in {f'{minutes:,} minutes' if minutes > 1 else 'less than two minutes'}"


def _validation_rows(metrics: list[dict[str, Any]], best_in: str | None) -> list[list[str]]:
    """At most `MOST_ROWS` validations, spread evenly; that of the best model is always there, and in bold."""
    loss: float | None = None
    rows = []
    for record in metrics:
        loss = record.get("loss", loss)
        if "validation_loss" in record:
            rows.append({**record, "loss": loss})
    if not rows:
        return []
    # As training chooses: the later of two that are equally good.
    signs = {"bleu": ("bleu", 1), "loss": ("validation_loss", -1)}
    name, sign = signs.get(best_in, ("", 0))
    best = max((i for i in range(len(rows)) if name in rows[i]), key=lambda i: (sign * rows[i][name], i), default=None)
    shown = set(range(len(rows)))
    if len(rows) > MOST_ROWS:
        spread = MOST_ROWS - 1
        shown = {round(place * (len(rows) - 1) / (spread - 1)) for place in range(spread)} | ({best} - {None})
    table = []
    for index in sorted(shown):
        row = rows[index]
        numbers = [
            f"{row['step']:,}",
            str(row["epoch"]),
            f"{row['loss']:.3f}" if row["loss"] is not None else "",
            f"{row['validation_loss']:.3f}",
            *(f"{row[metric.lower()]:.2f}" if metric.lower() in row else "" for metric in METRICS),
        ]
        table.append([f"**{number}**" if number and index == best else number for number in numbers])
    return table


def _curves(metrics: list[dict[str, Any]]) -> list[str]:
    """How each quantity went in training, a line of text for each; the first and the last value beside it."""
    lines = []
    for name, key in (("training loss", "loss"), ("validation loss", "validation_loss"), ("BLEU", "bleu")):
        values = [record[key] for record in metrics if math.isfinite(record.get(key, math.nan))]
        if len(values) < 2:
            continue
        points = [values[index] for index in _spread(len(values), CURVE_WIDTH)]
        low, high = min(points), max(points)
        heights = [round((value - low) / ((high - low) or 1) * (len(HEIGHTS) - 1)) for value in points]
        curve = "".join(HEIGHTS[height] for height in heights)
        lines.append(f"{name:16}{curve}  {values[0]:.2f} to {values[-1]:.2f}")
    return lines


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, the first and the last among them, evenly spread."""
    shown = min(count, most)
    return [round(place * (count - 1) / max(1, shown - 1)) for place in range(shown)]


def _scored(settings: dict[str, Any]) -> str | None:
    if not settings:
        return None
    search = "greedily" if settings["eval_num_beams"] == 1 else f"with {settings['eval_num_beams']} beams"
    return f"up to {settings['eval_sentences']:,} validation sentences, translated {search}"


def _score_row(record: dict[str, Any]) -> list[str]:
    search = "greedy" if record["num_beams"] == 1 else f"beam {record['num_beams']}"
    if record["length_penalty"] is not None:
        search += f", alpha {record['length_penalty']:g}"
    if record["dtype"] != "float32":
        search += f", {record['dtype']}"
    if record.get("tokenize", "13a") != "13a":  # older records have none
        search += f", tokenize {record['tokenize']}"
    scores = [f"{record[metric.lower()]:.2f}" for metric in METRICS]
    return [_code(record["data"]), f"{record['sentences']:,}", search, *scores]


def _signatures(evaluations: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Each signature that occurs, with its metric."""
    pairs = [(metric, record[f"{metric.lower()}_signature"]) for record in evaluations for metric in METRICS]
    return list(dict.fromkeys(pairs))


def _code(text: str) -> str:
    """`text` as code in a cell of a table."""
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"
