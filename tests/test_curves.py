"""Learning curves: the same as a loop of scikit-learn's, and what is said of them."""

import json
import sys
from functools import partial
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import BernoulliNB

import jaxgen as jg
from benchmarks import __main__ as command
from benchmarks import csv_files, curve_pictures, curve_records, curves, loop, tables, uncertainty, verdict
from benchmarks.programs import Programs
from benchmarks.splits import Model, Splits, Task
from jaxgen import threads

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Compiled as the tests are, and few splits in several chunks, which the cores share."""
    monkeypatch.setattr("benchmarks.programs._QUICK", None)
    monkeypatch.setattr("benchmarks.splits._CHUNK", 5)


def table(kind, n=90, classes=2):
    y = np.arange(n) % classes
    x = RNG.normal(size=(n, 5)) + 0.8 * y[:, None]
    if kind == "discrete":  # by three columns the indicators of yes and of no, by two those of yes
        x = np.c_[x > 0.5, x[:, :3] <= 0.5]
    return tables.Table("drawn", kind, x.astype(np.float32), y.astype(np.int32))


def of_classes(y, scores):
    """A score of each of three classes, of those that there are."""
    every = np.full((len(scores), 3), -np.inf)
    every[:, np.unique(y)] = scores
    return every


def shared_diagonal(x, y, test):
    """Gaussian classes with one variance for each feature, by NumPy."""
    classes = np.unique(y)
    mean = np.stack([x[y == k].mean(axis=0) for k in classes])
    variance = np.mean((x - mean[np.searchsorted(classes, y)]) ** 2, axis=0)
    variance = variance + 1e-6 * variance
    prior = np.log([np.mean(y == k) for k in classes])
    return prior - 0.5 * (((test[:, None] - mean) ** 2) / variance).sum(axis=2)


def bernoulli(x, y, test):
    return BernoulliNB().fit(x, y).predict_joint_log_proba(test)


def logistic(x, y, test, classes):
    seen = len(np.unique(y))
    if seen < 2:
        return np.zeros((len(test), 1))
    # Of two among more classes the weights of each are penalised, half the penalty of their difference.
    strength = 20 if seen == 2 < classes else 10
    odds = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000).fit(x, y).decision_function(test)
    return odds if odds.ndim == 2 else np.stack([0 * odds, odds], axis=1)


def least_squares(x, y, test):
    indicators = y[:, None] == np.unique(y)
    return Ridge(alpha=0.1).fit(x, indicators).predict(test)


@pytest.mark.parametrize(("kind", "classes"), [("continuous", 3), ("discrete", 2)])
def test_every_split_equals_a_loop_of_scikit_learn(kind, classes):
    data = table(kind, classes=classes)
    splits = Splits.of(len(data.x), 12, seed=1)
    if kind == "continuous":
        generative, oracle = Model("diagonal LDA", jg.GDA("diagonal", shared=True)), shared_diagonal
    else:
        generative, oracle = Model("Bernoulli NB", jg.BernoulliNB()), bernoulli
    models = {  # and how near two scores are that rounding, or the end of a search, may take for equal
        generative: (oracle, 1e-4),
        Model("logistic regression", jg.LogisticRegression(l2=0.1)): (partial(logistic, classes=classes), 1e-2),
        Model("least squares", curves.LeastSquares(0.1)): (least_squares, 1e-4),
    }
    assert data.turned.x.shape[1] == 5  # of the plane that eight indicators lie in
    sizes = (8, 0), (splits.most, 8)  # and the sample before
    fitted = [[Task(model, data, splits, m, 128, before) for m, before in sizes] for model in models]
    done = Programs().run(fitted)
    assert 0 < done.compile_seconds < max(threads.cores(), 2) * done.seconds
    for task, timed in zip(chain(*fitted), chain(*done.tasks), strict=True):
        outcome, (predict, tie) = timed.outcome, models[task.model]
        for i, order in enumerate(splits.orders):
            test, sample = np.split(order, [splits.held_out])
            sample = sample[: task.m]
            x = data.x.astype(float)
            scores = of_classes(data.y[sample], predict(x[sample], data.y[sample], x[test]))
            second, first = np.sort(scores, axis=1)[:, -2:].T
            clear = first - second > tie
            wrong = scores.argmax(axis=1) != data.y[test]
            np.testing.assert_array_equal(outcome.wrong[i][clear], wrong[clear], f"{task.model.name}, {task.m}, {i}")
            assert clear.mean() > 0.5
        assert outcome.wrong.shape == (12, splits.held_out)
        np.testing.assert_allclose(outcome.weight.sum(axis=1), splits.held_out)


def test_a_program_that_failed_is_compiled_at_the_next_try(monkeypatch):
    data = table("discrete", classes=4)  # which no other test traces
    task = Task(Model("Bernoulli NB", jg.BernoulliNB()), data, Splits.of(len(data.x), 7, seed=1), 8, 128)
    programs = Programs()

    def fail(_):
        raise RuntimeError("no memory")

    with monkeypatch.context() as broken:
        broken.setattr(jg, "to_linear", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            programs.run([[task]])
    [[timed]] = programs.run([[task]]).tasks
    assert timed.outcome.wrong.shape == (7, task.splits.held_out)


def test_samples_of_tables_that_are_alike_share_a_few_paddings():
    assert curves.paddings([[10, 20, 30]]) == [30]
    assert curves.paddings([[90, 150, 200]]) == [90, 200]
    assert curves.paddings([[100, 170, 300, 520, 900]]) == [100, 300, 900]
    assert curves.paddings([[20, 60, 190, 300], [100, 170, 300, 520, 900], [40, 180, 800]]) == [100, 300, 900]
    assert curves.paddings([[100, 170, 300, 520, 900], [600, 1_700, 5_000], [128]]) == [128, 300, 900, 5_000]
    assert curves.paddings([[90, 120, 150], [100, 170, 300, 520, 900]]) == [120, 300, 900]  # 150 rows among 300


def test_splits_are_nested_samples_and_never_test_what_they_train_on():
    splits = Splits.of(50, 20, seed=0)
    assert splits.held_out == 15
    for order in splits.orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
    assert len({tuple(order) for order in splits.orders}) == 20


@pytest.mark.parametrize(("m", "noise"), [(6, 0.0), (28, 0.0), (28, 0.05)])
def test_a_row_counts_where_it_is_tested_and_where_it_is_trained_on(m, noise):
    """Of errors that rows make up by themselves, the variance over tables of such rows is known."""
    rng, n = np.random.default_rng(m), 40
    splits = Splits.of(n, 20_000, seed=0)
    a, b = rng.normal(size=n) / m, rng.normal(size=n)
    a, b = a - a.mean(), b - b.mean()
    sample = splits.orders[:, splits.held_out : splits.held_out + m]
    errors = 0.3 + a[sample].sum(axis=1)[:, None] + b[splits.orders[:, : splits.held_out]]
    errors += noise * rng.normal(size=(len(errors), 1))
    known = np.sqrt(np.sum((b + m * a) ** 2)) / n
    assert uncertainty.standard_error(errors, splits, m) == pytest.approx(known, rel=0.03)


@pytest.mark.parametrize("n", [500, 7_000])
def test_the_error_of_a_mean_over_rows_that_no_sample_changes_is_theirs(n):
    """Also of samples of most of the table: what is tested differs by the split, which no sample is the cause of."""
    wrong = np.arange(n) < 0.4 * n
    splits = Splits.of(n, 200, seed=0)
    errors = wrong[splits.orders[:, : splits.held_out]].astype(float)
    error = uncertainty.standard_error(errors, splits, splits.most)
    assert error == pytest.approx(wrong.std() / np.sqrt(n), rel=0.03)


def test_tables_without_a_difference_seldom_have_a_winner():
    """Two nearest means on features that say as much, which are refitted to 200 tables: about 5 % at each size."""
    rng, n = np.random.default_rng(0), 60
    p_values = {3: [], 30: []}
    for seed in range(200):
        y = rng.permutation(np.arange(n) % 2)
        x = rng.normal(size=(n, 2)) + y[:, None]
        splits = Splits.of(n, 100, seed)
        tested = splits.orders[:, : splits.held_out]
        for m, found in p_values.items():
            sample = splits.orders[:, splits.held_out : splits.held_out + m]
            ones = y[sample][:, :, None]
            counts = np.maximum(ones.sum(axis=1), 1), np.maximum((1 - ones).sum(axis=1), 1)
            means = [(x[sample] * part).sum(axis=1) / c for part, c in zip((ones, 1 - ones), counts, strict=True)]
            nearer = np.abs(x[tested] - means[0][:, None]) < np.abs(x[tested] - means[1][:, None])
            wrong = nearer != y[tested][:, :, None]
            difference = wrong[:, :, 0].astype(float) - wrong[:, :, 1]
            error = uncertainty.standard_error(difference, splits, m)
            found.append(uncertainty.p_value(difference.mean(), error, n))
    for found in p_values.values():
        assert np.mean(np.array(found) < 0.05) < 0.1


def test_few_splits_add_their_own_noise():
    splits = Splits.of(200, 20, seed=0)
    errors = np.zeros((20, splits.held_out)) + RNG.normal(size=(20, 1))
    assert uncertainty.standard_error(errors, splits, 10) >= errors[:, 0].std(ddof=1) / np.sqrt(20)


def test_what_a_loop_would_take(monkeypatch):
    ours, theirs = np.zeros((10, 4), bool), np.array([[True, False, False, False]] * 2)
    none = np.zeros_like(theirs)
    found = curve_records.compare([(loop.Loop(0.5, theirs), ours), (loop.Loop(0.25, none), ours)], 10)
    assert found == {"splits": 2, "seconds": 7.5, "disagreement": 0.125, "excess": 0.125, "largest": 0.25}
    found = curve_records.compare([(loop.Loop(0.5, theirs), ours), (loop.Loop(0.25, none), ~ours)], 10)
    assert (found["excess"], found["largest"]) == (-0.375, -1.0)

    clock = iter([10.0, 16.0])
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    data = table("continuous")
    task = Task(Model("", None), data, Splits.of(len(data.x), 5, seed=0), 20, 20)
    assert loop.run(task, 3, l2=None).seconds == 2.0  # of each split


def run_pair(monkeypatch, tmp_path, columns, target):
    path = tmp_path / "drawn.csv"
    names, values = ",".join([*columns, "y"]), np.stack([*columns.values(), target], axis=1)
    np.savetxt(path, values, delimiter=",", header=names, comments="", fmt=["%.6f"] * len(columns) + ["%d"])
    arguments = ["curves", "--pair", "--csv", path, "--target", "y", "--splits", "6", "--out", tmp_path]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
    monkeypatch.setattr(curves, "SIZES", 2)
    assert command.main() == 0
    return json.loads((tmp_path / "curves.json").read_text())["tables"][0]


def test_the_winner_is_the_one_with_fewer_errors(monkeypatch, tmp_path, capsys):
    a = RNG.normal(size=400)
    b = a + 0.3 * RNG.normal(size=400)
    y = b - a + 0.05 * RNG.normal(size=400) > 0  # told by a difference, which independence does not see
    record = run_pair(monkeypatch, tmp_path, {"a": a, "b": b}, y)
    generative, logistic = (model["error"] for model in record["models"])
    assert logistic[-1] < 0.1 < generative[-1]
    assert record["winner"][-1] == "discriminative"
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(" drawn")).split()
    assert (row[1], row[5], row[8]) == ("10", "280", "disc.")
    assert row[2:4] + row[6:8] == [f"{error:.3f}" for i in (0, -1) for error in (generative[i], logistic[i])]


def test_what_a_record_says_of_bands_and_of_calibration(monkeypatch, tmp_path):
    y = np.arange(60) % 2
    monkeypatch.setattr(curve_records, "standard_error", lambda *_: 0.01)
    for model in run_pair(monkeypatch, tmp_path, {"a": RNG.normal(size=60) + y}, y)["models"]:
        assert model["half_width"] == pytest.approx([0.01 * scipy.stats.t.ppf(0.975, 59)] * 2)
        bins = model["reliability"]
        confidence, accuracy, share = (np.array(bins[name], float) for name in ("confidence", "accuracy", "share"))
        assert np.sum(share) == pytest.approx(1)
        assert bins["calibration_error"] == pytest.approx(np.nansum(share * abs(accuracy - confidence)))
        # Of all predictions, in all bins, as many are right as the error says.
        assert np.nansum(share * accuracy) == pytest.approx(1 - model["error"][-1])


def test_who_wins():
    sample = np.array([0.1, 0.4, 0.3, -0.2, 0.5])
    error = sample.std(ddof=1) / np.sqrt(5)
    assert uncertainty.p_value(sample.mean(), error, 5) == pytest.approx(scipy.stats.ttest_1samp(sample, 0).pvalue)
    interval = scipy.stats.ttest_1samp(sample, 0).confidence_interval()
    assert uncertainty.half_width(error, 5) == pytest.approx((interval.high - interval.low) / 2)
    assert uncertainty.p_value(0.0, 0.0, 5) == 1
    assert verdict.winner(-1.5, 0.01) == "generative"
    assert verdict.winner(1.5, 0.01) == "discriminative"
    assert verdict.winner(1.5, 0.06) is None


def test_the_crossing_is_where_the_generative_model_falls_behind_for_good():
    assert verdict.crossing([10, 100], [-0.1, 0.1]) == pytest.approx(10**1.5)
    assert verdict.crossing([10, 100, 1000], [-0.1, 0.1, 0.2]) == pytest.approx(10**1.5)
    assert verdict.crossing([10, 100], [0.1, 0.2]) is None
    assert verdict.crossing([10, 100], [0.1, -0.2]) is None
    assert verdict.crossing([10, 100, 1000], [-0.1, 0.1, -0.2]) is None


def test_an_error_of_zero_lies_within_its_picture(monkeypatch, tmp_path):
    saved = []
    monkeypatch.setattr(curve_pictures, "save_picture", lambda picture, path: saved.append(picture))
    model = {"name": "LDA", "error": [0.2, 0.0], "half_width": [0.01, 0.0]}
    models = [model, model | {"error": [0.1, 0.0]}]
    record = {"name": "two blobs", "sizes": [10, 20], "models": models, "crossing": None}
    curve_pictures.draw_overview([record], 2, tmp_path)
    assert saved[0].axes[0].get_ylim()[0] < 0


def test_the_verdict_counts_who_wins_at_each_end():
    def table(first, last, *errors, crossing=None):
        models = [{"error": each} for each in errors]
        return {"winner": [first, None, last], "crossing": crossing, "sizes": [10, 100, 1000], "models": models}

    generative = [0.2, 0.15, 0.12]
    both = table(
        "generative", "discriminative", generative, [0.3, 0.2, 0.1], [0.35, 0.1, 0.08], crossing=500.0
    )  # overtaken earlier with the penalty
    one = table("generative", None, generative, [0.3, 0.2, 0.1], [0.25, 0.2, 0.13], crossing=500.0)
    none = table(None, None, generative, [0.3, 0.2, 0.13], [0.35, 0.2, 0.13])
    said = verdict.of_tables([both, one, one, none])
    assert said.startswith("Of 4 tables, 1 shows both regimes beyond doubt: generative first, then no clear")
    assert said.endswith("the generative model falls behind for good in 3.")
    assert verdict.of_tables([none]).startswith("Of 1 table, none shows both regimes beyond doubt: no clear")
    assert verdict.of_penalty([both, one, none]) == (
        " With l2 = 1 its mean error is higher at the smallest m in 2 of 3, and lower at the largest in 1; it "
        "overtakes the generative model for good at fewer rows in 1."
    )
    assert verdict.of_penalty([{**one, "models": one["models"][:2]}]) == ""
    behind = table(None, None, generative, [0.3, 0.2, 0.1], [0.1, 0.1, 0.1])  # from the first size on
    assert verdict.of_penalty([behind]).endswith("at fewer rows in 1.")
    always = table(None, "discriminative", generative, [0.1, 0.1, 0.1])
    assert [verdict.crosses_at(each) for each in (one, always, none)] == ["500", "< 10", "–"]
    assert verdict.of_tables([none, always]).endswith("for good in none, and is behind at every size in 1.")


def test_a_csv_of_any_columns(monkeypatch, tmp_path, capsys):
    n = 60
    y = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "age": np.where(np.arange(n) % 7 == 0, np.nan, RNG.normal(40, 5, n) + 5 * y),
            "job": np.where(np.arange(n) % 5 == 0, None, np.array(["a", "b", "c"])[(np.arange(n) + y) % 3]),
            "rich": (np.arange(n) % 3 == y),
            "same": 1,
            "class": np.where(y, "yes", "no"),
        }
    )
    frame.loc[0, "class"] = None  # not known: not a row
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    data = csv_files.read(path, "class")
    assert (data.kind, data.x.shape[0], data.num_classes) == ("discrete", n - 1, 2)
    assert set(np.unique(data.x)) == {0.0, 1.0}
    assert data.x.shape[1] == 5 + 4 + 1  # quarters and missing, three jobs and missing, rich
    numbers = tables.prepare("age", frame[["age"]], frame["class"])
    assert numbers.kind == "continuous"
    np.testing.assert_allclose([numbers.x.mean(), numbers.x.std()], [0, 1], atol=1e-5)

    arguments = ["curves", "--csv", path, "--target", "class", "--splits", "8", "--out", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
    monkeypatch.setattr(curves, "SIZES", 2)
    assert command.main() == 0
    assert "people" in capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "curves.json").read_text())
    assert record["tables"][0]["sizes"] == [10, 41]
    assert len(record["tables"][0]["models"]) == 4
    for picture in ("curves.png", "curves-people.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 10_000


def test_tables_of_one_name_are_told_apart(monkeypatch, tmp_path):
    rng, text = np.random.default_rng(0), "x,easy,hard\n"
    for i in range(40):
        text += f"{i % 2 + 0.1 * rng.normal()},{i % 2},{rng.integers(2)}\n"
    path = tmp_path / "data.csv"
    path.write_text(text)
    arguments = ["--pair", "--csv", path, "--target", "easy", "--csv", path, "--target", "hard"]
    arguments = ["benchmarks", "curves", *arguments, "--splits", "6", "--out", tmp_path]
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    monkeypatch.setattr(curves, "SIZES", 2)
    assert command.main() == 0
    easy, hard = json.loads((tmp_path / "curves.json").read_text())["tables"]
    assert (easy["name"], hard["name"]) == ("data, easy", "data, hard")
    assert easy["models"][0]["error"][-1] < 0.1 < hard["models"][0]["error"][-1]
    assert len(list(tmp_path.glob("curves-*.png"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "{csv}/x"], "cannot be written: "),
        (["--csv", "none.csv", "--target", "y"], "cannot read none.csv: No such file"),
        (["--csv", "{csv}", "--target", "z"], "no column 'z' in its first line, of the names; it has 'x', 'y', 'name'"),
        (["--csv", "{csv}", "--target", "name"], "must have 2 to 50 classes; 'name' has 60 values"),
        (["--csv", "{csv}", "--target", "one"], "must have 2 to 50 classes; 'one' has 1 value\n"),
        (["--csv", "{csv}"], "one --target"),
        (["--csv", "{csv}", "--target", "y", "--l2", "0"], "--l2 must be positive"),
        (["--splits", "4"], "--splits must be 5 or more"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_two(monkeypatch, tmp_path, capsys, arguments, message):
    path = tmp_path / "data.csv"
    rows = {"x": range(60), "y": [0, 1] * 30, "name": [f"n{i}" for i in range(60)], "one": 1}
    pd.DataFrame(rows).to_csv(path, index=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "curves", *(a.format(csv=path) for a in arguments)])
    assert command.main() == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError("no network here\nat"), "no network here"), (TimeoutError(), "TimeoutError"), (EOFError(), "EOFError")],
)
def test_no_network_is_said_in_one_line(monkeypatch, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(tables, "fetch_openml", fail)
    with pytest.raises(tables.InputError, match=rf"^cannot fetch 'iris' from openml.org: {said}$"):
        tables.from_openml("iris")
