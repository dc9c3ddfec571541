"""What the programs here tell of guards."""

import json

import unstall


def show(**facts):
    print(json.dumps(facts))


def counted(run):
    """The waits of a call, as [kind, line]."""
    with unstall.no_sync("count") as guard:
        run()
    return [[wait.kind, wait.line] for wait in guard.waits]


def refused(run):
    """The kind of the wait that a guard refuses, or None."""
    try:
        with unstall.no_sync():
            run()
    except unstall.SyncError as error:
        return error.wait.kind
    return None
