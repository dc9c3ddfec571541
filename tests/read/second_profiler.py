"""A Kineto trace, rewritten as the second profiler of torch 2.15 (`torch.profiler.CuspyConfig`) would have written it.

After the exporter in torch 2.15's wheel, `torch/profiler/_cuspy/trace.py`:

- Operators, annotations and frames are Kineto's own. All that CUPTI recorded is written anew: times are floats, and
  only `correlation` joins calls and device ops. There is no "External id" on either.
- A copy is called "Memcpy", a memset "Memset". Kinds of copies and of memory are fields.
- Calls of the thread that began the recording are on that thread. Those of others are on the number that CUPTI has for
  their thread: the low half of its pthread, without its sign. Calls within a `record_function` have its number, counted
  from 1, and are put on the thread of the operator that Kineto gave that number, if there is one.
- Ops of CUDA graphs have the graph and the node. A resolver may have moved them to lanes, numbered from 100,000; then
  "stream" is the lane, and "original_stream" the stream.
- With dependencies recorded, arrows lead from node to node, and not from the launch to them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]

# Never exported, of the runtime's calls; and the only ones exported, of the driver's.
UNREGISTERED = {
    *("cudaGetDevice", "cudaSetDevice", "cudaGetLastError"),
    *("cudaEventCreate", "cudaEventCreateWithFlags", "cudaEventDestroy"),
}
DRIVER = {
    *("cuLaunchKernel", "cuLaunchKernelEx", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease"),
    *("cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"),
}
HAS_ARROW = re.compile(
    r"cudaLaunch(Cooperative)?Kernel(ExC|MultiDevice)?$|cudaGraphLaunch$|cudaMemcpy|cudaMemset|cuLaunchKernel(Ex)?$"
    r"|cuda(Stream|Device)Synchronize$|cudaStreamWaitEvent$"
)
OF_CPP = re.compile("nccl:|## ")  # annotations that are no `torch.profiler.record_function`
MEMORY_KINDS = ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"]
COPY = re.compile(r"Memcpy (\w+) \(([\w ]+) -> ([\w ]+)\)")
MEMSET = re.compile(r"Memset \(([\w ]+)\)")
FIRST_LANE, FIRST_EDGE = 100_000, 1 << 40
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
CUPTI = DEVICE | {"cuda_runtime", "cuda_driver", "cuda_sync", "overhead", "gpu_user_annotation"}
OWN = {"PyTorch Profiler (0)", "Iteration Start: PyTorch Profiler", "Record Window End"}


def rewritten(trace: Event, *, lanes: bool = False, dependencies: bool = False) -> Event:
    """The document anew. `lanes`: a resolver spreads the nodes of graphs over three lanes."""
    events = trace["traceEvents"]
    graphed = {
        e["args"]["correlation"] for e in events if "GraphLaunch" in e.get("name", "") and "correlation" in e["args"]
    }
    nodes = nodes_of(events, graphed)
    begun_on, lent = first_thread(events), threads_by_annotation(events)
    kept = [e for e in events if not is_cuptis(e) and e.get("name") not in OWN]
    made = [
        new
        for e in events
        if e["ph"] == "X"
        and e["cat"] in CUPTI
        and (new := anew(e, nodes.get(id(e), -1), lent.get(id(e)), begun_on, lanes=lanes))
    ]
    bare = [e for e in made if e["cat"] not in DEVICE or "graph id" not in e["args"]]
    arrows = [arrow for e in (bare if dependencies else made) for arrow in arrow_of(e)]
    edges = list(dependencies_of(made)) if dependencies else []
    window = [e for e in kept + made if e["ph"] == "X" and e.get("cat") != "Trace"]
    begin = min((e["ts"] for e in window), default=0.0)
    end = max((e["ts"] + e["dur"] for e in window), default=0.0)
    around = [
        {"ph": "C", "name": "Power (W)", "pid": "GPU 0 Counters", "ts": begin, "args": {"": 231.5}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
        | {"ts": begin, "dur": end - begin, "args": {"Op count": 0}},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": end + 0.001},
    ]
    labels = {str(label): label for e in made for label in labels_of(e)}
    return trace | {
        "traceEvents": [*labels.values(), *kept, *made, *arrows, *edges, *around],
        "traceName": "second.json.gz",
    }


def is_cuptis(event: Event) -> bool:
    """What the merge takes from CUPTI, not from Kineto: its events, their arrows, the labels of GPUs."""
    if event["ph"] in "sf":
        return bool(event.get("cat") == "ac2g")
    if event["ph"] == "M":
        return "GPU" in str(event.get("args", {}).get("labels", "")) or str(event["args"].get("name")).startswith(
            "stream"
        )
    return event.get("cat") in CUPTI


def first_thread(events: list[Event]) -> Any:
    """The thread that began the recording: that of the profiler's steps, else of the first operator."""
    host = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation")]
    steps = [e for e in host if e["name"].startswith("ProfilerStep")]
    return min(steps or host, key=lambda e: e["ts"])["tid"] if host else None


def threads_by_annotation(events: list[Event]) -> dict[int, Any]:
    """id of each call within an annotation → the thread of the operator that has the annotation's number."""
    thread_of = {
        e["args"]["External id"]: e["tid"]
        for e in events
        if e.get("cat") in ("cpu_op", "user_annotation") and "External id" in e["args"]
    }
    found: dict[int, Any] = {}
    annotations = [e for e in events if e.get("cat") == "user_annotation" and not OF_CPP.match(e["name"])]
    annotations.sort(key=lambda e: e["ts"])
    for number, a in enumerate(annotations, 1):  # the innermost begins last
        for e in events:
            is_call = e.get("cat") in ("cuda_runtime", "cuda_driver") and e["tid"] == a["tid"]
            if is_call and a["ts"] <= e["ts"] <= a["ts"] + a["dur"]:
                found[id(e)] = thread_of.get(number)
    return found


def nodes_of(events: list[Event], graphed: set[int]) -> dict[int, int]:
    """id of each op of a graph → its number within its launch, by start."""
    launches: dict[int, list[Event]] = defaultdict(list)
    for e in events:
        if e.get("cat") in DEVICE and e["args"]["correlation"] in graphed:
            launches[e["args"]["correlation"]].append(e)
    return {id(e): i for ops in launches.values() for i, e in enumerate(sorted(ops, key=lambda e: e["ts"]))}


def anew(event: Event, node: int, lent: Any, begun_on: Any, *, lanes: bool) -> Event | None:
    """As the merge writes it. `node` is -1 unless a graph launched it; `lent` is a call's thread by its annotation."""
    category, args = event["cat"], event.get("args", {})
    new = {"ph": "X", "cat": category, "name": event["name"], "pid": event["pid"], "tid": event["tid"]}
    new |= {"ts": float(event["ts"]), "dur": float(event["dur"])}
    if category == "overhead":
        return new | {"pid": -1, "tid": 0, "args": {}}
    if category == "gpu_user_annotation":
        return new | {"args": {"External id": args["External id"]}}
    if category in ("cuda_runtime", "cuda_driver"):
        if event["name"] in UNREGISTERED or (category == "cuda_driver" and event["name"] not in DRIVER):
            return None
        tid = lent or (event["tid"] if event["tid"] == begun_on else opaque(event["tid"]))
        return new | {"tid": tid, "args": {"cbid": args.get("cbid", 0), "correlation": args["correlation"]}}
    stream = args.get("stream", event["tid"])
    stream = stream if stream != 2**32 - 1 else -1
    new["tid"] = abs(stream)
    if category == "cuda_sync":
        return new | {"args": sync_args(event["name"], args, stream)}
    figures: Event = {
        "device": args.get("device", event["pid"]),
        "context": 1,
        "stream": stream,
        "correlation": args["correlation"],
    }
    if category == "kernel":
        figures |= {"grid": args.get("grid", [1, 1, 1]), "block": args.get("block", [1, 1, 1])}
        figures |= {"registers per thread": 32, "shared memory": 0, "priority": 0, "queued": 0}
    elif category == "gpu_memcpy":
        direction, source, target = COPY.fullmatch(event["name"]).groups()  # type: ignore[union-attr]
        new["name"] = "Memcpy"
        figures |= {"bytes": args["bytes"], "copy kind": direction}
        figures |= {"src kind": snake(source), "dst kind": snake(target), "flags": 0}
    else:
        (memory,) = MEMSET.fullmatch(event["name"]).groups()  # type: ignore[union-attr]
        new["name"] = "Memset"
        figures |= {"bytes": args["bytes"], "value": 0, "memory kind": MEMORY_KINDS.index(memory), "flags": 0}
    figures |= {"channel": 9, "channel_type": 1}
    if node >= 0:
        figures |= {"graph id": 3, "graph node id": node + 1, "name": "decoder", "phase": "forward"}
        if lanes:
            lane = FIRST_LANE + node % 3
            new["tid"] = lane
            figures |= {"stream": lane, "original_stream": stream}
    return new | {"args": figures}


def sync_args(name: str, args: Event, stream: int) -> Event:
    made = {"cuda_sync_kind": name, "stream": stream, "correlation": args["correlation"]}
    made |= {"device": args["device"], "context": 1}
    if name in ("Event Sync", "Stream Wait Event"):
        made |= {"wait_on_stream": -1, "wait_on_cuda_event_id": args.get("wait_on_cuda_event_id", -1)}
        made |= {"wait_on_cuda_event_record_corr_id": args.get("wait_on_cuda_event_record_corr_id", -1)}
    return made


def snake(kind: str) -> str:
    return kind.lower().replace(" ", "_")


def opaque(thread: int) -> int:
    """Some number for a thread, as the low half of a pthread is: below 2**31, no thread's own."""
    return 0x6A000000 | (thread * 0x9E3779B1 & 0xFFFFC0)


def arrow_of(event: Event) -> Iterator[Event]:
    """From a call, or to a device op."""
    is_end = event["cat"] in DEVICE
    if is_end or HAS_ARROW.match(event["name"]):
        arrow = {"ph": "f" if is_end else "s", "id": event["args"]["correlation"], "cat": "ac2g", "name": "ac2g"}
        yield arrow | {key: event[key] for key in ("pid", "tid", "ts")} | ({"bp": "e"} if is_end else {})


def dependencies_of(made: list[Event]) -> Iterator[Event]:
    """From each node of a launch to the next."""
    ends: dict[int, Event] = {}
    number = FIRST_EDGE
    for e in sorted((e for e in made if "graph node id" in e["args"]), key=lambda e: e["ts"]):
        if before := ends.get(e["args"]["correlation"]):
            edge = {"id": number, "cat": "ac2g", "name": "ac2g"}
            yield edge | {"ph": "s", "pid": before["pid"], "tid": before["tid"], "ts": before["ts"] + before["dur"]}
            yield edge | {"ph": "f", "bp": "e", "pid": e["pid"], "tid": e["tid"], "ts": e["ts"]}
            number += 1
        ends[e["args"]["correlation"]] = e


def labels_of(event: Event) -> list[Event]:
    """Of its process and its lane."""
    label = {"ph": "M", "ts": 0.0, "pid": event["pid"], "tid": event["tid"]}
    if event["cat"] in DEVICE:
        return [
            label | {"name": "process_labels", "tid": 0, "args": {"labels": f"GPU {event['pid']}"}},
            label | {"name": "thread_name", "args": {"name": f"stream {event['tid']} "}},
        ]
    return [label | {"name": "thread_name", "args": {"name": f"thread {event['tid']}"}}]
