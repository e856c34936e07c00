"""The demo as a Space of the Hub; its variable MODEL names a model there, or one that ships with the package."""

from __future__ import annotations

import os

from vaswani_transformer.demo import create_demo, launch_demo
from vaswani_transformer.translation import load_pipeline

MODEL = os.environ.get("MODEL", "tatoeba-en-de")
demo = create_demo(load_pipeline(MODEL), MODEL)

if __name__ == "__main__":
    launch_demo(demo)
