"""`vaswani-transformer demo`: a page that translates, for a browser."""

from __future__ import annotations

from ..training_arguments import ArgumentParser
from .options import MODEL_HELP, positive


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    from ..demo import DEFAULT_PORT

    parser = ArgumentParser(
        prog="vaswani-transformer demo",
        description="Serve a page on this machine that translates sentence by sentence, and shows the best "
        "translations with their scores, the alignment of their words and the attention heads. Ctrl-C ends it. Needs "
        "Gradio, matplotlib and sentencex: pip install 'vaswani-transformer[demo]'.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--port", type=positive, default=DEFAULT_PORT, help="Where on 127.0.0.1 the page is.")
    parser.add_argument(
        "--source-lang",
        metavar="CODE",
        help="Language whose rules split a text into sentences; by the end of the model's name, such as en-de, or "
        "English, if not given.",
    )
    return parser


def run(arguments: list[str]) -> int:
    """Serve the demo of a model until Ctrl-C."""
    options = create_parser().parse_strictly(arguments)

    from ..demo import require_gradio, run_demo
    from ..translation import load_pipeline

    require_gradio()
    run_demo(load_pipeline(options.model), options.model, options.port, source_lang=options.source_lang)
    return 0
