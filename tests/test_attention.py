"""What is read of a model's attention, against the model itself, and the pictures of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from vaswani_transformer import TranslationPipeline, VaswaniForConditionalGeneration
from vaswani_transformer.attention import SIDES, Attention, read_attention
from vaswani_transformer.attention_picture import KINDS, AttentionPicture
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.translation import PRETRAINED

MODEL = "tatoeba-en-de"
SENTENCE = "If it rains tomorrow, we will stay at home."
SENTENCES = [
    SENTENCE,
    "Wow!",
    "Tom's naïve cat isn't in 東京 for $5 or $6.",
    "well-known x</s> <b>unbelievableness</b>",
]


@pytest.fixture(scope="module")
def of_words(pipeline: TranslationPipeline) -> Attention:
    return read_attention(pipeline, SENTENCE, words=True)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_row_is_what_one_position_attends_to(pipeline: TranslationPipeline, sentence: str, words: bool) -> None:
    attention = read_attention(pipeline, sentence, words=words)
    config = pipeline.model.config
    for kind, layers in (("encoder", config.encoder_layers), ("decoder", 1), ("cross", config.decoder_layers)):
        weights = getattr(attention, kind)
        rows, columns = (getattr(attention, side) for side in SIDES[kind])
        assert weights.shape == (layers, config.num_attention_heads, len(rows), len(columns))
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    assert attention.translation == pipeline(sentence)[0]["translation_text"]
    assert (attention.source[-1], attention.read[0], attention.written[-1]) == ("</s>", "<s>", "</s>")
    assert attention.written[:-1] == attention.read[1:]
    if not words:
        assert "".join(attention.written[:-1]).replace("▁", " ").strip() == attention.translation
        ahead = torch.ones(attention.decoder.shape[-2:]).triu(1).bool()
        assert not attention.decoder[..., ahead].any()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_weights_are_those_of_the_eager_back_end(pipeline: TranslationPipeline, implementation: str) -> None:
    def load(implementation: str) -> VaswaniForConditionalGeneration:
        return VaswaniForConditionalGeneration.from_pretrained(
            PRETRAINED / MODEL, attn_implementation=implementation, dtype=torch.float64
        )

    model = load(implementation)
    attention = read_attention(TranslationPipeline(model, tokenizer=pipeline.tokenizer), SENTENCE)
    assert model.config._attn_implementation == implementation
    batch = pipeline.tokenizer([SENTENCE], return_tensors="pt")
    with torch.no_grad():
        model = load("eager")
        sequence = model.generate(**batch)
        outputs = model(**batch, decoder_input_ids=sequence[:, :-1], output_attentions=True)
    for kind in SIDES:
        expected = torch.cat(getattr(outputs, f"{kind}_attentions")).float()
        torch.testing.assert_close(getattr(attention, kind), expected)


def test_a_word_attends_as_its_pieces_do_and_gets_what_they_get(pipeline: TranslationPipeline) -> None:
    sentence = "An unbelievableness overwhelmed them."
    pieces, words = (read_attention(pipeline, sentence, words=words) for words in (False, True))
    assert words.source == ["An", "unbelievableness", "overwhelmed", "them", ".", "</s>"]
    assert len(pieces.source) > len(words.source)

    def places(labels: list[str]) -> list[list[int]]:
        """By the marks of the pieces: a word is what begins with one, the signs are alone."""
        groups: list[list[int]] = []
        for place, label in enumerate(labels):
            alone = label.startswith("▁") or label in (".", "</s>", "<s>")
            groups = [*groups, [place]] if alone or not groups else [*groups[:-1], [*groups[-1], place]]
        return groups

    for kind, (row_side, column_side) in SIDES.items():
        rows, columns = places(getattr(pieces, row_side)), places(getattr(pieces, column_side))
        before, after = getattr(pieces, kind), getattr(words, kind)
        for row, attending in enumerate(rows):
            for column, attended in enumerate(columns):
                expected = sum(before[..., i, j] for i in attending for j in attended) / len(attending)
                torch.testing.assert_close(after[..., row, column], expected)


def test_the_alignment_is_the_pipelines(pipeline: TranslationPipeline, of_words: Attention) -> None:
    shares = of_words.alignment()
    alignments = pipeline(SENTENCE, return_alignments=True)[0]["alignments"]
    assert [each["target"] for each in alignments] == of_words.written[:-1]
    words = len(of_words.source) - 1  # the pipeline leaves the end out
    for row, each in zip(shares, alignments, strict=False):
        assert of_words.source[int(row[:words].argmax())] == each["source"]
        assert round(float(row[:words].max()), 4) == each["score"]


def test_the_search_can_be_changed(pipeline: TranslationPipeline) -> None:
    greedy = read_attention(pipeline, SENTENCE, num_beams=1, max_new_tokens=3)
    assert len(greedy.written) == 3
    assert greedy.cross.shape[-2] == 3


@pytest.mark.parametrize("sentence", ["", " \n"])
def test_there_must_be_a_sentence(pipeline: TranslationPipeline, sentence: str) -> None:
    with pytest.raises(InputError, match="empty"):
        read_attention(pipeline, sentence)
    with pytest.raises(InputError, match="501 tokens is longer than the 100"):
        read_attention(pipeline, "word " * 500)


def test_another_model_is_refused(pipeline: TranslationPipeline) -> None:
    config = MarianConfig(
        vocab_size=300, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=0, forced_eos_token_id=2,
    )  # fmt: skip
    marian = TranslationPipeline(MarianMTModel(config), tokenizer=pipeline.tokenizer)
    with pytest.raises(InputError, match="found one of the type marian"):
        read_attention(marian, SENTENCE)


def test_a_picture_shows_the_weights_and_the_words(of_words: Attention) -> None:
    for kind in SIDES:
        picture = AttentionPicture(of_words, kind)
        figure = picture.draw()
        weights = getattr(of_words, kind)
        panels = figure.axes[: weights.shape[0] * weights.shape[1]]
        for number, axes in enumerate(panels):
            layer, head = divmod(number, weights.shape[1])
            assert axes.get_xlabel() == f"layer {layer + 1}, head {head + 1}"
            shown = torch.as_tensor(axes.images[0].get_array().data)
            torch.testing.assert_close(shown, weights[layer, head], check_dtype=False)
        rows, columns = (getattr(of_words, side) for side in SIDES[kind])
        assert [label.get_text() for label in panels[0].get_yticklabels()] == rows
        assert [label.get_text() for label in panels[0].get_xticklabels()] == columns


def test_layers_and_heads_are_chosen(of_words: Attention) -> None:
    picture = AttentionPicture(of_words, "encoder", layers=[3, 1, 3], heads=[2])
    assert [[panel.title for panel in row] for row in picture.panels] == [["layer 3, head 2"], ["layer 1, head 2"]]
    torch.testing.assert_close(picture.panels[1][0].weights, of_words.encoder[0, 1])
    picture = AttentionPicture(of_words, "encoder", layers=[2], average=True)
    assert [panel.title for panel in picture.panels[0]] == ["layer 2, mean of all heads"]
    torch.testing.assert_close(picture.panels[0][0].weights, of_words.encoder[1].mean(dim=0))
    picture = AttentionPicture(of_words, "encoder", layers=[2], heads=[1, 4], average=True)
    assert picture.panels[0][0].title == "layer 2, mean of heads 1, 4"
    torch.testing.assert_close(picture.panels[0][0].weights, of_words.encoder[1, [0, 3]].mean(dim=0))
    torch.testing.assert_close(AttentionPicture(of_words).panels[0][0].weights, of_words.alignment())
    for arguments, text in (
        ({"kind": "encoder", "layers": [4]}, "layer 4: this attention has layers 1 to 3"),
        ({"kind": "cross", "heads": [0]}, "head 0: this attention has heads 1 to 4"),
        ({"kind": "alignment", "heads": [1]}, "choose layers and heads of cross"),
        ({"kind": "self"}, "unknown kind of attention self; there are alignment, encoder, decoder, cross"),
    ):
        with pytest.raises(InputError, match=re.escape(text)):
            AttentionPicture(of_words, **arguments)


def test_forty_tokens_a_side_are_readable(pipeline: TranslationPipeline) -> None:
    attention = read_attention(pipeline, "I do not know " * 10)
    assert 40 <= len(attention.source) <= 42
    figure = AttentionPicture(attention, "encoder").draw()
    figure.canvas.draw()
    for axes in (figure.axes[0], figure.axes[4]):
        labels = axes.get_yticklabels()
        room = axes.get_window_extent().height / len(labels)
        boxes = [label.get_window_extent() for label in labels]
        assert all(label.get_size() >= 7 for label in labels)
        assert all(box.height <= room * 1.2 for box in boxes)
        assert all(box.x0 >= 0 for box in boxes)


def test_a_huge_picture_stays_a_picture(pipeline: TranslationPipeline, tmp_path: Path) -> None:
    attention = read_attention(pipeline, "a " * 98)
    figure = AttentionPicture(attention, "encoder").draw()
    assert max(figure.get_size_inches()) <= 80


def test_pictures_are_saved_in_three_formats(pipeline: TranslationPipeline, tmp_path: Path) -> None:
    sentence = SENTENCES[2]
    attention = read_attention(pipeline, sentence, words=True)
    picture = AttentionPicture(attention)
    for name in ("a.png", "a.svg", "a.html"):
        picture.save(tmp_path / name)
    assert matplotlib.image.imread(tmp_path / "a.png").shape[2] == 4
    texts = [element.text for element in ElementTree.parse(tmp_path / "a.svg").iter() if element.tag.endswith("text")]
    assert {"東", "$", "naïve"} <= set(texts)
    cells: list[str] = []

    class Cells(HTMLParser):
        def handle_data(self, data: str) -> None:
            cells.append(data)

    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    Cells().feed(text)
    assert sentence in cells
    numbers = [float(cell) for cell in cells if re.fullmatch(r"[01]\.\d{3}", cell)]
    expected = attention.alignment().flatten().tolist()
    assert numbers == pytest.approx(expected, abs=6e-4)
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<metadata>.*?</metadata>', "", text, flags=re.DOTALL)
    with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.html"):
        picture.save(tmp_path / "a.gif")


def test_a_page_takes_no_text_for_markup(pipeline: TranslationPipeline, tmp_path: Path) -> None:
    attention = read_attention(pipeline, SENTENCES[3], words=True)
    AttentionPicture(attention).save(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_draws_and_tells_the_translation(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.png"
    assert main(["attention", MODEL, SENTENCE, "--kind", kind, "--output", str(file)]) == 0
    output = capsys.readouterr()
    assert output.out == "Wenn es morgen regnet, bleiben wir zu Hause.\n"
    assert str(file) in output.err
    assert file.stat().st_size > 10_000


def test_the_options_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(AttentionPicture, "save", lambda self, path: seen.append(self))
    base = ["attention", MODEL, "An unbelievableness.", "--output", str(tmp_path / "a.png"), "--kind", "cross"]
    for flags in ([], ["--words"], ["--heads", "1", "3"], ["--layers", "1", "--average"], ["--num-beams", "1"]):
        assert main([*base, *flags]) == 0
    pieces, words, heads, average, _ = seen
    assert len(words.columns) < len(pieces.columns)
    assert [panel.title for panel in heads.panels[0]] == ["layer 1, head 1", "layer 1, head 3"]
    assert [panel.title for panel in average.panels[0]] == ["layer 1, mean of all heads"]
    translations = {}
    for penalty in ("-9", "9"):
        assert main([*base, "--length-penalty", penalty]) == 0
        translations[penalty] = seen[-1].attention.translation
    assert len(translations["-9"]) <= len(translations["9"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([MODEL, " ", "--output", "a.png"], "expected a sentence"),
        ([MODEL, "I see.", "--output", "a.gif"], "a.gif: expected a picture's name"),
        ([MODEL, "I see.", "--output", "nowhere/a.png"], "there is no folder"),
        ([MODEL, "I see.", "--output", "."], "is a folder"),
        ([MODEL, "I see.", "--output", "a.png", "--layers", "2"], "choose layers and heads of cross"),
        ([MODEL, "I see.", "--output", "a.png", "--kind", "cross", "--layers", "2"], "layers 1 to 1"),
        ([MODEL, "I see.", "--output", "a.png", "--kind", "cross", "--heads", "0"], "at least 1"),
        ([MODEL, "I see.", "--output", "a.png", "--kind", "self"], "invalid choice"),
        (["./nothing", "I see.", "--output", "a.png"], "no such model folder"),
        ([MODEL, "I see."], "--output"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attention", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert text in error
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_a_line_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vaswani_transformer.pictures.find_spec", lambda name: None)
    assert main(["attention", MODEL, "I see.", "--output", "a.png"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
