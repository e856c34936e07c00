"""The demo as a visitor has it: in Chromium, light and dark, wide and phone-narrow, by mouse, finger and keyboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from demo_server import MARKUP, MODEL, SENTENCE, serve

from vaswani_transformer.translation import load_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TRANSLATION = "Wenn es morgen regnet, bleiben wir zu Hause."
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(load_pipeline(MODEL), MODEL) as address:
        yield address


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=[("light", WIDE), ("dark", NARROW)], ids=["light-wide", "dark-narrow"])
def page(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The demo's page, which asks nobody else, and has no error, no alert and nothing beyond its right edge."""
    scheme, viewport = request.param
    context = browser.new_context(color_scheme=scheme, viewport=viewport, has_touch=viewport is NARROW)
    page = context.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url)
    page.wait_for_selector("#text textarea")
    yield page
    if pictures := os.environ.get("DEMO_SCREENSHOTS"):
        page.screenshot(path=Path(pictures) / f"{request.node.name}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    assert not [address for address in asked if not address.startswith((url, "data:", "blob:"))]
    assert errors == []
    context.close()


def translate(page: Page, text: str) -> None:
    page.fill("#text textarea", text)
    page.press("#text textarea", "Enter")
    page.wait_for_selector("#result .demo-sentences, #result .demo-message")


def wait_for(page: Page, selector: str, text: str) -> None:
    """Wait until an element has just this text."""
    page.wait_for_function(
        "([selector, text]) => [...document.querySelectorAll(selector)].some((each) => each.textContent === text)",
        arg=[selector, text],
    )


def lit(page: Page) -> list[str]:
    return [word.inner_text() for word in page.locator(".demo-lit").all()]


def word(page: Page, line: str, text: str) -> str:
    return f"{line} .demo-word:text-is('{text}') >> nth=0"


def contrast(page: Page, selector: str) -> float:
    """The contrast of a text with what is behind it, as WCAG reckons it."""
    return page.evaluate(
        """(selector) => {
            const luminance = (color) => {
                const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map((value) => value / 255)
                    .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const element = document.querySelector(selector);
            let behind = element;
            const clear = (node) => getComputedStyle(node).backgroundColor.replaceAll(' ', '').endsWith(',0)');
            while (clear(behind) && behind.parentElement) behind = behind.parentElement;
            const [one, other] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
                .map(luminance).sort((a, b) => b - a);
            return (one + 0.05) / (other + 0.05);
        }""",
        selector,
    )


def test_a_text_is_translated_and_words_light_up(page: Page) -> None:
    translate(page, f"{SENTENCE} Where is the book?")
    assert page.locator(".demo-best").all_inner_texts() == [TRANSLATION, "Wo ist das Buch?"]
    touched = page.locator(word(page, ".demo-source", "tomorrow"))
    (touched.tap if page.viewport_size == NARROW else touched.hover)()
    # Those of the closed list of candidates are lit, too, where nobody sees them.
    assert set(lit(page)) == {"tomorrow", "morgen", ""}
    assert contrast(page, ".demo-lit") >= 4.5
    touched = page.locator(word(page, ".demo-best", "Hause"))
    (touched.tap if page.viewport_size == NARROW else touched.hover)()
    assert set(lit(page)) == {"home", "Hause", ""}
    page.click("#header h1")
    if page.viewport_size == WIDE:
        assert lit(page) == []


def test_words_can_be_reached_by_the_keyboard(page: Page) -> None:
    translate(page, SENTENCE)
    page.focus(".demo-source .demo-word")
    assert "If" in lit(page)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert {"tomorrow", "morgen"} <= set(lit(page))
    page.keyboard.press("Tab")  # to the line of the translation
    assert page.evaluate("document.activeElement.textContent") == "Wenn"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "Wenn"
    page.keyboard.press("Escape")
    assert lit(page) == []


def test_candidates_are_listed_with_scores_and_touchable(page: Page) -> None:
    translate(page, SENTENCE)
    page.click(".demo-sentence summary")
    scores = [float(text.replace("−", "-")) for text in page.locator(".demo-score").all_inner_texts()]
    assert len(scores) > 1
    assert scores == sorted(scores, reverse=True)
    page.locator(word(page, ".demo-sentence td", "morgen")).hover()
    assert lit(page).count("morgen") == len(scores) + 1
    for selector in (
        "#header p",
        "#footer p",
        ".demo-source",
        ".demo-legend",
        ".demo-sentence summary",
        ".demo-score",
    ):
        assert contrast(page, selector) >= 4.5, selector


def test_an_example_is_translated_by_a_click_and_again_with_other_beams(page: Page) -> None:
    page.click("#examples button >> nth=0")
    wait_for(page, ".demo-best", "Wo ist das Buch?")
    assert page.input_value("#text textarea") == "Where is the book?"
    beams = page.locator("#beams input[type=range]")
    box = beams.bounding_box()
    page.mouse.click(box["x"] + 1, box["y"] + box["height"] / 2)
    assert beams.input_value() == "1"
    page.wait_for_selector(".demo-sentence summary:text-matches('^score −[0-9.]+$')")  # greedy: no others


def test_messages_are_in_the_page_and_readable(page: Page) -> None:
    for text, message in (
        ("   ", "Write something to translate"),
        ("a" * 6_000, "6,000 characters"),
        ("Hi. " * 1_000, "1,000 sentences"),
        ("Привет, мир!", "hardly knows these characters"),
        ("a " * 120, "more than the 100"),
        ("Tom is in 東京 😀.", "may garble it"),
        ("w" * 4_000, "Not translated: 4,0"),
    ):
        page.fill("#text textarea", text)
        page.click("#translate")
        page.wait_for_selector(f"#result :text('{message}')")
        assert contrast(page, ".demo-message, .demo-problem, .demo-remark") >= 4.5
        assert page.locator(".toast-body").count() == 0
    translate(page, MARKUP)
    page.wait_for_selector(".demo-source :text('alert')")
    assert " ".join(page.locator(".demo-source").all_inner_texts()) == MARKUP
    assert page.locator("#result img, #result script").count() == 0


def test_heads_can_be_browsed(page: Page) -> None:
    page.click("#heads button >> nth=0")
    page.wait_for_selector("#picture .demo-message:text-matches('^Translate something first')")
    translate(page, f"Where is the book? {SENTENCE}")
    page.click("#heads button >> nth=0")
    page.wait_for_selector("#picture svg")
    assert {"Wo", "book"} <= set(page.locator("#picture svg text").all_text_contents())
    page.click("#heads label:has-text('encoder')")
    wait_for(page, "#picture svg text", "layer 1, head 4")
    page.click("#heads input[aria-label=Layer]")
    page.click("ul[role=listbox] >> text=layer 3")
    wait_for(page, "#picture svg text", "layer 3, head 4")
    page.click("#heads input[aria-label=Heads]")
    page.click("ul[role=listbox] >> text=mean of the heads")
    wait_for(page, "#picture svg text", "layer 3, mean of all heads")
    page.click("#heads input[aria-label=Sentence]")
    page.click(f"ul[role=listbox] >> text={SENTENCE}")
    wait_for(page, "#picture svg text", "tomorrow")
    # The next translation puts the picture of the last away.
    translate(page, "She has two cats.")
    wait_for(page, ".demo-source", "She has two cats.")
    page.wait_for_selector("#picture svg", state="detached")
