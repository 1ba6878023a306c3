"""The command line: every estimator on real data, beside scikit-learn's own; its commands measure other things."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.data import TABLES, InputError

OUTPUT = Path("benchmarks/output")  # git ignores it
# Of 24 tables of pure noise, 200 × 3, two splits a point called 24 of 240 comparisons significant at 5 %, five none.
FEWEST_SPLITS = 5


def _whole(text: str, least: int, why: str = "") -> int:
    try:
        number = int(float(text))  # of 1e6, too
    except (ValueError, OverflowError):
        number = None
    if number is None or number != float(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is not {least:,} or more{why}")
    return number


def _positive(text: str) -> int:
    return _whole(text, 1)


def _classes(text: str) -> int:
    return _whole(text, 2, ": of one alone there is nothing to decide")


def _thousands(text: str) -> int:
    return _whole(text, 1_000, ", from where growth can be measured")


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
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help="instead:")

    throughput = _measuring(commands, "throughput", "every job beside scikit-learn, and beside the machine's own rates")
    throughput.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    throughput.add_argument(
        "--rows",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only the cases with this in the name; the others of a record in the folder are kept",
    )
    throughput.add_argument(
        "--processes",
        type=_positive,
        metavar="N",
        help="for each job, one after the other (default: 3 at full size on a CPU, else 1)",
    )

    scaling = _measuring(commands, "scaling", "how time grows with words, with nonzeros and with rows")
    scaling.add_argument(
        "--max-n", type=_thousands, metavar="N", help="rows at most (default: a million, ten on an accelerator)"
    )
    scaling.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")

    large = _measuring(
        commands, "large", "multinomial naive Bayes on ten million documents of a million words, in chunks"
    )
    for name, default in (("documents", 10_000_000), ("words", 1_000_000), ("chunk", 200_000)):
        large.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help="(default: %(default)s)")
    large.add_argument("--classes", type=_classes, default=2, metavar="N", help="(default: %(default)s)")

    curves = _measuring(
        commands, "curves", "error against training size, generative and discriminative, on real tables"
    )
    curves.add_argument("--csv", type=Path, action="append", default=[], metavar="FILE", help="a table; may repeat")
    curves.add_argument("--target", action="append", default=[], metavar="COLUMN", help="the class, for each --csv")
    curves.add_argument("--openml", action="append", default=[], metavar="NAME", help="a data set of openml.org")
    curves.add_argument("--splits", type=_positive, default=1_000, metavar="N", help="a point (default: %(default)s)")
    curves.add_argument(
        "--l2", type=float, default=1e-3, help="penalty of logistic regression (default: %(default)s, next to none)"
    )
    curves.add_argument("--pair", action="store_true", help="leave out the two models that stand beside the pair")

    for name, text in (
        ("efficiency", "logistic regression's efficiency beside Efron's, and what it gains where the assumption fails"),
        ("warm-start", "the steps that logistic regression is spared when it starts from a generative fit"),
        ("regions", "the decision regions of six Gaussian models and logistic regression, in a picture"),
        ("samples", "digits drawn from LDA, QDA, Gaussian and Bernoulli naive Bayes beside real ones, in a picture"),
    ):
        command = _measuring(commands, name, text)
        if name == "efficiency":
            command.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")

    report = commands.add_parser("report", help="the README's tables in markdown, made from a run that was stored")
    report.add_argument("folder", type=Path, help="such as a folder of benchmarks/results/")
    report.add_argument("--only", nargs="+", metavar="RECORD", help="such as throughput; else all that are there")
    return parser


def _measuring(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--out", type=Path, default=OUTPUT, metavar="FOLDER", help="(default: %(default)s)")
    return parser


def _refuse(message: Any) -> int:
    print(f"python -m benchmarks: error: {message}", file=sys.stderr)
    return 2


def _unwritable(arguments: argparse.Namespace) -> str | None:
    """Why what is asked for cannot be written, found out before it is measured."""
    path = arguments.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        return f"--json {path} is no file in an existing folder"
    folder = getattr(arguments, "out", None)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        for place in ([folder] if folder else []) + ([path.absolute().parent] if path else []):
            tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        return f"{'--out' if folder else '--json'} {folder or path} cannot be written: {error.strerror}"
    return None


def main() -> int:
    """Parse the command line, run, and turn what is wrong with a file into one line and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what a terminal cannot show must not end a run
    arguments = _parser().parse_args()
    given = [f"--{name}" for name in ("text", "table", "json") if getattr(arguments, name) is not None]
    if given and arguments.command is not None:
        return _refuse(
            f"{', '.join(given)} is of the comparison on real data, not of {arguments.command}; leave it out"
        )
    if (reason := _unwritable(arguments)) is not None:
        return _refuse(reason)
    # JAX, scikit-learn and matplotlib load only once the arguments are known to be good.
    if arguments.command == "throughput":
        from benchmarks import throughput

        try:
            throughput.run(arguments.out, quick=arguments.quick, rows=arguments.rows, processes=arguments.processes)
        except (ValueError, throughput.DisagreementError) as error:
            return _refuse(error)
    elif arguments.command == "scaling":
        from benchmarks import scaling

        scaling.run(arguments.out, max_rows=arguments.max_n, quick=arguments.quick)
    elif arguments.command == "large":
        from benchmarks import large

        large.run(arguments.out, arguments.documents, arguments.words, arguments.chunk, arguments.classes)
    elif arguments.command == "curves":
        return _curves(arguments)
    elif arguments.command == "efficiency":
        from benchmarks import efficiency

        efficiency.run(arguments.out, quick=arguments.quick)
    elif arguments.command == "warm-start":
        from benchmarks import warm_start

        warm_start.run(arguments.out)
    elif arguments.command == "samples":
        from benchmarks import samples

        samples.run(arguments.out)
    elif arguments.command == "regions":
        from benchmarks import regions

        regions.run(arguments.out)
    elif arguments.command == "report":
        from benchmarks import records, report

        try:
            print(report.markdown(arguments.folder, arguments.only), flush=True)
        except InputError as error:
            return _refuse(error)
        except BrokenPipeError:  # the reader has seen enough, such as head
            records.silence()
    else:
        return _real_data(arguments)
    return 0


def _curves(arguments: argparse.Namespace) -> int:
    if len(arguments.target) not in (len(arguments.csv), 1 if arguments.csv else 0):
        return _refuse(f"give one --target for all tables or one for each --csv; found {len(arguments.target)}")
    if not 0 < arguments.l2 < float("inf"):
        return _refuse(f"--l2 must be positive, or separable samples have no optimum; found {arguments.l2:g}")
    if arguments.splits < FEWEST_SPLITS:
        return _refuse(f"--splits must be {FEWEST_SPLITS} or more: of fewer the spread is hardly known")
    from benchmarks import csv_files, curves, tables

    targets = arguments.target * (len(arguments.csv) if len(arguments.target) == 1 else 1)
    try:
        chosen = [csv_files.read(*pair) for pair in zip(arguments.csv, targets, strict=True)]
        chosen += [tables.from_openml(name) for name in arguments.openml]
        chosen = tables.distinct(chosen, [*targets, *arguments.openml])
    except InputError as error:
        return _refuse(error)
    curves.run(
        arguments.out, chosen or tables.embedded(), splits=arguments.splits, l2=arguments.l2, pair=arguments.pair
    )
    return 0


def _real_data(arguments: argparse.Namespace) -> int:
    from benchmarks.real_data import run

    try:
        run(arguments.text, arguments.json, arguments.table)
    except InputError as error:
        return _refuse(error)
    return 0
