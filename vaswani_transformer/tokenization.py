"""The joint byte-pair encoding of source and target (section 5.1), as a fast tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .errors import InputError

# Their ids are their places in this list, and the defaults of VaswaniConfig.
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
BYTES = 256


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train one byte-pair encoding on the sentences of both languages.

    Text is brought to Unicode NFC and its white space to single blanks; everything else survives encoding and
    decoding exactly. The alphabet is the 256 bytes, so no text is ever unknown, and text that spells a special
    token, such as "</s>", is encoded as text. Sources and targets end in `</s>`. The folder that
    `save_pretrained` writes is loaded by `AutoTokenizer.from_pretrained` without this package.

    Args:
        texts: Sentences of both languages.
        vocab_size: Entries of the vocabulary, with the 4 special tokens and the 256 bytes.

    Returns:
        A fast tokenizer whose vocabulary has exactly `vocab_size` entries.

    Raises:
        InputError: If `vocab_size` is too small for the bytes, or larger than the text can fill.
    """
    smallest = len(SPECIAL_TOKENS) + BYTES
    if vocab_size < smallest:
        raise InputError(f"vocab_size must be at least {smallest} (4 special tokens and 256 bytes), got {vocab_size}")
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() < vocab_size:
        raise InputError(
            f"the text fills a vocabulary of {tokenizer.get_vocab_size()} at most, got vocab_size={vocab_size}; "
            f"lower vocab_size to {tokenizer.get_vocab_size()} or give more text"
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", SPECIAL_TOKENS.index("</s>"))]
    )
    return wrap_tokenizer(tokenizer)


def plain_backend(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """A copy of what encodes for `tokenizer`, without the padding and truncation that it was once used with."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return backend


def wrap_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """What [`train_tokenizer`] learned, as a tokenizer of transformers."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )
