"""Carrying guards into autograd's threads with torch versions that do and do not take references to what is stashed."""

from __future__ import annotations

import ctypes
import weakref

import pytest

from unstall.guarding.backward import _stash

# Prototypes of our own: those of ctypes.pythonapi belong to all libraries, and Numba sets them.
INCREF = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
DECREF = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))


class TakesReferences:
    """torch._C of torch 2.13."""

    def __init__(self) -> None:
        self.stashed: dict[str, int] = {}

    def _stash_obj_in_tls(self, key: str, kept: object) -> None:
        self.take(kept)
        before = self.stashed.pop(key, None)
        self.stashed[key] = id(kept)
        if before is not None:
            DECREF(before)

    def take(self, kept: object) -> None:
        INCREF(kept)


class StealsReferences(TakesReferences):
    """torch._C of torch 2.11."""

    def take(self, kept: object) -> None: ...


class Thing:
    pass


@pytest.mark.parametrize("torch_c", [TakesReferences(), StealsReferences()], ids=["takes", "steals"])
def test_what_is_stashed_lives_until_it_is_replaced(torch_c: TakesReferences) -> None:
    stash, thing = _stash(torch_c), Thing()
    alive = weakref.ref(thing)
    stash(thing)
    stash(thing)
    del thing
    assert alive() is not None
    stash(None)
    assert alive() is None
