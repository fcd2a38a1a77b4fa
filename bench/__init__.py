"""Benchmarks: Askfirst against the limit of the machine and against other libraries, in one run. See
docs/performance.md."""
