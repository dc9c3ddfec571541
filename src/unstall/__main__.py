"""`python -m unstall`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder: modules there could shadow our imports

from unstall.cli import main

raise SystemExit(main())
