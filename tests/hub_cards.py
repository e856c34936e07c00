"""What the Hub accepts in the metadata of a README.md, for `hub_server`."""

from __future__ import annotations

import re
from typing import Any

import yaml

LICENSES = set(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0
    lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl
    openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license
    fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 grok2-community gemma unknown
    other
    """.split()  # noqa: SIM905
)
PIPELINE_TAGS = set(
    """
    text-classification token-classification table-question-answering question-answering zero-shot-classification
    translation summarization feature-extraction text-generation fill-mask sentence-similarity text-ranking
    text-to-speech text-to-audio automatic-speech-recognition audio-to-audio audio-classification
    audio-text-to-text voice-activity-detection depth-estimation image-classification object-detection
    image-segmentation text-to-image image-to-text image-to-image image-to-video unconditional-image-generation
    video-classification reinforcement-learning robotics tabular-classification tabular-regression
    tabular-to-text table-to-text multiple-choice text-retrieval time-series-forecasting text-to-video
    image-text-to-text image-text-to-image image-text-to-video visual-question-answering
    document-question-answering zero-shot-image-classification graph-ml mask-generation
    zero-shot-object-detection text-to-3d image-to-3d image-feature-extraction video-text-to-text
    keypoint-detection visual-document-retrieval any-to-any video-to-video other
    """.split()  # noqa: SIM905
)
# Fields of texts: one, or a list of them.
TEXTS = ("language", "tags", "datasets", "metrics", "base_model", "license", "pipeline_tag", "library_name")


def front_matter(content: str) -> str | None:
    """The YAML between the lines of dashes at the start, by the Hub's own pattern."""
    found = re.match(r"^(\s*---[\r\n]+)([\S\s]*?)([\r\n]+---(\r\n|\n|$))", content)
    return found[2] if found else None


def card_data(readme: bytes) -> dict[str, Any] | None:
    """A card's metadata, where it has any that can be read."""
    try:
        content = yaml.safe_load(front_matter(readme.decode(errors="replace")) or "")
    except yaml.YAMLError:
        return None
    return content if isinstance(content, dict) else None


def check_card(content: str) -> tuple[list[str], list[str]]:
    """The errors and the warnings of a model card's metadata."""
    matter = front_matter(content)
    if matter is None:
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        card = yaml.safe_load(matter)
    except yaml.YAMLError as error:
        return [f"YAML metadata is invalid: {error}"], []
    if not isinstance(card, dict):
        return ["YAML metadata must be a mapping"], []
    errors, warnings = [], []
    texts = {name: card[name] if isinstance(card[name], list) else [card[name]] for name in TEXTS if name in card}
    for name, values in texts.items():
        wrong = [value for value in values if not isinstance(value, str)]
        # `no` is a language to its speakers and a boolean to YAML 1.1.
        errors += [f'"{name}" must be a string or a list of strings, not {value!r}' for value in wrong]
        texts[name] = [value for value in values if isinstance(value, str)]
    for name in ("tags", "datasets", "metrics"):
        if name in card and not isinstance(card[name], list):
            errors.append(f'"{name}" must be an array')
    for value in texts.get("license", []):
        if value not in LICENSES:
            errors.append(f'"license" must be one of {", ".join(sorted(LICENSES))}; not "{value}"')
    for value in texts.get("language", []):
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual|code", value):
            errors.append(f'"language" must only contain ISO 639-1, 639-2 or 639-3 codes, not "{value}"')
    for value in texts.get("pipeline_tag", []):
        if value not in PIPELINE_TAGS:
            warnings.append(
                f'The pipeline tag "{value}" is not in the official list: {", ".join(sorted(PIPELINE_TAGS))}'
            )
    return errors + (_check_results(card["model-index"]) if "model-index" in card else []), warnings


def _check_results(index: Any) -> list[str]:
    """Errors of a `model-index`: a name, and of each result a task, a dataset and metrics of a type and a value."""
    errors: list[str] = []

    def need(place: str, value: Any, *names: str) -> bool:
        if not isinstance(value, dict):
            errors.append(f'"{place}" must be an object')
            return False
        errors.extend(f'"{place}.{name}" is required' for name in names if value.get(name) is None)
        return True

    def each(place: str, values: Any) -> list[tuple[str, Any]]:
        if not isinstance(values, list):
            errors.append(f'"{place}" must be an array')
            return []
        return [(f"{place}[{number}]", value) for number, value in enumerate(values)]

    for place, model in each("model-index", index):
        if not need(place, model, "name", "results"):
            continue
        for result_place, result in each(f"{place}.results", model.get("results") or []):
            if not need(result_place, result, "task", "dataset", "metrics"):
                continue
            need(f"{result_place}.task", result.get("task") or {}, "type")
            need(f"{result_place}.dataset", result.get("dataset") or {}, "name", "type")
            for metric_place, metric in each(f"{result_place}.metrics", result.get("metrics") or []):
                need(metric_place, metric, "type", "value")
    return errors
