"""The main job: what it prints and writes, and what it says of files that it cannot use."""

import json
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss

from benchmarks import __main__ as command
from benchmarks import cases, real_data, warm_start
from benchmarks.data import load_messages, load_table
from benchmarks.timing import Effort, race

MESSAGES = "".join(f"spam\twin cash now number {i}\nham\tsee you at lunch on day {i}\n" for i in range(20))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(real_data, "race", partial(race, effort=Effort(budget=0.0)))  # three rounds
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
    return command.main()


@pytest.mark.thorough
def test_a_table_beside_scikit_learn(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "--table", "iris", "--json", tmp_path / "out.json") == 0
    printed = capsys.readouterr().out
    assert "iris: 150 rows × 4 features, 3 classes" in printed
    assert real_data._SMOOTHING in printed
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["environment"]["jax"]
    by_name = {(r["estimator"], r["library"]): r for r in record["results"]}
    for name in ("LDA", "Gaussian NB", "multinomial NB", "logistic regression"):
        ours, theirs = by_name[name, "jaxgen"], by_name[name, "scikit-learn"]
        assert abs(ours["log_loss"] - theirs["log_loss"]) < 2e-3
        assert len(ours["fit_seconds"]) >= 3


def test_the_main_job_counts_what_is_right_and_says_who_is_faster(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(real_data, "race", lambda functions: tuple([i + 1.0] * 3 for i in range(len(functions))))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--table", "iris", "--json", str(tmp_path / "out.json")])
    assert command.main() == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(" LDA"))
    assert row.count("2.0×") == 2  # scikit-learn takes twice as long
    split = load_table("iris")
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(split.train_x, split.train_y)
    record = next(
        r
        for r in json.loads((tmp_path / "out.json").read_text())["results"]
        if (r["estimator"], r["library"]) == ("LDA", "jaxgen")
    )
    assert record["accuracy"] == pytest.approx(peer.score(split.test_x, split.test_y))
    assert record["log_loss"] == pytest.approx(log_loss(split.test_y, peer.predict_proba(split.test_x)), abs=1e-3)


def test_messages(monkeypatch, tmp_path, capsys):
    path = tmp_path / "messages.tsv"
    path.write_text("\ufeff" + MESSAGES.replace(" you", "\u2028you"), encoding="utf-8")  # only \n ends a line
    assert run(monkeypatch, "--text", path) == 0
    printed = capsys.readouterr().out
    assert "messages.tsv: 40 rows" in printed
    assert "multinomial NB" in printed
    assert "Gaussian NB" not in printed
    assert "logistic regression" in printed
    assert "Left out" not in printed
    monkeypatch.setattr(cases, "MOST_CELLS", 28 * 10)  # of fewer words than there are
    assert run(monkeypatch, "--text", path) == 0
    assert "Left out: logistic regression, which takes dense rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (ModuleNotFoundError("No module named 'rich'", name="rich"), 2, "rich is not installed.*\\[bench\\]"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_ends_a_run_from_outside_is_one_line(monkeypatch, capsys, raised, code, message):
    def interrupted(*_):
        raise raised

    monkeypatch.setattr(real_data, "run", interrupted)
    assert run(monkeypatch, "--table", "iris") == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)
    raised = ModuleNotFoundError("No module named 'jaxgen.gone'", name="jaxgen.gone")  # which no extra installs
    with pytest.raises(ModuleNotFoundError):
        run(monkeypatch, "--table", "iris")


def test_a_reader_that_has_seen_enough_does_not_end_a_run(tmp_path):
    """What is measured after that is written to files all the same."""
    code = (
        "import sys\nfrom benchmarks.records import wide_console\nconsole = wide_console(80)\nsys.stdin.read()\n"
        "for line in range(99):\n    console.print('line ' * 99)\nprint('written', file=sys.stderr)"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as script:
        script.stdout.close()
        assert (script.communicate()[1], script.returncode) == ("written\n", 0)


def test_options_of_the_main_job_are_not_those_of_a_command(monkeypatch, capsys):
    assert run(monkeypatch, "--table", "iris", "curves") == 2
    assert "--table is of the comparison on real data, not of curves" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"spam without a tab\n", "line 1: expected label<TAB>message"),
        (b"spam\tone\n\tno label\n", "line 2: expected label<TAB>message"),
        (b"", "found 0 labels"),
        (b"spam\tone\nspam\ttwo\n", "found 1 labels"),
        (b"spam\tone\nspam\ttwo\nham\tone\n", "found 2 labels, of which 'ham' has one"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"spam\t.\nspam\t.\nham\t.\nham\t.\n", "expected words of two letters or more"),
        ("".join(f"c{i // 2}\tword{i}\n" for i in range(40)).encode(), "12 of 40 messages are held out, for 20 labels"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_code_two(monkeypatch, tmp_path, capsys, content, message):
    path = tmp_path / "messages.tsv"
    if content is not None:
        path.write_bytes(content)
    assert run(monkeypatch, "--text", path) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_warm_start_is_timed_beside_a_cold_one(monkeypatch):
    monkeypatch.setattr(warm_start, "race", partial(race, effort=Effort(budget=0.0)))
    split = load_table("wine")
    found = warm_start.measure("wine", split.train_x, split.train_y)
    assert [result.start for result in found] == ["zero", "LDA", "diagonal LDA"]
    assert all(0 < result.steps < 20 and min(result.seconds) > 0 for result in found)


def test_no_folder_for_json(monkeypatch, tmp_path, capsys):
    for path in (tmp_path / "nowhere" / "out.json", tmp_path):
        assert run(monkeypatch, "--json", path) == 2
        assert "is no file in an existing folder" in capsys.readouterr().err


def test_the_split_is_the_same_every_time_and_the_vocabulary_is_of_the_training_messages(tmp_path):
    first, second = load_table("wine"), load_table("wine")
    np.testing.assert_array_equal(first.test_x, second.test_x)
    path = tmp_path / "messages.tsv"
    path.write_text(MESSAGES, encoding="utf-8")
    split = load_messages(path)
    assert issparse(split.train_x)
    assert issparse(split.test_x)
    assert (split.train_x.sum(axis=0) > 0).all()
