"""Ends as its argument says, once it has used the GPU."""

import os
import signal
import sys
import time

import torch

torch.ones(4, device="cuda").add_(1)
match sys.argv[1]:
    case "exit":
        sys.exit(7)
    case "raise":
        raise ValueError("as asked")
    case "os._exit":
        os._exit(9)
    case "os._exit, Ctrl-C":
        once = iter([signal.SIGINT])
        sys.addaudithook(lambda event, _: event == "open" and list(map(signal.raise_signal, once)))
        os._exit(9)
    case signal_name:
        os.kill(os.getpid(), signal.Signals[signal_name])
        time.sleep(10)
