"""`python -m unstall`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder we are started in: a module there of a name that we import would be taken for it

from unstall.cli import main

raise SystemExit(main())
