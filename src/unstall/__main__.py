"""`python -m unstall`."""

from unstall.cli import main

raise SystemExit(main())
