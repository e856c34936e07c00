"""The task "translation" of `transformers.pipeline`, which version 5 removed."""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForSeq2SeqLM, pipelines

from .pipeline_vaswani import TASK_WITH_LANGUAGES, TranslationPipeline

# What version 4 took where no model is given; "translation" alone had none.
T5 = {"model": ("google-t5/t5-base", "a9723ea")}
DEFAULT_MODELS = {("en", "fr"): T5, ("en", "de"): T5, ("en", "ro"): T5}


def register_translation_task() -> None:
    """Have `pipeline("translation")` and `pipeline("translation_en_to_de")` make a [`TranslationPipeline`].

    Does nothing where transformers knows the task, and leaves all other tasks as they are.
    """
    registry = pipelines.PIPELINE_REGISTRY
    if "translation" in registry.supported_tasks:
        return
    # Later versions of transformers 5 look here before they ask the registry.
    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    # Not by `register_pipeline`: it has `save_pretrained` copy the pipeline's code beside every model.
    registry.supported_tasks["translation"] = {
        "impl": TranslationPipeline,
        "pt": (AutoModelForSeq2SeqLM,),
        "default": DEFAULT_MODELS,
        "type": "text",
    }
    check_other_task = registry.check_task

    def check_task(task: str) -> tuple[str, dict[str, Any], Any]:
        """Resolve a task, with the languages in its name as version 4 did."""
        if not task.startswith("translation_"):
            return check_other_task(task)
        if match := TASK_WITH_LANGUAGES.fullmatch(task):
            return "translation", registry.supported_tasks["translation"], match.groups()
        raise KeyError(f"Invalid translation task {task}, use 'translation_XX_to_YY' format")

    registry.check_task = check_task
