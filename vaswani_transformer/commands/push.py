"""`vaswani-transformer push`: publish a model on the Hub."""

from __future__ import annotations

from ..training_arguments import ArgumentParser
from .options import say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    parser = ArgumentParser(
        prog="vaswani-transformer push",
        description="Publish a model on the Hub: weights, configuration, tokenizer, card and the code to run it "
        "without this package. Nothing else leaves the machine.",
    )
    parser.add_argument("model", metavar="RUN_OR_MODEL", help="A run or model folder, or a checkpoint that ships.")
    parser.add_argument("repo_id", metavar="USER/NAME", help="The repository; it is made where there is none.")
    parser.add_argument("--private", action="store_true", help="Make the repository private.")
    parser.add_argument("--revision", metavar="BRANCH", help="Branch to push to; it is made where there is none.")
    parser.add_argument("--create-pr", action="store_true", help="Propose the push as a pull request.")
    parser.add_argument("--license", metavar="ID", help="Licence of the weights for the card, such as cc-by-4.0.")
    parser.add_argument("--dry-run", action="store_true", help="List what would leave, and use no network.")
    return parser


def run(arguments: list[str]) -> int:
    """Publish a model on the Hub, or list what would be published."""
    options = create_parser().parse_strictly(arguments)

    from ..sharing import prepare, push_to_hub

    if options.dry_run:
        files = prepare(options.model, options.repo_id, options.license)
        sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
        place = f"{'the private ' if options.private else ''}{options.repo_id}, {options.revision or 'main'}"
        print(f"Would leave for {place}{', as a pull request' if options.create_pr else ''}:")
        for name, size in sorted(sizes.items()):
            print(f"{size:>15,}  {name}")
        return 0
    done = push_to_hub(
        options.model,
        options.repo_id,
        private=options.private,
        revision=options.revision,
        create_pr=options.create_pr,
        license=options.license,
    )
    say("Pushed:" if done.changed else "Nothing has changed since the last push:")
    print(done.url)
    return 0
