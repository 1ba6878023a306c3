"""Metrics against scikit-learn, against sums over pairs and bins, and under JAX's transformations."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as oracle
from jax import export
from scipy.special import log_softmax
from sklearn.calibration import calibration_curve

from jaxgen import metrics

N, K = 40, 3
RNG = np.random.default_rng(0)
LOG_POSTERIOR = log_softmax(RNG.normal(scale=2, size=(N, K)), axis=1)
Y = np.array([RNG.choice(K, p=np.exp(row)) for row in LOG_POSTERIOR])
PREDICTED = LOG_POSTERIOR.argmax(axis=1)
WEIGHT = np.where(np.arange(N) % 5 == 0, 0.0, 2 * RNG.random(N))
WEIGHTS = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])

# Every fifth row is certain, and right: what it calls impossible did not happen.
CERTAIN = LOG_POSTERIOR.copy()
CERTAIN[1::5] = np.where(np.eye(K)[Y[1::5]] == 1, 0.0, -np.inf)

LABELS = 5  # more classes than occur
OF_LABELS = {
    "accuracy": metrics.accuracy,
    "confusion_matrix": partial(metrics.confusion_matrix, num_classes=LABELS),
    "precision": partial(metrics.precision, num_classes=LABELS),
    "recall": partial(metrics.recall, num_classes=LABELS, average="macro"),
    "f1": partial(metrics.f1, num_classes=LABELS, average="weighted"),
}
OF_POSTERIORS = {
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "reliability": metrics.reliability,
    "expected_calibration_error": metrics.expected_calibration_error,
    "roc_auc": metrics.roc_auc,
}
EVERY = OF_LABELS | OF_POSTERIORS
each_metric = pytest.mark.parametrize("name", EVERY)
both_kinds = pytest.mark.parametrize("names", [OF_LABELS, OF_POSTERIORS], ids=["labels", "posteriors"])


def judged(name):
    return PREDICTED if name in OF_LABELS else LOG_POSTERIOR


def judge(names, y, values, weight):
    return {name: metric(y, values, sample_weight=weight) for name, metric in names.items()}


def close(a, b, tolerance=1e-12):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)


@WEIGHTS
def test_labels_are_counted_as_scikit_learn_counts_them(weight):
    """Of five classes one is never true, one never predicted, and one neither."""
    y, predicted, labels = np.array([0, 1, 3])[Y], np.array([0, 1, 2])[PREDICTED], range(LABELS)
    scale = {"sample_weight": weight}
    close(metrics.accuracy(y, predicted, **scale), oracle.accuracy_score(y, predicted, **scale))
    confusion = metrics.confusion_matrix(y, predicted, num_classes=LABELS, **scale)
    close(confusion, oracle.confusion_matrix(y, predicted, labels=labels, **scale).astype(float))
    if weight is None:
        for arguments in ((y, predicted), (predicted, y)):
            assert metrics.confusion_matrix(*arguments).shape == (4, 4)  # the largest label of both
    for ours, theirs in (
        (metrics.precision, oracle.precision_score),
        (metrics.recall, oracle.recall_score),
        (metrics.f1, oracle.f1_score),
    ):
        for average in (None, "macro", "micro", "weighted"):
            value = ours(y, predicted, num_classes=LABELS, average=average, **scale)
            close(value, theirs(y, predicted, labels=labels, average=average, zero_division=0, **scale))


@WEIGHTS
@pytest.mark.parametrize("log_posterior", [LOG_POSTERIOR, CERTAIN], ids=["finite", "with impossible events"])
def test_posteriors_are_judged_as_scikit_learn_judges_them(log_posterior, weight):
    p = np.exp(log_posterior)
    scale = {"sample_weight": weight}
    close(metrics.log_loss(Y, log_posterior, **scale), oracle.log_loss(Y, p, **scale))
    close(metrics.brier_score(Y, log_posterior, **scale), oracle.brier_score_loss(Y, p, **scale))
    close(metrics.roc_auc(Y, log_posterior, **scale), oracle.roc_auc_score(Y, p, multi_class="ovr", **scale))


def test_two_classes_are_judged_as_scikit_learn_judges_them():
    log_odds, y = np.round(LOG_POSTERIOR[:, 1] - LOG_POSTERIOR[:, 0]), Y % 2
    scores = np.stack([0 * log_odds, log_odds], axis=1)
    log_posterior = log_softmax(scores, axis=1)
    p, scale = np.exp(log_posterior), {"sample_weight": WEIGHT}
    close(metrics.brier_score(y, log_posterior, **scale), oracle.brier_score_loss(y, p[:, 1], **scale))
    expected = oracle.roc_auc_score(y, log_odds, **scale)
    close(metrics.roc_auc(y, log_posterior, **scale), expected)
    close(metrics.roc_auc(y, log_odds, **scale), expected)
    saturated = log_softmax(20 * scores, axis=1)  # where log p is 0, the odds still differ
    close(metrics.roc_auc(y, saturated, **scale), expected)


def test_area_is_the_share_of_ordered_pairs():
    score = np.round(np.random.default_rng(3).normal(size=N))
    score[:12] = np.tile([-np.inf, np.inf, -0.0, 0.0], 3)
    y = Y % 2
    pairs = (WEIGHT * (y == 1))[:, None] * (WEIGHT * (y == 0))[None]
    above, level = (relation(score[:, None], score[None]) for relation in (np.greater, np.equal))
    assert level[pairs > 0].any()
    close(metrics.roc_auc(y, score, sample_weight=WEIGHT), np.sum(pairs * (above + level / 2)) / pairs.sum())


@WEIGHTS
def test_bins_of_the_reliability_diagram(weight):
    log_posterior = CERTAIN.copy()
    log_posterior[2] = np.log([0.5, 0.3, 0.2])  # an edge, which belongs to the bin below it
    confidence, right = np.exp(log_posterior).max(axis=1), log_posterior.argmax(axis=1) == Y
    w, error = np.ones(N) if weight is None else weight, 0.0
    expected = np.full((10, 3), [np.nan, np.nan, 0.0])
    for b in range(10):
        inside = (confidence > b / 10) & (confidence <= (b + 1) / 10)
        if w[inside].any():
            means = np.average(np.stack([confidence, right])[:, inside], axis=1, weights=w[inside])
            expected[b] = *means, w[inside].sum()
            error += w[inside].sum() / w.sum() * abs(means[0] - means[1])
    diagram = metrics.reliability(Y, log_posterior, sample_weight=weight)
    close(diagram, metrics.Reliability(*expected.T))
    if weight is not None:
        close(metrics.expected_calibration_error(Y, log_posterior, sample_weight=weight), error)
    else:
        theirs = calibration_curve(right, confidence, n_bins=10)
        present = np.asarray(diagram.weight) > 0
        assert 0 < present.sum() < 10
        close((np.asarray(diagram.accuracy)[present], np.asarray(diagram.confidence)[present]), theirs)


def test_many_classes_take_no_table_of_pairs():
    rng, many = np.random.default_rng(0), 100_000
    y = rng.integers(0, many, 500)
    predicted = np.where(rng.random(500) < 0.5, y, rng.integers(0, many, 500))
    for ours, theirs in ((metrics.f1, oracle.f1_score), (metrics.precision, oracle.precision_score)):
        expected = theirs(y, predicted, labels=np.arange(many), average="macro", zero_division=0)
        close(ours(y, predicted, num_classes=many, average="macro"), expected)
    with pytest.raises(ValueError, match=r"num_classes must be at most 46340 for a confusion matrix.* found 100000"):
        metrics.confusion_matrix(y, predicted, num_classes=many)


def test_what_was_called_impossible():
    log_posterior = np.array([[0.0, -np.inf], [np.log(0.25), np.log(0.75)]])
    log_loss, brier = (
        jax.jit(jax.value_and_grad(lambda lp, y, w, metric=metric: metric(y, lp, sample_weight=w)))
        for metric in (metrics.log_loss, metrics.brier_score)
    )
    y, other, both = np.array([0, 1]), np.array([1, 1]), np.ones(2)
    close(log_loss(log_posterior, y, both), (-np.log(0.75) / 2, np.array([[-0.5, 0.0], [0.0, -0.5]])))
    value, gradient = log_loss(log_posterior, other, both)
    assert np.isposinf(value)
    assert np.isfinite(gradient).all()
    value, gradient = brier(log_posterior, other, both)
    close(value, (1 + 0.25**2) / 2)
    assert np.isfinite(gradient).all()
    close(log_loss(log_posterior, other, np.array([0.0, 1.0]))[0], -np.log(0.75))


@each_metric
def test_a_row_of_weight_zero_is_absent_whatever_it_holds(name):
    y, values, absent = Y.copy(), judged(name).copy(), WEIGHT == 0
    y[absent] = 99
    expected = EVERY[name](Y, values, sample_weight=WEIGHT)
    for spoil in [-7, 99] if name in OF_LABELS else [np.nan, np.inf, -np.inf]:
        values[absent] = spoil
        close(EVERY[name](y, values, sample_weight=WEIGHT), expected)


def test_no_gradient_of_an_absent_row_spoils_the_others():
    smooth = metrics.log_loss, metrics.brier_score, metrics.expected_calibration_error
    spoilt = np.where((WEIGHT == 0)[:, None], np.nan, LOG_POSTERIOR)
    gradient = jax.jit(
        jax.jacrev(lambda lp, w: jnp.stack([metric(Y, lp, sample_weight=w) for metric in smooth]), argnums=(0, 1))
    )
    of_values, of_weight = gradient(spoilt, WEIGHT)
    expected_values, expected_weight = map(np.asarray, gradient(LOG_POSTERIOR, WEIGHT))
    close(of_values, expected_values)
    close(of_weight, np.where(WEIGHT == 0, 0.0, expected_weight))
    assert np.abs(expected_weight[:, WEIGHT == 0]).min() > 0  # a finite row of weight 0 has its derivative


def test_a_shared_row_is_a_row_in_each_class():
    shares, weight, rows = np.random.default_rng(1).random((N // 2, 2)), WEIGHT[: N // 2], LOG_POSTERIOR[: N // 2]
    classes = np.stack([Y[: N // 2], (Y[: N // 2] + 1) % K], axis=1)  # two for each row
    responsibilities = np.einsum("nj,njk->nk", shares, np.eye(K)[classes])
    found = jax.jit(partial(judge, OF_POSTERIORS))(responsibilities, rows, weight)
    close(found, judge(OF_POSTERIORS, classes.ravel(), np.repeat(rows, 2, axis=0), (shares * weight[:, None]).ravel()))


def test_gradients():
    """Of both losses, by responsibilities, log posterior and weight; and again of ⟨tangent, the gradient⟩."""
    rng = np.random.default_rng(2)
    arguments = rng.random((N, K)), LOG_POSTERIOR, WEIGHT + 1
    tangent = tuple(rng.normal(size=part.shape) for part in arguments)

    def loss(y, lp, w):
        return metrics.log_loss(y, lp, sample_weight=w) - 2 * metrics.brier_score(y, lp, sample_weight=w)

    @jax.jit
    def derivatives(arguments):
        first, pull = jax.vjp(jax.grad(loss, argnums=(0, 1, 2)), *arguments)
        return loss(*arguments), first, pull(tangent)

    def around(step):
        value, first, _ = derivatives(tuple(a + step * t for a, t in zip(arguments, tangent, strict=True)))
        return map(np.asarray, (value, *first))

    eps = 1e-5
    _, first, second = derivatives(arguments)
    slope = sum(np.vdot(g, t) for g, t in zip(first, tangent, strict=True))
    for found, above, below in zip((slope, *second), around(eps), around(-eps), strict=True):
        close(found, (above - below) / (2 * eps), 1e-8)


@both_kinds
def test_jit_and_vmap_equal_eager_calls_and_bad_values_are_nan(names):
    values = judged(next(iter(names)))
    y_out_of_range, unusable, negative_weight = Y.copy(), values.copy(), WEIGHT.copy()
    y_out_of_range[1], unusable[1], negative_weight[1] = -1, -1 if names is OF_LABELS else np.nan, -1.0
    good = [(Y, values, WEIGHT), (Y[::-1], values, WEIGHT + 1)]
    bad = [(y_out_of_range, values, WEIGHT), (Y, unusable, WEIGHT), (Y, values, negative_weight)]

    stacked = jax.jit(jax.vmap(partial(judge, names)))(*(np.stack(part) for part in zip(*good, *bad, strict=True)))
    stacked = jax.tree.map(np.asarray, stacked)
    for i, arguments in enumerate(good):
        close(jax.tree.map(lambda leaf, i=i: leaf[i], stacked), judge(names, *arguments))
    assert all(np.isnan(leaf[len(good) :]).all() for leaf in jax.tree.leaves(stacked))


@pytest.mark.parametrize("name", ["precision", "log_loss"])
def test_float32_stays_float32_and_float64_wins(name):
    values, narrow = judged(name), WEIGHT.astype(np.float32)
    single = values if name in OF_LABELS else values.astype(np.float32)
    for given, weight, dtype in ((single, narrow, "float32"), (single, WEIGHT, "float64")):
        value = EVERY[name](Y, given, sample_weight=weight)
        assert {leaf.dtype for leaf in jax.tree.leaves(value)} == {np.dtype(dtype)}
        close(jax.tree.map(np.float64, value), EVERY[name](Y, values, sample_weight=WEIGHT), 1e-5)


def test_float32_sums_grow_past_2_to_the_24():
    n = 2**16
    label, weight = np.zeros(n, int), np.ones(n, np.float32)
    weight[0] = 2**24  # added to it one by one, the other rows would change nothing
    confusion = metrics.confusion_matrix(label, label, num_classes=1, sample_weight=weight)
    assert confusion.dtype == np.float32
    assert 0 <= 2**24 + n - 1 - np.asarray(confusion).item() <= 2**12


def test_probabilities_may_miss_one_by_a_twentieth():
    y, log_posterior = np.array([0, 1]), np.log(np.full((2, 2), 0.5))
    for factor in (0.96, 1.04):
        assert metrics.log_loss(y, log_posterior + np.log(factor)) == pytest.approx(-np.log(factor / 2))
    for factor in (0.94, 1.06):
        with pytest.raises(ValueError, match="sum to 1"):
            metrics.log_loss(y, log_posterior + np.log(factor))


def test_nothing_to_judge():
    nothing = 0 * WEIGHT
    for name in ("accuracy", "log_loss", "brier_score", "expected_calibration_error", "roc_auc"):
        assert np.isnan(EVERY[name](Y, judged(name), sample_weight=nothing)), name
    close(metrics.precision(Y, PREDICTED, num_classes=LABELS, sample_weight=nothing), np.zeros(LABELS))
    assert np.isnan(metrics.roc_auc(0 * Y, LOG_POSTERIOR[:, 0], sample_weight=WEIGHT))  # no positives
    assert np.isnan(metrics.roc_auc(Y % 2, LOG_POSTERIOR))  # class 2 has none


PROBABILITIES = np.exp(LOG_POSTERIOR)
UNKNOWN = np.where(np.arange(N)[:, None] == 4, np.nan, LOG_POSTERIOR)
ONE_NAN = np.where(np.arange(K) == 1, UNKNOWN, LOG_POSTERIOR)
BAD_CALLS = {
    "fewer predictions": (metrics.accuracy, (Y, PREDICTED[1:]), {}, ValueError, r"y of shape \(40,\).*\(39,\)"),
    "posterior for predictions": (metrics.f1, (Y, LOG_POSTERIOR), {}, ValueError, r"\(40, 3\).*argmax\(axis=1\)"),
    "predictions that are names": (
        metrics.confusion_matrix,
        (Y, Y + 2**40),
        {},
        ValueError,
        r"predicted must hold labels.*found 1099511627778 in row [0-9]+, too large",
    ),
    "no rows": (metrics.confusion_matrix, (Y[:0], Y[:0]), {}, ValueError, r"at least one row; found y of shape \(0,\)"),
    "float predictions": (metrics.recall, (Y, PREDICTED * 1.0), {}, TypeError, r"predicted.*float64.*astype\(int\)"),
    "float labels": (metrics.recall, (Y * 1.0, PREDICTED), {}, TypeError, r"y must be integer labels.*float64"),
    "string labels": (metrics.accuracy, (Y.astype(str), PREDICTED), {}, TypeError, r"y must be a real numeric array"),
    "negative prediction": (metrics.accuracy, (Y, PREDICTED - 3), {}, ValueError, r"predicted.*found -\d in row 0"),
    "large prediction": (
        metrics.precision, (Y, PREDICTED + 5), {"num_classes": 5}, ValueError, r"predicted.*row 0 \(K = 5\).*raise n"),
    "label out of range": (
        metrics.f1, (Y + 9, PREDICTED), {"num_classes": 3}, ValueError, r"y must hold labels in \[0, 3\); found"),
    "num_classes float": (
        metrics.f1, (Y, PREDICTED), {"num_classes": 3.0}, TypeError, r"num_classes must be a Python integer"),
    "average": (metrics.f1, (Y, PREDICTED), {"average": "binary"}, ValueError, r"'micro', 'weighted'\); found 'bin"),
    "weights": (metrics.accuracy, (Y, PREDICTED), {"sample_weight": -WEIGHT}, ValueError, r"sample_weight must be fin"),
    "one posterior": (metrics.log_loss, (Y, LOG_POSTERIOR[0]), {}, ValueError, r"log_posterior must have shape \(n, K"),
    "empty posterior": (metrics.log_loss, (Y, LOG_POSTERIOR[:, :0]), {}, ValueError, r"one class; found \(40, 0\)"),
    "labels of other rows": (metrics.brier_score, (Y[1:], LOG_POSTERIOR), {}, ValueError, r"y must have one.*\(39,\)"),
    "classes of others": (metrics.log_loss, (np.eye(4)[Y], LOG_POSTERIOR), {}, ValueError, r"\(40, 3\).*\(40, 4\)"),
    "unknown class": (metrics.log_loss, (Y + 2, LOG_POSTERIOR), {}, ValueError, r"labels in \[0, 3\); found [34]"),
    "NaN posterior": (metrics.log_loss, (Y, UNKNOWN), {}, ValueError, r"log_posterior.*nan.*row 4.*sample_weight 0"),
    "probabilities": (metrics.brier_score, (Y, PROBABILITIES), {}, ValueError, r"sum to 1.*row 0.*jnp.log of prob"),
    "no bins": (metrics.reliability, (Y, LOG_POSTERIOR), {"num_bins": 0}, ValueError, r"num_bins must be at least 1"),
    "half a bin": (
        metrics.expected_calibration_error, (Y, LOG_POSTERIOR), {"num_bins": 0.5}, TypeError, r"num_bins.*found 0.5"),
    "NaN score": (metrics.roc_auc, (Y, ONE_NAN), {}, ValueError, r"score must hold numbers.*row 4"),
    "no log odds": (
        metrics.roc_auc, (Y % 2, np.full((N, 2), -np.inf)), {"sample_weight": WEIGHT + 1}, ValueError,
        r"log odds.*found \[-inf -inf\] in row 0"),
    "three classes, one score": (
        metrics.roc_auc, (Y, LOG_POSTERIOR[:, 0]), {}, ValueError, r"labels in \[0, 2\).*give score a column for each"),
    "negative label": (metrics.accuracy, (Y - 1, PREDICTED), {}, ValueError, r"y must hold labels of 0 or more; f"),
    "large label": (metrics.accuracy, (Y + 2**30, PREDICTED), {}, ValueError, r"labels in \[0, 1073741824\); found"),
    "score of one column": (metrics.roc_auc, (Y % 2, LOG_POSTERIOR[:, :1]), {}, ValueError, r"\(40, 1\).*Give score"),
    "score of three axes": (metrics.roc_auc, (Y, LOG_POSTERIOR[None]), {}, ValueError, r"shape \(n, K\) or \(n,\)"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "arguments", "settings", "error", "message"), BAD_CALLS.values(), ids=list(BAD_CALLS)
)
def test_bad_calls(metric, arguments, settings, error, message):
    with pytest.raises(error, match=message):
        metric(*arguments, **settings)


def test_accuracy_asks_for_no_number_of_classes():
    with pytest.raises(
        ValueError, match=r"predicted must hold labels of 0 or more, in every row; found -1 in row 1\.$"
    ):
        metrics.accuracy(np.array([0, 1]), np.array([0, -1]))


def test_a_label_that_32_bits_do_not_hold_is_no_other(run_script):
    code = """
import jax, numpy as np, jaxgen as jg
high = np.array([2**32 + 1, 2**32])
try:
    jg.metrics.accuracy(np.array([1, 0]), high)
except ValueError as error:
    print(error)
fit = jax.jit(lambda w: jg.fit(jg.GaussianNB(), np.eye(2), high, num_classes=2, sample_weight=w))
print(np.isnan(fit(np.ones(2)).log_prior).all())
"""
    message = "predicted must hold labels in [0, 1073741824), in every row; found 4294967297 in row 0."
    assert run_script(code, optimised=False) == [message, "True"]


@pytest.mark.parametrize("metric", [metrics.confusion_matrix, metrics.f1])
def test_num_classes_is_asked_for_under_a_trace(metric):
    with pytest.raises(ValueError, match=r"num_classes cannot be inferred.*num_classes=K"):
        jax.jit(lambda predicted: metric(Y, predicted))(PREDICTED)


@pytest.mark.every_platform
@both_kinds
def test_every_metric_lowers_for_every_platform(names):
    def flat(y, values, weight):  # export knows no pytree types but JAX's own
        return jax.tree.leaves(judge(names, y, values, weight))

    platforms = ("cuda", "rocm", "tpu", "cpu")
    exported = export.export(jax.jit(flat), platforms=platforms)(Y, judged(next(iter(names))), WEIGHT)
    assert exported.platforms == platforms
    assert len(exported.mlir_module_serialized) > 0


def test_weights_that_overflow_give_no_number():
    right, weight = np.array([0, 1, 0, 1, 1]), np.full(5, 3e38)  # their sum is too much for float32
    with jax.enable_x64(False):
        assert np.isnan(metrics.accuracy(right, 1 - right, sample_weight=weight))
        assert np.isnan(metrics.f1(right, right, sample_weight=weight)).all()


def test_scores_that_are_whole_numbers_are_told_apart_at_any_size():
    y, day = np.array([0, 1, 0, 1]), 20_240_101_235_958 + np.arange(4)
    with jax.enable_x64(False):
        assert metrics.roc_auc(y, day, sample_weight=np.ones(4, np.float32)) == 0.75
        assert metrics.roc_auc(y, np.stack([-day, day], axis=1)) == 0.75
        assert metrics.roc_auc(y, np.stack([np.zeros(4, np.uint64), day.astype(np.uint64)], axis=1)) == 0.75
        three = np.stack([np.arange(4), -day, day], axis=1)
        single = oracle.roc_auc_score(np.eye(3)[[0, 1, 2, 2]], three, average="macro")
        np.testing.assert_allclose(metrics.roc_auc(np.array([0, 1, 2, 2]), three), single, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-30, 1e-19, 1e19, 1e37])
def test_the_area_under_the_curve_has_no_unit_of_weight(unit):
    y, score, weight = np.array([0, 1, 0, 1]), np.arange(4.0), np.array([1.0, 2.0, 3.0, 1.0])
    with jax.enable_x64(False):
        ours = metrics.roc_auc(y, score, sample_weight=unit * weight)
    np.testing.assert_allclose(ours, oracle.roc_auc_score(y, score, sample_weight=weight), rtol=1e-6)


def test_the_weight_of_an_absent_row_has_its_derivative_in_the_area_under_the_curve():
    y, score = np.array([0, 1, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.3, 0.4])
    weight = np.array([1.0, 0, 2, 1, 0])
    slope = jax.grad(lambda w: metrics.roc_auc(y, score, sample_weight=w))(jnp.asarray(weight))
    for i in range(5):
        more, h = weight.copy(), 1e-7
        more[i] += h
        areas = [oracle.roc_auc_score(y, score, sample_weight=w) for w in (more, weight)]
        np.testing.assert_allclose(slope[i], (areas[0] - areas[1]) / h, atol=1e-6)
