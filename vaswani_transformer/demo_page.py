"""How the demo looks: its translations as HTML, the style of the page, and what a touch of a word lights up."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .demo_translation import Candidate, TranslatedSentence

# Colours are Gradio's own where it has them, so that light and dark follow it.
STYLE = """
.gradio-container { max-width: 56rem !important; margin: 0 auto !important; }
:root { --demo-lit: #ffd75e; --demo-lit-text: #1f1a00; --demo-line: #9a6a00; --demo-note: #84420a; }
.dark { --demo-lit: #7a5c00; --demo-lit-text: #fffbe8; --demo-line: #ffd75e; --demo-note: #fbbf6b; }
#header .html-container, #footer .html-container { padding: 0 0.25rem; }
#result .html-container, #picture .html-container { padding: 0; }
#header h1 { font-size: 1.6rem; font-weight: 650; margin: 0.5rem 0 0.25rem; overflow-wrap: anywhere; }
#header p, #footer p, .demo-legend { display: block; margin: 0; color: var(--body-text-color-subdued); }
#footer p, .demo-legend { font-size: 0.85rem; }
#text textarea { min-height: 5.5rem; font-size: 1.1rem; line-height: 1.5; }
#examples { gap: 0.5rem; flex-wrap: wrap; }
#examples button { flex: 0 1 auto; min-width: 0; font-weight: 400; text-align: start; white-space: normal; }
.demo-message { display: block; margin: 0; padding: 0.75rem 1rem; border-radius: 0.5rem;
  background: var(--block-background-fill); border-inline-start: 4px solid var(--demo-line); }
.demo-sentences { list-style: none; margin: 0; padding: 0; display: grid; gap: 0.75rem; }
.demo-sentence { margin: 0; padding: 1rem; border: 1px solid var(--border-color-primary); border-radius: 0.75rem;
  background: var(--block-background-fill); overflow-wrap: anywhere; min-width: 0; }
.demo-sentence p { display: block; margin: 0; line-height: 1.7; }
.demo-source { color: var(--body-text-color-subdued); }
.demo-untranslated { max-height: 8rem; overflow-y: auto; }
.demo-best { font-size: 1.25rem; }
.demo-problem, .demo-remark { color: var(--demo-note); font-size: 0.95rem; }
.demo-sentence details { margin-top: 0.5rem; }
.demo-sentence summary { cursor: pointer; font-size: 0.9rem; color: var(--body-text-color-subdued); }
.demo-sentence table { width: 100%; margin-top: 0.25rem; border-collapse: collapse; }
.demo-sentence th { text-align: start; font-weight: 500; font-size: 0.85rem; color: var(--body-text-color-subdued); }
.demo-sentence th, .demo-sentence td { padding: 0.2rem 1rem 0.2rem 0; vertical-align: top; line-height: 1.6; }
.demo-score { font-variant-numeric: tabular-nums; white-space: nowrap; width: 1%; }
.demo-word { border-radius: 0.25rem; padding: 0.1rem 0.05rem; cursor: pointer; }
.demo-word:focus { outline: none; }
.demo-word:focus-visible { outline: 2px solid var(--demo-line); outline-offset: 1px; }
.demo-lit { background: var(--demo-lit); color: var(--demo-lit-text); box-shadow: 0 2px 0 var(--demo-line); }
.demo-legend { margin-top: 0.75rem; padding: 0 0.25rem; }
/* The page does not grow with the picture, which scrolls in its place. */
.demo-picture { contain: inline-size; overflow-x: auto; padding: 0.5rem; border-radius: 0.5rem; background: white; }
.demo-picture svg { display: block; max-width: none; margin: 0 auto; }
"""

# Run once with the element that holds the translations, whatever they become.
TOUCH = """
let hovered = null, held = null;
const wordOf = (node) => node instanceof Element ? node.closest('.demo-word') : null;
function light() {
  element.querySelectorAll('.demo-lit').forEach((word) => word.classList.remove('demo-lit'));
  const word = hovered || held;
  if (!word || !word.isConnected) return;
  const same = `.demo-word[data-source="${word.dataset.source}"]`;
  word.closest('.demo-sentence').querySelectorAll(same).forEach((other) => other.classList.add('demo-lit'));
}
// A finger has no place to hover: its touch gives the focus, which stays when it is lifted.
element.addEventListener('pointerover', (event) => {
  hovered = event.pointerType === 'touch' ? null : wordOf(event.target); light();
});
element.addEventListener('pointerleave', () => { hovered = null; light(); });
element.addEventListener('focusin', (event) => { held = wordOf(event.target); light(); });
element.addEventListener('focusout', () => { held = null; light(); });
element.addEventListener('keydown', (event) => {
  const word = wordOf(event.target);
  if (!word) return;
  if (event.key === 'Escape') word.blur();
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const line = [...word.closest('[data-line]').querySelectorAll('.demo-word')];
  const next = line[line.indexOf(word) + step];
  if (next) { next.focus(); event.preventDefault(); }
});
"""


def show_header(name: str) -> str:
    """The top of the page: what translates, and what to do."""
    return (
        f"<h1>{escape(name)}</h1><p>The Transformer of 2017 translates, sentence by sentence. Touch a word to see the "
        "words that it is aligned with.</p>"
    )


def show_message(text: str) -> str:
    """A sentence or two for the visitor in place of a result."""
    return f'<p class="demo-message" role="status">{escape(text)}</p>'


def show_translations(sentences: Sequence[TranslatedSentence], alpha: float) -> str:
    """The sentences with their translations, of which each word knows the source's word that it is aligned with."""
    items = "".join(_show_sentence(sentence) for sentence in sentences)
    legend = (
        f"The score is the log-probability of the translation divided by ((5 + n) / 6)<sup>{alpha:g}</sup>, n its "
        "number of tokens: the nearer to 0, the better. With the keyboard, Tab goes to a line, and ← and → from word "
        "to word."
    )
    return f'<ol class="demo-sentences">{items}</ol><p class="demo-legend">{legend}</p>'


def _show_sentence(sentence: TranslatedSentence) -> str:
    source = [(start, end, number) for number, (start, end) in enumerate(sentence.words)]
    style = "demo-source demo-untranslated" if sentence.problem else "demo-source"
    parts = [f'<p class="{style}" dir="auto" data-line>{_show_words(sentence.source, source)}</p>']
    if sentence.problem:
        parts.append(f'<p class="demo-problem">{escape(sentence.problem)}</p>')
    else:
        best, *others = sentence.candidates
        parts.append(f'<p class="demo-best" dir="auto" data-line>{_show_words(best.text, best.words)}</p>')
        if sentence.remark:
            parts.append(f'<p class="demo-remark">{escape(sentence.remark)}</p>')
        parts.append(_show_candidates(best, others))
    return f'<li class="demo-sentence">{"".join(parts)}</li>'


def _show_candidates(best: Candidate, others: Sequence[Candidate]) -> str:
    rows = "".join(
        f'<tr><td class="demo-score" title="log-probability {each.log_probability:.3f}, {each.tokens} tokens">'
        f'{_signed(each.score)}</td><td dir="auto" data-line>{_show_words(each.text, each.words)}</td></tr>'
        for each in (best, *others)
    )
    also = f", and {len(others)} more" if others else ""
    return (
        f"<details><summary>score {_signed(best.score)}{also}</summary>"
        f"<table><tr><th>score</th><th>translation</th></tr>{rows}</table></details>"
    )


def _show_words(text: str, words: Sequence[tuple[int, int, int]]) -> str:
    """`text` with its words, from `start` to `end` each, as elements that can be touched."""
    parts, place = [], 0
    for start, end, source in words:
        # One stop of the Tab key for each line; arrow keys go on from there.
        stop = -1 if place else 0
        parts.append(escape(text[place:start]))
        parts.append(
            f'<span class="demo-word" tabindex="{stop}" data-source="{source}">{escape(text[start:end])}</span>'
        )
        place = end
    return "".join(parts) + escape(text[place:])


def _signed(score: float) -> str:
    return f"{score:.3f}".replace("-", "−")
