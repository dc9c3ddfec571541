"""Finds which module of CUDA each kernel is in. Needs torch, a GPU and libcupti.

CUDA loads a module when the first of its kernels is launched. A source file of torch becomes one module, for example.
CUPTI calls back whenever a module was loaded, with its machine code, and before each launch, with the kernel's name.
The code of the module has the names of its kernels (`CUpti_ModuleResourceData` in cupti_callbacks.h, `cubin.py`).
CUPTI makes everything slower, so this runs in a process of its own, in which nothing is timed.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from unstall.blaming.demangle import demangled
from unstall.cupti.recorder import find_library
from unstall.decoding import from_json
from unstall.virtual.costs.cubin import Cubin, read_cubin
from unstall.virtual.costs.own_process import run_module
from unstall.virtual.costs.suite.case import Case

# cupti_callbacks.h and cupti_driver_cbid.h, the same from CUDA 11.7 to 13.5.
_DRIVER_API, _RESOURCE, _ENTER, _MODULE_LOADED = 1, 3, 0, 6
_LAUNCHES = {307: 0, 442: 0, 477: 0, 478: 0, 652: 8, 653: 8}
"""The callback id of each launch of the driver. The value is the offset of the kernel's handle in the parameters, in
bytes.
"""


class Module(msgspec.Struct, frozen=True):
    """A module of kernels.

    Attributes:
        size_bytes: The size of its machine code.
        kernels: The names of those of its kernels that were launched.
        asserts: Whether one of these can fail an assertion.
    """

    size_bytes: int
    kernels: list[str]
    asserts: bool = False


class KernelModules(msgspec.Struct, frozen=True, dict=True):
    """What was seen of modules.

    Attributes:
        modules: The modules that were loaded.
        launched: The kernels of each call that was made, by the number of the call.
        operators: The operator of each call, and the dtype of the first tensor that it was given, by the number of the
            call.
    """

    modules: list[Module] = []
    launched: dict[int, list[str]] = {}
    operators: dict[int, tuple[str, str]] = {}

    @cached_property
    def module_of(self) -> dict[str, int]:
        """By the name of a kernel: its module, as a number of `modules`. If several modules have a kernel of this name,
        it is the last of them: the names of files, which tell such kernels apart, are not kept.
        """
        return {kernel: number for number, module in enumerate(self.modules) for kernel in module.kernels}

    def needed(self, call: int) -> set[int]:
        """Returns the modules that a call needs."""
        return {self.module_of[kernel] for kernel in self.launched.get(call, ()) if kernel in self.module_of}


def kernel_modules(calls: Iterable[int], most_rank: int) -> KernelModules:
    """Calls some cases of the suite, in a new process, and returns which modules their kernels are in.

    Args:
        calls: The numbers of the cases to call.
        most_rank: The `most` of `suite.cases` that gave them their numbers.

    Raises:
        RuntimeError: libcupti does not call back here.
    """
    printed = run_module(__name__, {"rank": most_rank, "numbers": list(dict.fromkeys(calls))})
    return from_json(printed.rpartition("\n")[2], KernelModules)


class _Callback(ctypes.Structure):
    """The first fields of CUpti_CallbackData."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
    )


class _Resource(ctypes.Structure):
    """CUpti_ResourceData."""

    _fields_ = (("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("descriptor", ctypes.c_void_p))


class _Module(ctypes.Structure):
    """CUpti_ModuleResourceData."""

    _fields_ = (("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("code", ctypes.c_void_p))


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class Assignment:
    """Assigns kernels to modules. Kernels that were launched with the same address of a module are in one module. For a
    new address, it is the first module that defines the kernel and that has no address yet.
    """

    def __init__(self) -> None:
        self._loaded: list[Cubin] = []  # until one of its kernels was launched
        self._launches: list[tuple[str, int]] = []
        self._number_at: dict[int, int] = {}
        self._name_of: dict[str, str] = {}
        self._modules: list[tuple[Cubin, list[str]]] = []

    def loaded(self, cubin: Cubin) -> None:
        """Notes that a module was loaded."""
        self._loaded.append(cubin)

    def launched(self, symbol: bytes, address: int) -> None:
        """Notes that a kernel was launched. `symbol` is its mangled name, `address` that of its module."""
        self._launches.append((symbol.decode(), address))

    def settle(self) -> list[str]:
        """Assigns the kernels that were launched since the last call to their modules. Returns their names."""
        launches, self._launches = self._launches, []
        for symbol, address in launches:
            if symbol not in self._name_of:
                self._name_of[symbol] = demangled(symbol)
                number = self._number_at.get(address)
                if number is None:
                    number = self._new_module(symbol, address)
                if number is not None:
                    self._modules[number][1].append(symbol)
        return [self._name_of[symbol] for symbol, _ in launches]

    def _new_module(self, symbol: str, address: int) -> int | None:
        cubin = next((cubin for cubin in self._loaded if symbol in cubin.functions), None)
        if cubin is None:
            return None
        self._loaded.remove(cubin)
        self._modules.append((cubin, []))
        self._number_at[address] = len(self._modules) - 1
        return self._number_at[address]

    def modules(self) -> list[Module]:
        """Returns the modules, with the kernels of each."""
        return [
            Module(
                cubin.size_bytes,
                [self._name_of[symbol] for symbol in symbols],
                not cubin.asserting.isdisjoint(symbols),
            )
            for cubin, symbols in self._modules
        ]


class Tracker:
    """A context manager that tells an `Assignment` about the loaded modules and the launches of this process.

    Raises RuntimeError if there is no libcupti, or if it has another client.
    """

    def __init__(self, assignment: Assignment) -> None:
        library = find_library()
        if library is None:
            raise RuntimeError("libcupti was not found")
        self._cupti, self._cuda = ctypes.CDLL(str(library)), ctypes.CDLL("libcuda.so.1")
        self._subscriber = ctypes.c_void_p()
        self._callback = _CALLBACK(self._on)
        self._assignment = assignment

    def __enter__(self) -> None:
        error = self._cupti.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if error:
            raise RuntimeError(f"libcupti cannot be used: error {error}")
        self._enable(_RESOURCE, _MODULE_LOADED)
        for launch in _LAUNCHES:
            self._enable(_DRIVER_API, launch)

    def __exit__(self, *_: object) -> None:
        self._cupti.cuptiUnsubscribe(self._subscriber)

    def _enable(self, domain: int, callback: int) -> None:
        self._cupti.cuptiEnableCallback(1, self._subscriber, domain, callback)  # fails for calls that a driver lacks

    def _on(self, _: object, domain: int, callback: int, data: int) -> None:
        if domain == _RESOURCE:
            module = _Module.from_address(_Resource.from_address(data).descriptor)
            if module.code:
                self._assignment.loaded(read_cubin(ctypes.string_at(module.code, module.size)))
            return
        launch = _Callback.from_address(data)
        if launch.site == _ENTER and launch.symbol:
            kernel = ctypes.c_void_p.from_address(launch.parameters + _LAUNCHES[callback])
            self._assignment.launched(launch.symbol, self._address(kernel))

    def _address(self, kernel: ctypes.c_void_p) -> int:
        """Returns the address of the module or the library of a kernel, which is a CUfunction or a CUkernel.

        If the driver does not tell it, returns the kernel's own address: no other kernel shares that.
        """
        found = ctypes.c_void_p()
        if self._cuda.cuFuncGetModule(ctypes.byref(found), kernel):
            self._cuda.cuKernelGetLibrary(ctypes.byref(found), kernel)
        return found.value or kernel.value or 0


def _call_all(cases: Sequence[Case], numbers: Iterable[int]) -> KernelModules:
    """Calls some cases, in this process."""
    import torch

    from unstall.virtual.costs.measure import multiplying, resolve, split
    from unstall.virtual.costs.suite.case import TensorPool

    launched: dict[int, list[str]] = {}
    operators: dict[int, tuple[str, str]] = {}
    seen = Assignment()
    with Tracker(seen):
        pool = TensorPool("cuda")
        for number in numbers:
            pool.begin()
            try:
                args, kwargs = split(cases[number].build(pool))
                torch.cuda.synchronize()
                seen.settle()
                operator = resolve(cases[number].operator)
                with multiplying(cases[number].precision):
                    operator(*args, **kwargs)
            except (RuntimeError, ValueError, TypeError, NotImplementedError):
                continue
            torch.cuda.synchronize()
            launched[number] = seen.settle()
            dtype = next((str(each.dtype) for each in args if isinstance(each, torch.Tensor)), "")
            operators[number] = cases[number].operator.partition(".")[0], dtype
            pool.renew_after(operator)
        return KernelModules(seen.modules(), launched, operators)


def main() -> None:
    """Reads which cases to call from standard input, and prints what was seen as JSON."""
    from unstall.virtual.costs.suite import cases

    asked: dict[str, Any] = json.load(sys.stdin)
    found = _call_all(cases(asked["rank"]), asked["numbers"])
    print("\n" + msgspec.json.encode(found).decode(), end="")


if __name__ == "__main__":
    main()
