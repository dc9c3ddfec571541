"""Runs a program, unmodified, on virtual GPUs: python prelude.py DEVICES NUMERICS PROGRAM [ARGUMENT…]"""

import runpy
import sys
from pathlib import Path
from typing import cast

from unstall.virtual import torch_cuda
from unstall.virtual.options import MachineOptions, Numerics
from unstall.virtual.shim.load import load
from unstall.virtual.simulation.simulator import Simulator
from unstall.virtual.torch_cuda.properties import H200

TESTS = Path(__file__).parents[2]


def power_on(devices: int, numerics: Numerics = "real") -> None:
    """This process has so many H200s."""
    shim = load(devices)
    simulator = Simulator(shim, MachineOptions(devices=devices, numerics=numerics))
    shim.configure(devices, numerics, simulator)
    torch_cuda.attach(simulator, [torch_cuda.DeviceProperties.of(H200, index) for index in range(devices)])


if __name__ == "__main__":
    _, devices, numerics, program, *arguments = sys.argv
    power_on(int(devices), cast("Numerics", numerics))
    sys.argv = [program, *arguments]
    sys.path[:1] = [str(Path(program).parent), str(TESTS)]
    runpy.run_path(program, run_name="__main__")
