"""What happens in the program's own process before its first line."""

from __future__ import annotations

import os

from unstall.record.journal import Journal
from unstall.record.settings import Settings


def arm(settings: Settings) -> None:
    """Make ready to record this process as `settings` say."""
    Journal(settings.folder).write("armed", pid=os.getpid())
