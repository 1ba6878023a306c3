"""The experiments on speed: their data, their records and pictures, and what they refuse."""

import io
import json
import os
import sys
from dataclasses import asdict, replace
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import jaxgen as jg
from benchmarks import __main__ as command
from benchmarks import report, scaling, throughput
from benchmarks.growth import duration, exponent
from benchmarks.synthetic import TextModel, bayes_error, gaussian_rows, unaligned
from benchmarks.throughput_cases import CASES
from benchmarks.timing import Effort, race
from benchmarks.workloads import Job, Sizes, gaussian


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
    return command.main()


def test_a_reader_of_a_report_that_has_seen_enough_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "markdown", lambda folder, only: "tables")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert run(monkeypatch, "report", tmp_path) == 0


def test_what_a_terminal_cannot_show_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "markdown", lambda folder, only: "2×")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run(monkeypatch, "report", tmp_path) == 0
    assert terminal.buffer.getvalue() == b"2?\n"


@pytest.fixture(scope="module")
def text():
    model = TextModel.make(3_000, 3)
    return model, *model.sample(6_000)


def test_words_follow_zipf_and_are_shuffled(text):
    _, x, _ = text
    frequency = np.asarray(x.sum(axis=0)).ravel()
    ranked = np.sort(frequency)[::-1][10:500]
    slope = np.polyfit(np.log(np.arange(11, 501)), np.log(ranked), 1)[0]
    assert -1.25 < slope < -0.85
    most = np.argsort(frequency)[-20:]
    assert np.abs(np.diff(np.sort(most))).max() > 100


def test_lengths_are_log_normal_and_independent_of_the_class(text):
    model, x, y = text
    lengths = np.log(np.asarray(x.sum(axis=1)).ravel())
    assert abs(lengths.mean() - np.log(model.median_length)) < 0.03
    assert abs(lengths.std() - 0.7) < 0.03
    means = [lengths[y == k].mean() for k in range(3)]
    assert np.ptp(means) < 0.1


@pytest.mark.parametrize("num_words", [2_000, 50_000])
def test_a_document_has_about_53_distinct_words(num_words):
    x, _ = TextModel.make(num_words, 2).sample(3_000)
    assert 50 < x.nnz / 3_000 < 58


def test_rows_are_canonical_csr_and_labels_follow_the_prior(text):
    model, x, y = text
    assert (x.dtype, x.indices.dtype, x.indptr.dtype, y.dtype) == (np.float32, np.int32, np.int32, np.int32)
    again = x.copy()
    again.has_canonical_format = False
    again.sum_duplicates()
    np.testing.assert_array_equal(again.indices, x.indices)
    np.testing.assert_array_equal(again.data, x.data)
    np.testing.assert_allclose(np.bincount(y) / len(y), np.exp(model.classifier.log_prior), atol=0.03)


def test_words_of_a_class_follow_its_theta():
    model = TextModel.make(50, 2, distinct=20)
    x, y = model.sample(4_000)
    for k in range(2):
        observed = np.asarray(x[y == k].sum(axis=0)).ravel()
        expected = observed.sum() * np.exp(np.asarray(model.classifier.density.log_probability[k], np.float64))
        assert ((observed - expected) ** 2 / expected).sum() < 100  # χ² of 49 degrees of freedom: 1 in 30,000


def test_chunks_are_new_documents_of_the_same_model_and_a_seed_repeats_them(text):
    model, *_ = text
    sizes, first, second = zip(*((x.shape[0], x.sum(), y.sum()) for x, y in model.chunks(25, 10, seed=3)), strict=True)
    assert sizes == (10, 10, 5)
    assert first[0] != first[1]
    assert (first, second) == tuple(zip(*((x.sum(), y.sum()) for x, y in model.chunks(25, 10, seed=3)), strict=True))


def test_no_fit_beats_the_true_classifier(text):
    model, x, y = text
    fitted = jg.fit(jg.MultinomialNB(), x[:4_000], y[:4_000], num_classes=3)
    held_out, labels = x[4_000:], y[4_000:]
    least = bayes_error(model.classifier, held_out)
    assert 0.005 < least < 0.3
    error = np.mean(np.asarray(jg.predict(fitted, held_out)) != labels)
    error_of_the_truth = np.mean(np.asarray(jg.predict(model.classifier, held_out)) != labels)
    noise = 3 * np.sqrt(least / 2_000)
    assert abs(error_of_the_truth - least) < noise
    assert error > least - noise


def test_gaussian_rows_follow_their_classifier():
    x, y, truth = gaussian_rows(4_000, 12, 3)
    assert x.dtype == np.float32
    least = bayes_error(truth, x)
    error = np.mean(np.asarray(jg.predict(truth, x)) != y)
    assert abs(error - least) < 3 * np.sqrt(least / 4_000)
    copy = unaligned(x)
    np.testing.assert_array_equal(copy, x)
    assert copy.ctypes.data % 64 == 4


def test_the_exponent_of_a_power_law_is_that_of_its_end():
    sizes = [10, 100, 1_000, 10_000, 100_000]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [7, 7, 1_000, 10_000, 100_000]) == pytest.approx(1)
    assert exponent([10], [1]) is None


def test_sizes_and_durations():
    assert scaling.half_decades(1_000, 1_000_000) == [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    assert scaling.half_decades(1_000, 20_000) == [1_000, 3_000, 10_000, 20_000]
    assert [duration(seconds) for seconds in (2.94, 0.1, 0.0123, 2.5e-4)] == ["2.9 s", "100 ms", "12 ms", "250 µs"]


def test_a_sweep_is_measured_and_drawn_and_a_peer_that_takes_too_long_is_left_alone(monkeypatch, tmp_path, capsys):
    fitted = []

    class Peer(GaussianNB):
        def fit(self, x, y):
            fitted.append(len(x))
            return super().fit(x, y)

    def rows(n):
        return *gaussian_rows(n, 3, 2)[:2], 2

    sweep = scaling.Sweep("rows", "rows", "3 features", [100, 300, 1_000], rows, [("NB", jg.GaussianNB(), Peer)])
    monkeypatch.setattr(scaling, "sweeps", lambda *_, **__: [sweep])
    monkeypatch.setattr(scaling, "PATIENCE", 1e-9)
    assert run(monkeypatch, "scaling", "--quick", "--out", tmp_path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "scikit-learn score of NB at [300, 1000]" in said
    assert "too small for exponents" in said
    assert set(fitted) == {100}
    lines = json.loads((tmp_path / "scaling.json").read_text())["lines"]
    assert {(line["library"], line["verb"]): line["sizes"] for line in lines} == {
        (library, verb): sizes
        for library, sizes in (("jaxgen", [100, 300, 1_000]), ("scikit-learn", [100]))
        for verb in ("fit", "score")
    }
    assert (tmp_path / "scaling-rows.png").stat().st_size > 10_000


def test_calls_are_timed_in_turn():
    calls = []
    first, second = (lambda name=name: calls.append(name) for name in "ab")
    times = race([first, second], Effort(budget=0.0, least=3))
    assert calls == ["a", "b"] * 3
    assert [len(each) for each in times] == [3, 3]
    race([first], Effort(budget=60.0, most=2, rest=0.01))
    assert len(calls) > 6 + 2 * 2  # before each that is timed come others


@pytest.mark.thorough
def test_a_throughput_run_writes_json_and_png_which_make_the_report(monkeypatch, tmp_path, capsys):
    rows = ("Gaussian NB fit, device", "multinomial posterior, CSR")
    assert run(monkeypatch, "throughput", "--quick", "--out", tmp_path, "--rows", *rows) == 0
    assert "GFLOP/s" in capsys.readouterr().out
    record = json.loads((tmp_path / "throughput.json").read_text())
    assert [r["name"] for r in record["results"]] == ["multinomial posterior, CSR", "Gaussian NB fit, device arrays"]
    for r in record["results"]:
        (times,) = r["seconds"]  # of one process
        assert {library: len(each) for library, each in times.items()} == {"jaxgen": 1, "scikit-learn": 1}
        assert r["accuracy"] <= r["best_accuracy"] + 0.1
        assert r["difference"] < 1e-3
        assert r["target"] is None  # what is asked for is of full sizes
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")
    assert run(monkeypatch, "report", tmp_path) == 0
    text = capsys.readouterr().out
    assert "| Gaussian NB fit, device arrays |" in text
    assert "A quick run: small data, not what names say." in text

    # Other cases join those of a record that is like theirs, and of no other.
    more = ("throughput", "--quick", "--out", tmp_path, "--rows", "LDA fit", rows[0])
    before = {**record["environment"], "commit": "0123456", "date": "2020-01-02"}
    old = record | {"environment": before, "rates": {"GB/s": 7.0, "GFLOP/s": 11.0}}
    old["results"] = [{key: value for key, value in each.items() if key != "run"} for each in record["results"]]
    (tmp_path / "throughput.json").write_text(json.dumps(old))
    assert run(monkeypatch, *more) == 0
    joined = json.loads((tmp_path / "throughput.json").read_text())
    # Each says which run it is of.
    said = "reads 7 GB/s and multiplies matrices at 11 GFLOP/s (2020-01-02, commit 0123456)"
    assert run(monkeypatch, "report", tmp_path) == 0
    assert f"; in that of multinomial posterior, CSR it {said}." in capsys.readouterr().out
    kept, *new = (each.pop("run") for each in joined["results"])
    assert kept == {"date": "2020-01-02", "commit": "0123456", "rates": old["rates"]}
    assert all(each["date"] == joined["environment"]["date"] and each["rates"] == joined["rates"] for each in new)
    (tmp_path / "throughput.json").write_text(json.dumps(joined | {"results": [{**joined["results"][0], "run": kept}]}))
    assert run(monkeypatch, "report", tmp_path) == 0
    assert f"; in the same run the device {said}." in capsys.readouterr().out
    names = ["multinomial posterior, CSR", "Gaussian NB fit, device arrays", "LDA fit"]
    assert [r["name"] for r in joined["results"]] == names
    assert joined["results"][0] == old["results"][0]
    assert joined["results"][1]["seconds"] != record["results"][1]["seconds"]
    for other in (joined | {"environment": joined["environment"] | {"jax": "0.0"}}, {"results": []}):
        (tmp_path / "throughput.json").write_text(json.dumps(other))
        assert run(monkeypatch, *more) == 2
        assert "is no record of this machine" in capsys.readouterr().err
        assert json.loads((tmp_path / "throughput.json").read_text()) == other


def test_of_several_processes_the_middle_one_is_shown_with_the_range_of_all(monkeypatch, tmp_path):
    def measure(case, sizes, effort):
        ours, theirs = next(times)
        others = dict.fromkeys(("scikit-learn", "a loop"), lambda: 1.0)
        job = Job({}, ours=lambda: 1.0, others=others, difference=lambda a, b: abs(a - b))
        monkeypatch.setattr(throughput, "race", lambda calls, effort: ([ours], [theirs], [ours**2]))
        return throughput.measure(replace(case, prepare=lambda _: job), sizes, effort)

    times = iter([(2.0, 60.0), (1.0, 25.0), (4.0, 80.0)])
    result = throughput.of_processes([measure(CASES[0], Sizes.quick(), Effort()) for _ in range(3)])
    assert (result.ratio, result.ms) == (25.0, {"jaxgen": 1e3, "scikit-learn": 25e3, "a loop": 1e3})
    assert [each["jaxgen"] for each in result.seconds] == [[2.0], [1.0], [4.0]]
    about = {"device": "cpu: cpu", "machine": "x86_64, 2 cores", "jax": "0.10.2", "scikit-learn": "1.9.1"}
    record = {"environment": about, "rates": {"GB/s": 20.0, "GFLOP/s": 150.0}, "sizes": asdict(Sizes())}
    (tmp_path / "throughput.json").write_text(json.dumps(record | {"results": [asdict(result)]}))
    text = report.markdown(tmp_path)
    assert "| ratio | between |" in text
    assert "| 25.0× | 20.0 – 30.0 |" in text
    assert f"a loop / jaxgen: 2.00× (1.00 – 4.00) in {CASES[0].name}." in text
    lines = []
    monkeypatch.setattr(throughput, "save_picture", lambda picture, _: lines.extend(picture.axes[0].lines))
    throughput.draw(record | {"results": [asdict(result)]}, tmp_path / "throughput.png")
    assert [20.0, 30.0] in [pytest.approx(list(line.get_xdata())) for line in lines]


def test_a_disagreement_is_an_error_that_names_the_case():
    job = Job({}, ours=lambda: 1.0, others={"scikit-learn": lambda: 1.5}, difference=lambda a, b: abs(a - b))
    case = replace(CASES[0], name="halves", tolerance=0.1, prepare=lambda _: job)
    with pytest.raises(throughput.DisagreementError, match=r"halves: jaxgen and scikit-learn differ by 0\.5"):
        throughput.measure(case, Sizes.quick())
    nothing = replace(job, difference=lambda a, b: float("nan"))
    with pytest.raises(throughput.DisagreementError):
        throughput.measure(replace(case, prepare=lambda _: nothing), Sizes.quick())


def test_a_case_that_does_not_exist(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "throughput", "--quick", "--out", tmp_path, "--rows", "LDA fit", "nonsense") == 2
    assert "no case has nonsense in its name" in capsys.readouterr().err


def test_large_in_chunks(monkeypatch, tmp_path, capsys):
    arguments = ("--documents", 500, "--words", 300, "--chunk", 200, "--out", tmp_path)
    assert run(monkeypatch, "large", *arguments) == 0
    record = json.loads((tmp_path / "large.json").read_text())
    assert record["nonzeros"] > 500 * 20
    assert len(record["chunk_seconds"]) == 4  # three chunks and the estimate
    assert "500 documents × 300 words" in capsys.readouterr().out


def test_the_report_says_what_the_records_say(tmp_path):
    about = {"device": "cpu: cpu", "machine": "x86_64, 2 cores", "jax": "0.10.2", "scikit-learn": "1.9.1"}
    result = {
        "name": "LDA|fit",
        "ms": {"jaxgen": 2.0, "scikit-learn": 30.0},
        "ratio": 15.0,
        "target": 10.0,
        "gigabytes_per_second": 40.0,
        "compile_ms": 410.0,
        "gigaflops": None,
        "seconds": [{"jaxgen": [0.002], "scikit-learn": [0.03]}],
    }
    rates = {"GB/s": 20.0, "GFLOP/s": 150.0}
    record = {"environment": about, "rates": rates, "sizes": asdict(Sizes()), "results": [result]}
    (tmp_path / "throughput.json").write_text(json.dumps(record))
    line = {"sweep": "rows", "model": "LDA", "verb": "fit", "sizes": [1_000, 10_000], "exponent": 0.98}
    growth = {"lines": [line | {"library": "jaxgen", "seconds": [[1.0], [0.1, 0.2, 0.3]]}]}
    (tmp_path / "scaling.json").write_text(json.dumps(growth))
    text = report.markdown(tmp_path)
    assert r"| LDA\|fit | 2.00 | 30.0 | 15.0× | 10× | 410 | 40.0 | – |" in text
    assert "reads 20 GB/s" in text
    assert "100,000 documents × 50,000 words" in text
    assert "| rows | LDA fit | 1,000 – 10,000 | 0.98 | – | 200 | – |" in text


@pytest.mark.parametrize("content", [None, "not JSON"])
def test_a_report_without_records_is_one_line_and_exit_code_two(monkeypatch, tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "throughput.json").write_text(content)
    assert run(monkeypatch, "report", tmp_path) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def other_libraries(monkeypatch):
    """Stand-ins for two libraries that are not installed: Gaussian naive Bayes under their names."""

    class Faster(GaussianNB):
        pass

    class Bayes:
        def __init__(self, normals):
            self.normals = normals

        def fit(self, x, y):
            self.model = GaussianNB().fit(x, y)
            return self

        def predict_log_proba(self, x):
            return self.model.predict_log_proba(x)

    stand_ins = {
        "sklearnex": {},
        "sklearnex.naive_bayes": {"GaussianNB": Faster},
        "pomegranate": {},
        "pomegranate.bayes_classifier": {"BayesClassifier": Bayes},
        "pomegranate.distributions": {"Normal": lambda covariance_type: covariance_type},
    }
    for name, members in stand_ins.items():
        module = ModuleType(name)
        module.__dict__.update(members, __spec__=ModuleSpec(name, None))
        monkeypatch.setitem(sys.modules, name, module)
    return Faster, Bayes


def test_libraries_that_are_installed_stand_beside_scikit_learn(other_libraries):
    faster, bayes = other_libraries
    case = next(case for case in CASES if case.name == "Gaussian NB fit, device arrays")
    job = case.prepare(Sizes.quick())
    fitted = {library: fit() for library, fit in job.others.items()}
    assert [*fitted] == ["scikit-learn", "scikit-learn-intelex", "pomegranate"]
    assert isinstance(fitted["scikit-learn-intelex"], faster)
    assert isinstance(fitted["pomegranate"], bayes)
    assert fitted["pomegranate"].normals == ["diag"] * job.sizes["classes"]
    ours = job.ours()
    for theirs in fitted.values():  # whose parameters are compared, or their posteriors where these are not known
        assert job.difference(ours, theirs) < 1e-3
    data = gaussian(Sizes.quick())
    wrong = bayes(None).fit(data.x, np.roll(data.y, 1))
    assert job.difference(ours, wrong) > 1e-2
