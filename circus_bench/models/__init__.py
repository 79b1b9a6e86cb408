"""Encoders: mteb's own, and those that circus-bench adds to mteb's registry."""

from circus_bench.models.loading import POOL_MINI, check_known, load_encoder, register

__all__ = ["POOL_MINI", "check_known", "load_encoder", "register"]
