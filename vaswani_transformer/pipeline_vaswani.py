"""`pipeline("translation")`, which transformers 5 no longer has, for every sequence-to-sequence model.

The contract is that of version 4's `TranslationPipeline`. Beyond it: a list is translated in batches of similar
lengths; a text sentence by sentence, where wanted; and with the alignment of its words, where wanted.
"""

from __future__ import annotations

import copy
import math
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import Pipeline, PreTrainedModel, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import custom_object_save
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME, logging

logger = logging.get_logger(__name__)

# Batches of a stream that are read ahead, and sorted by length together.
READ_AHEAD = 16
TASK_WITH_LANGUAGES = re.compile(r"translation_([^_]+)_to_([^_]+)")
# Scripts without blanks between their words, one character of which counts as a word.
IDEOGRAPHS = r"\u3040-\u30ff\u3400-\u9fff"
# Accents and vowel signs that are characters of their own.
MARKS = "".join(chr(code) for code in range(0x300, 0x20F1) if unicodedata.category(chr(code)).startswith("M"))
WORD = re.compile(rf"[{IDEOGRAPHS}]|(?:[^\W{IDEOGRAPHS}][{MARKS}]*)+(?:['’-](?:\w[{MARKS}]*)+)*|[^\w\s]")
# A tokenizer without a limit has this one or more.
NO_LIMIT = 1_000_000_000
# Tokenizers have a current language, and models an attention implementation: a call changes them for a moment.
CHANGING = threading.Lock()


class TranslationPipeline(Pipeline):
    """Translates texts with a sequence-to-sequence model and its tokenizer.

    Called with a text, it returns `[{"translation_text": …}]`; with a list of texts, one such dictionary for each
    (a list of them for each where `num_return_sequences` asks for several); with a generator or a data set, an
    iterator over what each text alone would give. A text of white space has an empty translation.

    The arguments below may be given to `pipeline("translation", …)`, for all calls, or to one call.

    Args:
        batch_size: Texts in a batch. Without it a list makes batches by `batch_tokens`, and the texts of a generator
            or a data set are translated one by one. With it, up to 16 batches of them are read ahead.
        batch_tokens: Most source positions in a batch of a list without `batch_size`, padding included.
        split_sentences: Translate a text sentence by sentence, and put the translations together with the white
            space that was around the sentences; a line break ends a sentence. The code of a language, such as
            `"de"`, names the rules; `True` takes those of `src_lang`, English ones if there is none or the rules for
            it are not known. Needs `sentencex`.
        src_lang: Code of the source language, for tokenizers of several languages. `pipeline("translation_en_to_de")`
            gives both languages.
        tgt_lang: Code of the target language.
        truncation: `True` cuts a source to the longest that the model saw in training. Without it, a longer one is
            translated as it is, with a warning, by a model that can.
        return_tensors: Return `translation_token_ids`, the ids that the model generated, in place of the text.
        return_alignments: Return `alignments` too, for each word of the translation the word of the source that it
            was translated from: `source` and `target`, their places in the two texts in characters
            (`source_start`, `source_end`, `target_start`, `target_end`), and the `score` from 0 to 1; see
            [`align_words`].
        clean_up_tokenization_spaces: Handed to the tokenizer's `decode`; `False` if not given.
        num_workers: Without effect; texts are encoded in the calling process.
        **generate_kwargs: Any argument of `generate()`, such as `num_beams`. Where neither they nor the model say
            so, there are 4 beams and at most 256 new tokens, as in version 4.

    Raises:
        ValueError: If the model is no sequence-to-sequence model, an input is no text, a language is not known, a
            source is longer than the model can read, or arguments contradict each other.
        ImportError: If `split_sentences` is wanted and `sentencex` is not installed.
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def __init__(
        self, *args: Any, batch_tokens: int = 2048, split_sentences: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.batch_tokens = batch_tokens
        self.split_sentences = split_sentences
        if not (self.model.can_generate() and self.model.config.is_encoder_decoder):
            raise ValueError(
                f"expected a sequence-to-sequence model, found {type(self.model).__name__}; load one with "
                "AutoModelForSeq2SeqLM"
            )
        if self.tokenizer is None:
            raise ValueError("expected a tokenizer beside the model, found none; give tokenizer=…")

    def save_pretrained(self, save_directory: str, **kwargs: Any) -> None:
        """Save the model and the tokenizer, and this code where it came with them."""
        super().save_pretrained(save_directory, **kwargs)
        if type(self).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME):
            custom_object_save(self, save_directory)

    def _sanitize_parameters(
        self,
        truncation: bool | str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        return_tensors: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess = {"truncation": truncation, "src_lang": src_lang, "tgt_lang": tgt_lang}
        postprocess = {
            "return_tensors": return_tensors,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        return (
            {name: value for name, value in preprocess.items() if value is not None},
            generate_kwargs,
            {name: value for name, value in postprocess.items() if value is not None},
        )

    def __call__(
        self,
        inputs: str | Sequence[str] | Iterable[str] | Dataset,
        *,
        num_workers: int | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        split_sentences: bool | str | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]] | Iterator[list[dict[str, Any]]]:
        """Translate a text, a list of texts, or a generator or data set of texts; see the class."""
        batch_size = self._batch_size if batch_size is None else batch_size
        batch_tokens = self.batch_tokens if batch_tokens is None else batch_tokens
        rules = self.split_sentences if split_sentences is None else split_sentences
        for name, value in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        kept = (self._preprocess_params, self._forward_params, self._postprocess_params)
        given = self._sanitize_parameters(**kwargs)
        preprocess, forward, postprocess = ({**always, **now} for always, now in zip(kept, given, strict=True))
        languages = self._languages(preprocess.get("src_lang"), preprocess.get("tgt_lang"))
        settings = (preprocess, self._generation_settings(forward, self._task_settings(languages)), postprocess)

        def translate(texts: list[Any]) -> list[list[dict[str, Any]]]:
            for text in texts:
                if not isinstance(text, str):
                    raise ValueError(f"expected a text or a list of texts to translate, got {type(text).__name__}")
            batched = {"batch_size": batch_size, "batch_tokens": batch_tokens}
            if rules:
                return self._translate_by_sentences(texts, rules, *settings, **batched)
            return self._translate(texts, *settings, **batched)

        if isinstance(inputs, str | Mapping) or not isinstance(inputs, Iterable | Dataset):
            return translate([inputs])[0]
        if isinstance(inputs, Sequence):
            results = translate(list(inputs))
            return [result[0] for result in results] if all(len(result) == 1 for result in results) else results
        if not isinstance(inputs, Iterable):  # a data set of torch
            inputs = map(inputs.__getitem__, range(len(inputs)))
        return stream(iter(inputs), translate, batch_size or 1)

    def _translate(
        self,
        texts: list[str],
        preprocess: dict[str, Any],
        forward: dict[str, Any],
        postprocess: dict[str, Any],
        *,
        batch_size: int | None,
        batch_tokens: int,
    ) -> list[list[dict[str, Any]]]:
        """The translations of each text, in the order of `texts`."""
        # A model makes up a translation of nothing.
        filled = [index for index, text in enumerate(texts) if text.strip()]
        count = self._sequences(forward)
        nothing = {"text": "", "input_ids": [], "sequences": torch.empty(count, 0, dtype=torch.long)}
        if forward.get("return_alignments"):
            nothing["attention"] = torch.empty(count, 0, 0)
        results = [[] if text.strip() else self.postprocess(nothing, **postprocess) for text in texts]
        if not filled:
            return results
        encoded = self.preprocess([texts[index] for index in filled], **preprocess)
        if "forced_bos_token_id" in encoded:  # the target language's token
            forward = self._with(forward, forced_bos_token_id=encoded["forced_bos_token_id"])
        for batch in batches([len(ids) for ids in encoded["input_ids"]], batch_size, batch_tokens):
            inputs = self._pad(encoded, batch)
            outputs = self.forward(inputs, **forward)
            for row, place in enumerate(batch):
                own = {"text": texts[filled[place]], "input_ids": encoded["input_ids"][place]}
                own["sequences"] = outputs["sequences"][row]
                if "attention" in outputs:
                    own["attention"] = outputs["attention"][row][..., inputs["attention_mask"][row].bool()]
                results[filled[place]] = self.postprocess(own, **postprocess)
        return results

    def _translate_by_sentences(
        self,
        texts: list[str],
        rules: bool | str,
        preprocess: dict[str, Any],
        forward: dict[str, Any],
        postprocess: dict[str, Any],
        **batched: Any,
    ) -> list[list[dict[str, Any]]]:
        """The translation of each text, put together from those of its sentences."""
        if self._sequences(forward) > 1:
            raise ValueError("split_sentences gives one translation of a text; leave num_return_sequences out")
        if postprocess.get("return_tensors"):
            raise ValueError("split_sentences puts texts together, and no ids; leave return_tensors out")
        source = self._languages(preprocess.get("src_lang"), preprocess.get("tgt_lang"))[0]
        language = rules if isinstance(rules, str) else language_code(source or "en")
        spans = [sentence_spans(text, language) for text in texts]
        sentences = [text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own]
        results = iter(self._translate(sentences, preprocess, forward, postprocess, **batched))
        return [
            [put_together(text, own, [next(results)[0] for _ in own], bool(forward.get("return_alignments")))]
            for text, own in zip(texts, spans, strict=True)
        ]

    def _languages(self, src_lang: str | None, tgt_lang: str | None) -> tuple[str | None, str | None]:
        """The given languages; those of the task's name where one is not given."""
        if match := TASK_WITH_LANGUAGES.fullmatch(self.task or ""):
            return src_lang or match[1], tgt_lang or match[2]
        return src_lang, tgt_lang

    def preprocess(
        self,
        texts: list[str],
        truncation: bool | str = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> dict[str, Any]:
        """Encode texts: `input_ids` and `attention_mask` of each, not padded, and `forced_bos_token_id`, if any."""
        languages = self._languages(src_lang, tgt_lang)
        prefix = self._task_settings(languages).get("prefix") or getattr(self.model.config, "prefix", None) or ""
        longest = self.longest_source
        options = {"truncation": truncation, "max_length": longest if truncation else None}
        texts = [prefix + text for text in texts]
        encoded = (
            self._encode_from(languages, texts, options) if self._is_multilingual else self.tokenizer(texts, **options)
        )
        most = max(len(ids) for ids in encoded["input_ids"])
        if longest is not None and most > longest:
            advice = "split_sentences=True translates sentence by sentence, truncation=True cuts"
            if self._position_tables:
                raise ValueError(
                    f"a text of {most:,} tokens is longer than the {longest:,} that the model can read; {advice}"
                )
            logger.warning(
                f"a text of {most:,} tokens is longer than the {longest:,} that the model was trained on, and its "
                f"translation may be poor; {advice}"
            )
        return encoded

    @property
    def _is_multilingual(self) -> bool:
        return hasattr(self.tokenizer, "_build_translation_inputs")

    def _encode_from(
        self, languages: tuple[str | None, str | None], texts: list[str], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Encode texts with a tokenizer of several languages, which says how the translation must begin."""
        source, target = languages
        try:
            with CHANGING:
                encoded = self.tokenizer._build_translation_inputs(
                    texts, return_tensors=None, src_lang=source, tgt_lang=target, **options
                )
        except KeyError as error:
            raise ValueError(f"the tokenizer does not know the language {error}") from error
        if encoded["forced_bos_token_id"] == self.tokenizer.unk_token_id:
            raise ValueError(f"the tokenizer does not know the language {target!r}; its model's card tells the codes")
        return encoded

    @property
    def _position_tables(self) -> list[int]:
        """The sizes of the model's tables of positions; there is none where positions are computed."""
        return [
            module.num_embeddings
            for name, module in self.model.named_modules()
            if isinstance(module, nn.Embedding) and "position" in name
        ]

    @property
    def longest_source(self) -> int | None:
        """The most tokens of a source that the model saw in training, as far as model and tokenizer tell."""
        config = getattr(self.model.config, "encoder", None) or self.model.config
        limits = [
            getattr(config, "max_encoder_position_embeddings", None),
            getattr(config, "max_position_embeddings", None),
            self.tokenizer.model_max_length,
            *self._position_tables,
        ]
        return min((limit for limit in limits if limit and limit < NO_LIMIT), default=None)

    def _pad(self, encoded: dict[str, Any], batch: list[int]) -> dict[str, torch.Tensor]:
        """The texts of a batch as tensors (batch, length)."""
        if self.tokenizer.pad_token_id is None:
            raise ValueError("expected a tokenizer with a pad token, found none; set tokenizer.pad_token")
        sentences = [torch.tensor(encoded["input_ids"][place]) for place in batch]
        # On the right, whatever the tokenizer does: there it shifts no position.
        return {
            "input_ids": pad_sequence(sentences, batch_first=True, padding_value=self.tokenizer.pad_token_id),
            "attention_mask": pad_sequence([torch.ones_like(ids) for ids in sentences], batch_first=True),
        }

    def _task_settings(self, languages: tuple[str | None, str | None]) -> dict[str, Any]:
        """What the model's configuration says of this task, as those of T5 do: a prefix, arguments of `generate()`."""
        known = getattr(self.model.config, "task_specific_params", None) or {}
        for task in ("translation_{}_to_{}".format(*languages), "translation"):
            if task in known:
                return known[task]
        first = next((task for task in known if task.startswith("translation")), None)
        if first is None or any(languages):
            return {}
        logger.warning_once(f'"translation" says no languages; taking the model\'s settings for "{first}"')
        return known[first]

    def _generation_settings(self, given: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
        """The arguments of `generate()`: those of the caller, of the task, and version 4's defaults of this task."""
        config = given.get("generation_config")
        settings = {name: value for name, value in given.items() if name != "generation_config"}
        if config is None:
            settings = {**{name: value for name, value in task.items() if name != "prefix"}, **settings}
        else:
            settings["generation_config"] = copy.deepcopy(config)

        def is_set(name: str) -> bool:
            return any(
                value is not None
                for value in (
                    settings.get(name),
                    getattr(config, name, None),
                    getattr(self.model.generation_config, name, None),
                )
            )

        # Assisted decoding knows no beams. Models that decode as ours do have a limit for each source.
        if not any(map(is_set, ("num_beams", "assistant_model", "prompt_lookup_num_tokens"))):
            settings = self._with(settings, num_beams=4)
        has_limit = hasattr(self.model, "default_generation_settings")
        if not (is_set("max_length") or is_set("max_new_tokens") or has_limit):
            settings = self._with(settings, max_new_tokens=256)
        return settings

    @staticmethod
    def _with(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
        """`settings` with `more`, in the generation configuration if there is one: `generate()` takes no mixture."""
        if "generation_config" not in settings:
            return {
                **more,
                **{name: value for name, value in settings.items() if value is not None or name not in more},
            }
        settings["generation_config"].update(**more)
        return settings

    def _sequences(self, given: dict[str, Any]) -> int:
        """How many translations each text gets."""
        config = given.get("generation_config", self.model.generation_config)
        return given.get("num_return_sequences") or config.num_return_sequences or 1

    def _forward(
        self, model_inputs: dict[str, torch.Tensor], return_alignments: bool = False, **generate_kwargs: Any
    ) -> dict[str, Any]:
        """Generate: `sequences` (batch, translations, length), and the `attention` of each token to the source."""
        output = self.model.generate(**model_inputs, **generate_kwargs)
        sequences = getattr(output, "sequences", output)
        shape = (len(model_inputs["input_ids"]), -1)
        outputs = {"sequences": sequences.view(*shape, sequences.shape[-1])}
        if return_alignments:
            attention = self._cross_attention(model_inputs, sequences)
            outputs["attention"] = attention.view(*shape, *attention.shape[1:])
        return outputs

    def _cross_attention(self, model_inputs: dict[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
        """What each position of `sequences` attends to in its source (batch, target length, source length)."""
        each = len(sequences) // len(model_inputs["input_ids"])
        repeated = {name: tensor.repeat_interleave(each, dim=0) for name, tensor in model_inputs.items()}
        layers = compute_attentions(self.model, **repeated, decoder_input_ids=sequences).cross_attentions
        if not layers:
            raise ValueError(f"{type(self.model).__name__} gives no cross-attention; leave return_alignments out")
        return layers[aligning_layer(len(layers))].mean(dim=1)

    def postprocess(
        self,
        outputs: dict[str, Any],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        """The translations of one text as records."""
        records = []
        if "attention" in outputs:
            source = find_words(self.tokenizer, outputs["input_ids"], outputs["text"])
        for row, sequence in enumerate(outputs["sequences"]):
            text = self.tokenizer.decode(
                sequence, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
            )
            record: dict[str, Any] = {"translation_text": text}
            if return_tensors:
                record = {"translation_token_ids": sequence}
            if "attention" in outputs:
                target = find_words(self.tokenizer, sequence.tolist(), text)
                record["alignments"] = align_words(outputs["attention"][row], source, target)
            records.append(record)
        return records


def compute_attentions(model: PreTrainedModel, **inputs: torch.Tensor) -> Seq2SeqModelOutput:
    """What `model` gives for `inputs`, with the attention weights of all its layers, whatever computes them else."""
    with CHANGING:
        # Only this implementation gives its weights. Some stacks have a configuration of their own, as T5's.
        models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
        before = {part: part.config._attn_implementation for part in models}
        changed = [part for part in models if before[part] != "eager"]
        for part in changed:
            part.set_attn_implementation("eager")
        try:
            return model(**inputs, output_attentions=True, use_cache=False)
        finally:
            for part in changed:
                part.set_attn_implementation(before[part])


def aligning_layer(layers: int) -> int:
    """The index of the decoder's layer whose cross-attention aligns words best.

    Five sixths of the way up: layer 5 of 6, as Garg et al. (2019) found, and the last of our models of 3.
    """
    return math.ceil(layers * 5 / 6) - 1


def stream(
    texts: Iterator[str], translate: Callable[[list[str]], list[list[dict[str, Any]]]], batch_size: int
) -> Iterator[list[dict[str, Any]]]:
    """Translate texts as they come; one by one, each translation is there before the next text is asked for."""
    window = READ_AHEAD * batch_size if batch_size > 1 else 1
    while chunk := list(islice(texts, window)):
        yield from translate(chunk)


def batches(lengths: list[int], batch_size: int | None, batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sentences, the longest first, in batches of `batch_size`, or of `batch_tokens` padded positions."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and len(batch) >= (batch_size or batch_tokens // lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def language_code(code: str) -> str:
    """The code by which `sentencex` may know a language: `de` for `de_DE`, with a warning where it is no such code."""
    short = re.split("[-_]", code)[0].lower()
    if len(short) != 2:
        logger.warning_once(
            f'split_sentences: unless there are rules for "{short}", those for English hold; give a code of two '
            'letters, such as split_sentences="de"'
        )
    return short


def sentence_spans(text: str, language: str) -> list[tuple[int, int]]:
    """Where the sentences of `text` begin and end, without the white space around them."""
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError("split_sentences needs the package sentencex: pip install sentencex") from error

    spans, place = [], 0
    for line in text.splitlines(keepends=True):
        # Wide blanks make it panic (1.0.32).
        for sentence in segment(language, re.sub(r"\s", " ", line)):
            start = place + len(sentence) - len(sentence.lstrip())
            place += len(sentence)
            if sentence.strip():
                spans.append((start, start + len(sentence.strip())))
    return spans


def put_together(
    text: str, spans: list[tuple[int, int]], records: list[dict[str, Any]], with_alignments: bool
) -> dict[str, Any]:
    """One record for `text` from those of its sentences, with the white space that was around them."""
    translation, alignments, end_of_last = "", [], 0
    for (start, end), record in zip(spans, records, strict=True):
        gap = text[end_of_last:start]
        # Chinese and Japanese have no blanks between their sentences.
        if not gap and translation and not re.search(f"[{IDEOGRAPHS}。！？]$", translation):
            gap = " "
        translation += gap
        for alignment in record.get("alignments", []):
            for side, place in (("source", start), ("target", len(translation))):
                alignment[f"{side}_start"] += place
                alignment[f"{side}_end"] += place
            alignments.append(alignment)
        translation += record["translation_text"]
        end_of_last = end
    whole = {"translation_text": translation + text[end_of_last:]}
    return {**whole, "alignments": alignments} if with_alignments else whole


@dataclass
class Word:
    """A word of a text, from `start` to `end` in characters, and the places of its tokens in the encoded text."""

    text: str
    start: int
    end: int
    tokens: list[int]


def find_words(tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str) -> list[Word]:
    """The words of `text`, of which `ids` is the encoding, or which is the decoding of `ids`.

    Some tokenizers do not know the places of their tokens, so these come from decoding ever more of `ids`. A word
    that the tokenizer changes, as a normalisation may, is left out.
    """

    def decode(count: int) -> str:
        return tokenizer.decode(ids[:count], skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def common_prefix(one: str, other: str) -> int:
        return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))

    decoded = decode(len(ids))
    # Half a character decodes to one that is not in the text; the common prefix ends before it.
    ends = [common_prefix(decode(count), decoded) for count in range(len(ids) + 1)]
    # The first bytes of a character show nothing yet: they belong to what shows next.
    special = set(tokenizer.all_special_ids)
    until = ends[1:]
    for index in reversed(range(len(ids) - 1)):
        if until[index] == ends[index] and ids[index] not in special:
            until[index] = until[index + 1]
    found, own = list(WORD.finditer(decoded)), list(WORD.finditer(text))
    matcher = SequenceMatcher(None, [match[0] for match in found], [match[0] for match in own], autojunk=False)
    words = []
    for first, place, size in matcher.get_matching_blocks():
        for match, there in zip(found[first : first + size], own[place : place + size], strict=True):
            tokens = [index for index in range(len(ids)) if ends[index] < match.end() and until[index] > match.start()]
            if tokens:
                words.append(Word(match[0], there.start(), there.end(), tokens))
    return words


def align_words(attention: torch.Tensor, source: list[Word], target: list[Word]) -> list[dict[str, Any]]:
    """For each word of the target the word of the source with the most attention, and its share as the `score`.

    The attention of a word is the mean over its tokens, that of the step which writes the token; a word of the
    source gets what its tokens get. [`TranslationPipeline`] gives the mean over the heads of the decoder's layer
    that aligns best: the fifth of six (Garg et al., 2019, "Jointly Learning to Align and Translate with Transformer
    Models", section 5).

    Args:
        attention: Attention of each target token to each source token (target length, source length).
        source: Words of the source.
        target: Words of the target.
    """
    alignments = []
    for word in target if source else []:
        weights = attention[[token - 1 for token in word.tokens]].mean(dim=0)
        shares = torch.stack([weights[one.tokens].sum() for one in source])
        best = source[int(shares.argmax())]
        alignments.append(
            {
                "source": best.text,
                "source_start": best.start,
                "source_end": best.end,
                "target": word.text,
                "target_start": word.start,
                "target_end": word.end,
                "score": round(float(shares.max()), 4),
            }
        )
    return alignments


__all__ = ["TranslationPipeline"]
