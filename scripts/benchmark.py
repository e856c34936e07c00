"""Benchmarks, all sides of each in one run: `python scripts/benchmark.py BENCHMARK --help`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers

from corpus_memory import corpus
from engines import DEVICE, Engine, EngineProcess, load_engine
from peak_memory import measure_peak_memory
from trainers import TRAINERS, Work, load_trainer, save, train_for
from vaswani_transformer.checkpoints import check_output
from vaswani_transformer.corpora import load_corpus, open_corpus, sentences
from vaswani_transformer.ctranslate2_export import INSTALL_CTRANSLATE2
from vaswani_transformer.errors import InputError
from vaswani_transformer.evaluation import score_translations
from vaswani_transformer.preprocessing import learn_tokenizer, tokenize_corpus
from vaswani_transformer.training_arguments import (
    ArgumentParser,
    parse_training_arguments,
)
from vaswani_transformer.translation import load_model, load_pipeline, local_folder, translate
from workload import Workload

OURS = "vaswani_transformer"
MARIAN = "MarianMTModel, float32"
SEQ2SEQ_TRAINER = "MarianMTModel, Seq2SeqTrainer, float32"
PRODUCTS = "matrix products alone"
MEMORY_WORKLOAD = Workload(sentences=64, source_tokens=200)
ENGINE_PACKAGES = ("torch", "transformers", "ctranslate2")

Result = TypeVar("Result")


def time_in_turns(
    sides: dict[str, Callable[[], Result]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[Result]]]:
    """Seconds and results of each side, one side after the other in `rounds` turns; one turn before them warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    results: dict[str, list[Result]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, run in sides.items():
            started = time.perf_counter()
            result = run()
            if turn:
                seconds[name].append(time.perf_counter() - started)
                results[name].append(result)
    return seconds, results


def rates(counts: Sequence[int], seconds: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of the counts a second."""
    found = [count / duration for count, duration in zip(counts, seconds, strict=True)]
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def train(options: argparse.Namespace) -> dict:
    """Target tokens a second, use of the hardware, memory and padding of each trainer, in turns."""
    shape = ["--preset", options.preset, "--vocab-size", str(options.vocab_size)]
    files = ["--train-file", options.train_file, "--validation-file", options.train_file, "--max-length", "100"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = [*shape, *files, "--batch-tokens", str(options.batch_tokens), "--max-steps", "1"]
        settings = parse_training_arguments([*flags, "--output-dir", str(folder / "run")])
        languages = (settings.source_lang, settings.target_lang)
        corpus = open_corpus([options.train_file], source_lang=languages[0], target_lang=languages[1])
        tokenizer = learn_tokenizer(corpus, options.vocab_size)
        save(tokenize_corpus(corpus, tokenizer, max_length=settings.max_length)[0], tokenizer, folder)
        loads = {
            f"{trainer}, {precision}": partial(load_trainer, trainer, settings, folder, precision == "bfloat16")
            for trainer in TRAINERS
            for precision in ("bfloat16", "float32")
        }
        run = partial(train_for, seconds=options.seconds)
        with ExitStack() as stack:
            sides = {name: stack.enter_context(EngineProcess(load)) for name, load in loads.items()}
            turns = {name: partial(side.run, run) for name, side in sides.items()}
            seconds, work = time_in_turns(turns, options.rounds)
        peaks = {
            name: measure_peak_memory(load, type, run)  # what trains takes its optimizer too
            for name, load in loads.items()
            if not name.startswith(PRODUCTS)
        }
    products = {
        precision: rates([turn.flops for turn in work[name]], seconds[name])
        for precision in ("bfloat16", "float32")
        for name in [f"{PRODUCTS}, {precision}"]
    }
    print(f"{options.preset}, {len(tokenizer):,} entries; {options.train_file}, {options.batch_tokens:,} a batch")
    print(f"{'':40}{'target tokens/s':>16}{'(min to max)':>18}{'ratio':>7}{'MFU':>6}{'MiB':>8}{'padding':>9}")
    rows = {}
    reference = rates([turn.target_tokens for turn in work[SEQ2SEQ_TRAINER]], seconds[SEQ2SEQ_TRAINER])["median"]
    for name in peaks:
        speed = rates([turn.target_tokens for turn in work[name]], seconds[name])
        total = sum(work[name], Work())
        flops = rates([turn.flops for turn in work[name]], seconds[name])["median"]
        rows[name] = {
            "target_tokens_per_second": speed,
            "ratio": speed["median"] / reference,
            "model_flop_utilisation": flops / products[name.rpartition(", ")[2]]["median"],
            "peak_memory_bytes": peaks[name],
            "padding": 1 - total.tokens / total.positions,
        }
        spread = f"({speed['min']:,.0f} to {speed['max']:,.0f})"
        print(
            f"{name:40}{speed['median']:16,.0f}{spread:>18}{rows[name]['ratio']:7.2f}"
            f"{rows[name]['model_flop_utilisation']:6.0%}{mebibytes(peaks[name]):>8}{rows[name]['padding']:9.1%}"
        )
    for precision, rate in products.items():
        spread = f"({rate['min'] / 1e9:,.0f} to {rate['max'] / 1e9:,.0f})"
        print(f"{f'{PRODUCTS}, {precision}':40}{rate['median'] / 1e9:16,.0f}{spread:>18} GFLOP/s")
    print("medians of the turns; ratio to Marian's in float32; MFU against the products of the same precision")
    return {"matrix_product_flops_per_second": products, "rows": rows}


def decode(options: argparse.Namespace) -> dict:
    """Speed, memory and, where the weights are real, BLEU of the three engines, in turns."""
    given = workload_options(options)
    if (options.model is None) != (options.test_file is None):
        raise InputError("--model and --test-file go together: a real model needs text to translate")
    if options.model is not None and given:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise InputError(f"{flag} is for random weights; leave it out, or --model and --test-file")
    workload = Workload(**given)
    if options.model is not None:
        return decode_test_file(options.model, options.test_file, options.rounds)
    return decode_workload(workload, options.rounds)


def decode_workload(workload: Workload, rounds: int) -> dict:
    """Random weights: every engine decodes the batch to exactly the same length."""
    with tempfile.TemporaryDirectory() as folder:
        workload.save_model(folder)
        rows = [(engine, precision) for engine in (OURS, "MarianMTModel") for precision in ("float32", "bfloat16")]
        loads = engine_loads(folder, rows)
        seconds, targets, peaks = decode_in_turns(loads, workload.warm_up(), workload.run(), rounds)
    tokens = {name: [sum(map(len, batch)) for batch in targets[name]] for name in loads}
    print(f"{workload}, beam {workload.num_beams}")
    return {**asdict(workload), "rows": tabulate(workload.sentences, tokens, seconds, peaks)}


def decode_test_file(model: str, test_file: list[str], rounds: int) -> dict:
    """A real model: every engine translates the test set as its users would."""
    corpus = load_corpus(test_file)
    sources, references = (list(sentences(corpus, language)) for language in ("en", "de"))
    _, tokenizer = load_model(model)
    rows = [(OURS, "float32"), (OURS, "bfloat16"), (f"{OURS}*", "float32"), ("MarianMTModel", "float32")]
    loads = engine_loads(model, rows)
    run, warm_up = methodcaller("translate", sources), methodcaller("translate", sources[:1])
    seconds, translations, peaks = decode_in_turns(loads, warm_up, run, rounds)
    tokens = {name: [sum(map(len, tokenizer(texts)["input_ids"])) for texts in translations[name]] for name in loads}
    bleu = {name: score_translations(translations[name][-1], references)["bleu"] for name in loads}
    print(f"{model}; {len(sources):,} sentences of {', '.join(test_file)}, beam 4")
    rows = tabulate(len(sources), tokens, seconds, peaks, bleu)
    print("* with the others' length penalty, n^alpha, in place of the paper's")
    return {"model": model, "test_file": test_file, "sentences": len(sources), "rows": rows}


def engine_loads(model: str, rows: list[tuple[str, str]]) -> dict[str, Callable[[], Engine]]:
    """What loads the engine of each row: `rows` of torch's engines and precisions, then those of CTranslate2."""
    if find_spec("ctranslate2") is None:
        print(f"benchmark.py: {INSTALL_CTRANSLATE2}; going on without it", file=sys.stderr)
    else:
        precisions = ["float32", "int8"] if DEVICE == "cpu" else ["float16", "bfloat16"]
        rows = [*rows, *(("CTranslate2", precision) for precision in precisions)]
    return {f"{engine}, {precision}": partial(load_engine, engine, model, precision) for engine, precision in rows}


def decode_in_turns(
    loads: dict[str, Callable[[], Engine]],
    warm_up: Callable[[Engine], list[Result]],
    run: Callable[[Engine], list[Result]],
    rounds: int,
) -> tuple[dict[str, list[float]], dict[str, list[list[Result]]], dict[str, int | None]]:
    """Seconds and results of `run(engine)` of each row in turns, and the bytes that it needs at its peak."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(EngineProcess(load)) for name, load in loads.items()}
        seconds, results = time_in_turns({name: partial(each.run, run) for name, each in processes.items()}, rounds)
    return seconds, results, {name: measure_peak_memory(load, warm_up, run) for name, load in loads.items()}


def tabulate(
    sentence_count: int,
    tokens: dict[str, list[int]],
    seconds: dict[str, list[float]],
    peaks: dict[str, int | None],
    bleu: dict[str, float] | None = None,
) -> dict[str, dict]:
    """Print the table, and return its rows.

    Args:
        sentence_count: Sentences that every turn decodes.
        tokens: Target tokens of each row's turns.
        seconds: How long these took.
        peaks: Peak memory of each row in bytes, `None` where it is not known.
        bleu: BLEU of each row, where the weights are real.
    """
    print(
        f"{'':30}{'sentences/s':>12}{'target tokens/s':>17}{'(min to max)':>20}{'ratio':>7}{'MiB':>8}"
        + (f"{'BLEU':>8}" if bleu else "")
    )
    rows = {}
    reference = rates(tokens[MARIAN], seconds[MARIAN])["median"]
    for name in tokens:
        speed = rates([sentence_count] * len(seconds[name]), seconds[name])
        token_speed = rates(tokens[name], seconds[name])
        rows[name] = {
            "sentences_per_second": speed,
            "target_tokens_per_second": token_speed,
            "ratio": token_speed["median"] / reference,
            "peak_memory_bytes": peaks[name],
        }
        spread = f"({token_speed['min']:,.0f} to {token_speed['max']:,.0f})"
        line = f"{name:30}{speed['median']:12,.1f}{token_speed['median']:17,.0f}{spread:>20}"
        line += f"{rows[name]['ratio']:7.2f}{mebibytes(peaks[name]):>8}"
        if bleu:
            rows[name]["bleu"] = bleu[name]
            line += f"{bleu[name]:8.2f}"
        print(line)
    print("medians of the turns; ratio of target tokens/s to Marian's in float32; MiB at the peak above the weights")
    return rows


def mebibytes(count: int | None) -> str:
    """`count` bytes in MiB, or a dash where it is not known."""
    return "-" if count is None else f"{count / 2**20:,.0f}"


def memory(options: argparse.Namespace) -> dict:
    """Memory above the weights with a beam and without, of this package and of `MarianMTModel`."""
    workload = replace(MEMORY_WORKLOAD, **workload_options(options))
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        workload.save_model(folder)
        for engine in (OURS, "MarianMTModel"):
            load = partial(load_engine, engine, folder, "float32")
            peaks = [
                measure_peak_memory(load, work.warm_up(), work.run())
                for work in (workload, replace(workload, num_beams=1))
            ]
            if None in peaks:
                raise InputError("the memory of a process cannot be measured here; it needs Linux, or a GPU")
            rows[f"{engine}, float32"] = {
                "beam_bytes": peaks[0],
                "greedy_bytes": peaks[1],
                "ratio": peaks[0] / peaks[1],
            }
    print(workload)
    print(f"{'MiB above the weights':30}{f'beam {workload.num_beams}':>10}{'beam 1':>10}{'ratio':>8}")
    for name, row in rows.items():
        print(f"{name:30}{mebibytes(row['beam_bytes']):>10}{mebibytes(row['greedy_bytes']):>10}{row['ratio']:8.2f}")
    return {**asdict(workload), "rows": rows}


def pipeline(options: argparse.Namespace) -> dict:
    """Sentences a second of `pipeline("translation")` against the command's `translate`, of one model, in turns."""
    corpus = load_corpus(options.test_file)
    sources = list(sentences(corpus.select(range(min(options.sentences, len(corpus)))), "en"))
    command = load_pipeline(options.model)
    public = transformers.pipeline("translation", model=str(local_folder(options.model)))

    def texts(records: Iterable[Any]) -> list[str]:
        # A list gives records, a stream a list of one for each text.
        return [(record[0] if isinstance(record, list) else record)["translation_text"] for record in records]

    sides = {
        "translate": lambda: list(translate(command, sources)),
        "a list": lambda: texts(public(sources)),
        "a list, batch_size=32": lambda: texts(public(sources, batch_size=32)),
        "a generator, batch_size=32": lambda: texts(public(iter(sources), batch_size=32)),
    }
    seconds, translations = time_in_turns(sides, options.rounds)
    reference = statistics.median(seconds["translate"])
    print(f"{options.model}; {len(sources):,} sentences of {', '.join(options.test_file)}, beam 4")
    print(f"{'':28}{'sentences/s':>12}{'(min to max)':>20}{'ratio':>7}{'as translate':>14}")
    rows = {}
    for name in sides:
        speed = rates([len(sources)] * options.rounds, seconds[name])
        ratio = reference / statistics.median(seconds[name])
        same = sum(map(str.__eq__, translations[name][-1], translations["translate"][-1])) / len(sources)
        rows[name] = {"sentences_per_second": speed, "ratio": ratio, "translated_as_by_translate": same}
        spread = f"({speed['min']:,.1f} to {speed['max']:,.1f})"
        print(f"{name:28}{speed['median']:12,.1f}{spread:>20}{ratio:7.2f}{same:14.1%}")
    return {"model": options.model, "test_file": options.test_file, "sentences": len(sources), "rows": rows}


def workload_options(options: argparse.Namespace) -> dict[str, Any]:
    """Those fields of [`Workload`] that were given."""
    return {option.name: getattr(options, option.name) for option in fields(Workload) if option.name in options}


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return int(text)


def create_parser() -> ArgumentParser:
    """The parser of the benchmarks."""
    parser = ArgumentParser(prog="benchmark.py", description=__doc__)
    benchmarks = parser.add_subparsers(required=True, metavar="BENCHMARK")

    training = benchmarks.add_parser("train", help="training against Seq2SeqTrainer and torch.nn.Transformer")
    training.add_argument("--train-file", required=True, help="a table of sentence pairs")
    training.add_argument("--preset", choices=("tiny", "base", "big"), default="base", help="shape of the models")
    training.add_argument("--vocab-size", type=positive, default=16_000, help="entries of their vocabulary")
    training.add_argument("--batch-tokens", type=positive, default=2048, help="positions of a side in a batch")
    training.add_argument("--seconds", type=positive, default=8, help="how long each side trains in a turn")
    training.set_defaults(run=train)

    decoding = benchmarks.add_parser("decode", help="decoding speed, memory and BLEU against Marian and CTranslate2")
    decoding.add_argument("--model", help="translate with this model, and not with random weights")
    decoding.add_argument("--test-file", nargs="+", help="pairs for --model: a table, or a source and a target")
    decoding.set_defaults(run=decode)

    peaks = benchmarks.add_parser("memory", help="memory of decoding above the weights, with a beam and without")
    peaks.set_defaults(run=memory)

    lists = benchmarks.add_parser("pipeline", help='speed of pipeline("translation") against the command translate')
    lists.add_argument("--model", default="tatoeba-en-de", help="a run folder or a checkpoint that ships")
    lists.add_argument("--test-file", nargs="+", required=True, help="a table of pairs, or a source and a target")
    lists.add_argument("--sentences", type=positive, default=1000, help="how many of them to translate")
    lists.set_defaults(run=pipeline)

    corpora = benchmarks.add_parser("corpus", help="memory and time of a corpus of many pairs: preparing, training")
    corpora.add_argument("--pairs", type=positive, nargs="+", default=[1_000_000, 5_000_000], help="sizes to compare")
    corpora.add_argument("--updates", type=positive, default=20, help="updates to train")
    corpora.add_argument("--folder", help="where the corpus and its cache lie meanwhile; a temporary one if not given")
    corpora.set_defaults(run=corpus)

    for benchmark, rounds in ((training, 7), (decoding, 5), (lists, 5)):
        benchmark.add_argument("--rounds", type=positive, default=rounds, help="turns that count")
    for benchmark, defaults in ((decoding, Workload()), (peaks, MEMORY_WORKLOAD)):
        for option in fields(Workload):
            choices = option.metadata.get("choices")
            benchmark.add_argument(
                f"--{option.name.replace('_', '-')}",
                type=str if choices else positive,
                choices=choices,
                default=argparse.SUPPRESS,  # `decode` must know which were given
                help=f"{option.metadata['help']} (default: {getattr(defaults, option.name)})",
            )
    for benchmark in (training, decoding, peaks, lists, corpora):
        benchmark.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; 0, or 2 for a mistake in what was given, told in one line."""
    try:
        options = create_parser().parse_strictly(sys.argv[1:] if arguments is None else arguments)
        if options.json:
            check_output(options.json)
        transformers.utils.logging.disable_progress_bar()
        figures = options.run(options)
    except InputError as error:
        print(f"benchmark.py: {error}", file=sys.stderr)
        return 2
    if options.json:
        figures |= {"device": DEVICE, "threads": torch.get_num_threads()}
        figures["versions"] = {name: version(name) for name in ENGINE_PACKAGES if find_spec(name)}
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
