"""The form in which mteb knows the models that circus-bench loads itself. Imports no torch."""

from __future__ import annotations

from mteb.models import ModelMeta


class CircusModelMeta(ModelMeta):
    """A ModelMeta that asks for none of mteb's extras.

    mteb wants torchvision (its `image` extra) for every model that sees images, before it calls the loader. Our loaders
    read images with Pillow, and say themselves what they need beyond the packages that circus-bench installs.
    """

    def _resolve_extras_groups(self) -> list[str]:
        return []
