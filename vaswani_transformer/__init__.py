"""The 2017 Transformer as a first-class Hugging Face model; importing registers it with transformers."""

from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import VaswaniForConditionalGeneration, VaswaniModel, VaswaniPreTrainedModel
from .pipeline_vaswani import TranslationPipeline
from .translation_task import register_translation_task

__version__ = "0.1.0"

__all__ = [
    "TranslationPipeline",
    "VaswaniConfig",
    "VaswaniForConditionalGeneration",
    "VaswaniModel",
    "VaswaniPreTrainedModel",
    "push_to_hub",
]

AutoConfig.register(VaswaniConfig.model_type, VaswaniConfig, exist_ok=True)
AutoModel.register(VaswaniConfig, VaswaniModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(VaswaniConfig, VaswaniForConditionalGeneration, exist_ok=True)
register_translation_task()


def __getattr__(name: str) -> Any:
    """Import what few programs need when it is asked for."""
    if name == "push_to_hub":
        from .sharing import push_to_hub

        return push_to_hub
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
