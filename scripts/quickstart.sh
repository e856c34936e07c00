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

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vaswani_transformer  # noqa: F401 - registers the model with transformers

model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
sentences = [
    "The old woman opens the window because she is tired.",
    "Did the children buy thirty-seven books?",
    "In summer the teacher does not want to drive to the city.",
]
batch = tokenizer(sentences, padding=True, return_tensors="pt")
translations = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
for sentence, translation in zip(sentences, translations):
    print(f"  {sentence}\n  → {translation}")
PYTHON

say "Your model is in $run. What to type next:"
cat <<TEXT
  . .venv/bin/activate
  echo "Anna buys a red apple." | vaswani-transformer translate $run
  vaswani-transformer train --help          # your own parallel text: see "Train on your own text" in README.md
TEXT
