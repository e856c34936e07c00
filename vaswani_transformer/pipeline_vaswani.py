"""`pipeline("translation")`, which transformers 5 no longer has."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Pipeline


class TranslationPipeline(Pipeline):
    """Translates texts with a sequence-to-sequence model.

    Called with a text or a list of texts; returns `[{"translation_text": …}]` for each, as transformers 4 did.

    Args of a call:
        truncation: `True` cuts a source to `max_source_length` tokens.
        max_source_length: The most tokens of a source that is cut; the tokenizer's `model_max_length` otherwise.
        clean_up_tokenization_spaces: Handed to the tokenizer's `decode`.
        batch_size: Texts in a batch.
        **generate_kwargs: Any argument of `generate()`, such as `num_beams`.
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def _sanitize_parameters(
        self,
        truncation: bool | None = None,
        max_source_length: int | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess = {"truncation": truncation, "max_source_length": max_source_length}
        postprocess = {"clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        return (
            {name: value for name, value in preprocess.items() if value is not None},
            generate_kwargs,
            {name: value for name, value in postprocess.items() if value is not None},
        )

    def preprocess(
        self, text: str, truncation: bool = False, max_source_length: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Encode one text."""
        if not isinstance(text, str):
            raise ValueError(f"expected a text or a list of texts to translate, got {type(text).__name__}")
        return self.tokenizer(text, truncation=truncation, max_length=max_source_length, return_tensors="pt")

    def _forward(self, model_inputs: dict[str, torch.Tensor], **generate_kwargs: Any) -> dict[str, torch.Tensor]:
        inputs = {name: model_inputs[name] for name in ("input_ids", "attention_mask")}
        sequences = self.model.generate(**inputs, **generate_kwargs)
        # A source may have several translations (num_return_sequences).
        return {"output_ids": sequences.view(len(inputs["input_ids"]), -1, sequences.shape[-1])}

    def postprocess(
        self, model_outputs: dict[str, torch.Tensor], clean_up_tokenization_spaces: bool | None = None
    ) -> list[dict[str, str]]:
        """Decode the translations of one text."""
        return [
            {
                "translation_text": self.tokenizer.decode(
                    sequence,
                    skip_special_tokens=True,
                    clean_up_tokenization_spaces=clean_up_tokenization_spaces,
                )
            }
            for sequence in model_outputs["output_ids"][0]
        ]


__all__ = ["TranslationPipeline"]
