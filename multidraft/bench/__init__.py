"""Benchmarks: suites of prompts, a runner that interleaves policies, a report."""
