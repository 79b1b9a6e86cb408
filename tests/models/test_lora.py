from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from circus_bench.errors import FormatError
from circus_bench.models.checkpoint import Checkpoint
from circus_bench.models.lora import merge_adapter

LAYER = "base_model.model.model.layers.0.q_proj"
# W + s B A with W = [[3, 0], [0, 1]], B A = [[0, 2], [0, 0]] and s = 2 is [[3, 4], [0, 1]].
A = torch.tensor([[0.0, 2.0]])
B = torch.tensor([[1.0], [0.0]])


class Model(torch.nn.Module):
    """One linear layer at the place that transformers gives it, and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(2, 2)})
        self.language_model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer])})
        self.layer = layer["q_proj"]
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))


@pytest.fixture
def adapter(tmp_path):
    """`adapter(tensors, **settings)`: writes an adapter of rank 1 whose scale is 2."""

    def write(tensors, binary=False, **settings):
        config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "bias": "none", "modules_to_save": None, **settings}
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        if binary:
            torch.save(tensors, tmp_path / "adapter_model.bin")
        else:
            save_file(tensors, tmp_path / "adapter_model.safetensors")
        return Checkpoint("ORG/adapter", path=tmp_path)

    return write


def parts(prefix=LAYER, **more):
    return {f"{prefix}.lora_A.weight": A, f"{prefix}.lora_B.weight": B, **more}


@pytest.mark.parametrize("binary", [False, True])
def test_lora_is_added(adapter, binary):
    model = Model()
    assert merge_adapter(model, adapter(parts(), binary)) == 1
    np.testing.assert_array_equal(model.layer.weight.detach(), [[3, 4], [0, 1]])


@pytest.mark.parametrize("prefix", ["model.layers", "model.language_model.layers", "language_model.layers"])
def test_layers_are_found_under_the_names_of_all_versions(adapter, prefix):
    model = Model()
    merge_adapter(model, adapter(parts(f"base_model.model.{prefix}.0.q_proj")))
    assert model.layer.weight[0, 1] == 4


def test_rank_stabilized_scale_divides_by_the_root_of_the_rank(adapter):
    # Of rank 4, with A and B padded by zeros: s = 2 / sqrt(4) = 1, so that W becomes [[3, 2], [0, 1]].
    wide = {
        f"{LAYER}.lora_A.weight": torch.nn.functional.pad(A, (0, 0, 0, 3)),
        f"{LAYER}.lora_B.weight": torch.nn.functional.pad(B, (0, 3)),
    }
    model = Model()
    merge_adapter(model, adapter(wide, r=4, use_rslora=True))
    np.testing.assert_array_equal(model.layer.weight.detach(), [[3, 2], [0, 1]])


@pytest.mark.parametrize("name", ["lora_magnitude_vector", "lora_magnitude_vector.weight"])
def test_dora_gives_rows_the_length_of_their_magnitude(adapter, name):
    # The rows of [[3, 4], [0, 1]] have the lengths 5 and 1.
    model = Model()
    magnitude = {f"{LAYER}.{name}": torch.tensor([10.0, 7.0])}
    merge_adapter(model, adapter(parts(**magnitude), use_dora=True))
    np.testing.assert_allclose(model.layer.weight.detach(), [[6, 8], [0, 7]], rtol=1e-6)


def test_weights_are_merged_in_float32_and_keep_their_dtype(adapter):
    # In bfloat16, 3 + 2 * 0.005 = 3.01 is nearest to 3.015625; 0.005 alone would be 0.00500488.
    model = Model().to(torch.bfloat16)
    merge_adapter(model, adapter({**parts(), f"{LAYER}.lora_A.weight": torch.tensor([[0.005, 0.0]])}))
    assert model.layer.weight.dtype == torch.bfloat16
    assert model.layer.weight[0, 0].item() == torch.tensor(3.01).bfloat16().item()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"peft_type": "IA3"}, "peft_type"),
    ],
)
def test_adapter_with_other_settings_is_an_error(adapter, settings, named):
    with pytest.raises(FormatError, match=named):
        merge_adapter(Model(), adapter(parts(), **settings))


def test_adapter_that_fits_no_module_is_an_error_and_changes_nothing(adapter):
    model = Model()
    tensors = {**parts(), **parts("base_model.model.model.layers.9.q_proj")}
    with pytest.raises(FormatError, match=r"no such weights \(1: 'language_model.layers.9.q_proj'\)"):
        merge_adapter(model, adapter({name: tensor.clone() for name, tensor in tensors.items()}))
    np.testing.assert_array_equal(model.layer.weight.detach(), [[3, 0], [0, 1]])


def test_adapter_of_another_width_is_an_error(adapter):
    with pytest.raises(FormatError, match=r"'A': \(1, 2\)"):
        merge_adapter(Model(), adapter({**parts(), f"{LAYER}.lora_A.weight": torch.zeros(1, 3)}))


@pytest.mark.parametrize("lost", ["lora_B.weight", "lora_A.weight"])
def test_half_an_adapter_is_an_error(adapter, lost):
    tensors = parts()
    del tensors[f"{LAYER}.{lost}"]
    with pytest.raises(FormatError, match="needs parts"):
        merge_adapter(Model(), adapter(tensors))


def test_dora_without_magnitudes_is_an_error(adapter):
    with pytest.raises(FormatError, match="magnitude_vector"):
        merge_adapter(Model(), adapter(parts(), use_dora=True))


def test_file_of_other_tensors_is_an_error(adapter):
    with pytest.raises(FormatError, match="expected the tensors of a LoRA adapter"):
        merge_adapter(Model(), adapter({"model.layers.0.q_proj.weight": torch.zeros(2, 2)}))


def test_folder_without_weights_is_an_error(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1, "lora_alpha": 2}')
    with pytest.raises(FormatError, match=r"adapter_model\.bin"):
        merge_adapter(Model(), Checkpoint("ORG/adapter", path=tmp_path))
