"""Runs a program, unmodified, on virtual GPUs: python prelude.py DEVICES PROGRAM [ARGUMENT…]"""

import runpy
import sys
from pathlib import Path

from unstall.virtual import torch_cuda
from unstall.virtual.options import MachineOptions
from unstall.virtual.shim.load import load
from unstall.virtual.simulation.simulator import Simulator
from unstall.virtual.torch_cuda.properties import H200

TESTS = Path(__file__).parents[2]


def power_on(devices: int) -> None:
    """This process has so many H200s."""
    shim = load(devices)
    simulator = Simulator(shim, MachineOptions(devices=devices))
    shim.configure(devices, "real", simulator)
    torch_cuda.attach(simulator, [torch_cuda.DeviceProperties.of(H200, index) for index in range(devices)])


if __name__ == "__main__":
    _, devices, program, *arguments = sys.argv
    power_on(int(devices))
    sys.argv = [program, *arguments]
    sys.path[:1] = [str(Path(program).parent), str(TESTS)]
    runpy.run_path(program, run_name="__main__")
