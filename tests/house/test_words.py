"""The words that the field uses lead to the file that does it, and docstrings begin with what is done."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.package_tree import ROOT, package_folders

# What a researcher searches for, and a file that the search must find.
WORDS = {
    "bootstrap": "circus_bench/audit/statistics.py",
    "confidence interval": "circus_bench/audit/statistics.py",
    "content-addressed": "circus_bench/rmir/stage_cache.py",
    "cosine": "circus_bench/ranking/ranker.py",
    "Croissant": "circus_bench/hub/croissant.py",
    "cost estimate": "circus_bench/rmir/cost_estimate.py",
    "Dawid-Skene": "circus_bench/validation/dawid_skene.py",
    "deduplicate": "circus_bench/rmir/stages/seed.py",
    "distractor": "circus_bench/sources/scenes/__init__.py",
    "dry run": "circus_bench/runs/dry_run.py",
    "embedding cache": "circus_bench/encoding/embedding_store.py",
    "false negative": "circus_bench/rmir/tsr_validity.py",
    "hard negatives": "circus_bench/rmir/stages/consensus.py",
    "hyperparameter": "circus_bench/rmir/config.py",
    "inter-annotator agreement": "circus_bench/validation/agreement.py",
    "Krippendorff": "circus_bench/validation/agreement.py",
    "leave-one-out": "circus_bench/audit/sensitivity.py",
    "LLM judge": "circus_bench/rmir/stages/judge.py",
    "LoRA": "circus_bench/models/lora.py",
    "near duplicate": "circus_bench/doctor/hashes.py",
    "null rank": "circus_bench/ranking/ranker.py",
    "perceptual hash": "circus_bench/doctor/hashes.py",
    "rate limit": "circus_bench/api/runtime.py",
    "sanity check": "circus_bench/encoding/sanity_checks.py",
    "stratified": "circus_bench/validation/sampling.py",
    "synthetic": "circus_bench/sources/scenes/synthetic.py",
    "tie": "circus_bench/metrics/ranks.py",
}
QUESTION = re.compile(r"(What|How|Whether|Which|Who|Why|When|Where|From)\b")


@pytest.mark.parametrize("words", WORDS)
def test_a_word_of_the_field_leads_to_its_file(words: str) -> None:
    # A phrase may be broken over two lines, hyphenated, or begin a sentence.
    pattern = re.compile(r"\b" + re.sub(r"[ -]", r"[\\s-]+", words), re.IGNORECASE)
    assert pattern.search((ROOT / WORDS[words]).read_text(encoding="utf-8"))


def documented(path: Path) -> list[tuple[str, int]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]
    return [(text, getattr(node, "lineno", 1)) for node in nodes if (text := ast.get_docstring(node))]


def test_no_docstring_begins_with_a_question_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for folder in package_folders().values()
        for path in sorted(folder.rglob("*.py"))
        for text, line in documented(path)
        if QUESTION.match(text)
    ]
    assert not found, "\n".join(found)
