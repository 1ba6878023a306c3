"""How far an x is from the classes: squared Mahalanobis distances, for telling what no class has seen.

    D_k(x) = (x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k)

For other families than the Gaussian `log_evidence` says how likely an x is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxgen import domains
from jaxgen.classifier import Classifier, generative
from jaxgen.density import Marginal, optional
from jaxgen.diagonal import DiagonalGaussian
from jaxgen.gaussian import Gaussian
from jaxgen.matrices import factor_of_gram
from jaxgen.scoring import score

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Real

    from jaxgen.arguments import AnyArray


def mahalanobis(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n classes"]:
    """The squared Mahalanobis distance of every class, in squared standard deviations.

    Of the class that an x was drawn from it is χ² with d degrees of freedom, where that is normal. The least over the
    classes is a score of outliers (Lee, Lee, Lee & Shin 2018, A simple unified framework for detecting
    out-of-distribution samples and adversarial attacks, section 2).

    Args:
        c: a classifier with Gaussian classes, of any covariance.
        x: one point (d,) or points (n, d).
        observed: True for the features that were observed, of the shape of x: the distance is that of those, under the
            class's marginal, and χ² with as many degrees of freedom.

    Returns:
        Shape (K,) or (n, K).

    Raises:
        ValueError: for features unlike the classifier's, or values of x that are not finite (NaN under a trace).
        TypeError: if the classes of c are not Gaussian.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> density = jg.DiagonalGaussian(mean=jnp.array([[0.0, 0.0], [4.0, 0.0]]), scale=jnp.array([[1.0, 2.0]]))
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), density)
        >>> jg.mahalanobis(c, jnp.array([0.0, 6.0])).tolist()  # 0² + 3², 4² + 3²
        [9.0, 25.0]
    """
    c = _gaussian(c, "mahalanobis", observed)
    return score(_distances, c, x, observed=observed, likelihood=True)


def relative_mahalanobis(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n classes"]:
    """The squared Mahalanobis distance of every class, less that from all classes as one Gaussian.

    What is far from everything in directions that do not tell classes apart is then not far from a class: a better
    score of outliers that resemble the data (Ren, Fort, Liu, Roy, Padhy & Lakshminarayanan 2021, A simple fix to
    Mahalanobis distance for improving near-OOD detection, section 2). The background is exact, by the law of total
    covariance: mean μ = Σ_k π_k μ_k, covariance Σ_k π_k (Σ_k + (μ_k − μ)(μ_k − μ)ᵀ), or its diagonal where the
    classes' are diagonal. Of full and diagonal maximum likelihood fits these are the moments of all rows. A class of
    prior 0 has no part.

    Arguments and errors as `mahalanobis`; shape (K,) or (n, K), and of either sign.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> density = jg.DiagonalGaussian(mean=jnp.array([[-1.0], [1.0]]), scale=jnp.array([[1.0]]))
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), density)  # the background has mean 0 and variance 1 + 1
        >>> [f"{distance:.2f}" for distance in jg.relative_mahalanobis(c, jnp.array([2.0]))]  # 3² − 2²/2, 1² − 2²/2
        ['7.00', '-1.00']
    """
    c = _gaussian(c, "relative_mahalanobis", observed)
    c = c._replace(density=_Relative(c.density, c.log_prior))
    return score(_distances, c, x, observed=observed, likelihood=True)


def background(
    density: Gaussian | DiagonalGaussian, log_prior: Float[Array, " classes"]
) -> Gaussian | DiagonalGaussian:
    """All classes as one Gaussian, with the mean and the covariance of their mixture."""
    root = jnp.exp(0.5 * jax.nn.log_softmax(log_prior))[:, None]  # √π_k, whose derivative is finite at π_k = 0
    occurs = root > 0
    # Differences come first here too: from the mean of the most probable class, then from that of all.
    pilot = density.mean[jnp.argmax(log_prior)]
    offset = jnp.where(occurs, density.mean - pilot[None], 0.0)
    shift = jnp.sum(root**2 * offset, axis=0)
    mean, between = (pilot + shift)[None], root * (offset - shift[None])
    if isinstance(density, DiagonalGaussian):
        within = root * jnp.where(occurs, jnp.broadcast_to(density.scale, density.mean.shape), 0.0)
        return DiagonalGaussian(mean, jnp.sqrt(jnp.sum(within**2 + between**2, axis=0, keepdims=True)))
    within = density.cholesky
    if within.shape[0] > 1:
        within = root[..., None] * jnp.where(occurs[..., None], within, 0.0)
    # With the factors side by side, Σ = AᵀA, whose sums would lose digits where means are far apart.
    columns = jnp.concatenate([jnp.swapaxes(within, 1, 2).reshape(-1, within.shape[-1]), between])
    return Gaussian(mean, factor_of_gram(columns)[None])


class _Relative(NamedTuple):
    """A density whose distances are to be less those from the background."""

    density: Any
    log_prior: Float[Array, " classes"]

    domain = domains.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.density.num_features

    def prepared(self, *, likelihood: bool) -> _Difference:
        """The background, made once for all rows."""
        if isinstance(self.density, Marginal):
            return _Difference(self.density, Marginal(background(self.density.density, self.log_prior)))
        each = (self.density, background(self.density, self.log_prior))
        return _Difference(*(d.prepared(likelihood=likelihood) if isinstance(d, Gaussian) else d for d in each))


class _Difference(NamedTuple):
    """The distances of a density less those of another, of one class."""

    density: Any
    background: Any

    domain = domains.FINITE

    @property
    def score_width(self) -> int:
        """Elements that a row takes."""
        return optional(self.density, "score_width")

    def squared_distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The difference, of either sign."""
        return self.density.squared_distances(x) - self.background.squared_distances(x)


def _gaussian(c: Any, verb: str, observed: Any) -> Classifier[Any]:
    """c, its density that of the observed features where not all are; a TypeError for classes that are not Gaussian."""
    c = generative(c, verb)
    if not isinstance(c.density, (Gaussian, DiagonalGaussian)):
        raise TypeError(
            f"{verb} needs Gaussian classes, such as LDA, QDA and GaussianNB fit; found {type(c.density).__name__}. "
            "For other families jaxgen.log_evidence says how likely an x is."
        )
    return c if observed is None else c._replace(density=Marginal(c.density))


def _distances(c: Classifier[Any], x: Any) -> Array:
    return c.density.squared_distances(x)
