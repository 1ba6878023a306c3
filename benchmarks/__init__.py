"""The benchmarks suite: `python -m benchmarks`."""
