"""Gaussian discriminant analysis: Σ full (LDA, QDA), diagonal (Gaussian naive Bayes) or spherical, shared or not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np

from jaxgen import blocks, domains, gaussian_posterior, lapack
from jaxgen.block_moments import block_moments
from jaxgen.conditional import expected
from jaxgen.conjugate import NormalInverseWishart
from jaxgen.diagonal import DiagonalGaussian
from jaxgen.estimator import GenerativeEstimator
from jaxgen.gaussian import Gaussian, whole
from jaxgen.labels import HardLabels, Labels
from jaxgen.matrices import cholesky_or_nan, inverse_factor, with_diagonal
from jaxgen.moments import Moments, diagonal, resolved
from jaxgen.numerics import nonnegative_or_nan, safe_divide, working_dtype
from jaxgen.pytree import STATIC, pytree
from jaxgen.regularisation import beside, between, check_alone, pool, ridge_unit, shrinkage_column, why_not_finite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from jax import Array
    from jaxtyping import Float

    from jaxgen.domains import Domain
    from jaxgen.missing import PartialRows
    from jaxgen.platform import Tuning
    from jaxgen.student import DiagonalStudentT, StudentT

Covariance: TypeAlias = Literal["full", "diagonal", "spherical"]
Target: TypeAlias = Literal["spherical", "diagonal"]


@pytree
@dataclass(frozen=True)
class GDA(GenerativeEstimator[Moments, Gaussian | DiagonalGaussian]):
    """Gaussian discriminant analysis by maximum likelihood, regularised as asked.

        μ_k = Σ_i r_ik x_i / N_k,    Σ_k = Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ / N_k + ridge·diag(v)

    and for a shared covariance the mean of the Σ_k weighted by N_k (CS229 notes, section 4.1). v is the pooled variance
    of each feature within the classes, so that a ridge means the same in any units; a feature that never varies takes
    the mean of the others. A class without data takes the pooled mean and covariance. Where float32 cannot tell a
    ridge from zero beside a large variance, the variance is raised by its own rounding error instead.

    Friedman (1989, Regularized discriminant analysis) moves Σ_k = S_k / N_k towards the shared S / N, and then towards
    a simpler form:

        Σ_k ← ((1 − λ) S_k + λ S) / ((1 − λ) N_k + λ N),    Σ_k ← (1 − γ) Σ_k + γ tr(Σ_k)/d · I

    before the ridge. A form that has nothing to move, such as a shared one by λ, stays as it is. Where features of a
    full covariance are missing, every step of EM does so, also to what was filled in (README, limits).

    Attributes:
        covariance: "full", "diagonal" (independent features) or "spherical" (one variance for all features).
        shared: one covariance for all classes (linear log odds) instead of one for each (quadratic).
        ridge: added to each variance, in units of the pooled one. 0 is the exact maximum likelihood estimate.
        pooling: λ, from 0 (a covariance for each class) to 1 (the shared one).
        shrinkage: γ, from 0 to 1: one number, or one for each class (K,), such as `jaxgen.ledoit_wolf` gives.
        target: what γ moves to: "spherical", or "diagonal" for diag(Σ_k).
        prior: with one, the estimate is the joint mode of the posterior of means and covariances; the ridge then plays
            no part, and pooling and shrinkage are refused.
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x = np.array([[0.0], [2.0], [10.0], [14.0]])
        >>> c = jg.fit(jg.GDA("diagonal", shared=False, ridge=0.0), x, np.array([0, 0, 1, 1]))
        >>> c.density.mean.tolist(), c.density.scale.tolist()
        ([[1.0], [12.0]], [[1.0], [2.0]])
    """

    covariance: Covariance = dataclasses.field(default="full", metadata=STATIC | {"choices": get_args(Covariance)})
    shared: bool = dataclasses.field(default=True, metadata=STATIC)
    ridge: Array | float = 1e-6
    pooling: Array | float = dataclasses.field(default=0.0, metadata={"most": 1.0})
    shrinkage: Array | float = dataclasses.field(default=0.0, metadata={"most": 1.0, "table": True})
    target: Target = dataclasses.field(default="spherical", metadata=STATIC | {"choices": get_args(Target)})
    prior: NormalInverseWishart | None = dataclasses.field(default=None, metadata={"nested": True})

    @property
    def domain(self) -> Domain:
        """Finite numbers."""
        return domains.FINITE

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        super().check()
        if not isinstance(self.shared, bool):
            raise TypeError(f"GDA.shared must be True or False, a Python bool; found {self.shared!r}.")
        if not isinstance(self.prior, NormalInverseWishart | None):
            raise TypeError(f"GDA.prior must be a NormalInverseWishart or None; found {self.prior!r}.")
        if self.prior is not None:
            self.prior.check()
            check_alone(self)

    def check_statistics(self, statistics: Any) -> None:
        """Raise for a prior that does not fit the features as well."""
        super().check_statistics(statistics)
        self.check_features(statistics.mean.high.shape[-1])

    def check_features(self, num_features: int) -> None:
        """Raise for a prior that does not fit so many features."""
        if self.prior is not None:
            self.prior.check_for(num_features, self.covariance)

    def accepts(self, statistics: Any) -> bool:
        """Whether these are moments with a scatter of this form."""
        if not isinstance(statistics, Moments):
            return False
        covariances = 1 if self.shared else statistics.class_weight.high.shape[0]
        return statistics.scatter.ndim == (3 if self.covariance == "full" else 2) and (
            statistics.scatter.shape[0] == covariances
        )

    def rows_wanted(self, num_features: int, labels: Labels, tuning: Tuning) -> int:
        """All, where rows of one class each are sorted by it, to be multiplied class by class."""
        sorts = self.covariance == "full" and not self.shared and isinstance(labels, HardLabels)
        return blocks.MOST_ROWS if sorts and tuning.stacks == "in turn" else 0

    @property
    def fills_in(self) -> bool:
        """A full covariance knows of a feature by the others."""
        return self.covariance == "full"

    def check_given(self, density: Any) -> None:
        """Raise for a density that is not Gaussian, where features are filled in."""
        if self.fills_in:
            whole(density)

    def check_seen(self, seen: np.ndarray, features: Sequence[int]) -> None:
        """A covariance of its own would grow with every step of EM where it is only filled in."""
        lost = ~seen & np.any(seen, axis=0, keepdims=True)  # the fit says which features no row at all shows
        if self.fills_in and not self.shared and self.prior is None and lost.any():
            k, j = np.argwhere(lost)[0]
            raise ValueError(
                f"no row of class {k} shows feature {features[j]}, so that nothing is known of its variance there. Use "
                "shared=True or covariance='diagonal', give a prior=jaxgen.NormalInverseWishart(…), or leave it out."
            )

    def takes_for_constant(self, num_features: int) -> np.ndarray:
        """Those that are filled in, unless a prior says how far they may vary.

        A variance that comes from what was filled in alone falls with every step of EM, and the ridge, in its units,
        with it: to no end.
        """
        return np.full(num_features, self.fills_in and self.prior is None)

    def loading(self) -> AbstractContextManager[None]:
        """LAPACK, for a full covariance."""
        return lapack.loading() if self.covariance == "full" else super().loading()

    def summarise(self, x: Float[Array, "n d"] | PartialRows, labels: Labels) -> Moments:
        """Weight, mean and centred scatter of a block of rows."""
        return block_moments(x, labels, full=self.covariance == "full", shared=self.shared)

    def naive(self) -> GDA:
        """The diagonal form of a full one, with a ridge in place of what else may keep a covariance regular."""
        form, prior = ("diagonal" if self.covariance == "full" else self.covariance), self.prior and self.prior.naive()
        ridge = jnp.asarray(self.ridge)
        ridge = jnp.maximum(ridge.astype(working_dtype(ridge.dtype)), 1e-6)
        return GDA(form, shared=self.shared, ridge=ridge, prior_alpha=self.prior_alpha, prior=prior)

    def from_origin(self, origin: Float[Array, " d"]) -> tuple[GDA, Float[Array, " d"]]:
        """The same, about a prior mean less the origin."""
        return dataclasses.replace(self, prior=self.prior and self.prior.from_origin(origin)), origin

    def expect(self, x: PartialRows, labels: Labels, density: Any) -> Moments:
        """The moments expected of rows under a full Gaussian: Little & Rubin (2019), section 11.2.1."""
        if self.covariance != "full":
            return self.summarise(x, labels)
        density = whole(density)
        rows, labels, spread = expected(x, labels, density.mean, inverse_factor(density.cholesky), shared=self.shared)
        moments = self.summarise(rows, labels)
        return dataclasses.replace(moments, scatter=moments.scatter + spread)

    def density(self, statistics: Moments) -> Gaussian | DiagonalGaussian:
        """Maximum likelihood, regularised; with a prior the mode of the posterior."""
        if self.prior is not None:
            after = gaussian_posterior.update(self.prior, statistics, self.covariance, raised=True)
            return gaussian_posterior.mode(after)
        weight, mean, scatter = statistics.weight.value, statistics.mean.value, statistics.scatter
        total = jnp.sum(weight, axis=0, keepdims=True)
        pooled_mean = safe_divide(jnp.sum(statistics.first_moment, axis=0, keepdims=True), total)
        if statistics.feature_weight is not None:  # of no row at all anything may be said, of one feature alone not
            unseen = (total == 0) & (jnp.sum(statistics.class_weight.value) > 0)
            pooled_mean = jnp.where(unseen, jnp.nan, pooled_mean)
        mean = jnp.where(weight > 0, mean, pooled_mean)
        pooled = safe_divide(jnp.sum(scatter, axis=0, keepdims=True), beside(total, scatter))
        covariance = pooled
        if not self.shared:
            covariance = safe_divide(scatter, beside(weight, scatter), pooled)
            covariance, weight = pool(covariance, pooled, weight, self.pooling)
        ridge = nonnegative_or_nan(self.ridge, mean.dtype) * ridge_unit(diagonal(resolved(pooled, mean))[0])
        covariance = resolved(covariance, mean)
        variance = diagonal(covariance)
        shrinkage = shrinkage_column("GDA.shrinkage", self.shrinkage, len(covariance), mean.dtype)
        if self.target == "spherical" and self.covariance != "spherical":
            variance = between(variance, jnp.mean(variance, axis=-1, keepdims=True), shrinkage)
        variance += ridge[None]
        if self.covariance == "full":
            regularised = jnp.asarray(self.ridge).astype(mean.dtype) > 0
            covariance = with_diagonal(beside(1 - shrinkage, covariance) * covariance, variance)
            return self._density(mean, covariance, regularised | jnp.any(shrinkage > 0))
        if self.covariance == "spherical":
            seen = total if self.shared else jnp.where(jnp.any(weight > 0, axis=1, keepdims=True), weight, total)
            weighted, mass = (jnp.mean(each, axis=-1, keepdims=True) for each in (variance * seen, seen))
            variance = safe_divide(weighted, mass, jnp.mean(variance, axis=-1, keepdims=True))
        return self._density(mean, variance)

    def _density(self, mean: Array, covariance: Array, regularised: Any = None) -> Gaussian | DiagonalGaussian:
        if self.covariance == "full":
            return Gaussian(mean, cholesky_or_nan(covariance, regularised))
        return DiagonalGaussian(mean, jnp.sqrt(jnp.where(covariance > 0, covariance, jnp.nan)))

    def log_parameter_prior(self, density: Gaussian | DiagonalGaussian) -> Float[Array, ""]:
        """That of the conjugate prior; ridge, pooling and shrinkage stand for none."""
        if self.prior is None:
            return super().log_parameter_prior(density)
        return gaussian_posterior.log_parameter_prior(self.prior, density)

    def proper(self) -> GDA:
        """The estimator itself; a ValueError if it has no prior."""
        if self.prior is None:
            raise ValueError("GDA.prior must be given here; found None. Give one: prior=jaxgen.NormalInverseWishart().")
        return self

    def predictive(self, statistics: Moments) -> StudentT | DiagonalStudentT:
        """The Gaussian averaged over the posterior of its mean and covariance."""
        assert self.prior is not None
        after = gaussian_posterior.update(self.prior, statistics, self.covariance)
        return gaussian_posterior.predictive(after)

    def log_marginal_likelihood(self, statistics: Moments) -> Float[Array, ""]:
        """log p(x | y), in nats, with means and covariances integrated out."""
        assert self.prior is not None
        return gaussian_posterior.log_evidence(self.prior, statistics, self.covariance)

    def explain(self, density: Gaussian | DiagonalGaussian, features: Sequence[int] | None = None) -> str:
        """Which class has a singular covariance, and the remedy."""
        return why_not_finite(self, density, features) or super().explain(density)
