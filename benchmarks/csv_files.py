"""CSV files as people keep them: what stands between columns, which columns are numbers, and what is no value."""

from __future__ import annotations

import csv
import io
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.data import InputError
from benchmarks.tables import Table, prepare

if TYPE_CHECKING:
    from pathlib import Path

SEPARATORS = (",", ";", "\t", "|", " ")
# In a column that otherwise holds numbers, in any case.
GAPS = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-", "--", ".")
# Numbers whose thousands are apart; a point before three digits is a decimal sign all the same, unless more follows.
_WITH_COMMAS = r"[+-]?\d{1,3}(?:[,'’\s]\d{3})+(?:\.\d*)?"
_WITH_POINTS = r"[+-]?\d{1,3}(?:(?:\.\d{3})+,\d*|(?:\.\d{3}){2,}|(?:['’\s]\d{3})+(?:,\d*)?)"
_UNITS = r"^[$€£]\s*|(?<=^[+-])[$€£]|\s*[%$€£]$"


def read(path: Path, target: str) -> Table:
    """A CSV file with a header; columns of any type, `target` among them.

    Raises:
        InputError: if the file cannot be read, names a column twice, has no such column, or no classes in it.
    """
    try:
        text = re.sub(r"\A(\s*\n)+", "", path.read_text(encoding="utf-8-sig"))  # empty lines before the header
        separator = _separator(text, target)
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        header, first = _names(next(rows, [])), next(rows, [])
        # One field more than names is the name of the row, or nothing behind a separator that ends it.
        ends = len(first) > len(header) and not first[-1].strip()
        # A class may be called None or NA: only an empty cell is surely a gap. A file that is read in parts would have
        # classes of other types in each.
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            skipinitialspace=True,
            keep_default_na=False,
            na_values=[""],
            index_col=False if ends else None,
            low_memory=False,
        )
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}: it is not text in UTF-8; save it so") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"cannot read {path}: it is empty; expected a line of names and a line for each row") from None
    except pd.errors.ParserError as error:
        found = str(error).strip().rpartition("C error: ")[2]
        raise InputError(f"cannot read {path}: {found}; give every line as many fields as the first") from None
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {reason}") from None
    frame.columns = frame.columns.str.strip()
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}; name each differently")
    if target not in frame:
        names = ", ".join(map(repr, frame.columns[:20]))
        raise InputError(f"{path} has no column {target!r} in its first line, of the names; it has {names}")
    classes = _numbers_of(_stripped(frame[target]), ".")
    features = frame.drop(columns=target).apply(_stripped)
    remarks = []
    if features.shape[1] and header[0] == "" and features.iloc[:, 0].is_unique:
        features = features.iloc[:, 1:]
        remarks.append("left out the names of the rows, a first column without a name.")
    decimal = _decimal(separator, features)
    numbers = features.apply(partial(_numbers_of, decimal=decimal))
    for name in filter(lambda name: _is_text(numbers[name]), numbers):
        column: Any = features[name]
        odd = column[_parsed(column, decimal).isna() & ~_is_gap(column)]
        if 0 < len(odd) < column.notna().sum() / 2:
            more = f" and {odd.nunique() - 1} more are no numbers" if odd.nunique() > 1 else " is no number"
            remarks.append(
                f"took column {name!r} for words, since {str(odd.iloc[0])!r}{more}; mend them if it holds numbers."
            )
    return prepare(path.stem, numbers, classes.where(classes != "?"), remarks=remarks)


def _separator(text: str, target: str) -> str:
    """The first that parts the header into names of which one is the target; else what it has most of."""
    header = text.partition("\n")[:1]
    names = {each: _names(next(csv.reader(header, delimiter=each, skipinitialspace=True), [])) for each in SEPARATORS}
    most = max(SEPARATORS, key=lambda each: len(names[each]))
    return next((each for each in SEPARATORS if target in names[each]), most)


def _names(header: list[str]) -> list[str]:
    return [name.strip() for name in header]


def _stripped(column: Any) -> Any:
    """A column without spaces around its words; of True and False, with or without gaps, as 1 and 0."""
    if not _is_text(column):
        return column.astype(float) if column.dtype == bool else column
    known = column.dropna()
    if len(known) and known.map(lambda value: isinstance(value, bool)).all():
        return column.astype(float)
    return column.map(lambda value: value.strip() or None if isinstance(value, str) else value)


def _is_text(column: Any) -> bool:
    return column.dtype.kind not in "biuf"


def _plain(column: Any, decimal: str) -> Any:
    """The text of a column as that of numbers: without thousands' marks and units, with a minus sign and a point."""
    text: Any = column.astype("string").str.replace("−", "-").str.replace(_UNITS, "", regex=True)
    grouped, marks = (_WITH_COMMAS, r"[,'’\s]") if decimal == "." else (_WITH_POINTS, r"[.'’\s]")
    text = text.where(~text.str.fullmatch(grouped).eq(other=True), text.str.replace(marks, "", regex=True))
    return text.str.replace(decimal, ".", regex=False)


def _parsed(column: Any, decimal: str) -> Any:
    return pd.to_numeric(_plain(column, decimal), errors="coerce")


def _is_gap(column: Any) -> Any:
    return column.isna() | column.astype("string").str.casefold().isin(GAPS)


def _decimal(separator: str, frame: Any) -> str:
    """The decimal sign: a comma where numbers have one that parts no thousands, or semicolons leave it free."""
    texts: list[Any] = [frame[column].astype("string").str for column in frame if _is_text(frame[column])]
    if any((text.fullmatch(r"[+-]?\d+,\d*") & ~text.fullmatch(_WITH_COMMAS)).any() for text in texts):
        return ","
    every: list[Any] = [frame[column].astype("string").str for column in frame]
    points = any(text.fullmatch(r"[+-]?\d+\.\d*[1-9]\d*").any() for text in every)
    return "." if points or separator != ";" else ","


def _numbers_of(column: Any, decimal: str) -> Any:
    """A column as numbers where all but its gaps are some; itself where not."""
    if not _is_text(column):
        return column
    numbers = _parsed(column, decimal).astype(float)
    return numbers if (numbers.notna() | _is_gap(column)).all() and numbers.notna().any() else column
