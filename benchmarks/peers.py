"""The other libraries: scikit-learn always, scikit-learn-intelex and pomegranate where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.naive_bayes import CategoricalNB

import jaxgen as jg

if TYPE_CHECKING:
    from collections.abc import Callable

SKLEARN = "scikit-learn"


@dataclass(frozen=True)
class Peer:
    """Another library's estimator for the same model: made, fitted, and asked for log p(y | x)."""

    library: str
    make: Callable[[], Any]

    def fit(self, x: Any, y: Any) -> Any:
        """A fitted model of its own."""
        return self.make().fit(x, y)

    def log_posterior(self, model: Any, x: Any) -> Any:
        """log p(y | x)."""
        return model.predict_log_proba(x)


def peers(factory: Callable[[], Any], num_classes: int, normal: str | None = None) -> list[Peer]:
    """Scikit-learn's estimator, and the same model of the other libraries that are installed.

    Args:
        factory: makes scikit-learn's.
        num_classes: K.
        normal: pomegranate's name for the covariance, where it has the model.
    """
    found = [Peer(SKLEARN, factory)]
    example = factory()
    module, name = f"sklearnex.{type(example).__module__.split('.')[1]}", type(example).__name__
    # scikit-learn-intelex mirrors the modules of what it accelerates. It has had none of these estimators so far, but
    # it is asked, so that its column appears on the day that it has.
    if importlib.util.find_spec("sklearnex") and importlib.util.find_spec(module):
        faster = getattr(importlib.import_module(module), name, None)
        if faster is not None:
            found.append(Peer("scikit-learn-intelex", lambda: faster(**example.get_params())))
    if normal is not None and importlib.util.find_spec("pomegranate"):
        bayes: Any = importlib.import_module("pomegranate.bayes_classifier")
        distributions: Any = importlib.import_module("pomegranate.distributions")

        def make() -> Any:
            return bayes.BayesClassifier([distributions.Normal(covariance_type=normal) for _ in range(num_classes)])

        found.append(Peer("pomegranate", make))
    return found


def parameters(model: Any) -> list[np.ndarray]:
    """What a fit of ours or of scikit-learn's estimated, in one form for both; nothing of a library unknown here."""
    if isinstance(model, jg.Classifier):
        density: Any = model.density
        if isinstance(density, jg.Multinomial | jg.Categorical):
            found = [density.log_probability]
        elif isinstance(density, jg.Bernoulli):
            found = [density.log_present]
        elif isinstance(density, jg.DiagonalGaussian):
            found = [density.mean, np.square(density.scale)]
        else:
            factor = np.asarray(density.cholesky, np.float64)
            found = [density.mean, factor @ factor.swapaxes(-1, -2)]
    elif hasattr(model, "feature_log_prob_"):
        found = [np.hstack(model.feature_log_prob_) if isinstance(model, CategoricalNB) else model.feature_log_prob_]
    elif hasattr(model, "theta_"):
        found = [model.theta_, model.var_]
    elif hasattr(model, "rotations_"):  # QDA keeps Σ_k by its eigenvectors and eigenvalues
        covariances = zip(model.rotations_, model.scalings_, strict=True)
        found = [model.means_, np.stack([(rotation * scale) @ rotation.T for rotation, scale in covariances])]
    elif hasattr(model, "covariances_"):
        tied = model.covariance_type == "tied"
        found = [model.means_, model.covariances_[None] if tied else model.covariances_]
    elif hasattr(model, "covariance_"):
        found = [model.means_, model.covariance_[None]]
    else:
        return []
    return [np.asarray(array, np.float64) for array in found]


def furthest(ours: Any, theirs: Any) -> float | None:
    """The largest difference of two fits' parameters, relative to 1 + their size; None where they are not known."""
    if not (other := parameters(theirs)):
        return None
    pairs = zip(parameters(ours), other, strict=True)
    return float(max(np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs))
