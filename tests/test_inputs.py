"""Each bad input gets its error: the argument, what was expected, what was found, the remedy."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.sparse
import sklearn.naive_bayes
from jax.experimental import sparse
from registry import CASES

import jaxgen as jg
from jaxgen import preparing

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])
BITS = (X % 2).astype(float)
SPOILT = np.where(X == 5, np.nan, X)

BAD_FITS = {
    "one-dimensional x": (jg.LDA(), X[:, 0], Y, {}, ValueError, r"x must have shape \(n, d\).*found \(6,\)"),
    "no rows": (jg.LDA(), X[:0], Y[:0], {}, ValueError, r"at least one row.*found \(0, 2\)"),
    "no features": (jg.LDA(), X[:, :0], Y, {}, ValueError, r"one feature.*found \(6, 0\)"),
    "strings": (jg.LDA(), X.astype(str), Y, {}, TypeError, r"x must be a real numeric array; found .*<U"),
    "complex": (jg.LDA(), X + 1j, Y, {}, TypeError, r"x must be a real numeric array; found .*complex"),
    "times": (jg.LDA(), X.astype("M8[s]"), Y, {}, TypeError, r"x must be a real.*datetime64\[s\].*times as numbers"),
    "durations": (jg.LDA(), X.astype("m8[s]"), Y, {}, TypeError, r"x must be a real.*timedelta64\[s\].*times as num"),
    "labels of durations": (jg.LDA(), X, Y.astype("m8[s]"), {}, TypeError, r"y must be a real numeric.*timedelta64"),
    "weights of durations": (
        jg.LDA(), X, Y, {"sample_weight": Y.astype("m8[s]")}, TypeError, r"sample_weight must be a real.*timedelta64"),
    "sparse": (jg.LDA(), scipy.sparse.csr_array(X), Y, {}, TypeError, r"csr_array.*toarray\(\)"),
    "sparse negative": (
        jg.MultinomialNB(), scipy.sparse.csr_array(-X), Y, {}, ValueError, r"finite counts, 0 or more.*row 0"),
    "sparse not binary": (jg.BernoulliNB(), scipy.sparse.csr_array(2 * BITS), Y, {}, ValueError, r"0 or 1; found 2"),
    "sparse binarize below zero": (
        jg.BernoulliNB(binarize=-1.0), scipy.sparse.csr_array(X), Y, {}, ValueError, r"binarize must be 0 or more"),
    "sparse complex": (jg.MultinomialNB(), scipy.sparse.csr_array(X + 1j), Y, {}, TypeError, r"must hold real numbers"),
    "sparse in other shapes": (
        jg.MultinomialNB(), sparse.BCOO.fromdense(X, n_batch=1), Y, {}, TypeError, r"batch or dense.*n_batch=1"),
    "sparse of three axes": (
        jg.MultinomialNB(), scipy.sparse.coo_array(np.ones((2, 3, 4))), Y, {}, ValueError, r"a row for each example"),
    "sparse labels of another length": (
        jg.MultinomialNB(), scipy.sparse.csr_array(X), Y[:4], {}, ValueError, r"y must have one entry"),
    "labels of another length": (jg.LDA(), X, Y[:4], {}, ValueError, r"y must have one entry for each of the 6 rows"),
    "labels of three axes": (jg.LDA(), X, Y[:, None, None], {}, ValueError, r"y must have one entry"),
    "float labels": (jg.LDA(), X, Y + 0.5, {}, TypeError, r"y must be integer labels.*found float64.*astype\(int\)"),
    "string labels": (jg.LDA(), X, Y.astype(str), {}, TypeError, r"y must be a real numeric array"),
    "negative label": (jg.LDA(), X, Y - 1, {}, ValueError, r"y must hold labels in \[0, 1\); found -1 in row 0"),
    "label too large": (jg.LDA(), X, Y * 3, {"num_classes": 3}, ValueError, r"\[0, 3\); found 3 in row 1"),
    "labels that are names": (
        jg.LDA(), X, Y + 2**40, {}, ValueError, r"y must hold.*found 1099511627777 in row 1,.*numpy.unique"),
    "labels of more classes than memory": (
        jg.GaussianNB(), X, Y * (2**31 - 2), {}, ValueError, r"found 2147483646 in row 1, too large to count classes"),
    "classes beyond tables": (
        jg.GaussianNB(), X, Y, {"num_classes": 2**31 - 1}, ValueError, r"num_classes must be at most 2147483645"),
    "integer responsibilities": (jg.LDA(), X, np.eye(2, dtype=int)[Y], {}, TypeError, r"float resp.*argmax"),
    "responsibilities of other width": (jg.LDA(), X, np.eye(2)[Y], {"num_classes": 3}, ValueError, r"num_classes=3"),
    "labels in a column": (jg.LDA(), X, Y[:, None], {}, ValueError, r"one column, \(6, 1\). Give the labels y\[:, 0\]"),
    "float labels in a column": (jg.LDA(), X, 1.0 * Y[:, None], {}, ValueError, r"y\[:, 0\]; for .*num_classes=1"),
    "key for x": (jg.LDA(), jax.random.key(0), Y, {}, TypeError, r"x must be a real numeric array; found PRNGKey"),
    "negative responsibility": (jg.LDA(), X, np.eye(2)[Y] - 0.1, {}, ValueError, r"responsibilities.*found -0.1"),
    "infinite responsibility": (jg.LDA(), X, np.full((6, 2), np.inf), {}, ValueError, r"responsibilities.*finite"),
    "num_classes zero": (jg.LDA(), X, Y, {"num_classes": 0}, ValueError, r"num_classes must be at least 1; found 0"),
    "num_classes float": (jg.LDA(), X, Y, {"num_classes": 2.0}, TypeError, r"num_classes must be a Python integer"),
    "negative weight": (jg.LDA(), X, Y, {"sample_weight": -Y}, ValueError, r"sample_weight must be finite.*found -1"),
    "NaN weight": (jg.LDA(), X, Y, {"sample_weight": Y * np.nan}, ValueError, r"sample_weight must be finite"),
    "infinite weight": (jg.LDA(), X, Y, {"sample_weight": np.full(6, np.inf)}, ValueError, r"sample_weight.*found inf"),
    "weights of another length": (jg.LDA(), X, Y, {"sample_weight": [1.0]}, ValueError, r"shape \(6,\).*found \(1,\)"),
    "all weights zero": (jg.LDA(), X, Y, {"sample_weight": 0 * Y}, ValueError, r"weights of all rows are zero"),
    "all responsibilities zero": (jg.LDA(), X, 0.0 * np.eye(2)[Y], {}, ValueError, r"weights of all rows are zero"),
    "NaN": (jg.LDA(), SPOILT, Y, {}, ValueError, r"x must hold finite numbers; found nan at row 2, column 1"),
    "infinity": (jg.GaussianNB(), np.where(X == 3, np.inf, X), Y, {}, ValueError, r"found inf at row 1, column 1"),
    "negative count": (jg.MultinomialNB(), -X, Y, {}, ValueError, r"counts, 0 or more; found -1.0 at row 0, column 1"),
    "NaN count": (jg.PoissonNB(), SPOILT, Y, {}, ValueError, r"finite counts.*found nan.*observed=~numpy.isnan\(x\)"),
    "NaN in a word": (jg.BernoulliNB(), SPOILT // 9, Y, {}, ValueError, r"0 or 1; found nan.*observed=~numpy.isnan"),
    "value that is not binary": (jg.BernoulliNB(), X, Y, {}, ValueError, r"0 or 1; found 2.0 at row 1.*binarize"),
    "NaN to binarize": (jg.BernoulliNB(binarize=1.0), SPOILT, Y, {}, ValueError, r"finite numbers; found nan"),
    "negative alpha": (jg.BernoulliNB(alpha=-1.0), BITS, Y, {}, ValueError, r"BernoulliNB.alpha.*0 or more; found -1"),
    "NaN alpha": (jg.MultinomialNB(alpha=np.nan), X, Y, {}, ValueError, r"MultinomialNB.alpha must be finite"),
    "alpha of words": (jg.MultinomialNB(alpha="1x"), X, Y, {}, TypeError, r"alpha must be one real number"),
    "words that float reads": (
        jg.LDA(ridge="1e-6"), X, Y, {}, TypeError, r"GDA.ridge must be one real number.*found '1e-6'.*with float\(\)"),
    "bytes that float reads": (jg.LogisticRegression(l2=b"1"), X, Y, {}, TypeError, r"l2 must be one real.*found b'1'"),
    "fraction": (jg.LDA(ridge=Fraction(1, 2)), X, Y, {}, TypeError, r"one real number.*found Fraction\(1, 2\)"),
    "long double for a ridge": (jg.LDA(ridge=np.longdouble(1)), X, Y, {}, TypeError, r"one real number.*longdouble"),
    "integer of more than 64 bits": (
        jg.LogisticRegression(l2=10**20), X, Y, {}, TypeError, r"l2 must be one real number.*found 10{20}"),
    "list for a table": (
        jg.BernoulliNB(alpha=[1.0, 2.0]), BITS, Y, {}, TypeError,
        r"alpha must be one real number or an array.*found \[1.0, 2.0\]. Convert it with np.asarray\(…, float\)"),
    "words for a table": (
        jg.MultinomialNB(alpha=np.array(["1", "2"])), X, Y, {}, TypeError, r"an array.*with np.asarray\(…, float\)"),
    "array of ridges": (jg.LDA(ridge=np.ones(2)), X, Y, {}, TypeError, r"ridge must be one real.*vmap"),
    "negative prior_alpha": (jg.LDA(prior_alpha=-1.0), X, Y, {}, ValueError, r"GDA.prior_alpha"),
    "negative ridge": (jg.LDA(ridge=-1.0), X, Y, {}, ValueError, r"GDA.ridge must be finite and 0 or more"),
    "several covariances": (jg.GDA(np.array(["full", "diagonal"])), X, Y, {}, ValueError, "GDA.covariance must be 'fu"),
    "unknown covariance": (jg.GDA("tied"), X, Y, {}, ValueError, r"'full', 'diagonal' or 'spherical'; found 'tied'"),
    "shared that is no bool": (jg.GDA("full", shared=1), X, Y, {}, TypeError, r"shared must be True or False"),
    "negative l2": (jg.LogisticRegression(l2=-1.0), X, Y, {}, ValueError, r"LogisticRegression.l2"),
    "no steps": (jg.LogisticRegression(max_steps=0), X, Y, {}, ValueError, r"max_steps must be at least 1; found 0"),
    "too many steps": (
        jg.LogisticRegression(max_steps=2**31), X, Y, {}, ValueError, r"at most 2147483647.*found 2147483648"),
    "optimizer by name": (jg.LogisticRegression(optimizer="adam"), X, Y, {}, TypeError, r"optax gradient transform"),
    "NaN to logistic": (
        jg.LogisticRegression(), SPOILT, Y, {}, ValueError, r"found nan at row 2, column 1.* Impute missing ones"),
    "logistic without weight": (
        jg.LogisticRegression(), X, Y, {"sample_weight": 0 * Y}, ValueError, r"weights of all rows are zero"),
    "logistic label": (jg.LogisticRegression(), X, Y - 1, {}, ValueError, r"y must hold labels in"),
    "masked array": (jg.LDA(), np.ma.masked_array(X, X > 3), Y, {}, TypeError, r"x must not be a masked.*observed=~x"),
    "masked labels": (
        jg.LDA(), X, np.ma.masked_array(Y, Y > 3), {}, TypeError, r"y must not .*Give y.data, and .*sample_weight 0"),
    "masked weights": (
        jg.LDA(), X, Y, {"sample_weight": np.ma.masked_array(Y)}, TypeError, r"Give sample_weight.data, and the rows"),
    "frame of numbers and truths": (
        jg.LDA(), pd.DataFrame({"a": X[:, 0], "b": Y > 0}), Y, {}, TypeError,
        r"found DataFrame of dtype object. Convert columns of numbers with x.astype\(float\)"),
    "ragged lists": (jg.LDA(), [[1.0], [1.0, 2.0]], [0, 1], {}, ValueError, r"x must be a rectangular array"),
    "long double": (jg.LDA(), X.astype(np.longdouble), Y, {}, TypeError, r"long doubles with x.astype\(float\)"),
    "all labels negative": (jg.LDA(), X, 0 * Y - 1, {}, ValueError, r"y must hold labels in \[0, 1\); found -1"),
    "no alpha": (jg.BernoulliNB(alpha=None), BITS, Y, {}, TypeError, r"alpha must be one real number.*None"),
    "binarize by name": (jg.BernoulliNB(binarize="x"), BITS, Y, {}, TypeError, r"binarize must be None or a finite"),
    "binarize a flag": (jg.BernoulliNB(binarize=True), BITS, Y, {}, TypeError, r"binarize must be None or a finite"),
    "binarize NaN": (jg.BernoulliNB(binarize=np.nan), BITS, Y, {}, TypeError, r"binarize must be None or a finite"),
    "overflow in logistic": (
        jg.LogisticRegression(), 1e200 * X, Y, {}, ValueError, r"statistics of x are not finite.*Rescale"),
    "estimator class": (jg.GDA, X, Y, {}, TypeError, r"estimator must be one of jaxgen's.*found GDA itself"),
    "estimator without brackets": (jg.LDA, X, Y, {}, TypeError, r"found LDA itself, which is to be called"),
    "estimator of another library": (
        sklearn.naive_bayes.GaussianNB(), X, Y, {}, TypeError, r"one of jaxgen's.*found GaussianNB\(\)"),
    "array for an estimator": (np.ones((90, 9)), X, Y, {}, TypeError, r"one of jaxgen's.*array\(\[\[.{0,90} …\.$"),
    "no estimator": ("LDA", X, Y, {}, TypeError, r"estimator must be one of jaxgen's.*found 'LDA'"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_FITS.values(), ids=BAD_FITS.keys())
def test_bad_input_to_fit(bad):
    estimator, x, y, keywords, error, message = bad
    with pytest.raises(error, match=f"(?s){message}"):
        jg.fit(estimator, x, y, **keywords)


@pytest.fixture
def classifier():
    return jg.fit(jg.LDA(), X + np.eye(6, 2), Y)


BAD_POINTS = {
    "fewer features": (X[:, :1], ValueError, r"\(2,\) or \(n, 2\).*found \(6, 1\)"),
    "three axes": (X[None], ValueError, r"found \(1, 6, 2\).*vmap"),
    "a scalar": (1.0, ValueError, r"found \(\)"),
    "strings": (X.astype(str), TypeError, r"x must be a real numeric array"),
    "NaN": (SPOILT, ValueError, r"found nan at row 2, column 1"),
    "infinity in one point": (np.array([1.0, np.inf]), ValueError, r"found inf at row 0, column 1"),
}


@pytest.mark.parametrize("bad", BAD_POINTS.values(), ids=BAD_POINTS.keys())
@pytest.mark.parametrize("verb", [jg.log_likelihood, jg.log_joint, jg.log_posterior, jg.log_evidence, jg.predict])
def test_bad_input_to_scores(classifier, verb, bad):
    x, error, message = bad
    with pytest.raises(error, match=message):
        verb(classifier, x)


def test_values_outside_the_domain_of_a_classifier():
    with pytest.raises(ValueError, match=r"0 or 1; found 2.0 at row 1, column 0"):
        jg.predict(jg.fit(jg.BernoulliNB(), BITS, Y), X)
    with pytest.raises(ValueError, match=r"counts, 0 or more; found -1.0"):
        jg.predict(jg.fit(jg.MultinomialNB(), X, Y), -X)


@pytest.mark.parametrize("threshold", [np.float64(0.5), np.float32(0.5), np.int64(0)])
def test_a_threshold_may_be_a_number_of_numpy(threshold):
    c = jg.fit(jg.BernoulliNB(binarize=threshold), BITS, Y)
    np.testing.assert_array_equal(jg.predict(c, BITS), jg.predict(jg.fit(jg.BernoulliNB(), BITS, Y), BITS))


def test_an_impossible_point_is_no_error():
    c = jg.fit(jg.BernoulliNB(alpha=0.0), np.array([[1, 0], [1, 0]]), np.array([0, 1]))
    assert np.isnan(jg.log_posterior(c, np.array([0, 1]))).all()


@pytest.mark.parametrize("verb", [jg.log_likelihood, jg.log_joint, jg.log_evidence])
def test_verbs_that_need_the_density_refuse_a_discriminative_classifier(verb):
    c = jg.LinearClassifier(jnp.zeros((2, 2)), jnp.zeros(2))
    with pytest.raises(TypeError, match=r"needs a generative classifier.*LinearClassifier"):
        verb(c, X)


def test_what_is_no_classifier():
    with pytest.raises(TypeError, match="c must be a classifier"):
        jg.predict(jg.LDA(), X)  # pyright: ignore[reportArgumentType]


def test_a_place_is_named_as_the_caller_knows_it():
    """Whatever a verb has put around the density."""
    c = _of(2, jg.DiagonalGaussian(np.array([[np.nan, 0.0], [1.0, 1.0]]), np.ones((1, 1))))
    lists = jg.Classifier(np.zeros(2), jg.DiagonalGaussian([[0.0], [1.0]], [[1.0]]))  # pyright: ignore[reportArgumentType]
    for options in ({}, {"observed": X > 3}):
        with pytest.raises(ValueError, match=r"^c\.density\.mean must hold numbers below infinity; found nan"):
            jg.predict(c, X, **options)
        with pytest.raises(TypeError, match=r"found list as c\.density\.mean\."):
            jg.predict(lists, X, **options)


@pytest.mark.parametrize(
    ("c", "place"),
    [
        (jg.LinearClassifier([[1.0, 2.0]], [0.0, 0.0]), r"list as c\.weights"),  # pyright: ignore[reportArgumentType]
        (jg.LinearClassifier(np.ones((1, 2)), (0.0, 0.0)), r"float as c\.bias\[0\]"),  # pyright: ignore[reportArgumentType]
        (jg.Classifier([0.0, 0.0], jg.Poisson(np.zeros((2, 1)))), r"list as c\.log_prior"),  # pyright: ignore[reportArgumentType]
        (
            jg.Classifier(np.zeros(2), jg.DiagonalGaussian([[0.0], [1.0]], [[1.0]])),  # pyright: ignore[reportArgumentType]
            r"list as c\.density\.mean",
        ),
    ],
    ids=["weights", "bias", "log_prior", "density"],
)
def test_a_classifier_of_lists_is_told_to_hold_arrays(c, place):
    message = f"c must hold arrays of numbers; found {place}. Make one with jnp.array"
    for verb in (jg.log_posterior, jg.predict):
        with pytest.raises(TypeError, match=message):
            verb(c, [[1.0]])
    if isinstance(c, jg.Classifier):
        with pytest.raises(TypeError, match=message):
            jg.to_linear(c)


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("start", lambda c: jg.fit_em(jg.LDA(), X, start=c)),
        ("given", lambda c: jg.LDA().statistics(X, Y, observed=X > 3, given=c)),
    ],
    ids=["start", "given"],
)
def test_a_classifier_to_begin_with_is_called_by_the_name_of_its_argument(name, fit):
    lists = jg.Classifier([0.0, 0.0], jg.Gaussian(X[:2], np.eye(2)[None]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=rf"^{name} must hold arrays of numbers; found list as {name}\.log_prior"):
        fit(lists)
    stack = jax.tree.map(lambda leaf: np.stack([leaf] * 2), lists._replace(log_prior=np.zeros(2)))
    with pytest.raises(ValueError, match=rf"^{name} must be one classifier.*found \(2, 2\)"):
        fit(stack)


def _of(num_classes, density):
    return jg.Classifier(jnp.zeros(num_classes), density)


@pytest.mark.parametrize(
    ("c", "message"),
    [
        (jg.LinearClassifier(jnp.zeros((2, 2)), jnp.zeros(3)), r"weights must have shape \(2, 3\).*found \(2, 2\)"),
        (jg.LinearClassifier(jnp.zeros(2), jnp.zeros(2)), r"weights must have shape \(d, 2\).*found \(2,\)"),
        (jg.LinearClassifier(jnp.zeros(()), jnp.zeros(2)), r"weights must have shape \(d, 2\).*found \(\)"),
        (_of(3, jg.Gaussian(jnp.zeros((3, 2)), jnp.eye(2))), r"cholesky must have shape \(3, 2, 2\) or \(1, 2, 2\)"),
        (_of(3, jg.Gaussian(jnp.zeros(2), jnp.eye(2)[None])), r"Gaussian.mean must have shape \(K, d\).*found \(2,\)"),
        (_of(3, jg.DiagonalGaussian(jnp.zeros((3, 2)), jnp.ones(2))), r"scale must have shape.*found \(2,\)"),
        (_of(3, jg.Bernoulli(jnp.zeros((3, 2)), jnp.zeros((3, 3)))), r"log_absent must have shape \(3, 2\).*\(3, 3\)"),
        (_of(3, jg.Categorical(jnp.zeros((3, 4)), (2, 3))), r"log_probability must have shape \(3, 5\)"),
        (
            _of(3, jg.StudentT(jnp.zeros((3, 2)), jnp.eye(2)[None], jnp.ones(2), jnp.ones(1))),
            r"degrees must have shape",
        ),
        (_of(2, jg.DirichletMultinomial(jnp.ones((3, 2)))), "one entry for each of the density's 3 classes"),
        (_of(1, jg.DirichletMultinomial(jnp.ones(2))), r"DirichletMultinomial.concentration must have shape \(K, d\)"),
        (_of(3, jg.NegativeBinomial(jnp.ones((3, 2)), jnp.ones((2, 2)))), r"rate must have shape \(3, 2\) or \(3, 1\)"),
        (
            _of(3, jg.DiagonalStudentT(jnp.zeros((3, 2)), jnp.ones((3, 2)), jnp.ones(3))),
            r"degrees must have shape \(3, 2\)",
        ),
        (_of(3, jg.Mixed((jg.Poisson(jnp.zeros(3)),), ((0, 1),))), r"Poisson.log_rate must have shape \(K, d\)"),
        (
            _of(2, jg.Mixed((jg.Poisson(jnp.zeros((2, 1))),), ((0, 1, 2),))),
            r"Mixed.densities\[0\] must have 3 features, those of the columns \(0, 1, 2\); found 1",
        ),
        (
            _of(2, jg.Mixed((jg.Poisson(jnp.zeros((2, 1))), jg.Poisson(jnp.zeros((3, 1)))), ((0,), (1,)))),
            r"Mixed.densities must all have as many classes; found 2, 3",
        ),
        (_of(2, jg.Mixed((jg.Poisson(jnp.zeros((2, 2))),), [[0, 1]])), r"columns must be a tuple of tuples.*\[\[0, 1"),
        (_of(2, jg.Mixed((jg.Poisson(jnp.zeros((2, 2))),), ((0, 2),))), r"each feature 0 … d−1 is once; found"),
        (
            _of(2, jg.Mixed([jg.Poisson(jnp.zeros((2, 2)))], ((0, 1),))),
            r"densities must be a tuple of.*found list of 1",
        ),
        (_of(2, jg.Categorical(jnp.zeros((2, 6)), 3)), r"Categorical.num_categories must be a tuple.*found 3"),
        (_of(2, jg.Categorical(jnp.zeros((2, 6)), [3, 3])), r"Categorical.num_categories must be a tuple.*found \[3"),
        (_of(2, jg.Poisson(jnp.zeros((3, 2)))), r"log_prior must have one entry for each of the density's 3 classes"),
    ],
    ids=lambda value: type(getattr(value, "density", value)).__name__,
)
def test_parts_that_do_not_fit_each_other_are_named(c, message):
    for options in ({}, {} if isinstance(c, jg.LinearClassifier) else {"observed": np.ones((5, 2), bool)}):
        with pytest.raises(ValueError, match=message):
            jg.log_posterior(c, np.ones((5, 2), int), **options)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (
            jg.DiagonalGaussian(jnp.zeros((2, 2)), jnp.array([[-1.0], [1.0]])),
            r"density.scale must hold positive.*-1.0 at \[0, 0\]",
        ),
        (jg.Gaussian(jnp.zeros((2, 2)), jnp.zeros((1, 2, 2))), r"density.cholesky must hold positive .* diagonal"),
        (
            jg.DiagonalStudentT(jnp.zeros((2, 2)), -jnp.ones((2, 2)), jnp.ones((1, 1))),
            r"density.scale must hold positive numbers; found -1.0",
        ),
        (
            jg.Multinomial(jnp.full((2, 2), jnp.nan)),
            r"density.log_probability must hold numbers.*nan at \[0, 0\].*under jit",
        ),
        (
            jg.Mixed(
                (jg.Poisson(jnp.zeros((2, 1))), jg.DiagonalGaussian(jnp.zeros((2, 1)), jnp.zeros((2, 1)))), ((0,), (1,))
            ),
            r"density.densities\[1\].scale must hold positive numbers; found 0.0",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_class_is_not_told_by_parameters_that_no_density_has(density, message):
    c, x = _of(2, density), np.ones((5, 2), int)
    assert np.isnan(jg.log_posterior(c, x)).all()
    for rows in (x, scipy.sparse.csr_array(x)) if isinstance(density, jg.Multinomial) else (x,):
        with pytest.raises(ValueError, match=message):
            jg.predict(c, rows)


def test_parameters_are_looked_at_again_in_another_density():
    prior, a, b = jnp.zeros(2), jnp.array([[0.0], [-1.0]]), jnp.array([[-0.5], [-2.0]])
    x = np.ones((3, 1), int)
    jg.predict(jg.Classifier(prior, jg.Bernoulli(a, b)), x)
    with pytest.raises(ValueError, match=r"density.shape must hold positive numbers; found 0.0 at \[0, 0\]"):
        jg.predict(jg.Classifier(prior, jg.NegativeBinomial(a, b)), x)


def test_a_stack_of_classifiers_wants_vmap():
    stacked = jax.vmap(lambda ridge: jg.fit(jg.LDA(ridge=ridge), X + np.eye(6, 2), Y))(jnp.array([0.1, 1.0]))
    with pytest.raises(ValueError, match=r"one classifier.*found \(2, 2\).*vmap"):
        jg.predict(stacked, X)


def test_statistics_of_different_kinds_do_not_merge():
    moments, counts = jg.LDA().statistics(X, Y), jg.BernoulliNB().statistics(BITS, Y)
    with pytest.raises(TypeError, match=r"merge takes two statistics of one kind.*Moments\(.* and Counts\("):
        jg.merge(moments, counts)
    with pytest.raises(ValueError, match=r"same classes and features.*scatter of shapes \(1, 2, 2\) and \(2, 2, 2\)"):
        jg.merge(moments, jg.QDA().statistics(X, Y))
    with pytest.raises(ValueError, match=r"subtract takes statistics of the same classes.*num_classes=K"):
        jg.subtract(counts, jg.BernoulliNB().statistics(BITS, Y, num_classes=3))
    with pytest.raises(TypeError, match="two statistics of one kind"):
        jg.merge(X, X)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"two statistics of one kind.*found Total\("):
        jg.merge(counts.class_weight, counts.class_weight)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"scale takes statistics.*found Total"):
        jg.scale(counts.class_weight, 0.5)  # pyright: ignore[reportArgumentType]


def test_a_number_of_numpy_is_a_number_of_steps():
    few, many = (jg.LogisticRegression(max_steps=number) for number in (np.int64(50), 50))
    np.testing.assert_array_equal(jg.fit(few, X, Y).weights, jg.fit(many, X, Y).weights)


def test_block_size():
    with pytest.raises(ValueError, match="block_size must be at least 1; found 0"):
        jg.LDA().statistics(X, Y, block_size=0)


@pytest.mark.parametrize(
    ("estimator", "statistics"),
    [
        (jg.QDA(), jg.LDA().statistics(X, Y)),
        (jg.LDA(), jg.GaussianNB().statistics(X, Y)),
        (jg.LDA(), jg.BernoulliNB().statistics(BITS, Y)),
        (jg.BernoulliNB(), jg.MultinomialNB().statistics(X, Y)),
        (jg.MultinomialNB(), None),
    ],
)
def test_estimate_takes_the_statistics_of_its_own_structure(estimator, statistics):
    with pytest.raises(TypeError, match="statistics must be those that an estimator of this structure makes"):
        jg.estimate(estimator, statistics)
    with pytest.raises(TypeError, match="estimator must be a generative one"):
        jg.estimate(jg.LogisticRegression(), statistics)  # pyright: ignore[reportArgumentType]


def test_statistics_spoilt_under_a_trace_say_so():
    spoilt = jax.jit(lambda x: jg.QDA().statistics(x, Y))(SPOILT)
    with pytest.raises(ValueError, match=r"statistics hold NaN.*outside jit"):
        jg.estimate(jg.QDA(), spoilt)


def test_a_part_that_weighs_more_than_the_whole_is_refused():
    whole, part = jg.LDA().statistics(X, Y), jg.LDA().statistics(X[Y == 0], Y[Y == 0], num_classes=int(Y.max()) + 1)
    message = f"whole must contain part; found class 1 of weight 0 in whole and {np.sum(Y == 1)} in part"
    with pytest.raises(ValueError, match=message):
        jg.subtract(part, whole)
    assert jg.subtract(whole, part).class_weight.value[0] == 0.0


def test_a_part_may_weigh_what_was_cleared_away_as_rounding():
    shares = [np.tile(np.array([1 - small, small]), (len(X), 1)) for small in (1e-5, 1 - 1e-15)]
    first, second = (jg.GaussianNB().statistics(X, share) for share in shares)
    rest = jg.subtract(jg.merge(first, second), first)
    assert rest.class_weight.value[0] == 0.0
    assert jg.subtract(rest, second).class_weight.value[0] == 0.0


def test_statistics_of_two_dtypes_do_not_merge():
    with pytest.raises(ValueError, match="one dtype; found float32 and float64"):
        jg.merge(jg.LDA().statistics(X.astype(np.float32), Y), jg.LDA().statistics(X, Y))


def test_a_prior_of_another_length():
    c = jg.fit(jg.LDA(), X + np.eye(6, 2), Y)
    with pytest.raises(ValueError, match=r"one entry for each of the density's 2 classes; found shape \(3,\)"):
        jg.predict(c._replace(log_prior=jnp.zeros(3)), X)


def test_under_a_trace_hyperparameters_are_still_scalars():
    with pytest.raises(TypeError, match=r"prior_alpha must be one real number.*vmap"):
        jax.jit(lambda alpha: jg.fit(jg.BernoulliNB(prior_alpha=alpha), BITS, Y))(jnp.ones(2))


def test_wide_integers_do_not_wrap(run_script):
    script = """
import numpy as np, jaxgen as jg
print(jg.MultinomialNB().statistics(np.array([[2**32 + 8192], [1]]), np.array([0, 1])).feature_sum.exact().tolist())
weight = np.array([2**32, 1])
print(jg.GaussianNB().statistics(np.ones((2, 1)), np.array([0, 1]), sample_weight=weight).class_weight.exact())
"""
    assert run_script(script) == ["[[4294975488.0], [1.0]]", "[4.2949673e+09 1.0000000e+00]"]


def test_numbers_that_32_bits_do_not_hold_are_refused_by_name(run_script):
    """JAX would take 2³² for 0, refuse 2⁴⁰ by no name, and warn of a cast to infinity."""
    script = """
import warnings
import numpy as np, jaxgen as jg
warnings.simplefilter("error")
x, y = np.array([[0, 1], [1, 0], [1, 1]]), np.array([0, 1, 1])
for estimator, weight in (
    (jg.LogisticRegression(l2=2**40), None),
    (jg.BernoulliNB(alpha=np.int64(2**32)), None),
    (jg.BernoulliNB(alpha=np.array([1, 2**32])), None),
    (jg.BernoulliNB(alpha=1e300), None),
    (jg.BernoulliNB(alpha=-1e300), None),
    (jg.LDA(prior=jg.NormalInverseWishart(scale=2**40)), None),
    (jg.LDA(prior=jg.NormalInverseWishart(mean=np.array([0, -(2**40)]))), None),
    (jg.LDA(prior=jg.NormalInverseWishart(mean_weight=1e300)), None),
    (jg.GaussianNB(), np.full(3, 1e308)),
):
    try:
        jg.fit(estimator, x, y, sample_weight=weight)
    except ValueError as error:
        print(error)
try:
    jg.linear_regression.ridge(x, y, 1e300)
except ValueError as error:
    print(error)
print(float(jg.fit(jg.BernoulliNB(alpha=float(2**40)), x, y).density.log_present.max()))
"""
    whole, large = "and at most 2147483647 as int32; found", "and at most 3.4028235e+38 as float32; found"
    prior, within = "NormalInverseWishart", "must be finite, and within ±"
    *found, last = run_script(script)
    for message, expected in zip(
        found,
        (
            f"LogisticRegression.l2 must be finite and 0 or more, {whole} 1099511627776. Give it as a float.",
            f"BernoulliNB.alpha must be finite and 0 or more, {whole} 4294967296. Give it as a float.",
            f"BernoulliNB.alpha must be finite and 0 or more, {whole} 4294967296 at index 1. Give it as a float.",
            f"BernoulliNB.alpha must be finite and 0 or more, {large} 1e+300. Give a smaller one, or",
            "BernoulliNB.alpha must be finite and 0 or more; found -1e+300.",
            f"{prior}.scale {within}2147483647 as int32; found 1099511627776. Give it as a float.",
            f"{prior}.mean {within}2147483647 as int32; found -1099511627776 at index 1. Give it as a float.",
            f"{prior}.mean_weight {within}3.4028235e+38 as float32; found 1e+300. Give a smaller one, or",
            f"sample_weight must be finite and 0 or more, {large} 1e+308 at index 0. Give a smaller one, or",
            f"l2 must be finite and 0 or more, {large} 1e+300. Give a smaller one, or",
        ),
        strict=True,
    ):
        assert message.startswith(expected)
    np.testing.assert_allclose(float(last), np.log(0.5), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint16, np.uint64])
def test_narrow_labels_reach_the_edge_of_their_dtype(dtype):
    y = np.minimum(np.arange(600) % 256, min(np.iinfo(dtype).max, 255)).astype(dtype)
    x = np.random.default_rng(0).normal(size=(600, 1))
    narrow, wide = (jg.fit(jg.GaussianNB(), x, labels) for labels in (y, y.astype(np.int64)))
    np.testing.assert_array_equal(narrow.density.mean, wide.density.mean)


def test_estimate_checks_hyperparameters():
    with pytest.raises(ValueError, match=r"BernoulliNB.alpha"):
        jg.estimate(jg.BernoulliNB(alpha=-1.0), jg.BernoulliNB().statistics(BITS, Y))


def test_train_is_for_iterative_estimators():
    with pytest.raises(TypeError, match=r"iterative estimator.*found GDA"):
        jg.train(jg.LDA(), X, Y)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_under_a_trace_shapes_and_dtypes_are_still_checked(case):
    x, y = case.data()
    with pytest.raises(ValueError, match=r"num_classes cannot be inferred from y under a trace"):
        jax.jit(lambda x, y: jg.fit(case.estimator, x, y))(x, y)
    with pytest.raises(ValueError, match="y must have one entry for each"):
        jax.jit(lambda x, y: jg.fit(case.estimator, x, y, num_classes=3))(x, y[:-1])
    with pytest.raises(TypeError, match="y must be integer labels"):
        jax.jit(lambda x, y: jg.fit(case.estimator, x, y, num_classes=3))(x, y.astype(float))
    jax.jit(lambda x: jg.fit(case.estimator, x, y))(x)  # concrete labels tell the number of classes


BAD_UNDER_GRAD = {
    "x": (lambda s: jg.fit(jg.QDA(), np.where(X == X[3, 1], np.nan, X) * s, Y), "found nan at row 3, column 1"),
    "counts": (lambda s: jg.fit(jg.ComplementNB(), -s * BITS, Y), "x must hold finite counts, 0 or more; found -1.0"),
    "weights": (lambda s: jg.fit(jg.LDA(), X, Y, sample_weight=-s * (Y + 1.0)), "found -1.0 at index 0"),
    "hyperparameter": (lambda s: jg.fit(jg.LDA(ridge=-s), X, Y), r"GDA.ridge must be .*; found -1.0"),
    "covariance": (lambda s: jg.fit(jg.QDA(ridge=0.0), X[:4] * s, Y[:4]), "the covariance of class 0 is singular"),
    "logistic": (lambda s: jg.fit(jg.LogisticRegression(l2=1.0), X * np.nan * s, Y), "found nan at row 0, column 0"),
    "lasso": (lambda s: jg.linear_regression.lasso(X * np.nan * s, Y * 1.0, 1.0), "found nan at row 0, column 0"),
    "statistics": (
        lambda s: jg.estimate(jg.LDA(), jax.tree.map(lambda leaf: leaf * s * np.nan, jg.LDA().statistics(X, Y))),
        "the statistics hold NaN",
    ),
    "prior": (
        lambda s: jg.fit(jg.LDA(prior=jg.NormalInverseWishart(mean=0.0, scale=-s)), X, Y),
        "NormalInverseWishart.scale must be positive; found -1.0",
    ),
}


def _bits(seed=0):
    return np.random.default_rng(seed).integers(0, 2, (8, 2)).astype(float), np.arange(8) % 2


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (jg.CategoricalNB((2, 4)), jg.CategoricalNB((4, 2))),
        (jg.CategoricalNB(2), jg.BernoulliNB()),
        (jg.BernoulliNB(binarize=0.5), jg.BernoulliNB(binarize=0.1)),
        (
            jg.MixedNB(((jg.GaussianNB(), (0,)), (jg.GaussianNB(), (1,)))),
            jg.MixedNB(((jg.GaussianNB(), (1,)), (jg.GaussianNB(), (0,)))),
        ),
    ],
    ids=str,
)
def test_statistics_of_another_structure_are_refused(mine, other):
    ours, theirs = (estimator.statistics(*_bits()) for estimator in (mine, other))
    with pytest.raises(TypeError, match="statistics must be those that an estimator of this structure makes"):
        jg.estimate(mine, theirs)
    with pytest.raises(TypeError, match="from estimators of one structure"):
        jg.merge(ours, theirs)


@pytest.mark.parametrize("estimator", [jg.BernoulliNB(), jg.MixedNB(((jg.PoissonNB(), (0, 1)),))], ids=str)
def test_counts_that_the_whole_does_not_hold_cannot_be_taken_away(estimator):
    x, y = _bits()
    x[:, 1] = 0
    whole = estimator.statistics(x, y)
    x[4, 1] = 1
    with pytest.raises(ValueError, match="column 1 of its counts of class 0 less in whole than in part, by 1"):
        jg.subtract(whole, estimator.statistics(x, y))


@pytest.mark.parametrize(
    "draw",
    [
        lambda c, x: jg.sample(0, c, 3),
        lambda c, x: jg.bootstrap(0, jg.LDA(), x, np.arange(8) % 2, num_replicates=2),
        lambda c, x: jg.fit_em(jg.LDA(), x, num_classes=2, key=0),
        lambda c, x: jg.impute(c, x, x > 0, key=jax.random.split(jax.random.key(0))),
    ],
)
def test_what_is_no_key(draw):
    x, y = _bits()
    with pytest.raises(TypeError, match=r"key must be one key of jax.random, such as jax.random.key\(0\); found"):
        draw(jg.fit(jg.LDA(), x, y), x)


def test_an_optimizer_that_diverges_is_told_from_bad_data():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    estimator = jg.LogisticRegression(optimizer=optax.scale(1e30))
    with pytest.raises(ValueError, match="optimizer must converge; found a gradient that is not finite"):
        jg.fit(estimator, x, y)


def test_what_else_is_refused_by_name():
    x, y = _bits()
    c = jg.fit(jg.LDA(), x, y)
    with pytest.raises(TypeError, match=r"NormalInverseWishart\.mean must be a number or an array"):
        jg.fit(jg.LDA(prior=jg.NormalInverseWishart(mean=[0.0, 0.0])), x, y)
    with pytest.raises(TypeError, match="observed must be given"):
        jg.impute(c, x, None)
    with pytest.raises(ValueError, match="or a generative classifier; found LinearClassifier"):
        jg.fit_em(jg.LDA(), x, num_classes=2, start=jg.to_linear(c))


@pytest.mark.parametrize(
    "estimator",
    [
        jg.LDA(),
        *(pytest.param(e, marks=pytest.mark.thorough) for e in (jg.GaussianNB(), jg.BernoulliNB())),
        jg.LogisticRegression(),
    ],
    ids=str,
)
def test_known_rows_are_checked_where_only_the_classifiers_are_a_stack(estimator):
    x = np.random.default_rng(0).integers(0, 2, (9, 2)).astype(float)
    c = jg.fit(estimator, x, np.arange(9) % 3)
    x[5, 1] = np.nan
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), c)
    for verb in (jg.log_posterior, jg.predict):
        with pytest.raises(ValueError, match="found nan at row 5, column 1"):
            jax.vmap(verb, in_axes=(0, None))(stack, x)
    bad = jnp.isnan(jax.jit(jax.vmap(jg.log_posterior, in_axes=(0, None)))(stack, x))
    np.testing.assert_array_equal(bad[:, :, 0], np.broadcast_to(np.arange(9) == 5, (2, 9)))


def test_rows_are_checked_where_only_the_classifier_is_differentiated():
    spoilt = np.where(X == X[3, 1], np.nan, X)
    with pytest.raises(ValueError, match="found nan at row 3, column 1"):
        jax.grad(lambda c: jnp.sum(jg.log_posterior(c, spoilt)))(jg.fit(jg.LDA(), X, Y))


def test_a_label_out_of_range_is_named_where_only_the_weight_is_differentiated():
    y = np.r_[Y[:-1], 7]
    for estimator in (jg.LDA(), jg.LogisticRegression()):
        with pytest.raises(ValueError, match=rf"y must hold labels in \[0, 2\); found 7 in row {len(y) - 1}"):
            jax.grad(lambda w, e=estimator: jax.tree.leaves(jg.fit(e, X, y, num_classes=2, sample_weight=w))[0][0])(
                np.ones(len(y))
            )


@pytest.mark.parametrize(("attempt", "message"), BAD_UNDER_GRAD.values(), ids=BAD_UNDER_GRAD)
def test_outside_jit_what_is_differentiated_is_checked_as_ever(attempt, message):
    def total(s):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(attempt(s)))

    with pytest.raises(ValueError, match=message):
        jax.grad(total)(1.0)


def test_a_padded_row_may_hold_any_label():
    weight = np.array([1.0, 1, 1, 1, 0, 0])
    padded = np.where(weight > 0, Y, -1)
    statistics = jg.LDA().statistics(X, padded, num_classes=2, sample_weight=weight)
    np.testing.assert_array_equal(statistics.class_weight.value, [2, 2])


def test_the_label_of_an_absent_row_may_be_anything_where_the_classes_are_known():
    """255 is how images mark what is to be ignored. Without num_classes it names a class: weights change no shape."""
    x, y = np.r_[X, X[:1] + 7], np.r_[Y, 255].astype(np.uint8)
    weight = (y < 255).astype(float)
    found = jg.fit(jg.GaussianNB(), x, y, num_classes=2, sample_weight=weight)
    np.testing.assert_array_equal(found.density.mean, jg.fit(jg.GaussianNB(), X, Y).density.mean)
    assert jg.fit(jg.GaussianNB(), x, y, sample_weight=weight).class_shape == (256,)
    assert jg.metrics.confusion_matrix(y, y % 2, num_classes=2, sample_weight=weight).shape == (2, 2)


def test_whole_numbers_are_parameters_too():
    line = jg.LinearClassifier(np.array([[-1, 1]]), np.array([0, 0]))
    assert jg.predict(line, np.array([[3.0], [-2.0]])).tolist() == [1, 0]


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int32])
def test_labels_on_an_accelerator_are_looked_at_there(dtype):
    y = jnp.asarray(Y.astype(dtype))
    of_device, of_host = (jg.fit(jg.GaussianNB(), X, labels) for labels in (y, Y))
    assert jax.tree.map(jnp.shape, of_device) == jax.tree.map(jnp.shape, of_host)
    np.testing.assert_allclose(of_device.density.mean, of_host.density.mean)
    for labels, num_classes, found in ((y, 1, "(1|True)"), (jnp.asarray(Y - 1), 2, -1)):
        with pytest.raises(ValueError, match=rf"y must hold labels in \[0, {num_classes}\); found {found} in row"):
            jg.fit(jg.GaussianNB(), X, labels, num_classes=num_classes)


def test_a_first_use_inside_of_jit_is_like_any_other(run_script):
    code = """
import jax, jax.numpy as jnp, numpy as np, jaxgen as jg
def first(x):
    c = jg.Classifier(np.zeros(2, "f4"), jg.DiagonalGaussian(np.eye(2, dtype="f4"), np.ones((1, 2), "f4")))
    return jg.log_posterior(c, np.eye(2, dtype="f4")) + x
print(np.asarray(jax.jit(first)(0.0)).argmax(axis=1).tolist())
from jaxgen import tracing
print(tracing.is_recorded(), tracing._trace_state() == tracing._OUTSIDE)
"""
    assert run_script(code, optimised=False) == ["[0, 1]", "False True"]


def test_lists_and_boolean_labels_are_welcome():
    c = jg.fit(jg.GaussianNB(), X.tolist(), (Y == 1).tolist())
    np.testing.assert_allclose(c.density.mean, jg.fit(jg.GaussianNB(), X, Y).density.mean)


@pytest.mark.parametrize(
    "order", [">f4", ">i8", *(pytest.param(order, marks=pytest.mark.thorough) for order in (">f8", ">i2", ">i4"))]
)
def test_arrays_of_the_other_byte_order_are_read_in_it(order):
    x, y = np.array([[3.0, 1, 0], [2, 0, 0], [0, 0, 4], [1, 0, 5]]), np.array([1, 1, 0, 0])
    label = y.astype(order) if order[1] == "i" else y
    weight = np.array([1.0, 2.0, 1.0, 3.0])
    for estimator in (jg.MultinomialNB(), jg.GaussianNB(), jg.LogisticRegression()):
        expected = jg.fit(estimator, x, y, sample_weight=weight)
        found = jg.fit(estimator, x.astype(order), label, sample_weight=weight.astype(order))
        for verb in (jg.log_posterior, jg.predict):
            np.testing.assert_allclose(verb(found, x.astype(order)), verb(expected, x), rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match=r"MultinomialNB.alpha must be in the byte order of this machine; found >f4"):
        jg.fit(jg.MultinomialNB(alpha=np.ones(3, ">f4")), x, y)


def test_a_classifier_is_kept_for_the_thread_that_asked(monkeypatch):
    """Another thread may put its own there between a look at what is kept and its use."""
    x = jnp.array([[3.0, 1.0, 0.0]])
    mine, theirs = (
        jg.Classifier(jnp.zeros(2), jg.Multinomial(jnp.log(jnp.array(t))))
        for t in ([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    )
    expected = jg.log_posterior(mine, x)
    jg.log_posterior(theirs, x)
    kept_of_theirs = preparing._prepared
    jg.log_posterior(mine, x)
    is_of = preparing._Kept.is_of

    def interrupted(self, of, leaves):
        found = is_of(self, of, leaves)
        preparing._prepared = kept_of_theirs
        return found

    monkeypatch.setattr(preparing._Kept, "is_of", interrupted)
    np.testing.assert_array_equal(jg.log_posterior(mine, x), expected)


@pytest.mark.parametrize(
    ("c", "message"),
    [
        (
            jg.Poisson(jnp.zeros((2, 1))),
            r"c must be a classifier.*found Poisson. jaxgen.Classifier\(log_prior, density\)",
        ),
        (_of(2, None), r"c.density must be one, such as jaxgen.Gaussian; found NoneType"),
        (_of(2, _of(2, jg.Poisson(jnp.zeros((2, 1))))), r"c.density must be one, .*; found Classifier"),
        (_of(2, jg.Mixed((jnp.zeros((2, 1)),), ((0,),))), r"Mixed.densities\[0\] must be a density, .*; found Array"),
        (
            _of(2, jg.Bernoulli(jnp.zeros((2, 1)), jnp.zeros((2, 1)), binarize="1")),
            r"Bernoulli.binarize must be None or",
        ),
        (_of(2, jg.Poisson(np.array([["0"], ["1"]]))), r"numbers; found one of dtype <U1 as c\.density\.log_rate"),
    ],
    ids=["density", "none", "twice", "array", "threshold", "words"],
)
def test_what_is_no_classifier_is_refused(c, message):
    for verb in (jg.log_posterior, jg.predict):
        with pytest.raises(TypeError, match=message):
            verb(c, np.ones((5, 1)))


@pytest.mark.parametrize("density", [jg.Gaussian, lambda m, c: jg.Mixed((jg.Gaussian(m, c),), ((0, 1),))])
def test_a_covariance_in_place_of_its_factor_is_refused(density):
    covariance = np.array([[[4.0, 1.0], [1.0, 2.0]]])
    wrong, right = (_of(2, density(np.eye(2), factor)) for factor in (covariance, np.linalg.cholesky(covariance)))
    observed, key = X > 3, jax.random.key(0)
    for use in (
        lambda c: jg.log_likelihood(c, X),
        lambda c: jg.predict(c, X, observed=observed),
        lambda c: jg.impute(c, X, observed),
        lambda c: jg.sample(key, c, 3),
        jg.to_linear,
    ):
        message = (
            r"^c\.density(\.densities\[0\])?\.cholesky must hold lower triangular factors; found 1.0 at \[0, 0, 1\]"
        )
        with pytest.raises(ValueError, match=message):
            use(wrong)
        use(right)
    with pytest.raises(ValueError, match=r"^start\.density.*cholesky must hold lower triangular factors"):
        jg.fit_em(jg.LDA(), X, start=wrong)


@pytest.mark.parametrize("verb", [jg.log_posterior, jg.log_evidence, jg.predict])
def test_probabilities_in_place_of_their_logs_are_refused(verb):
    c = _of(2, jg.Gaussian(np.eye(2), np.eye(2)[None]))
    for prior in ([0.25, 0.75], [0.0, 1.0], np.float32([0.1, 0.9])):
        with pytest.raises(ValueError, match=r"^c\.log_prior must be log probabilities.*jnp\.log of them"):
            verb(c._replace(log_prior=np.asarray(prior)), X)
    for prior in ([0.0, 0.0], [np.log(2.0), 0.5], [0.0, -np.inf]):  # one that does not sum to one is the caller's
        verb(c._replace(log_prior=np.asarray(prior)), X)


@pytest.mark.parametrize(
    "density",
    [
        jg.Multinomial(np.array([[0.25, 0.75]] * 2)),
        jg.Bernoulli(np.array([[0.25, 0.75]] * 2), np.array([[0.75, 0.25]] * 2)),
        jg.Categorical(np.array([[0.25, 0.75]] * 2), (2,)),
    ],
    ids=["multinomial", "bernoulli", "categorical"],
)
def test_so_are_those_of_words_and_categories(density):
    for each, place in ((density, ""), (jg.Mixed((density,), (tuple(range(density.num_features)),)), "densities.*")):
        with pytest.raises(ValueError, match=rf"^c\.density\.{place}log_pr.* must hold log probabilities; found 0\.25"):
            jg.predict(_of(2, each), np.ones((3, density.num_features)))


def test_whole_numbers_are_logs_or_counts_in_place_of_them():
    assert jg.predict(_of(2, jg.Multinomial(np.array([[-1, 0], [0, -1]]))), np.eye(2)).tolist() == [1, 0]
    with pytest.raises(ValueError, match="must hold log probabilities; found 3 at"):
        jg.predict(_of(2, jg.Multinomial(np.array([[3, 1], [0, 2]]))), np.eye(2))


def test_statistics_of_two_kinds_are_told_apart_in_a_word():
    poisson, bernoulli = (estimator.statistics(BITS, Y) for estimator in (jg.PoissonNB(), jg.BernoulliNB()))
    with pytest.raises(TypeError, match=r"found Counts\(.*binary=False\) and Counts\(.*binary=True\)\.$"):
        jg.merge(poisson, bernoulli)
    with pytest.raises(TypeError, match=r"found int and float"):
        jg.merge(1, 2.0)  # pyright: ignore[reportArgumentType]
    mixed = [jg.MixedNB(((jg.PoissonNB(), (i,)), (jg.BernoulliNB(), (1 - i,)))) for i in (0, 1)]
    with pytest.raises(
        TypeError, match=r"columns=\(\(0,\), \(1,\)\)\) and MixedStatistics\(.*columns=\(\(1,\), \(0,\)\)\)"
    ):
        jg.merge(*(estimator.statistics(BITS, Y) for estimator in mixed))


def test_labels_below_minus_one_are_no_labels():
    with pytest.raises(
        ValueError, match=r"y must hold labels in \[0, 2\); found -2 in row 1.* −1 is for a row without"
    ):
        jg.fit_em(jg.GaussianNB(), X, np.array([0, -2, 1, 1, -1, 0]), key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"found -1 in row 0.*jaxgen.fit_em takes −1 for a row without a label"):
        jg.fit(jg.GaussianNB(), X, Y - 1)


def test_one_class_may_have_responsibilities():
    c = jg.fit(jg.GaussianNB(), X, np.ones((6, 1)), num_classes=1)
    np.testing.assert_allclose(c.density.mean, X.mean(axis=0)[None])


@pytest.mark.parametrize(
    "estimator",
    [
        jg.MultinomialNB(),
        jg.BernoulliNB(binarize=1.0),
        jg.PoissonNB(),
        jg.MixedNB(((jg.PoissonNB(), (0, 1)),)),
        jg.QDA(),
    ],
    ids=["multinomial", "Bernoulli", "Poisson", "mixed", "QDA"],
)
@pytest.mark.parametrize("num_classes", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_stack_of_statistics_is_for_vmap_alone(estimator, num_classes):
    x = np.random.default_rng(0).poisson(2.0, (12, 2)).astype(np.float64)
    y = np.arange(12) % num_classes
    weights = np.random.default_rng(1).uniform(0.5, 1, (3, 12))
    stack = jax.vmap(lambda w: estimator.statistics(x, y, num_classes=num_classes, sample_weight=w))(weights)
    one = estimator.statistics(x, y, num_classes=num_classes, sample_weight=weights[1])
    for verb in (lambda s: jg.merge(s, s), lambda s: jg.subtract(s, s), lambda s: jg.scale(s, 0.5)):
        with pytest.raises(ValueError, match=r"of one batch.*found \(3, .*For a stack of statistics: jax\.vmap"):
            verb(stack)
        of_each = jax.vmap(verb)(stack)
        for found, expected in zip(jax.tree.leaves(of_each), jax.tree.leaves(verb(one)), strict=True):
            np.testing.assert_allclose(found[1], expected, rtol=1e-12, atol=1e-12)
    verbs = [jg.estimate] if isinstance(estimator, jg.GDA) else [jg.estimate, jg.predictive, jg.log_marginal_likelihood]
    for verb in verbs:
        # Moments of one shape have a scatter of another: they are of another kind, and the message names the shapes.
        with pytest.raises((ValueError, TypeError), match=r"of one batch.*found \(3, |class_weight=\(3, "):
            verb(estimator, stack)


def test_a_prior_of_too_few_degrees_is_named_wherever_rows_are_fitted():
    x = np.random.default_rng(0).normal(size=(30, 3))
    y, observed = np.arange(30) % 2, np.random.default_rng(1).random((30, 3)) < 0.8
    qda = jg.QDA(prior=jg.NormalInverseWishart(degrees=1.0))
    mixed = jg.MixedNB(((qda, (0, 1, 2)),))
    for attempt in (
        lambda: jg.fit_em(qda, x, num_classes=2, key=jax.random.key(0)),
        lambda: jg.fit_em(mixed, x, num_classes=2, key=jax.random.key(0)),
        lambda: jg.fit(qda, x, y, observed=observed),
        lambda: jg.cross_validate(qda, x, y, folds=2, observed=observed),
        lambda: qda.statistics(x, y),
    ):
        with pytest.raises(
            ValueError, match=r"degrees must be more than 2 for full covariances of 3 features; found 1"
        ):
            attempt()


def test_an_estimator_of_ones_own_is_bootstrapped_as_a_pytree():
    class Mine:
        def fit(self, x, y, *, num_classes=None, sample_weight=None):
            return jg.fit(jg.LDA(), x, y, num_classes=num_classes, sample_weight=sample_weight)

    key, x, y = jax.random.key(0), np.arange(12.0).reshape(6, 2) ** 0.5, np.arange(6) % 2
    with pytest.raises(TypeError, match=r"an estimator of your own must be a pytree.*register_dataclass"):
        jg.bootstrap(key, Mine(), x, y, num_replicates=2)
    jax.tree_util.register_pytree_node(Mine, lambda _: ((), None), lambda *_: Mine())
    found, expected = (jg.bootstrap(key, e, x, y, num_replicates=2, num_classes=2) for e in (Mine(), jg.LDA()))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("count", "words"), [(1, r"column 0\. "), (2, r"column 0 and 1 more such value\. "), (3, "2 more such values")]
)
def test_other_bad_values_are_counted_where_there_are_any(count, words):
    x = X.copy()
    x[:count, 0] = np.nan
    with pytest.raises(ValueError, match=words):
        jg.fit(jg.LDA(), x, Y)


def test_an_absent_row_may_have_any_responsibilities():
    rng = np.random.default_rng(0)
    x, r, present = rng.normal(size=(12, 2)), rng.random((12, 2)), np.arange(12) % 4 > 0
    spoilt = np.where(present[:, None], r, np.nan)
    expected = (r[present].T @ x[present]) / r[present].sum(axis=0)[:, None]

    def fit(r):
        return jg.fit(jg.GaussianNB(), x, r, sample_weight=present.astype(float))

    for found in (fit(spoilt), jax.jit(fit)(spoilt)):
        np.testing.assert_allclose(found.density.mean, expected, rtol=1e-9)
