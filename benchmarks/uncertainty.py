"""How far the mean error over random splits of a table may be from that over rows and samples like those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

if TYPE_CHECKING:
    from benchmarks.splits import Splits


def standard_error(errors: np.ndarray, splits: Splits, m: int) -> float:
    """Of the mean of `errors`, (S, held-out rows), of classifiers fitted on m rows of each split.

    All splits are of one table, whose rows were drawn once; a row moves the mean where it is tested, and where it is
    trained on. To first order (Hoeffding 1948, Annals of Mathematical Statistics 19, 293–325) the error of a split is

        mean + Σ_{i in the sample} a_i + the mean of b_i over the held-out rows

    where the a_i, and the b_i, sum to zero. They follow from u_i, how much more often row i is misclassified than
    others, and v_i, how much larger the error of the splits that train on it is than their held-out rows account for:

        u_i = b_i − m/(n−1) a_i,    (n − 1) v_i = (n − m − m/(n−1)) a_i

    So the table moves the mean by Σ_i (b_i + m a_i) / n. The noise of v_i, from so many splits, is subtracted (Wager,
    Hastie & Efron 2014, Journal of Machine Learning Research 15, 1625–1651), and would be many times as much if the
    held-out rows were not accounted for; that of the mean of so many is added. For samples of most of the table this
    errs upwards (Efron & Stein 1981, Annals of Statistics 9, 586–596).
    """
    count, n = splits.orders.shape
    tested, sample = np.split(splits.orders[:, : splits.held_out + m], [splits.held_out], axis=1)
    errors = errors - errors.mean()
    times = np.bincount(tested.ravel(), minlength=n)
    u = np.bincount(tested.ravel(), errors.ravel(), minlength=n) / np.maximum(times, 1)

    of_split = errors.mean(axis=1)
    of_sample = of_split - u[tested].mean(axis=1)
    times = np.bincount(sample.ravel(), minlength=n)
    v = np.bincount(sample.ravel(), np.repeat(of_sample, m), minlength=n) / np.maximum(times, 1)
    scale = (n - 1) / (n - m - m / (n - 1))
    moves = u + (m + m / (n - 1)) * scale * v
    noise_of_v = of_sample.var(ddof=1) * np.where(times > 0, 1 / np.maximum(times, 1) - 1 / count, 0)
    noise = ((m + m / (n - 1)) * scale) ** 2 * noise_of_v
    of_table = max(np.mean(moves**2 - noise), np.mean(u**2)) / n
    return float(np.sqrt(of_table + of_split.var(ddof=1) / count))


def half_width(error: float, n: int) -> float:
    """Of the 95 % confidence band of a mean with this standard error, from n rows."""
    return float(scipy.stats.t.ppf(0.975, n - 1) * error)


def p_value(mean: float, error: float, n: int) -> float:
    """Of the t-test that a mean is zero."""
    if mean == 0:
        return 1.0
    return float(2 * scipy.stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else 0.0
