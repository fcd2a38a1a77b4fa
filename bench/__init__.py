"""Benchmarks: Askfirst against the limit of the machine and against other libraries, in a single run. See
docs/performance.md."""
