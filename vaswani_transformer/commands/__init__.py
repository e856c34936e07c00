"""The commands of `vaswani-transformer`, one in each module: `create_parser()` and `run(arguments)`."""
