"""Configuration of the 2017 Transformer ("Attention Is All You Need", https://arxiv.org/abs/1706.03762)."""

# No `from __future__ import annotations` here: `strict` checks no types that are strings.
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME


@strict
class VaswaniConfig(PreTrainedConfig):
    r"""Hyper-parameters of the encoder-decoder of "Attention Is All You Need".

    The defaults are the paper's base model; [`VaswaniConfig.base`], [`VaswaniConfig.big`] and
    [`VaswaniConfig.tiny`] name the presets.

    Args:
        vocab_size: Entries of the joint vocabulary of source and target (37,000 for the paper's En-De).
        d_model: Width of the embeddings and of every sublayer's output.
        encoder_layers: Number of encoder layers, the paper's N.
        decoder_layers: Number of decoder layers.
        num_attention_heads: Heads of every attention, the paper's h.
        head_dim: Width of a head's queries, keys and values, the paper's d_k = d_v; `None` is
            `d_model // num_attention_heads`. Another value gives rows (A) and (B) of the paper's table 3.
        d_ff: Width of the feed-forward sublayers' inner layer.
        activation_function: Activation of the feed-forward sublayers; the paper's is ReLU.
        dropout: Dropout of each sublayer's output and of the sums of embeddings and positions (section 5.4).
        attention_dropout: Dropout of the attention weights; the published results have none.
        activation_dropout: Dropout inside the feed-forward sublayers; the published results have none.
        attention_bias: Whether the four projections of an attention carry biases; the paper's have none.
        norm_first: `False` normalises after the residual sum as the paper does, `True` normalises each
            sublayer's input and once more after the last layer of each stack.
        positional_encoding: `"sinusoidal"` (section 3.5) or `"learned"` (row (E) of table 3).
        tie_word_embeddings: Whether the source embedding, the target embedding and the output projection
            share one matrix (section 3.4).
        max_position_embeddings: The longest sequence seen in training, in tokens. A hint with sinusoids,
            which reach any length; the size of the table with learned positions.
        pad_token_id: Id of `<pad>`.
        bos_token_id: Id of `<s>`.
        eos_token_id: Id of `</s>`, which ends every source and every target.
        decoder_start_token_id: Id from which the decoder starts.
        use_cache: Whether the decoder returns its keys and values for the next step.

    Raises:
        StrictDataclassError: If a value has the wrong type, lies outside its range, or contradicts another
            (of `huggingface_hub.errors`, as with every configuration of transformers 5).

    Example:
        >>> from vaswani_transformer import VaswaniConfig
        >>> VaswaniConfig.base(vocab_size=37000).d_ff
        2048
    """

    model_type = "vaswani"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - transformers' own declaration
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}  # noqa: RUF012

    vocab_size: int = 37000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    num_attention_heads: int = 8
    head_dim: int | None = None
    d_ff: int = 2048
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    attention_bias: bool = False
    norm_first: bool = False
    positional_encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 512
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    use_cache: bool = True
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill `head_dim` from the width and the number of heads where it is not given."""
        super().__post_init__(**kwargs)  # first: it resolves transformers' names, such as hidden_size
        if self.head_dim is None and self.num_attention_heads > 0:
            if self.d_model % self.num_attention_heads:
                raise ValueError(
                    f"d_model must be a multiple of num_attention_heads unless head_dim is given, "
                    f"got d_model={self.d_model} and num_attention_heads={self.num_attention_heads}"
                )
            self.head_dim = self.d_model // self.num_attention_heads

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Make a configuration of a dictionary, without what names code in the model's repository.

        That is for those who have no such package. Where this class is an installed package's, `pipeline` would
        ask for `trust_remote_code` in vain.
        """
        if not cls.__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME):
            of_repository = ("auto_map", "custom_pipelines")
            config_dict = {name: value for name, value in config_dict.items() if name not in of_repository}
        return super().from_dict(config_dict, **kwargs)

    def validate_architecture(self) -> None:
        """Check the ranges and the pairs of values that must agree; `strict` calls it after `__init__`."""
        sizes = (
            "vocab_size d_model encoder_layers decoder_layers num_attention_heads head_dim d_ff "
            "max_position_embeddings"
        )
        for name in sizes.split():
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.positional_encoding == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model must be even with sinusoidal positions, a sine and a cosine each, got {self.d_model}"
            )

    @classmethod
    def base(cls, **overrides: Any) -> "VaswaniConfig":
        """The paper's base model: 6+6 layers, 512/2048, 8 heads (table 3); `overrides` change fields."""
        return cls(**overrides)

    @classmethod
    def big(cls, **overrides: Any) -> "VaswaniConfig":
        """The paper's big model: 6+6 layers, 1024/4096, 16 heads, dropout 0.3 (0.1 for En-Fr, section 6.1)."""
        return cls(**{"d_model": 1024, "d_ff": 4096, "num_attention_heads": 16, "dropout": 0.3, **overrides})

    @classmethod
    def tiny(cls, **overrides: Any) -> "VaswaniConfig":
        """A model that a CPU trains in an evening: 3+3 layers, 256/1024, 4 heads. Not in the paper."""
        shape = {"encoder_layers": 3, "decoder_layers": 3, "d_model": 256, "d_ff": 1024}
        return cls(**{**shape, "num_attention_heads": 4, "vocab_size": 8000, **overrides})


__all__ = ["VaswaniConfig"]
