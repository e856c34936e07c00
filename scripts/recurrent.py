"""Recurrent encoder-decoders with attention, which the Transformer replaced, as a model of transformers.

Additive attention (Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473) or multiplicative attention (Luong et al.
2015, https://arxiv.org/abs/1508.04025) over a bidirectional encoder. Both have LSTMs, which Bahdanau et al. name as
the alternative to their gated units (section A.1.1), and share one matrix among both embeddings and the output
projection as the Transformer does, so that the models differ in what lies between: loss, initialisation, decoding and
dropout are this package's.
"""

# No `from __future__ import annotations` here: `strict` checks no types that are strings.
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vaswani_transformer.generation_vaswani import VaswaniGenerationMixin
from vaswani_transformer.modeling_vaswani import apply_dropout, shift_tokens_right, smoothed_cross_entropy


@strict
class RecurrentConfig(PreTrainedConfig):
    """Hyper-parameters of a recurrent encoder-decoder.

    Args:
        vocab_size: Entries of the joint vocabulary of source and target.
        d_model: Width of the embeddings, and of the states that are projected to the vocabulary.
        hidden_size: Width of a recurrent layer, in the encoder of each direction.
        encoder_layers: Number of bidirectional encoder layers.
        decoder_layers: Number of decoder layers.
        attention: `"additive"` (Bahdanau et al.) or `"multiplicative"` (Luong et al.).
        input_feeding: Whether a decoder with multiplicative attention also reads what it predicted the last token
            from (Luong et al., section 3.3); then it works through the target step by step in training too.
        dropout: Dropout of the embeddings, between recurrent layers, and before the output projection.
        tie_word_embeddings: Always `True`: both embeddings and the output projection share one matrix.
        max_position_embeddings: The longest sequence seen in training, in tokens.
        pad_token_id: Id of `<pad>`.
        bos_token_id: Id of `<s>`.
        eos_token_id: Id of `</s>`, which ends every source and every target.
        decoder_start_token_id: Id from which the decoder starts.
        use_cache: Whether the decoder returns its state for the next step.

    Raises:
        StrictDataclassError: If a value has the wrong type, lies outside its range, or contradicts another.
    """

    model_type = "recurrent"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - transformers' own declaration

    vocab_size: int = 10000
    d_model: int = 256
    hidden_size: int = 256
    encoder_layers: int = 1
    decoder_layers: int = 1
    attention: Literal["additive", "multiplicative"] = "additive"
    input_feeding: bool = False
    dropout: float | int = 0.2
    tie_word_embeddings: Literal[True] = True
    max_position_embeddings: int = 512
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    use_cache: bool = True
    is_encoder_decoder: bool = True

    def validate_architecture(self) -> None:
        """Check the ranges and the pairs of values that must agree; `strict` calls it after `__init__`."""
        for name in ("vocab_size", "d_model", "hidden_size", "encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.input_feeding and self.attention == "additive":
            raise ValueError("input_feeding goes with multiplicative attention: the additive one feeds its context")


def embed(embeddings: nn.Embedding, tokens: torch.Tensor, dropout: float, training: bool) -> torch.Tensor:
    """Embeddings (batch, length, d_model) of `tokens` (batch, length), with dropout.

    Scaled as the Transformer's (section 3.4 of its paper), for the same reason: the matrix is the output projection
    too, and starts with small entries.
    """
    return apply_dropout(embeddings(tokens) * embeddings.embedding_dim**0.5, dropout, training)


def recurrent_layers(config: RecurrentConfig, inputs: int, layers: int, bidirectional: bool = False) -> nn.LSTM:
    """LSTM layers over states (batch, length, inputs)."""
    return nn.LSTM(
        inputs,
        config.hidden_size,
        layers,
        batch_first=True,
        dropout=config.dropout if layers > 1 else 0.0,  # there is none after the last layer
        bidirectional=bidirectional,
    )


class RecurrentEncoder(nn.Module):
    """Bahdanau et al., section 3.2: the annotations of the source, the states of both directions side by side."""

    main_input_name = "input_ids"

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = config.dropout
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.lstm = recurrent_layers(config, config.d_model, config.encoder_layers, bidirectional=True)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Annotations (batch, length, 2 * hidden_size) of `input_ids` (batch, length), zero where there is padding.

        Args:
            input_ids: Source tokens.
            attention_mask: 1 for a token, 0 for the padding on the right (batch, length).
            **kwargs: Ignored; `generate()` asks for attentions and hidden states.
        """
        states = embed(self.embed_tokens, input_ids, self.dropout, self.training)
        if attention_mask is None:
            return BaseModelOutput(last_hidden_state=self.lstm(states)[0])
        # The backward direction begins at each sentence's own end.
        lengths = attention_mask.sum(dim=1).cpu()
        packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=input_ids.shape[1])
        return BaseModelOutput(last_hidden_state=states)


class Attention(nn.Module, ABC):
    """Attention of decoder states (batch, target length, hidden_size) over annotations of the source."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.key = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    @abstractmethod
    def scores(self, states: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Scores (batch, target length, source length) of `keys` (batch, source length, hidden_size)."""

    def forward(
        self, states: torch.Tensor, keys: torch.Tensor, annotations: torch.Tensor, padding: torch.Tensor | None
    ) -> torch.Tensor:
        """Contexts (batch, target length, 2 * hidden_size): means of the annotations by the softmax of the scores.

        Args:
            states: What attends (batch, target length, hidden_size).
            keys: `self.key(annotations)`, which stays the same from step to step.
            annotations: The encoder's output (batch, source length, 2 * hidden_size).
            padding: Where the source has no token (batch, source length).
        """
        scores = self.scores(states, keys)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None], torch.finfo(scores.dtype).min)
        return torch.matmul(F.softmax(scores, dim=-1), annotations)


class AdditiveAttention(Attention):
    """Bahdanau et al., section A.1.2: the score v^T tanh(W s_{i-1} + U h_j)."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1, bias=False)

    def scores(self, states: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """See [`Attention.scores`]."""
        return self.score(torch.tanh(self.query(states)[:, :, None] + keys[:, None])).squeeze(-1)


class MultiplicativeAttention(Attention):
    """Luong et al., equation 8, "general": the score h_t^T W h_s."""

    def scores(self, states: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """See [`Attention.scores`]."""
        return torch.matmul(states, keys.transpose(1, 2))


@dataclass
class DecoderState:
    """What a decoder carries from one target position to the next.

    Args:
        hidden: The hidden states of its layers (layers, batch, hidden_size).
        cell: Their cells, likewise.
        fed: What the last token was predicted from (batch, 1, d_model), for input feeding.
    """

    hidden: torch.Tensor
    cell: torch.Tensor
    fed: torch.Tensor

    def select(self, rows: torch.Tensor) -> "DecoderState":
        """The state of the `rows` of the batch alone."""
        return DecoderState(self.hidden[:, rows], self.cell[:, rows], self.fed[rows])


class RecurrentDecoder(nn.Module, ABC):
    """What both decoders share: embeddings, the first state, and the source as the attention takes it."""

    def __init__(self, config: RecurrentConfig, attention: Attention) -> None:
        super().__init__()
        self.config = config
        self.dropout = config.dropout
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.first_state = nn.Linear(config.hidden_size, config.decoder_layers * config.hidden_size)
        self.attention = attention

    def begin(self, annotations: torch.Tensor) -> DecoderState:
        """The state before the first token, tanh(W h_1) of the backward direction (Bahdanau et al., section A.2.2).

        Luong et al. take the encoder's last states, which a bidirectional one of other layers does not have.
        """
        backward = annotations[:, 0, self.config.hidden_size :]  # it ends at the first token, having read them all
        hidden = torch.tanh(self.first_state(backward)).unflatten(1, (self.config.decoder_layers, -1))
        hidden = hidden.transpose(0, 1).contiguous()
        return DecoderState(hidden, torch.zeros_like(hidden), hidden.new_zeros(len(backward), 1, self.config.d_model))

    def forward(
        self,
        input_ids: torch.Tensor,
        annotations: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        state: DecoderState | None = None,
    ) -> tuple[torch.Tensor, DecoderState]:
        """What the tokens after `input_ids` (batch, target length) are predicted from, and the state after them.

        The batch may hold several targets of each source, one after the other, as beams are.

        Args:
            input_ids: Target tokens, beginning with `decoder_start_token_id` or going on after `state`.
            annotations: The encoder's output (sources, source length, 2 * hidden_size).
            attention_mask: 1 for a source token, 0 for padding (sources, source length).
            state: The state after earlier tokens.

        Returns:
            States (batch, target length, d_model), and the last state.
        """
        targets = len(input_ids) // len(annotations)
        annotations = annotations.repeat_interleave(targets, dim=0) if targets > 1 else annotations
        padding = None
        if attention_mask is not None:
            padding = attention_mask.eq(0).repeat_interleave(targets, dim=0)
        states, state = self.decode(
            embed(self.embed_tokens, input_ids, self.dropout, self.training),
            self.begin(annotations) if state is None else state,
            (self.attention.key(annotations), annotations, padding),
        )
        return apply_dropout(states, self.dropout, self.training), state

    @abstractmethod
    def decode(
        self, embeddings: torch.Tensor, state: DecoderState, source: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor, DecoderState]:
        """States (batch, target length, d_model) for `embeddings` of that shape; `source` is what is attended to."""


class AdditiveDecoder(RecurrentDecoder):
    """Bahdanau et al., section 3.1: the context that the last state attends to is part of the next state's input.

    So nothing can run over the whole target at once, not in training either: the layers are called step by step.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config, AdditiveAttention(config))
        context = 2 * config.hidden_size
        self.lstm = recurrent_layers(config, config.d_model + context, config.decoder_layers)
        self.readout = nn.Linear(config.d_model + config.hidden_size + context, 2 * config.d_model)

    def decode(
        self, embeddings: torch.Tensor, state: DecoderState, source: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor, DecoderState]:
        """See [`RecurrentDecoder.decode`]."""
        hidden, cell, steps = state.hidden, state.cell, []
        for embedding in embeddings.split(1, dim=1):
            context = self.attention(hidden[-1][:, None], *source)
            output, (hidden, cell) = self.lstm(torch.cat((embedding, context), dim=-1), (hidden, cell))
            steps.append(torch.cat((output, context), dim=-1))
        # Equation 4, g(y_{i-1}, s_i, c_i), with the maxout layer of section A.2.2.
        pairs = self.readout(torch.cat((embeddings, torch.cat(steps, dim=1)), dim=-1)).unflatten(-1, (-1, 2))
        return pairs.amax(dim=-1), DecoderState(hidden, cell, state.fed)


class MultiplicativeDecoder(RecurrentDecoder):
    """Luong et al., section 3.1: the top layer's state attends, and is combined with its context.

    Without input feeding nothing of that comes back to the layers, and they run over the whole target at once.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config, MultiplicativeAttention(config))
        inputs = config.d_model * (2 if config.input_feeding else 1)
        self.lstm = recurrent_layers(config, inputs, config.decoder_layers)
        self.combine = nn.Linear(3 * config.hidden_size, config.d_model, bias=False)

    def decode(
        self, embeddings: torch.Tensor, state: DecoderState, source: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor, DecoderState]:
        """See [`RecurrentDecoder.decode`]."""
        hidden, cell, states = state.hidden, state.cell, [state.fed]
        for part in embeddings.split(1, dim=1) if self.config.input_feeding else [embeddings]:
            inputs = torch.cat((part, states[-1]), dim=-1) if self.config.input_feeding else part
            outputs, (hidden, cell) = self.lstm(inputs, (hidden, cell))
            # Equation 5: tanh(W [c_t; h_t]).
            contexts = self.attention(outputs, *source)
            states.append(torch.tanh(self.combine(torch.cat((contexts, outputs), dim=-1))))
        return torch.cat(states[1:], dim=1), DecoderState(hidden, cell, states[-1][:, -1:])


class RecurrentForConditionalGeneration(PreTrainedModel, VaswaniGenerationMixin):
    """Encoder, decoder and the output projection, which the embeddings share."""

    config: RecurrentConfig
    config_class = RecurrentConfig
    main_input_name = "input_ids"
    _tied_weights_keys = {  # noqa: RUF012
        "decoder.embed_tokens.weight": "encoder.embed_tokens.weight",
        "lm_head.weight": "encoder.embed_tokens.weight",
    }

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.encoder = RecurrentEncoder(config)
        decoder = AdditiveDecoder if config.attention == "additive" else MultiplicativeDecoder
        self.decoder = decoder(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        vars(self.generation_config).update(self.default_generation_settings(), _from_model_config=False)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings N(0, d_model^-0.5) with a zero row for padding, as the Transformer's; other matrices Glorot."""
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def get_input_embeddings(self) -> nn.Embedding:
        """The matrix of both embeddings and the output projection."""
        return self.encoder.embed_tokens

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the state is of one size, whatever came before

    def _reorder_cache(self, past_key_values: DecoderState, beam_idx: torch.LongTensor) -> DecoderState:
        return past_key_values.select(beam_idx)

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: DecoderState | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        label_smoothing: float | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits (batch, target length, vocab_size), or the loss where `labels` are given.

        Args:
            input_ids: Source tokens (batch, source length).
            attention_mask: 1 for a source token, 0 for the padding on the right (batch, source length).
            decoder_input_ids: Target tokens (batch, target length); made from `labels` where those are given.
            encoder_outputs: The encoder's output, where it is known already.
            past_key_values: The decoder's state after earlier target positions.
            labels: Target tokens to predict (batch, target length), -100 where there is none.
            use_cache: Whether to return the decoder's state.
            num_items_in_batch: Divides the summed loss; `None` is the number of this call's labels.
            label_smoothing: The epsilon of the package's `smoothed_cross_entropy`; `None` is 0.
            **kwargs: Ignored; `generate()` has more to say to other models.

        Raises:
            ValueError: If `label_smoothing` lies outside its range.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        if labels is not None:
            decoder_input_ids = shift_tokens_right(
                labels, self.config.pad_token_id, self.config.decoder_start_token_id
            )
        states, state = self.decoder(
            decoder_input_ids, encoder_outputs.last_hidden_state, attention_mask, past_key_values
        )
        if labels is not None:
            loss = smoothed_cross_entropy(states, self.lm_head.weight, labels, label_smoothing or 0.0)
            return Seq2SeqLMOutput(
                loss=loss / (labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch)
            )
        use_cache = self.config.use_cache if use_cache is None else use_cache
        return Seq2SeqLMOutput(logits=self.lm_head(states), past_key_values=state if use_cache else None)


# Or transformers would warn of a kind that it does not know when it loads the tokenizer beside a model.
AutoConfig.register(RecurrentConfig.model_type, RecurrentConfig, exist_ok=True)
