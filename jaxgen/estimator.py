"""The contract of a generative estimator, and what is written once for all families.

    data ─► statistics ─► density ─► classifier
            (mergeable)              (density and class prior)

A family supplies three things: `Statistics` that merge, a `Density`, and an estimator that turns a block of rows into
the first (`summarise`) and the first into the second (`density`). Everything else is written once: the checks here, and
in `programs` what is compiled. The verbs that users call on any estimator are in `fitting`.
"""

from __future__ import annotations

import abc
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Generic

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, chunks, culprits, host_arrays, inputs, platform
from jaxgen.compressed import CompressedRows
from jaxgen.density import D, marginal_width
from jaxgen.missing import PartialRows
from jaxgen.preparing import check_classifier
from jaxgen.programs import estimate_program, merge_program, statistics_program
from jaxgen.pytree import pytree
from jaxgen.sparse import SparseRows
from jaxgen.statistics import S, check_single, describe, raise_for_nan
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.classifier import Classifier
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels
    from jaxgen.platform import Tuning


@pytree
@dataclass(frozen=True, kw_only=True)
class GenerativeEstimator(abc.ABC, Generic[S, D]):
    """How data become statistics, and statistics a density.

    A frozen dataclass and a pytree: numbers are leaves, to be vmapped over and differentiated by; structure, marked
    `metadata=STATIC`, is part of the tree's type.

    Attributes:
        prior_alpha: pseudo-count of each class in the class prior, (prior_alpha + N_k) / (K·prior_alpha + N). 0 is the
            maximum likelihood estimate, 1 is Laplace's rule. A class without rows then has probability 0, of which
            derivatives know nothing: see the README's limits.
    """

    prior_alpha: Array | float = 0.0

    @property
    @abc.abstractmethod
    def domain(self) -> Domain:
        """What the features may be; by the estimator's static fields alone."""

    @abc.abstractmethod
    def summarise(self, x: Float[Array, "n d"] | PartialRows, labels: Labels) -> S:
        """The statistics of one block of rows.

        x is in the working dtype; what rows of weight 0 held outside the domain has been blanked. Only the estimator's
        static fields may be used: hyperparameters enter in `density`.
        """

    @abc.abstractmethod
    def density(self, statistics: S) -> D:
        """The class-conditional density that the statistics and the hyperparameters give; pure."""

    @abc.abstractmethod
    def accepts(self, statistics: Any) -> bool:
        """Whether the statistics are of the kind that `summarise` makes; by types and shapes alone."""

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be sparse."""
        return False

    @property
    def takes_missing(self) -> bool:
        """Whether a fit can leave out features that were not observed."""
        return True

    @property
    def fills_in(self) -> bool:
        """Whether it fills them in from the observed ones, with which they are correlated, by a current density."""
        return False

    def check_given(self, density: Any) -> None:
        """Raise for a density that cannot fill in what was not observed."""
        return

    def check_seen(self, seen: np.ndarray, features: Sequence[int]) -> None:
        """Raise for features that stay unknown where no row of a class shows them: `seen` is (K, d), of these."""
        return

    def takes_for_constant(self, num_features: int) -> np.ndarray:
        """Which features, (d,), are constant where all that was observed of them is one value in each class."""
        return np.zeros(num_features, bool)

    def naive(self) -> GenerativeEstimator[Any, Any]:
        """The same family without correlations; with what it fits, filling in begins."""
        return self

    def from_origin(
        self, origin: Float[Array, " d"]
    ) -> tuple[GenerativeEstimator[Any, Any], Float[Array, " d"] | None]:
        """The estimator of features less an origin, and that; None, where what they are counted from plays a part.

        Its density has `moved`, by which an origin is added to what it is about.
        """
        del origin
        return self, None

    def log_parameter_prior(self, density: Any) -> Float[Array, ""]:
        """The log of the prior that the hyperparameters stand for, up to a constant, in nats.

        `density` of all rows is where it and their log likelihood, together, are largest; 0 where they stand for none.
        """
        return jnp.zeros((), jax.tree.leaves(density)[0].dtype)

    def expect(self, x: PartialRows, labels: Labels, density: D | None) -> S:
        """The statistics that are expected of a block of rows under a density, where the family fills in.

        The naive families leave missing factors out, and `summarise` takes partial rows as they are.
        """
        del density
        return self.summarise(x, labels)

    def summarise_compressed(self, x: CompressedRows, labels: Labels, *, entries: int) -> tuple[S, bool]:
        """The statistics of compressed rows, where sparse rows are taken, and whether a value is bad.

        About so many `entries` are taken at a time.
        """
        raise NotImplementedError

    def row_width(self, num_features: int, tuning: Tuning) -> int:
        """Numbers that `summarise` makes of a row of so many features."""
        del tuning
        return num_features

    def rows_wanted(self, num_features: int, labels: Labels, tuning: Tuning) -> int:
        """Rows that `summarise` wants at a time, at least, where it does more with many; 0 where it does not."""
        del num_features, labels, tuning
        return 0

    def check_density(self) -> None:
        """Raise for a family that has scores and no density."""
        return

    def loading(self) -> AbstractContextManager[None]:
        """A context in which a thread loads the modules that an estimate needs; by default there are none."""
        return nullcontext()

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        arguments.check_hyperparameters(self)

    def check_features(self, num_features: int) -> None:
        """Raise for a number of features that the structure does not fit."""
        return

    def explain(self, density: Any, features: Sequence[int] | None = None) -> str:
        """Why finite statistics gave a density that holds NaN or +∞, and the remedy; of these features, or of all."""
        del features
        return (
            f"{self} has no finite {type(density).__name__} for these statistics: they overflow. Rescale the features."
        )

    def statistics(
        self,
        x: Real[AnyArray, "n d"],
        y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
        *,
        num_classes: int | None = None,
        sample_weight: Real[AnyArray, " n"] | None = None,
        observed: Bool[AnyArray, "n d"] | None = None,
        given: Classifier[D] | None = None,
        block_size: int | None = None,
    ) -> S:
        """The sufficient statistics of a batch, in one read of the data.

        Args:
            x: features (n, d); sparse rows where the family counts, as for `fit`.
            y: labels (n,) or responsibilities (n, K), as for `fit`.
            num_classes: K; inferred from concrete labels.
            sample_weight: a weight for each row; a row of weight 0 is absent, whatever it holds.
            observed: True for the entries of x that count, as for `fit`; a batch without it has all.
            given: the current classifier, where the family fills in what was not observed (full covariances, words):
                the statistics are those expected under it, and their `estimate` is one step of EM.
            block_size: dense rows that are summarised at a time; by default what suits the platform.

        Returns:
            Statistics, which `merge`, `subtract` and `estimate` take. All weights may be zero: an empty block is a
            block. Under a trace, bad values make them NaN.

        Raises:
            ValueError: for shapes, labels, weights or values of x that are out of range.
            TypeError: for dtypes that are not numeric, or labels that are not integers; `observed` where the family
                cannot leave out a feature.

        Example:
            >>> import numpy as np, jaxgen as jg
            >>> words = np.array([[2, 0], [1, 1], [0, 3]])
            >>> jg.MultinomialNB().statistics(words, np.array([0, 0, 1])).feature_sum.value.tolist()
            [[3.0, 1.0], [0.0, 3.0]]
        """
        options = num_classes, sample_weight, observed, given, block_size
        return host_arrays.as_arrays_of_jax(self.summarise_data(x, y, *options))

    def summarise_data(
        self,
        x: Any,
        y: Any,
        num_classes: int | None,
        sample_weight: Any,
        observed: Any,
        given: Classifier[D] | None = None,
        block_size: int | None = None,
    ) -> S:
        """What `statistics` returns, as arrays of NumPy where they were made so.

        A program takes those in a third of the time of `jax.device_put`.
        """
        rows, labels = self.check_data(x, y, num_classes, sample_weight, observed, given)
        if block_size is not None:
            block_size = arguments.check_integer("block_size", block_size)
        statistics, bad = self.summarise_checked(rows, labels, given=given, block_size=block_size)
        if not is_traced(bad) and bad:
            culprits.raise_for_rows(rows, labels, self.domain)
        return statistics

    def check_data(
        self, x: Any, y: Any, num_classes: int | None, sample_weight: Any, observed: Any, given: Any = None
    ) -> tuple[Any, Labels]:
        """Rows and labels in the forms that programs take; an error for what is none, arguments as `statistics`."""
        self.check()
        rows = inputs.check_rows(x, sparse=self.takes_sparse, observed=observed, counts=self.fills_in)
        self.check_features(rows.shape[1])
        self._check_missing(observed, given)
        labels = inputs.check_labels(rows, y, num_classes, sample_weight)
        if given is not None:
            check_classifier(given, "given")
            wanted = (labels.num_classes, rows.shape[1])
            if (found := (*given.class_shape, given.num_features)) != wanted:
                raise ValueError(f"given must have {wanted[0]} classes and {wanted[1]} features; found {found}.")
            self.check_given(given.density)
        platform.check_places(rows, labels, given)
        return rows, labels

    def summarise_checked(
        self,
        rows: Any,
        labels: Labels,
        *,
        given: Classifier[D] | None = None,
        block_size: int | None = None,
    ) -> tuple[S, Any]:
        """The statistics of what was checked, and whether any is not finite."""
        # Hyperparameters play no part in the statistics: without them, a trace over them does not reach the data.
        structure = jax.tree.map(lambda _: 0.0, self)
        tuning = platform.tuning_of(rows, labels)
        if isinstance(rows, CompressedRows):
            if tuning and tuning.sparse == "scipy" and not is_traced(labels):
                return self.summarise_compressed(rows, labels, entries=tuning.entries)
            rows = rows.whole()
        density = None if given is None else given.density
        if isinstance(rows, SparseRows) or is_traced(density):
            pieces = chunks.whole(rows, labels)
        else:
            width = marginal_width(density, rows.most_missing) if isinstance(rows, PartialRows) else 0
            pieces = chunks.split(rows, labels, width=width)
        options = {"block_size": block_size, "tuning": tuning, "by_cores": len(pieces) > 1}
        program = partial(statistics_program, structure, given=density, **options)
        with nullcontext() if is_traced(rows, labels) else self.loading():
            return reduce(_merge_parts, chunks.run(program, pieces))

    def _check_missing(self, observed: Any, given: Any) -> None:
        if observed is None:
            if given is not None:
                raise TypeError("given goes with observed: it fills in what was not observed. Leave it out.")
            return
        if not self.takes_missing:
            raise TypeError(
                f"{type(self).__name__} cannot be fitted with observed: counts are shares of a whole, which a missing "
                "one leaves unknown. PoissonNB models each count by itself."
            )
        if self.fills_in != (given is not None):
            raise TypeError(
                "statistics with observed take given, the current classifier, where what is missing is filled in (full "
                "covariances, multinomial), and not elsewhere; found "
                f"{'none' if given is None else 'one'}. jaxgen.fit iterates."
            )

    def estimate(self, statistics: S) -> Classifier[D]:
        """The classifier of these statistics; see `jaxgen.estimate`."""
        self.check_statistics(statistics)
        classifier, bad = self.estimate_checked(statistics)
        if not is_traced(bad) and bad:
            raise_for_nan(statistics)
            estimator, density = primal((self, classifier.density))
            raise ValueError(estimator.explain(density))
        return classifier

    def estimate_checked(self, statistics: S) -> tuple[Classifier[D], Any]:
        """The classifier of statistics that were checked, and whether any of its leaves is NaN or +∞."""
        return estimate_program(arguments.as_floats(self), statistics)

    def check_statistics(self, statistics: Any) -> None:
        """Raise for hyperparameters that are out of range, and for statistics of another kind."""
        self.check()
        platform.check_places(self, statistics)
        if not self.accepts(statistics):
            raise TypeError(
                f"statistics must be those that an estimator of this structure makes, {self}; found "
                f"{describe(statistics)}. Make them with its own statistics(x, y)."
            )
        check_single(statistics, "statistics")


def _merge_parts(a: tuple[S, Any], b: tuple[S, Any]) -> tuple[S, Any]:
    return merge_program(a[0], b[0]), a[1] | b[1]
