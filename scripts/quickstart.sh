#!/usr/bin/env bash
# The whole road in one go: translate with the shipped checkpoint, train a model, score it, load it back.
# `make quickstart` runs it; nothing here needs the network.
set -euo pipefail
export HF_HUB_OFFLINE=1
run="runs/quickstart-$(date +%Y%m%d-%H%M%S)"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "1. Translate with tatoeba-en-de, a model that ships with the package"
sentences=("Where did you learn to speak German so well?" "I have never seen such a beautiful garden."
    "If it rains tomorrow, we will stay at home." "Tom forgot to close the window.")
paste <(printf '%s\n' "${sentences[@]}") <(printf '%s\n' "${sentences[@]}" | vaswani-transformer translate tatoeba-en-de) |
    while IFS=$'\t' read -r english german; do printf '  %s\n  → %s\n' "$english" "$german"; done

say "2. Train a new model on the built-in corpus (a few minutes)"
show vaswani-transformer train --config scripts/recipes/builtin-en-de.yaml --output-dir "$run"

say "3. Score it on sentences that it has never seen"
show vaswani-transformer evaluate "$run" --dataset-name builtin:en-de --json "$run/test_scores.json"

say "4. Load it with transformers and translate"
python - "$run" <<'PYTHON'
import sys

from transformers import logging, pipeline

import vaswani_transformer  # noqa: F401 - gives transformers the model and the task

logging.disable_progress_bar()
translator = pipeline("translation", model=sys.argv[1])
sentences = [
    "The old woman opens the window because she is tired.",
    "Did the children buy thirty-seven books?",
    "In summer the teacher does not want to drive to the city.",
]
for sentence, translation in zip(sentences, translator(sentences)):
    print(f"  {sentence}\n  → {translation['translation_text']}")
PYTHON

say "5. See what would be shared on the Hub (nothing is sent)"
show vaswani-transformer push "$run" your-name/my-model --dry-run

say "Your model is in $run. What to type next:"
cat <<TEXT
  . .venv/bin/activate
  echo "Anna buys a red apple." | vaswani-transformer translate $run
  vaswani-transformer train --help          # your own parallel text: see "Train on your own text" in README.md
TEXT
