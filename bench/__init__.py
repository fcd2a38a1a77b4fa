"""How fast it is: measured against what the machine allows and against others, in one run. See docs/performance.md."""
