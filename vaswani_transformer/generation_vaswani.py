"""What decoding adds to `generate()`: the paper's limit on the length of a translation."""

from __future__ import annotations

import torch
from transformers.generation import GenerationConfig, GenerationMixin


class VaswaniGenerationMixin(GenerationMixin):
    """`generate()` whose default limit is the source's length plus 50 tokens (section 6.1), not 20 tokens.

    Learned positions end it where their table does.
    """

    def _prepare_generated_length(
        self,
        generation_config: GenerationConfig,
        has_default_max_length: bool,
        has_default_min_length: bool,
        model_input_name: str,
        input_ids_length: int,
        inputs_tensor: torch.Tensor,
    ) -> GenerationConfig:
        if has_default_max_length and generation_config.max_new_tokens is None:
            # `inputs_tensor` is the source: its tokens, its embeddings, or as many rows as `encoder_outputs` has.
            generation_config.max_new_tokens = inputs_tensor.shape[1] + 50
            if self.config.positional_encoding == "learned":
                room = self.config.max_position_embeddings - input_ids_length
                generation_config.max_new_tokens = max(1, min(generation_config.max_new_tokens, room))
        return super()._prepare_generated_length(
            generation_config=generation_config,
            has_default_max_length=has_default_max_length,
            has_default_min_length=has_default_min_length,
            model_input_name=model_input_name,
            input_ids_length=input_ids_length,
            inputs_tensor=inputs_tensor,
        )


__all__ = ["VaswaniGenerationMixin"]
