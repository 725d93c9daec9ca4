"""Kinds of drafters, one per file. Importing this package registers all of them.

To add one, write a subclass of :class:`~drafters.kinds.base.DrafterEntry` with ``@register`` in a file of this folder:
cards can then name it, ``pool --estimate`` counts its memory, and the page describes it.
"""

from importlib import import_module
from pkgutil import iter_modules

from drafters.kinds.base import KINDS

__all__ = ["KINDS"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
