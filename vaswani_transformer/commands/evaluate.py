"""`vaswani-transformer evaluate`: translate a test set and score it."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

from ..training_arguments import ArgumentParser
from .options import create_decoding_parser, decoding_settings, say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    from ..evaluation import TOKENIZERS

    parser = create_decoding_parser(
        "evaluate", "Translate a test set and score it with sacreBLEU's BLEU and chrF++, signatures included."
    )
    parser.add_argument("--test-file", nargs="+", metavar="FILE", help="A table of pairs, or a source and a target.")
    parser.add_argument(
        "--tsv-columns",
        nargs=2,
        metavar="CODE",
        help="Languages of a .tsv table's two columns; source and target if not given.",
    )
    parser.add_argument("--dataset-name", metavar="NAME", help="builtin:en-de, or a data set on the Hub.")
    parser.add_argument("--dataset-config-name", metavar="NAME", help="Configuration of the Hub's data set.")
    parser.add_argument("--test-split", default="test", metavar="NAME", help="Split of the data set.")
    parser.add_argument("--source-lang", default="en", metavar="CODE", help="Source language.")
    parser.add_argument("--target-lang", default="de", metavar="CODE", help="Target language.")
    parser.add_argument(
        "--tokenize",
        choices=TOKENIZERS,
        default="13a",
        help="How BLEU cuts text into words: none for text that is tokenised, compound as the paper on WMT14.",
    )
    parser.add_argument("--json", metavar="FILE", help="Also write the scores to this file.")
    return parser


def run(arguments: list[str]) -> int:
    """Translate a test set and print its scores."""
    parser = create_parser()
    options = parser.parse_strictly(arguments)

    from ..checkpoints import RunFolder, check_output
    from ..corpora import load_corpus, sentences
    from ..evaluation import check_tokenizer, score_translations
    from ..model_card import is_for_everyone, public_name, update_card, weights_digest
    from ..translation import load_pipeline, translate

    if options.json:
        check_output(options.json)
    check_tokenizer(options.tokenize)
    corpus = load_corpus(
        options.test_file,
        dataset_name=options.dataset_name,
        dataset_config_name=options.dataset_config_name,
        split=options.test_split,
        source_lang=options.source_lang,
        target_lang=options.target_lang,
        tsv_columns=options.tsv_columns,
    )
    run = RunFolder(options.model)
    # Taken before the weights are read: a training that goes on may replace them meanwhile.
    weights = weights_digest(run.path) if run.is_run() and run.weights.is_file() else None
    pipeline = load_pipeline(options.model, options.dtype)
    started = time.monotonic()
    settings = decoding_settings(options)
    predictions = list(translate(pipeline, sentences(corpus, options.source_lang), **settings))
    seconds = time.monotonic() - started
    references = list(sentences(corpus, options.target_lang))
    scores = score_translations(predictions, references, options.tokenize, options.target_lang)
    print(f"BLEU    {scores['bleu']:.2f}  {scores['bleu_signature']}")
    print(f"chrF++  {scores['chrf++']:.2f}  {scores['chrf++_signature']}")
    print(f"{scores['sentences']:,} sentences, beam {options.num_beams}, {seconds:.1f} seconds")
    if options.json:
        record = {
            "model": options.model,
            **settings,
            "dtype": options.dtype,
            "tokenize": options.tokenize,
            **scores,
            "seconds": round(seconds, 1),
        }
        Path(options.json).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if weights:
        files = ", ".join(Path(file).name for file in options.test_file or [])
        dataset = options.dataset_name and public_name(options.dataset_name)
        try:
            run.record_evaluation(
                weights=weights,
                data=files or dataset,
                dataset_name=dataset if dataset and is_for_everyone(options.dataset_name) else None,
                dataset_config_name=options.dataset_config_name,
                split=options.test_split if dataset else None,
                source_lang=options.source_lang,
                target_lang=options.target_lang,
                num_beams=options.num_beams,
                length_penalty=options.length_penalty,
                dtype=options.dtype,
                tokenize=options.tokenize,
                flags=_public_flags(parser, options),
                **scores,
            )
        except OSError as error:
            say(f"The evaluation is not recorded: {run.evaluations}: {error.strerror}")
        else:
            update_card(run.path)
    return 0


def _public_flags(parser: ArgumentParser, options: argparse.Namespace) -> str:
    """The flags that differ from the defaults, to repeat an evaluation elsewhere: of paths, only their last part."""
    from ..model_card import public_name

    words = []
    for action in parser._actions:
        value = getattr(options, action.dest, action.default)
        if not action.option_strings or action.dest == "json" or value == action.default:
            continue
        if action.dest == "test_file":
            value = [Path(file).name for file in value]
        elif action.dest == "dataset_name":
            value = public_name(value)
        words += [action.option_strings[0], *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)
