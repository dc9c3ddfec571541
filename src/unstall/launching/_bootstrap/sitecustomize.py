"""Lets `_unstall_arms.py` arm this process before the program's first line. After that, Python continues as usual.

When Python starts, Python imports this module by the name `sitecustomize`, because the module's folder is first on
PYTHONPATH (`children.py`). The module then removes itself from `sys.modules`, and its folder from `sys.path`. If there
is another module `sitecustomize` on `sys.path`, that module runs next.

A child process may use any version of Python, so this file must run in every version. UNSTALL_ARM_CHILDREN applies only
to processes whose Python version is UNSTALL_CHILDREN_PYTHON. In a process of another version, the variable has no
effect.
"""

import os
import sys

_folder = os.path.dirname(__file__)  # noqa: PTH120 - compared as text, and pathlib need not be imported yet
if (
    "UNSTALL_ARM" in os.environ
    or "UNSTALL_ARM_ALL" in os.environ
    or os.environ.get("UNSTALL_CHILDREN_PYTHON") == ".".join(map(str, sys.version_info[:2]))
):
    import _unstall_arms  # type: ignore[import-not-found]

    del sys.modules["_unstall_arms"]
    _unstall_arms.arm_this_process()
if _folder in sys.path:
    sys.path.remove(_folder)
sys.path_importer_cache.pop(_folder, None)

# If there is no other sitecustomize, this raises the error that tells Python so.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
