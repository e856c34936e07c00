"""Decoding as the paper does it (section 6.1), inside `generate()`.

Beam search with 4 beams and the length penalty ((5 + n) / 6)^0.6 of Wu et al. (2016, https://arxiv.org/abs/1609.08144,
equation 14), at most 50 tokens more than the source has, ended as soon as no running beam can still win. These are
the defaults of a model's generation configuration; every argument of `generate()` changes them as it does for any
model of transformers. Shapes in the docstrings: `sentences` sources, `beams` hypotheses of each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import (
    BaseStreamer,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    StoppingCriteriaList,
)
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteria
from transformers.modeling_outputs import BaseModelOutput

# Tokens that a translation may have more than its source (section 6.1).
MORE_THAN_THE_SOURCE = 50
# The score of a beam that is not there, as in transformers' own beam search.
NEVER = -1.0e9
# Steps for which the shared cache makes room at a time.
STEPS_OF_ROOM = 8
# Finished sentences leave the batch when they are at least one of so many: to leave moves the cache of the others.
LEAVING_SHARE = 8
# Tokens of the vocabulary that are compared at a time when the best are looked for; the first that divides it.
CHUNK_SIZES = range(64, 31, -1)


class GNMTLengthPenalty(float):
    """The exponent alpha of a length penalty for which `n ** alpha` means ((5 + n) / 6)^alpha.

    transformers' beam search divides a score by `n ** length_penalty` and offers no penalty of another form.
    """

    def __rpow__(self, length: float) -> float:
        return ((5 + length) / 6) ** float(self)


class SourceLengthCriteria(StoppingCriteria):
    """Ends a translation at its own source's limit, so that a sentence's limit does not depend on its batch.

    Args:
        limits: The most tokens (sentences,) of a translation, prefix included.
    """

    # transformers' sampling fills what ends early where a criterion has this attribute.
    eos_token_id = None

    def __init__(self, limits: torch.Tensor) -> None:
        self.limits = limits

    def __call__(self, input_ids: torch.LongTensor, scores: Any = None, **kwargs: Any) -> torch.BoolTensor:
        """Whether each row of `input_ids`, as many of each sentence, has reached its limit."""
        return (self.limits <= input_ids.shape[1]).repeat_interleave(len(input_ids) // len(self.limits))


class MinLength(LogitsProcessor):
    """Lets nothing end before `min_length` tokens, prefix included, without a pass over all scores.

    transformers' two processors for it copy the scores, twice each.
    """

    def __init__(self, min_length: int, eos_token_id: torch.Tensor) -> None:
        self.min_length = min_length
        self.ends = eos_token_id.tolist()

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """`scores` (rows, vocabulary), changed in place."""
        if input_ids.shape[1] < self.min_length:
            scores[:, [end for end in self.ends if 0 <= end < scores.shape[1]]] = -math.inf
        return scores

    @classmethod
    def replace(cls, processor: LogitsProcessor) -> LogitsProcessor:
        """One of these for one of transformers', any other as it is."""
        if type(processor) is MinLengthLogitsProcessor:
            return cls(processor.min_length, processor.eos_token_id)
        if type(processor) is MinNewTokensLengthLogitsProcessor:
            return cls(processor.prompt_length_to_skip + processor.min_new_tokens, processor.eos_token_id)
        return processor


class SharedBeamLayer(DynamicLayer):
    """Keys and values of all beams of a sentence in one row, in slots that stay where they are written.

    Room for several steps is made at a time, and the whole of it returned: shapes that seldom change suit oneDNN,
    compilers and CUDA graphs alike. What is not written yet is zero and for the mask to hide.

    Args:
        room: Slots to make beyond those in use.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.used = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (sentences, heads, new slots, head_dim); return all slots, the first time those written."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.used = key_states.shape[-2]
            self.keys, self.values = (F.pad(states, (0, 0, 0, self.room)) for states in (key_states, value_states))
            return key_states, value_states
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Slots in use."""
        return self.used

    def keep(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        """Keep of the sentences `rows` the `slots` (rows, kept slots), and make room again."""
        heads, capacity, width = self.keys.shape[1:]
        first = (rows[:, None] * heads + torch.arange(heads, device=rows.device)) * capacity
        index = (first[:, :, None] + slots[:, None]).flatten()
        self.used = slots.shape[1]
        self.keys, self.values = (
            F.pad(
                states.view(-1, width).index_select(0, index).view(len(rows), heads, -1, width), (0, 0, 0, self.room)
            )
            for states in (self.keys, self.values)
        )


class SharedBeamCache(EncoderDecoderCache):
    """A cache with one row for each sentence, whose beams are lists of slots.

    The keys and values of the source are there once. Those of the target are written once, and move only when room
    runs out or sentences leave; choosing among beams moves nothing but slot numbers.

    Args:
        cross_attention_cache: An empty cache for the source's keys and values.
        layers: Number of decoder layers.
        beams: Beams of a sentence.
    """

    def __init__(self, cross_attention_cache: Cache, layers: int, beams: int) -> None:
        super().__init__(Cache([SharedBeamLayer(STEPS_OF_ROOM * beams) for _ in range(layers)]), cross_attention_cache)
        self.beams = beams
        self.slots: torch.Tensor | None = None

    def choose(self, parents: torch.Tensor) -> None:
        """Go on with the beams `parents` (sentences, beams)."""
        if self.slots is None:  # all beams begin with the prompt
            prompt = torch.arange(self.get_seq_length(), device=parents.device)
            self.slots = prompt.expand(*parents.shape, -1)
        self.slots = gather_beams(self.slots, parents)

    def next_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Allot a slot to each beam's next token; return the additive mask (sentences, 1, beams, slots)."""
        layer = self.self_attention_cache.layers[0]
        if layer.used + self.beams > layer.keys.shape[-2]:
            self.keep(torch.arange(len(self.slots), device=self.slots.device))
        new = layer.used + torch.arange(self.beams, device=self.slots.device)
        self.slots = torch.cat((self.slots, new.expand(len(self.slots), -1)[..., None]), dim=-1)
        shape = (len(self.slots), self.beams, layer.keys.shape[-2])
        mask = torch.full(shape, torch.finfo(dtype).min, dtype=dtype, device=self.slots.device)
        return mask.scatter_(2, self.slots, 0.0)[:, None]

    def keep(self, rows: torch.Tensor) -> None:
        """Keep the sentences `rows`, and of their slots those that a beam still needs."""
        if len(rows) < len(self.slots):
            self.slots = self.slots[rows]
            self.cross_attention_cache.batch_select_indices(rows)
        needed = self.slots.new_zeros(len(rows), self.get_seq_length()).scatter_(1, self.slots.flatten(1), 1)
        # The needed slots first, in their order; a row with fewer of them than another keeps some that nobody sees.
        kept = needed.argsort(dim=1, descending=True, stable=True)[:, : int(needed.sum(dim=1).max())]
        for layer in self.self_attention_cache.layers:
            layer.keep(rows, kept)
        numbers = needed.cumsum(dim=1) - 1
        self.slots = numbers.gather(1, self.slots.flatten(1)).view_as(self.slots)


def best_continuations(
    log_probabilities: torch.Tensor, scores: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The `k` best of `log_probabilities` (sentences, beams, vocabulary) + `scores` (sentences, beams), best first.

    Returns their scores, beams and tokens (sentences, k). One pass finds the maximum of each chunk of the vocabulary;
    the `k` best lie in the `k` chunks with the best maxima, and only those are looked through.
    """
    vocab_size = log_probabilities.shape[-1]
    size = next((size for size in CHUNK_SIZES if vocab_size % size == 0), None)
    if size is None:
        size = CHUNK_SIZES[0]
        log_probabilities = F.pad(log_probabilities, (0, -vocab_size % size), value=-math.inf)
    chunks = log_probabilities.unflatten(-1, (-1, size))
    maxima = (chunks.amax(-1) + scores[..., None]).flatten(1)
    best_chunks = maxima.topk(min(k, maxima.shape[1]), sorted=False).indices
    beams, numbers = best_chunks // chunks.shape[2], best_chunks % chunks.shape[2]
    values = chunks.flatten(1, 2).gather(1, best_chunks[..., None].expand(-1, -1, size))
    best, chosen = (values + scores.gather(1, beams)[..., None]).flatten(1).topk(k)
    chunk = chosen // size
    # What was added as padding is chosen only where nothing is possible; let it be a token all the same.
    tokens = (numbers.gather(1, chunk) * size + chosen % size).clamp(max=vocab_size - 1)
    return best, beams.gather(1, chunk), tokens


def sentences_may_leave(logits_processor: LogitsProcessorList, stopping_criteria: StoppingCriteriaList) -> bool:
    """Whether nobody minds that rows leave the batch: other processors and criteria may go by a row's number."""
    known = (EosTokenCriteria, MaxLengthCriteria, SourceLengthCriteria)
    known += (MinLength, MinLengthLogitsProcessor, MinNewTokensLengthLogitsProcessor)
    return all(type(each) in known for each in (*logits_processor, *stopping_criteria))


def gather_beams(tensor: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Of `tensor` (sentences, old beams, length) the rows `beams` (sentences, new beams)."""
    return tensor.gather(1, beams[..., None].expand(-1, -1, tensor.shape[-1]))


def check_search(config: GenerationConfig) -> None:
    """Raise a `ValueError` if the penalty is none that we know, or there is no beam."""
    if config.length_penalty_type not in ("gnmt", "transformers"):
        raise ValueError(f'length_penalty_type must be "gnmt" or "transformers", got {config.length_penalty_type!r}')
    if config.num_beams < 1:
        raise ValueError(f"num_beams must be at least 1, got {config.num_beams}")


def filling(token: torch.Tensor | None) -> int:
    """The id of `token`; -1, as in transformers, where there is none."""
    return -1 if token is None else int(token)


class Search(ABC):
    """The state of a search over a batch of sentences, from one token to the next; knows no model.

    Args:
        prompt: What each sentence's translations begin with (sentences, length).
        config: As `generate()` has prepared it.
        logits_processor: Likewise.
        stopping_criteria: Likewise.
    """

    fill: int
    """What follows a translation that is shorter than another."""

    def __init__(
        self,
        prompt: torch.LongTensor,
        config: GenerationConfig,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
    ) -> None:
        self.config = config
        self.logits_processor = LogitsProcessorList(MinLength.replace(processor) for processor in logits_processor)
        self.stopping_criteria = stopping_criteria
        self.prompt_length = prompt.shape[1]
        self.tokens = prompt[:, None].expand(-1, config.num_beams, -1)
        self.sentences = torch.arange(len(prompt), device=prompt.device)
        self.done = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
        self.left: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.begin(prompt)

    @abstractmethod
    def begin(self, prompt: torch.LongTensor) -> None:
        """Set `fill`, and what the search keeps of each sentence."""

    @abstractmethod
    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """Go on by one token, given the `logits` (sentences, beams, vocabulary) that follow each running beam.

        Returns the beams (sentences, beams) from which the new running ones come.
        """

    @abstractmethod
    def translations(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What is to be returned of each sentence (sentences, returned, length), and the lengths."""

    def process(self, scores: torch.Tensor) -> torch.Tensor:
        """`scores` (sentences, beams, vocabulary) after the logits processors."""
        if not self.logits_processor:
            return scores
        return self.logits_processor(self.tokens.flatten(0, 1), scores.flatten(0, 1)).view_as(scores)

    def leave(self) -> torch.Tensor:
        """Put the sentences that are done aside; return the rows of those that stay."""
        self.left.append(tuple(each[self.done] for each in (self.sentences, *self.translations())))
        rows = (~self.done).nonzero().squeeze(1)
        self.keep(rows)
        return rows

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with the sentences `rows` alone."""
        self.tokens, self.sentences, self.done = self.tokens[rows], self.sentences[rows], self.done[rows]
        for criterion in self.stopping_criteria:
            if isinstance(criterion, SourceLengthCriteria):
                criterion.limits = criterion.limits[rows]

    def result(self) -> torch.LongTensor:
        """The translations of all sentences that have left (sentences * returned, length), in their order."""
        longest = max(int(lengths.max()) for _, _, lengths in self.left)
        count = sum(len(sentences) for sentences, _, _ in self.left)
        returned = self.left[0][1].shape[1]
        result = self.tokens.new_full((count, returned, longest), self.fill)
        for sentences, tokens, _ in self.left:
            width = min(longest, tokens.shape[-1])
            result[sentences, :, :width] = tokens[..., :width]
        return result.flatten(0, 1)


class GreedySearch(Search):
    """The likeliest token in each step, as in transformers' `_sample`."""

    def begin(self, prompt: torch.LongTensor) -> None:
        """See [`Search.begin`]."""
        self.fill = filling(self.config._pad_token_tensor)
        self.lengths = torch.full((len(prompt), 1), self.prompt_length, device=prompt.device)

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """See [`Search.step`]."""
        tokens = self.process(logits.to(torch.float32, copy=bool(self.logits_processor))).argmax(dim=-1)
        tokens = tokens.masked_fill(self.done[:, None], self.fill)
        self.tokens = torch.cat((self.tokens, tokens[..., None]), dim=-1)
        self.lengths = self.lengths + ~self.done[:, None]
        self.done = self.done | self.stopping_criteria(self.tokens.flatten(0, 1), None)
        return torch.zeros_like(tokens)

    def translations(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See [`Search.translations`]."""
        return self.tokens, self.lengths

    def keep(self, rows: torch.Tensor) -> None:
        """See [`Search.keep`]."""
        super().keep(rows)
        self.lengths = self.lengths[rows]


class BeamSearch(Search):
    """Beam search by the rules of transformers' `_beam_search`, option by option.

    Each sentence keeps its running beams and the best hypotheses that have ended. It is done when none of the running
    ones can still be returned: decided for each sentence alone, where transformers goes on until the whole batch
    stops.
    """

    def begin(self, prompt: torch.LongTensor) -> None:
        """See [`Search.begin`]."""
        config = self.config
        ends, pad = config._eos_token_tensor, config._pad_token_tensor
        # transformers' rule, which takes a pad token of 0 for none where there is an end.
        self.fill = filling(pad if ends is None else (pad or ends[0]))
        # Continuations to look at in a step: enough that `num_beams` go on where some end.
        self.candidates = max(2, 1 + (0 if ends is None else len(ends))) * config.num_beams
        self.scores_are_probabilities = all(type(processor) is MinLength for processor in self.logits_processor)
        shape, device = (len(prompt), config.num_beams), prompt.device
        # One beam exists at first; the others are its copies and must not be chosen.
        self.scores = torch.full(shape, NEVER, device=device)
        self.scores[:, 0] = 0.0
        self.ended_tokens = self.tokens
        self.ended_scores = torch.full(shape, NEVER, device=device)
        self.ended_lengths = torch.full(shape, self.prompt_length, device=device)
        self.room: torch.Tensor | None = None

        # The penalty at the greatest length that a translation can reach, for the bound on its score.
        limits = torch.full((len(prompt),), config.max_length)
        for criterion in self.stopping_criteria:
            if isinstance(criterion, SourceLengthCriteria):
                limits = criterion.limits.cpu().minimum(limits)
        penalties = [(limit - self.prompt_length) ** config.length_penalty for limit in limits.tolist()]
        self.last_penalty = self.scores.new_tensor(penalties)

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """See [`Search.step`]."""
        log_probabilities = self.process(self._log_softmax(logits))
        scores, parents, tokens = best_continuations(log_probabilities, self.scores, self.candidates)
        tokens = torch.cat((gather_beams(self.tokens, parents), tokens[..., None]), dim=-1)
        ends = self.stopping_criteria(tokens.flatten(0, 1), None).view_as(scores)

        self._add_ended(tokens, scores, ends)
        self.scores, running = (scores + ends * NEVER).topk(self.config.num_beams)
        self.tokens = gather_beams(tokens, running)
        self.done = self.done | ends.all(dim=1) | self._is_settled()
        return parents.gather(1, running)

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities in float32, in room that is kept from step to step unless a processor may keep them.

        Memory of this size goes back to the system whenever it is freed, and would come back page by page.
        """
        if not self.scores_are_probabilities:
            return F.log_softmax(logits, dim=-1, dtype=torch.float32)
        if self.room is None:
            self.room = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
        room = self.room[: len(logits)]
        return torch.log_softmax(logits if logits.dtype == room.dtype else room.copy_(logits), dim=-1, out=room)

    def _add_ended(self, tokens: torch.Tensor, scores: torch.Tensor, ends: torch.Tensor) -> None:
        """Put the candidates that end among the best that their sentence has, unless it is done."""
        beams, length = self.config.num_beams, tokens.shape[-1]
        # The candidates after the first `beams` are there only to take the place of those that end.
        counts = ends & (torch.arange(self.candidates, device=ends.device) < beams) & ~self.done[:, None]
        scores = scores / (length - self.prompt_length) ** self.config.length_penalty
        scores = torch.cat((self.ended_scores, scores.masked_fill(~counts, NEVER)), dim=1)
        self.ended_scores, chosen = scores.topk(beams)
        ended_tokens = F.pad(self.ended_tokens, (0, 1), value=self.fill)
        self.ended_tokens = gather_beams(torch.cat((ended_tokens, tokens), dim=1), chosen)
        lengths = torch.cat((self.ended_lengths, torch.full_like(ends, length, dtype=torch.long)), dim=1)
        self.ended_lengths = lengths.gather(1, chosen)

    def _is_settled(self) -> torch.Tensor:
        """Whether (sentences,) no running beam can still be returned, by the rule that `early_stopping` names."""
        best, worst = self.scores[:, 0], self.ended_scores[:, -1]
        penalty = (self.tokens.shape[-1] - self.prompt_length) ** self.config.length_penalty
        if self.config.early_stopping == "never":
            # A sum of log-probabilities only falls, so its best case is the longest translation, whose penalty is the
            # greatest unless the exponent is negative. What ends later is then below all that is returned.
            if self.config.length_penalty > 0:
                penalty = self.last_penalty
            if self.scores_are_probabilities:
                worst = self.ended_scores[:, self.config.num_return_sequences - 1]
            return ~(best / penalty > worst)
        full = worst > NEVER
        return full if self.config.early_stopping else full & ~(best / penalty > worst)

    def translations(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See [`Search.translations`]."""
        returned = self.config.num_return_sequences
        return self.ended_tokens[:, :returned], self.ended_lengths[:, :returned]

    def keep(self, rows: torch.Tensor) -> None:
        """See [`Search.keep`]."""
        super().keep(rows)
        self.scores, self.last_penalty = self.scores[rows], self.last_penalty[rows]
        self.ended_tokens, self.ended_scores = self.ended_tokens[rows], self.ended_scores[rows]
        self.ended_lengths = self.ended_lengths[rows]


class VaswaniGenerationMixin(GenerationMixin):
    """`generate()` with the paper's beam search, and no copies of the encoder's states.

    One setting is new: `length_penalty_type`, `"gnmt"` for the paper's ((5 + n) / 6)^length_penalty or
    `"transformers"` for the n^length_penalty of every other model. Where the caller sets no length, a translation
    has at most 50 tokens more than its source; learned positions end it where their table does.
    """

    @staticmethod
    def default_generation_settings() -> dict[str, Any]:
        """The paper's settings (section 6.1)."""
        return {"num_beams": 4, "length_penalty": 0.6, "length_penalty_type": "gnmt", "early_stopping": "never"}

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        # A file that leaves a setting open, or no file at all, means the paper's.
        for name, value in self.default_generation_settings().items():
            if getattr(self.generation_config, name, None) is None:
                setattr(self.generation_config, name, value)
        penalty_type = kwargs.pop("length_penalty_type", None)
        generation_config, model_kwargs = super()._prepare_generation_config(generation_config, **kwargs)
        if penalty_type is None:
            penalty_type = generation_config.length_penalty_type
        generation_config.length_penalty_type = penalty_type
        check_search(generation_config)
        return generation_config, model_kwargs

    def _prepare_model_inputs(
        self, inputs: torch.Tensor | None, bos_token_id: torch.Tensor | None, model_kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, str | None, dict[str, Any]]:
        if isinstance(model_kwargs.get("encoder_outputs"), tuple):
            # transformers reads the length of the source from an attribute.
            model_kwargs["encoder_outputs"] = BaseModelOutput(*model_kwargs["encoder_outputs"])
        return super()._prepare_model_inputs(inputs, bos_token_id, model_kwargs)

    def _prepare_generated_length(
        self,
        generation_config: GenerationConfig,
        has_default_max_length: bool,
        has_default_min_length: bool,
        model_input_name: str,
        input_ids_length: int,
        inputs_tensor: torch.Tensor,
    ) -> GenerationConfig:
        generation_config._limited_by_source = has_default_max_length and generation_config.max_new_tokens is None
        if generation_config._limited_by_source:
            # `inputs_tensor` is the source: its tokens, its embeddings, or as many rows as `encoder_outputs` has.
            generation_config.max_new_tokens = inputs_tensor.shape[1] + MORE_THAN_THE_SOURCE
            if getattr(self.config, "positional_encoding", None) == "learned":
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

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: torch.LongTensor | None = None,
        **model_kwargs: Any,
    ) -> tuple[torch.LongTensor, dict[str, Any]]:
        """Repeat what belongs to the target; the beams and samples of a sentence share the source's one row."""
        source = {
            name: model_kwargs.pop(name) for name in ("encoder_outputs", "attention_mask") if name in model_kwargs
        }
        input_ids, model_kwargs = super()._expand_inputs_for_generation(
            expand_size=expand_size, is_encoder_decoder=False, input_ids=input_ids, **model_kwargs
        )
        return input_ids, {**model_kwargs, **source}

    def _reorder_cache(self, past_key_values: EncoderDecoderCache, beam_idx: torch.LongTensor) -> EncoderDecoderCache:
        past_key_values.self_attention_cache.reorder_cache(beam_idx)
        return past_key_values

    def _sample(
        self,
        input_ids: torch.LongTensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: BaseStreamer | None = None,
        **model_kwargs: Any,
    ) -> Any:
        """transformers' sampling; greedy search as a beam of one, where sentences may leave the batch."""
        self._limit_by_source(stopping_criteria, generation_config, input_ids.shape[1], model_kwargs)
        if (
            streamer is None
            and not synced_gpus
            and sentences_may_leave(logits_processor, stopping_criteria)
            and self._beams_can_share(generation_config, model_kwargs)
        ):
            search = GreedySearch(input_ids, generation_config, logits_processor, stopping_criteria)
            return self._search(search, generation_config, **model_kwargs)
        return super()._sample(
            input_ids,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            synced_gpus=synced_gpus,
            streamer=streamer,
            **model_kwargs,
        )

    def _beam_search(
        self,
        input_ids: torch.LongTensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """transformers' beam search, on shared beams where nothing is asked of it that needs a row for each beam."""
        self._limit_by_source(stopping_criteria, generation_config, input_ids.shape[1], model_kwargs)
        if generation_config.length_penalty_type == "gnmt":
            generation_config.length_penalty = GNMTLengthPenalty(generation_config.length_penalty)
        if not synced_gpus and self._beams_can_share(generation_config, model_kwargs):
            prompt = input_ids[:: generation_config.num_beams]
            search = BeamSearch(prompt, generation_config, logits_processor, stopping_criteria)
            return self._search(search, generation_config, **model_kwargs)
        outputs = super()._beam_search(
            input_ids,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            synced_gpus=synced_gpus,
            **model_kwargs,
        )
        if generation_config._eos_token_tensor is None and generation_config._pad_token_tensor is not None:
            # transformers' filling where nothing ends a translation; with limits of their own, rows have some.
            sequences = outputs if isinstance(outputs, torch.Tensor) else outputs.sequences
            sequences.masked_fill_(sequences == -1, generation_config._pad_token_tensor)
        return outputs

    def _limit_by_source(
        self,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        prompt_length: int,
        model_kwargs: dict[str, Any],
    ) -> None:
        """Add the limit of each sentence to `stopping_criteria` where the caller set no length."""
        mask = model_kwargs.get("attention_mask")
        if not generation_config._limited_by_source or generation_config._pad_token_tensor is None:
            return
        if mask is not None and mask.ndim == 2:
            limits = mask.sum(dim=1) + MORE_THAN_THE_SOURCE + prompt_length
            stopping_criteria.append(
                SourceLengthCriteria(
                    limits.to(torch.long).expand(len(model_kwargs["encoder_outputs"].last_hidden_state))
                )
            )

    def _beams_can_share(self, generation_config: GenerationConfig, model_kwargs: dict[str, Any]) -> bool:
        """Whether the search may keep the beams of a sentence in one row."""
        cache = getattr(model_kwargs.get("past_key_values"), "self_attention_cache", None)
        expected = {"encoder_outputs", "attention_mask", "past_key_values", "use_cache", "logits_to_keep"}
        return (
            not generation_config.do_sample
            and not generation_config.return_dict_in_generate  # scores, attentions, the cache: a row for each beam
            and not generation_config.low_memory  # which transformers refuses
            and type(cache) is DynamicCache
            and not cache.offloading
            and not hasattr(model_kwargs["past_key_values"], "_is_user_defined")
            and not (self.training and self.is_gradient_checkpointing)  # which drops the cache
            and {name for name, value in model_kwargs.items() if value is not None} <= expected
            and self.config._attn_implementation in ("eager", "sdpa")  # others take no mask of our own
            and (
                self.config.positional_encoding == "sinusoidal"
                or generation_config.max_length <= self.config.max_position_embeddings  # or a step must complain
            )
        )

    def _search(
        self,
        search: Search,
        generation_config: GenerationConfig,
        encoder_outputs: BaseModelOutput,
        past_key_values: EncoderDecoderCache,
        attention_mask: torch.Tensor | None = None,
        **model_kwargs: Any,
    ) -> torch.LongTensor:
        """Run `search` with the beams of a sentence as positions of one row.

        A beam's newest token is a position whose mask shows the slots of its own past ([`SharedBeamCache`]).
        Finished sentences leave the batch. With a `compile_config` the steps after the first are compiled.
        """
        beams = generation_config.num_beams
        cache = SharedBeamCache(past_key_values.cross_attention_cache, self.config.decoder_layers, beams)
        may_leave = sentences_may_leave(search.logits_processor, search.stopping_criteria)
        encoded = encoder_outputs.last_hidden_state
        if attention_mask is not None and attention_mask.ndim == 2:
            # Made once: the model would make it, and look whether it is needed, in every step.
            hidden = (attention_mask == 0).to(self.dtype) * torch.finfo(self.dtype).min
            attention_mask = None if attention_mask.all() else hidden[:, None, None].expand(len(encoded), -1, -1, -1)
        inputs = {"decoder_input_ids": search.tokens[:, 0], "logits_to_keep": 1}
        forward = self
        while True:
            outputs = forward(
                **inputs,
                encoder_outputs=BaseModelOutput(encoded),
                attention_mask=attention_mask,
                past_key_values=cache,
                use_cache=True,
                return_dict=True,
            )
            cache.choose(search.step(outputs.logits.expand(-1, beams, -1)))
            done = int(search.done.sum())
            if done == len(search.done):
                search.leave()
                return search.result()
            if may_leave and done * LEAVING_SHARE >= len(search.done):
                rows = search.leave()
                cache.keep(rows)
                encoded = encoded[rows]
                attention_mask = None if attention_mask is None else attention_mask[rows]
            inputs = {
                "decoder_input_ids": search.tokens[..., -1],
                "decoder_position_ids": torch.full((1,), search.tokens.shape[-1] - 1, device=search.tokens.device),
                "decoder_attention_mask": cache.next_mask(self.dtype),
            }
            if generation_config.compile_config is not None:
                forward = self.get_compiled_call(generation_config.compile_config)


__all__ = ["VaswaniGenerationMixin"]
