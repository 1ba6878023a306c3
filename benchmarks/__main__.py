"""`python -m benchmarks`: every estimator on real data, beside scikit-learn's own; its subcommands measure speed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.data import TABLES, InputError

OUTPUT = Path("benchmarks/output")  # git ignores it


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
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
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help="measure speed instead:")

    throughput = _measuring(commands, "throughput", "every job beside scikit-learn, and beside the machine's own rates")
    throughput.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    throughput.add_argument(
        "--rows", nargs="+", default=[], metavar="NAME", help="only the cases with this in the name"
    )

    scaling = _measuring(commands, "scaling", "how time grows with words, with nonzeros and with rows")
    scaling.add_argument(
        "--max-n", type=_positive, default=1_000_000, metavar="N", help="rows at most (default: %(default)s)"
    )
    scaling.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")

    large = _measuring(
        commands, "large", "multinomial naive Bayes on ten million documents of a million words, in chunks"
    )
    for name, default in (("documents", 10_000_000), ("words", 1_000_000), ("chunk", 200_000), ("classes", 2)):
        large.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help="(default: %(default)s)")

    report = commands.add_parser("report", help="the README's tables in markdown, made from a run that was stored")
    report.add_argument("folder", type=Path, help="such as a folder of benchmarks/results/")
    return parser


def _measuring(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"Measure {text}.")
    parser.add_argument("--out", type=Path, default=OUTPUT, metavar="FOLDER", help="(default: %(default)s)")
    return parser


def _refuse(message: Any) -> int:
    print(f"python -m benchmarks: error: {message}", file=sys.stderr)
    return 2


def main() -> int:
    """Parse the command line, run, and turn what is wrong with a file into one line and exit code 2."""
    arguments = _parser().parse_args()
    # JAX, scikit-learn and matplotlib load only once the arguments are known to be good.
    if arguments.command == "throughput":
        from benchmarks import throughput

        try:
            throughput.run(arguments.out, quick=arguments.quick, rows=arguments.rows)
        except (ValueError, throughput.DisagreementError) as error:
            return _refuse(error)
    elif arguments.command == "scaling":
        from benchmarks import scaling

        scaling.run(arguments.out, max_rows=arguments.max_n, quick=arguments.quick)
    elif arguments.command == "large":
        from benchmarks import large

        large.run(arguments.out, arguments.documents, arguments.words, arguments.chunk, arguments.classes)
    elif arguments.command == "report":
        from benchmarks import report

        try:
            print(report.markdown(arguments.folder))
        except InputError as error:
            return _refuse(error)
    else:
        return _real_data(arguments)
    return 0


def _real_data(arguments: argparse.Namespace) -> int:
    path = arguments.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        return _refuse(f"--json {path} is no file in an existing folder")
    from benchmarks.real_data import run

    try:
        run(arguments.text, path, arguments.table)
    except InputError as error:
        return _refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
