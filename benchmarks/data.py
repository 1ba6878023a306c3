"""Real data: the tables that scikit-learn ships, and files of labelled messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    from pathlib import Path

SEED = 0
HELD_OUT = 0.3

TABLES = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


class InputError(Exception):
    """A file that cannot be used, with a one-line reason."""


@dataclass(frozen=True)
class Split:
    """A data set, split once with a fixed seed, in float32; of text sparse rows."""

    name: str
    train_x: Any
    train_y: np.ndarray
    test_x: Any
    test_y: np.ndarray

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.train_y.max()) + 1

    def describe(self) -> str:
        """Name and sizes."""
        rows = len(self.train_y) + len(self.test_y)
        return f"{self.name}: {rows:,} rows × {self.train_x.shape[1]:,} features, {self.num_classes} classes"


def load_table(name: str) -> Split:
    """One of scikit-learn's tables."""
    bunch: Any = TABLES[name]()
    x, y = bunch.data.astype(np.float32), bunch.target
    train, test = _split(y)
    return Split(name, x[train], y[train], x[test], y[test])


def load_messages(path: Path) -> Split:
    """Sparse word counts of a UTF-8 file with a `label<TAB>message` on each line, as the UCI SMS Spam Collection is.

    The vocabulary is that of the training messages.

    Raises:
        InputError: if the file cannot be read or is not of this form.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # a message may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 ({error.reason})"
        raise InputError(f"cannot read {path}: {reason}") from None
    rows = [(number, line.split("\t", 1)) for number, line in enumerate(lines, 1) if line.strip()]
    for number, row in rows:
        if len(row) != 2 or not row[0].strip():
            raise InputError(f"{path}, line {number}: expected label<TAB>message, found {lines[number - 1][:40]!r}")
    names, labels = np.unique([label for _, (label, _) in rows], return_inverse=True)
    smallest = int(np.bincount(labels).min()) if len(names) else 0
    if len(names) < 2 or smallest < 2:
        least = f", of which {str(names[np.bincount(labels).argmin()])!r} has one" if len(names) > 1 else ""
        raise InputError(
            f"{path}: expected two labels or more with two messages each, found {len(names)} labels{least}"
        )
    held_out = math.ceil(HELD_OUT * len(labels))
    if held_out < len(names):
        raise InputError(
            f"{path}: expected a held-out message of every label; {held_out} of {len(labels)} messages are held out, "
            f"for {len(names)} labels. Give more messages, or fewer labels"
        )
    messages = np.array([message for _, (_, message) in rows], dtype=object)
    train, test = _split(labels)
    vectorizer: Any = CountVectorizer()
    try:
        train_x = vectorizer.fit_transform(messages[train]).astype(np.float32)
        test_x = vectorizer.transform(messages[test]).astype(np.float32)
    except ValueError:
        raise InputError(f"{path}: expected words of two letters or more in the messages; found none") from None
    return Split(path.name, train_x, labels[train], test_x, labels[test])


def _split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to train on and of those held out, every class in both."""
    train, test = train_test_split(np.arange(len(y)), test_size=HELD_OUT, random_state=SEED, stratify=y)
    return np.asarray(train), np.asarray(test)
