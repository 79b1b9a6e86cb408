"""The settings: the paper's values by default, and a file that is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from circus_bench.api.chat.providers import ProviderSettings
from circus_bench.errors import FormatError
from circus_bench.rmir.config import Config, DedupMode, JudgeSettings, JudgeSpec
from circus_bench.rmir.records import Category


def read(folder: Path, text: str) -> Config:
    (folder / "rmir.toml").write_text(text)
    return Config.read(folder / "rmir.toml")


def test_the_defaults_are_the_papers() -> None:
    config = Config()
    assert (config.seed.clusters, config.seed.per_cluster) == (50_000, 10)
    assert (config.generate.model, config.generate.temperature) == ("claude-sonnet-4-5", 0.25)
    assert (config.filter.model, config.filter.temperature) == ("claude-sonnet-4-5", 0.0)
    assert config.candidates.visual_k + config.candidates.text_k == 20
    assert {(judge.model, judge.temperature) for judge in config.judge.judges} == {
        ("claude-sonnet-4-5", 0.85),
        ("claude-haiku-4-5", 0.85),
    }
    assert len(config.judge.judges) == 5
    assert config.keep.confidence == 1
    assert config.split.test_share == pytest.approx(1634 / (1634 + 6687), abs=5e-4)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Config()


def test_a_file_changes_what_it_mentions(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        name = "mine"
        [collection]
        images = "pictures"
        captions = "/elsewhere/captions.csv"
        [seed]
        near = "off"
        [generate]
        categories = ["causal"]
        temperature = 1
        [judge]
        panel = [{model = "gpt-5-mini", temperature = 1}, {model = "compatible/llava", samples = 2}]
        [providers.compatible]
        base_url = "http://127.0.0.1:8000/v1"
        requests_per_minute = 60
        [source]
        license = "CC0-1.0"
        """,
    )
    assert config.name == "mine"
    assert config.collection.images == str(tmp_path / "pictures")
    assert config.collection.captions == "/elsewhere/captions.csv"
    assert config.seed.near is DedupMode.OFF
    assert (config.generate.categories, config.generate.temperature) == ((Category.CAUSAL,), 1.0)
    assert config.judge == JudgeSettings(panel=(JudgeSpec("gpt-5-mini", 1.0), JudgeSpec("compatible/llava", samples=2)))
    assert config.providers == {
        "compatible": ProviderSettings(base_url="http://127.0.0.1:8000/v1", requests_per_minute=60.0)
    }
    assert config.source == {"license": "CC0-1.0"}
    assert config.filter == Config().filter


def test_every_model_that_may_be_asked_is_known(tmp_path: Path) -> None:
    config = read(tmp_path, '[judge]\npanel = [{model = "a/b"}]\n[candidates]\ntext_k = 0\n')
    assert config.models == ("claude-sonnet-4-5", "a/b")  # nobody captions for an index that there is not
    assert Config().models == ("claude-sonnet-4-5", "claude-haiku-4-5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[seeds]", "unknown settings seeds"),
        ("[seed]\ncluster = 3", r"unknown settings seed\.cluster; known: embedder, clusters"),
        ("[seed]\nclusters = 3.5", r"seed\.clusters is 3\.5, expected int"),
        ("[seed]\nclusters = true", r"seed\.clusters is True, expected int"),
        ("[seed]\nnear = 'bit'", r"seed\.near is 'bit', expected one of off, same_hash, one_bit"),
        ("[seed]\nclusters = -1", r"seed\.clusters is 0 or more"),
        ("[generate]\ncategories = ['why']", r"generate\.categories\[0\] is 'why'"),
        ("[generate]\ncategories = []", r"generate\.categories has at least one"),
        ("[generate]\ncategories = 'causal'", r"generate\.categories is 'causal', expected a table or a list"),
        ("[judge]\npanel = []", r"judge\.panel has a judge"),
        ("[judge]\npanel = [{temperature = 1.0}]", r"judge\.panel\[0\] lacks model"),
        ("[judge]\npanel = [{model = 'm', temperature = -1.0}]", "temperatures are not negative"),
        ("[keep]\nconfidence = 0.5", r"keep\.confidence is above 0\.5"),
        ("[split]\nthreshold = 0.5\ntest_size = 3", "a threshold or a test_size, not both"),
        ("[split]\nthreshold = 1.5", r"split\.threshold"),
        ("[run]\nbatch_size = 0", r"run\.batch_size"),
        ("[providers.openai]\nrequests_per_minute = 0", "requests_per_minute, .* of every provider are above 0"),
        ("[providers.openai]\ntimeout = nan", "timeout of every provider are above 0"),
        ("[providers.openai]\nurl = 'x'", r"unknown settings providers\.openai\.url"),
        ("name = ", "not a TOML file"),
    ],
)
def test_what_a_file_gets_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path, text)
    assert "rmir.toml" in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.toml: no such file"):
        Config.read(tmp_path / "none.toml")


def test_the_settings_in_the_documentation_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rmir.md").read_text()
    config = read(tmp_path, page.split("```toml\n")[1].split("```")[0])
    assert config.models == ("claude-sonnet-4-6", "claude-haiku-4-5", "gpt-5-mini")
    assert (config.seed.clusters, config.split.test_size, len(config.judge.judges)) == (200, 500, 5)
