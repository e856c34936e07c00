"""Our classes through transformers' own test suite: whatever Marian passes there, they pass too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest
import transformers

import vaswani_transformer

MODEL_TESTERS = Path(__file__).parent / "conformance" / "model_testers.py"
PACKAGE_ROOT = Path(vaswani_transformer.__file__).parents[1]

# What the suite imports that its source distribution does not carry.
STAND_INS = {
    "__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin: ...",
    "generation/test_utils.py": "class GenerationTesterMixin: ...",
    "utils/test_configuration_utils.py": """\
# Settings of every configuration, none at its default.
config_common_kwargs = {
    "architectures": ["AModel"],
    "chunk_size_feed_forward": 5,
    "dtype": "float16",
    "id2label": {0: "label"},
    "is_encoder_decoder": False,
    "label2id": {"label": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "regression",
    "return_dict": False,
}
""",
}


@pytest.fixture
def suite() -> Iterator[Path]:
    """The tests of the installed version of transformers, from the package registry, for as long as the test runs."""
    pytest.importorskip("parameterized", reason="transformers' own tests need the package parameterized")
    requirement = f"transformers=={transformers.__version__}"
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = "--no-deps --no-binary transformers --no-cache-dir --quiet"
        download = subprocess.run(
            [sys.executable, "-m", "pip", "download", requirement, *options.split()],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if download.returncode:
            pytest.skip(f"the source distribution of {requirement} is out of reach: {download.stderr.strip()[-300:]}")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, [m for m in file.getmembers() if "/tests/" in m.name], filter="data")
        tests = folder / archive.name.removesuffix(".tar.gz") / "tests"
        if not (tests / "test_modeling_common.py").exists():
            pytest.skip(f"the source distribution of {requirement} carries no tests")
        for path, source in STAND_INS.items():
            if not (tests / path).exists():
                (tests / path).parent.mkdir(exist_ok=True)
                (tests / path).write_text(source, encoding="utf-8")
        shutil.copy(MODEL_TESTERS, tests)
        yield tests


def read_outcomes(report: Path) -> dict[str, dict[str, list[str]]]:
    """By test class and test: a tag for each failure, error or skip of the test or its subtests, none if it passed."""
    outcomes: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        test_class = case.attrib["classname"].rpartition(".")[2]
        problems = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        outcomes[test_class][case.attrib["name"]] = problems
    return outcomes


@pytest.mark.slow
def test_vaswani_passes_what_marian_passes(suite: Path) -> None:
    report = suite / "report.xml"
    options = f"--junitxml={report.name} --rootdir=. --disable-warnings --tb=short -p no:cacheprovider"
    paths = [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", MODEL_TESTERS.name, *options.split()],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1", "RUN_SLOW": "1"},
        capture_output=True,
        text=True,
    )
    assert report.exists(), run.stdout + run.stderr
    outcomes = read_outcomes(report)
    marian, ours = outcomes["MarianTest"], outcomes["VaswaniTest"]
    assert ours.keys() == marian.keys()
    # A test that Marian skips or fails may come to the same for us; anything else has to pass.
    worse = {name: problems for name, problems in ours.items() if problems and problems != marian[name]}
    assert not worse, run.stdout
    assert sum(not problems for problems in ours.values()) >= 90, run.stdout
