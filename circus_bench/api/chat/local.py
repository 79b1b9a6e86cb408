"""Call a vision-language model on this machine, with `transformers`.

The schema is written below the prompt, for nothing makes the model follow it. At temperature 0 decoding is greedy;
otherwise the seed follows from the request, its sample number included, so that an answer can be had again.

The processors of some families, Qwen-VL among them, need `torchvision`, which has to be installed for them.
"""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circus_bench.api.chat.messages import Completion, Request
from circus_bench.api.chat.shared import ProviderSettings, TokenPrice, image_payload, render_prompt, token_usage
from circus_bench.api.runtime import Price, RemoteError, Usage
from circus_bench.models.checkpoint import Checkpoint, placement

if TYPE_CHECKING:
    from PIL import Image


def price(model: str, name: str, kind: str) -> Price | None:  # noqa: ARG001  # the other providers' kinds differ
    """Charge nothing; see `circus_bench.api.chat.providers.price_of`."""
    return TokenPrice(0, 0).price(model, "a model on this machine", "")


class LocalProvider:
    """Answers with models of this machine; each is loaded when it is asked for the first time, and asked one by one.

    Args:
        name: of the provider.
        device: a GPU when None and there is one.
        dtype: see `circus_bench.models.checkpoint.placement`.
    """

    def __init__(self, name: str = "local", *, device: str | None = None, dtype: str | None = None) -> None:
        self.name = name
        self._device, self._dtype = device, dtype
        self._loaded: dict[str, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            RemoteError: there is no such model, or it cannot be asked about images.
        """
        import torch

        with self._lock, torch.inference_mode():
            model, processor = self._load(request.model.removeprefix(f"{self.name}/"))
            inputs = self._inputs(request, processor).to(model.device)
            asked = inputs["input_ids"].shape[1]
            # Generation draws from the global generators; they are put back as they were.
            devices = [model.device] if model.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(int(request.key[:16], 16) >> 1)
                made = model.generate(**inputs, **_sampling(request))
            tokens = made[0, asked:]
        ends = _ids(model.generation_config.eos_token_id)
        stop = "end" if len(tokens) < request.max_tokens or int(tokens[-1]) in ends else "length"
        text = processor.batch_decode(tokens[None], skip_special_tokens=True)[0]
        return Completion(text, stop, token_usage(request.model, (asked, len(tokens))))

    def estimate(self, request: Request) -> Usage:
        """Estimate nothing, for nothing is charged."""
        return token_usage(request.model, (0, 0))

    def close(self) -> None:
        """Let go of the models."""
        self._loaded.clear()

    def _load(self, name: str) -> tuple[Any, Any]:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        if name not in self._loaded:
            folder = Path(name).expanduser()
            checkpoint = Checkpoint(name, path=folder if folder.is_dir() else None)
            device, dtype = placement(self._device, self._dtype)
            try:
                processor = AutoProcessor.from_pretrained(**checkpoint.source)
                model = AutoModelForImageTextToText.from_pretrained(
                    **checkpoint.source, dtype=dtype, device_map=device
                ).eval()
            except (ImportError, OSError, ValueError) as error:
                raise RemoteError(f"{self.name}: cannot load {name!r} as a vision-language model: {error}") from error
            self._loaded[name] = model, processor
        return self._loaded[name]

    def _inputs(self, request: Request, processor: Any) -> Any:
        content: list[dict[str, Any]] = [{"type": "image", "image": _image(data)} for data in request.images.values()]
        content.append({"type": "text", "text": render_prompt(request, with_schema=True)})
        return processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )


def make(name: str, kind: str, settings: ProviderSettings) -> LocalProvider:  # noqa: ARG001
    """Make the provider; see `circus_bench.api.chat.providers.make_provider`."""
    return LocalProvider(name)


def _image(data: bytes) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(image_payload(data).data)).convert("RGB")


def _sampling(request: Request) -> dict[str, Any]:
    """Choose the sampling parameters.

    What a checkpoint suggests beside the temperature is put off: it would be a hidden parameter.
    """
    settings: dict[str, Any] = {"max_new_tokens": request.max_tokens, "repetition_penalty": 1.0}
    if request.temperature == 0:
        return settings | {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    return settings | {"do_sample": True, "temperature": request.temperature, "top_p": 1.0, "top_k": 0}


def _ids(found: int | list[int] | None) -> list[int]:
    return [] if found is None else [found] if isinstance(found, int) else list(found)
