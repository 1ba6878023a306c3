"""Strict JAX for every test: float64 where it is asked for, no silent promotion of dtypes or ranks."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
