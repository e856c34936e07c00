"""The demo: a page that translates, with the best translations, their scores and alignments, and attention heads."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .attention import check_model
from .attention_picture import KINDS, AttentionPicture
from .demo_page import STYLE, TOUCH, show_header, show_message, show_translations
from .demo_translation import LARGEST_ALPHA, MOST_BEAMS, DemoTranslator
from .errors import InputError
from .pictures import to_svg
from .pipeline_vaswani import TranslationPipeline

if TYPE_CHECKING:
    import gradio

logger = logging.getLogger(__name__)

DEFAULT_PORT = 7860
HOST = "127.0.0.1"
# A name such as tatoeba-en-de tells the languages.
LANGUAGES_OF_NAME = re.compile(r"(?:^|[-_./])([a-z]{2})-([a-z]{2})$")
EXAMPLES = {
    "en": ("Where is the book?", "If it rains tomorrow, we will stay at home. I don't know what Tom wants to buy."),
    "de": ("Wo ist das Buch?", "Wenn es morgen regnet, bleiben wir zu Hause. Ich weiß nicht, was Tom kaufen möchte."),
}
KIND_LABELS = {
    "alignment": "alignment of the words",
    "encoder": "encoder: source to source",
    "decoder": "decoder: translation to itself",
    "cross": "cross: translation to source",
}
EVERY, MEAN = "every head", "mean of the heads"
FOOTER = "<p>What you write is translated by the model on this server, and neither saved nor passed on.</p>"


def require_gradio() -> None:
    """Look, before the work, whether all that the demo needs is installed.

    Raises:
        InputError: If it is not.
    """
    for package, name in (("gradio", "Gradio"), ("matplotlib", "matplotlib"), ("sentencex", "sentencex")):
        # None in sys.modules is a package that must not be imported, for which find_spec has an error of its own.
        if (package in sys.modules and sys.modules[package] is None) or find_spec(package) is None:
            raise InputError(f"the demo needs {name}: pip install 'vaswani-transformer[demo]'")


def create_demo(pipeline: TranslationPipeline, name: str, *, source_lang: str | None = None) -> gradio.Blocks:
    """The page as an app of Gradio; [`launch_demo`] serves it.

    Args:
        pipeline: A model of this package and its tokenizer.
        name: What the page calls the model.
        source_lang: Code of the language that the model reads, for the rules by which texts are split into
            sentences; by the end of `name`, if it is one such as `en-de`, else English.

    Raises:
        InputError: If a package is missing, or the model is another.
    """
    require_gradio()
    import gradio

    check_model(pipeline.model)
    language = source_lang or source_language(name)
    translator = DemoTranslator(pipeline, language)
    config, search = pipeline.model.config, pipeline.model.generation_config
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers, "cross": config.decoder_layers}

    def translate(text: object, beams: object, alpha: object) -> tuple[Any, ...]:
        """The translations of a text as HTML, and its sentences to choose from below; or what is amiss."""
        try:
            sentences = translator.translate(text, beams, alpha)
        except InputError as error:
            return show_message(str(error)), gradio.update(choices=[], value=None), gradio.update(open=False), ""
        choices = [sentence.source for sentence in sentences if sentence.candidates]
        chosen = gradio.update(choices=choices, value=choices[0] if choices else None)
        return show_translations(sentences, alpha), chosen, gradio.update(open=False), ""

    def show_attention(
        sentence: object, kind: object, layer: object, head: object, words: object, beams: object, alpha: object
    ) -> tuple[Any, ...]:
        """A picture of what attends to what in one sentence and its best translation, and the layers there are."""
        of_heads = isinstance(kind, str) and kind in layers
        numbers = list(range(1, layers[kind] + 1)) if of_heads else [1]
        layer = layer if layer in numbers else 1
        controls = (
            gradio.update(choices=[(f"layer {number}", number) for number in numbers], value=layer, visible=of_heads),
            gradio.update(visible=of_heads),
            gradio.update(visible=of_heads),
        )
        if sentence is None:
            return *controls, show_message("Translate something first; its sentences are then here to choose from.")
        try:
            attention = translator.attention(sentence, beams, alpha, words=not of_heads or words is True)
            picture = AttentionPicture(attention, kind, **_panels(of_heads, layer, head))
        except InputError as error:
            return *controls, show_message(str(error))
        svg = to_svg(picture.draw())
        return *controls, f'<div class="demo-picture">{svg[svg.index("<svg") :]}</div>'

    plain = {"js_on_load": None, "apply_default_css": False}
    with gradio.Blocks(title=f"{name}: translation", analytics_enabled=False) as demo:
        gradio.HTML(show_header(name), elem_id="header", **plain)
        text = gradio.Textbox(
            label="Text",
            placeholder="Write here. Enter translates, Shift and Enter begin a new line.",
            lines=1,  # with more, Enter would not translate
            max_lines=12,
            autofocus=True,
            elem_id="text",
        )
        with gradio.Row(elem_id="examples"):
            examples = [gradio.Button(example, size="sm") for example in EXAMPLES.get(language, ())]
        with gradio.Row():
            beams = gradio.Slider(
                1,
                MOST_BEAMS,
                value=min(max(search.num_beams or 1, 1), MOST_BEAMS),
                step=1,
                label="Beams",
                info="Translations that the search follows",
                elem_id="beams",
            )
            alpha = gradio.Slider(
                0,
                LARGEST_ALPHA,
                value=min(max(search.length_penalty or 0.0, 0.0), LARGEST_ALPHA),
                step=0.1,
                label="Alpha",
                info="More favours longer translations",
                elem_id="alpha",
            )
        button = gradio.Button("Translate", variant="primary", elem_id="translate")
        result = gradio.HTML(elem_id="result", js_on_load=TOUCH, apply_default_css=False)
        with gradio.Accordion("Attention heads", open=False, elem_id="heads") as heads:
            sentence = gradio.Dropdown([], label="Sentence", interactive=True, elem_id="sentence")
            kind = gradio.Radio([(KIND_LABELS[each], each) for each in KINDS], value=KINDS[0], label="Attention")
            with gradio.Row():
                layer = gradio.Dropdown([("layer 1", 1)], value=1, label="Layer", visible=False, interactive=True)
                head = gradio.Dropdown(
                    [
                        EVERY,
                        MEAN,
                        *((f"head {number}", number) for number in range(1, config.num_attention_heads + 1)),
                    ],
                    value=EVERY,
                    label="Heads",
                    visible=False,
                    interactive=True,
                )
                words = gradio.Checkbox(True, label="Words, not their pieces", visible=False)
            picture = gradio.HTML(elem_id="picture", **plain)
        gradio.HTML(FOOTER, elem_id="footer", **plain)

        # The functions check all they get, with kinder words than the components have: hence no preprocessing.
        asked = {
            "fn": translate,
            "inputs": [text, beams, alpha],
            "outputs": [result, sentence, heads, picture],
            "preprocess": False,
            "trigger_mode": "always_last",
            "concurrency_limit": 1,
            "show_progress": "minimal",
        }
        gradio.on([button.click, text.submit, beams.release, alpha.release], api_name="translate", **asked)
        for each in examples:
            each.click(lambda value: value, each, text, queue=False, api_visibility="private", preprocess=False).then(
                api_visibility="private", **asked
            )
        gradio.on(
            [heads.expand, sentence.input, kind.input, layer.input, head.input, words.input],
            show_attention,
            [sentence, kind, layer, head, words, beams, alpha],
            [layer, head, words, picture],
            preprocess=False,
            trigger_mode="always_last",
            concurrency_limit=1,
            show_progress="minimal",
            api_name="attention",
        )
    demo.validate_inputs = check_inputs
    return demo.queue(api_open=False)


def check_inputs(function: gradio.block_function.BlockFunction, inputs: list[Any]) -> None:
    """In place of Gradio's check, which prints what a visitor wrote, and lets files through.

    Raises:
        gradio.Error: If a call brings too few values, or others than texts, numbers and truth values.
    """
    import gradio

    expected = len(function.inputs)
    if len(inputs) < expected or any(isinstance(value, dict | list) for value in inputs):
        raise gradio.Error(f"Expected {expected} texts, numbers or truth values.", print_exception=False)


class MalformedRequests:
    """Answers a request that Gradio's own routes stumble over in one line, with no traceback here or there.

    Args:
        app: What answers all others (ASGI).
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Pass a request on."""
        from starlette.responses import JSONResponse

        begun = False

        async def note(message: dict[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, note)
        except Exception as error:  # of Gradio's, such as KeyError for a function that is not there
            if scope["type"] != "http" or begun:
                raise
            logger.info(f"a malformed request ({type(error).__name__})")
            await JSONResponse({"detail": "malformed request"}, status_code=400)(scope, receive, send)


def launch_demo(demo: gradio.Blocks, **settings: Any) -> None:
    """Serve a demo with its look, and without what Gradio would keep or tell others.

    Args:
        demo: Of [`create_demo`].
        **settings: Further arguments of `launch()`, such as `server_port`.
    """
    import gradio
    from starlette.middleware import Middleware

    # Fonts of the visitor's own machine: none is fetched from elsewhere.
    theme = gradio.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]).set(
        body_background_fill="*neutral_100",
        block_title_background_fill="none",
        block_title_background_fill_dark="none",
        block_title_text_color="*body_text_color",
        block_title_text_color_dark="*body_text_color",
        block_title_padding="0",
        input_border_width="1px",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_600",
        checkbox_border_color="*neutral_400",
        checkbox_border_color_dark="*neutral_500",
        checkbox_label_border_width="1px",
        checkbox_label_border_color="*neutral_300",
        checkbox_label_border_color_dark="*neutral_600",
        # Gradio's own are too pale to read with ease.
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_300",
    )
    demo.launch(
        theme=theme,
        css=STYLE,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        share=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        max_file_size=1,  # nobody has a file to send
        state_session_capacity=32,  # in memory; nothing here needs what Gradio remembers of a visitor
        app_kwargs={"middleware": [Middleware(MalformedRequests)]},
        quiet=True,
        **settings,
    )


def run_demo(
    pipeline: TranslationPipeline, name: str, port: int = DEFAULT_PORT, *, source_lang: str | None = None
) -> None:
    """Serve the demo of a model on this machine alone, until Ctrl-C.

    Args:
        pipeline: See [`create_demo`].
        name: Likewise.
        port: Where on 127.0.0.1.
        source_lang: See [`create_demo`].

    Raises:
        InputError: If a package is missing, or the port is taken or none.
    """
    if not 1 <= port <= 65535:
        raise InputError(f"--port: expected a number from 1 to 65535, got {port}")
    demo = create_demo(pipeline, name, source_lang=source_lang)
    try:
        launch_demo(demo, server_name=HOST, server_port=port, prevent_thread_lock=True)
    except OSError as error:
        raise InputError(f"--port: {port} is taken, or not for everyone's use; choose another") from error
    print(f"{name} translates at {demo.local_url} until Ctrl-C", file=sys.stderr, flush=True)
    try:
        while demo.is_running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    finally:
        demo.close(verbose=False)


def source_language(name: str) -> str:
    """The language that a model reads by its name, `de` for `tatoeba-de-en`; English where it tells none."""
    match = LANGUAGES_OF_NAME.search(name)
    return match[1] if match else "en"


def _panels(of_heads: bool, layer: object, head: object) -> dict[str, Any]:
    """Which layers and heads a picture has, as [`AttentionPicture`] takes them."""
    if not of_heads:
        return {}
    if head in (EVERY, MEAN):
        return {"layers": [layer], "average": head == MEAN}
    if not isinstance(head, int) or isinstance(head, bool):
        raise InputError("Heads must be one of those in the list.")
    return {"layers": [layer], "heads": [head]}
