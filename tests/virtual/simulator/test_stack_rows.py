"""Which Python stack a record is given that was made on a thread without one."""

from __future__ import annotations

import numpy as np

from unstall.virtual.simulation.history import Happened
from unstall.virtual.timeline.stack_rows import stack_of_records


def test_what_autograd_does_after_a_node_written_in_python_is_still_done_for_the_call_of_backward() -> None:
    main, autograd = 0, 1
    backward, node, none = 0, 1, -1
    thread, stack = [main, autograd, autograd, autograd], [backward, none, node, none]
    columns = {name: np.zeros(len(thread), dtype) for name, dtype in Happened.dtypes().items()}
    happened = Happened(**columns | {"thread": np.array(thread, np.int32), "stack": np.array(stack, np.int32)})
    whole, calling = np.array([10, 20, -1], np.int32), np.array([11, 21, -1], np.int32)
    assert stack_of_records(happened, whole, calling).tolist() == [10, 11, 20, 11]
