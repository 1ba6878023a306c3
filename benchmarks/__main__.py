"""`python -m benchmarks`: every estimator on real data, beside scikit-learn's own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.data import TABLES, InputError


def main() -> int:
    """Parse the command line, run, and turn what is wrong with a file into one line and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Fit and score every estimator on real data, beside scikit-learn's own.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--text", type=Path, metavar="FILE", help="a UTF-8 file of label<TAB>message lines, in place of the tables"
    )
    source.add_argument(
        "--table", action="append", choices=list(TABLES), help="one of scikit-learn's tables; may repeat"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and repeat to this file")
    arguments = parser.parse_args()
    if arguments.json is not None and (arguments.json.is_dir() or not arguments.json.absolute().parent.is_dir()):
        print(f"python -m benchmarks: error: --json {arguments.json} is no file in an existing folder", file=sys.stderr)
        return 2

    from benchmarks.real_data import run  # JAX and scikit-learn load only once the arguments are known to be good

    try:
        run(arguments.text, arguments.json, arguments.table)
    except InputError as error:
        print(f"python -m benchmarks: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
