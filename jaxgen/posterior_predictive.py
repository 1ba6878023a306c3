"""What a conjugate prior gives beside the estimate: the evidence of the data, and the density of the next row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import arguments
from jaxgen.classifier import with_prior
from jaxgen.conjugate import proper
from jaxgen.numerics import or_in_float64
from jaxgen.statistics import raise_for_nan
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.classifier import Classifier
    from jaxgen.statistics import Statistics


def log_marginal_likelihood(estimator: Any, statistics: Statistics) -> Float[Array, ""]:
    """The evidence of the data under the estimator's conjugate prior: log p(x | y), the parameters integrated out.

    In closed form (Murphy 2012, section 5.3.2; Gelman et al. 2013, section 2.6): Beta-Bernoulli, Dirichlet-multinomial
    and -categorical, Gamma-Poisson with shape `alpha` and rate `exposure`, and normal-inverse-Wishart with `prior`, in
    all six forms. It compares priors and models of the same data; following its gradient in `alpha` or in the leaves of
    `prior` is empirical Bayes.

    Labels are taken as given, and the class prior plays no part. What no prior changes is left out, where the
    statistics do not hold it: log m! − Σ_j log x_j! of each document, Σ_j log x_j! of each row of events. A row of
    weight w counts as w rows. Of statistics with missing features, the families that leave them out give p of what was
    observed; what full covariances and the multinomial fill in counts as if it had been observed.

    Args:
        estimator: GDA with a `prior`, BernoulliNB, MultinomialNB, CategoricalNB, PoissonNB, or MixedNB of those.
        statistics: of any number of batches, merged; an estimator of the same structure made them.

    Returns:
        One number, in nats. Under a trace NaN for an improper prior, and for what else would be an error.

    Raises:
        ValueError: for hyperparameters out of range, and an improper prior: `alpha` or `exposure` 0, GDA without one.
        TypeError: for an estimator without a conjugate prior, and statistics that another kind made.

    Example:
        >>> import jax, numpy as np, jaxgen as jg
        >>> words, y = np.array([[1, 0], [1, 0], [0, 0], [1, 0]]), np.array([0, 0, 1, 1])
        >>> s = jg.BernoulliNB().statistics(words, y)
        >>> print(f"{np.exp(jg.log_marginal_likelihood(jg.BernoulliNB(), s)):.6f}")  # 1/3 · 1/6 by 1/3 · 1/3
        0.006173
        >>> gradient = jax.grad(lambda alpha: jg.log_marginal_likelihood(jg.BernoulliNB(alpha=alpha), s))
        >>> print(f"{gradient(1.0):.3f}")  # positive would ask for more smoothing
        -0.167
    """
    estimator = _checked(estimator, statistics)
    value = _evidence_program(estimator, statistics)
    if not is_traced(value) and not np.isfinite(value):
        _raise(estimator, statistics, "evidence")
    return value


def predictive(estimator: Any, statistics: Statistics) -> Classifier[Any]:
    """The posterior predictive classifier: p(x | y, data) of one new row, averaged over the parameters' posterior.

    The estimate takes one value of the parameters for the truth; few rows leave many. A Bernoulli and a categorical
    feature have the same density either way. Word counts become `DirichletMultinomial`, events `NegativeBinomial`, and
    both take sparse rows; Gaussians `StudentT` or, with diagonal covariances, `DiagonalStudentT`: a spherical one is
    one unknown σ² for all features, which makes them dependent. Rows to come share their parameters, so that their
    joint density is not the product of these; the class prior is that of `estimate`.

    Args:
        estimator: as for `log_marginal_likelihood`.
        statistics: as for `log_marginal_likelihood`.

    Returns:
        A classifier of K classes and d features, whose log likelihoods are in nats; NaN under a trace where the
        statistics are (Gelman et al. 2013, Bayesian Data Analysis, sections 2.6, 3.4 and 3.6).

    Raises:
        ValueError: as `log_marginal_likelihood`.
        TypeError: as `log_marginal_likelihood`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[-1.0], [0.0], [1.0], [9.0]]), np.array([0, 0, 0, 1])
        >>> qda = jg.QDA(prior=jg.NormalInverseWishart(mean=2.0, scale=1.0))
        >>> statistics = qda.statistics(x, y)
        >>> for c in (jg.estimate(qda, statistics), jg.predictive(qda, statistics)):
        ...     print(f"{jg.log_likelihood(c, np.array([12.0]))[0]:.0f}")  # far from class 0: heavier tails
        -100
        -11
    """
    estimator = _checked(estimator, statistics)
    classifier, bad = _predictive_program(estimator, statistics)
    if not is_traced(bad) and bad:
        _raise(estimator, statistics, f"{type(classifier.density).__name__}")
    return classifier


def _checked(estimator: Any, statistics: Statistics) -> Any:
    estimator = proper(estimator)
    estimator.check_statistics(statistics)
    return arguments.as_floats(estimator)


def _raise(estimator: Any, statistics: Statistics, what: str) -> None:
    raise_for_nan(statistics)
    raise ValueError(
        f"{primal(estimator)} has no finite {what} for these statistics: they overflow, or a scale is lost in their "
        f"rounding. Rescale the features{or_in_float64(statistics.class_weight.high.dtype)}."
    )


@jax.jit
def _evidence_program(estimator: Any, statistics: Statistics) -> Array:
    return estimator.log_marginal_likelihood(statistics)


@jax.jit
def _predictive_program(estimator: Any, statistics: Statistics) -> tuple[Classifier[Any], Array]:
    """The classifier, and whether any of its leaves is NaN or +∞."""
    return with_prior(estimator.predictive(statistics), statistics.class_weight.value, estimator.prior_alpha)
