#include "devices.h"

#include "asserts.h"
#include "log.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace unstall {
namespace {

using Stream = std::pair<int, int64_t>; // the device, and c10's number
using Nodes = std::map<Stream, int64_t>; // how many nodes of each stream

struct Graph {
  int64_t number; // from 1 on
  int device;
  Stream origin; // where the capture began
  CaptureMode mode;
  int32_t thread; // which began the capture
  bool open = true, broken = false;
  std::map<Stream, Nodes> streams; // those that are captured: which nodes come before what is captured next
  std::unordered_map<int64_t, Nodes> events; // the same of what waits for an event
  std::vector<std::function<void()>> nodes;
  std::unordered_map<size_t, std::vector<c10::intrusive_ptr<c10::StorageImpl>>> spares; // by their bytes
};

struct Graphs {
  Lock lock;
  std::unordered_map<int64_t, std::shared_ptr<Graph>> graphs;
};

Graphs& all() {
  static auto* graphs = new Graphs;
  return *graphs;
}

std::atomic<int> open_count{0}; // read at every operator, without the lock

// The graph that captures this stream; the lock is held.
Graph* open_at(int device, int64_t stream) {
  for (auto& [number, graph] : all().graphs)
    if (graph->open && graph->streams.count({device, stream})) return graph.get();
  return nullptr;
}

std::shared_ptr<Graph> graph_of(int64_t number) {
  std::lock_guard guard(all().lock);
  auto found = all().graphs.find(number);
  return found == all().graphs.end() ? nullptr : found->second;
}

// Spoils the captures that forbid a waiting call, and returns whether there was one. `is_waited_for`: whether the call
// waits for work of that graph.
template <class F>
bool refused(F&& is_waited_for) {
  if (!open_count.load(std::memory_order_relaxed)) return false;
  int32_t thread = this_thread().number;
  bool any = false;
  std::lock_guard guard(all().lock);
  for (auto& [number, graph] : all().graphs) {
    if (!graph->open) continue;
    bool forbids = graph->mode == CaptureMode::GLOBAL ||
        (graph->mode == CaptureMode::THREAD_LOCAL && graph->thread == thread);
    if (forbids || is_waited_for(*graph)) graph->broken = any = true;
  }
  return any;
}

} // namespace

bool capturing(int device, int64_t stream) {
  if (!open_count.load(std::memory_order_relaxed)) return false;
  std::lock_guard guard(all().lock);
  return open_at(device, stream) != nullptr;
}

bool capturing_here(int device) {
  return open_count.load(std::memory_order_relaxed) && capturing(device, current_stream(device));
}

void keep_spare(int64_t graph, c10::intrusive_ptr<c10::StorageImpl> cpu) {
  std::lock_guard guard(all().lock);
  auto found = all().graphs.find(graph);
  if (found == all().graphs.end() || !found->second->open) return;
  size_t bytes = cpu->nbytes();
  found->second->spares[bytes].push_back(std::move(cpu));
}

Spare spare_here(int device, size_t bytes) {
  if (!open_count.load(std::memory_order_relaxed)) return {};
  std::lock_guard guard(all().lock);
  Graph* graph = open_at(device, current_stream(device));
  if (!graph) return {};
  auto& spares = graph->spares[bytes];
  if (spares.empty()) return {graph->number, nullptr};
  Spare spare{graph->number, std::move(spares.back())};
  spares.pop_back();
  return spare;
}

void keep(int device, std::function<void()> node) {
  std::lock_guard guard(all().lock);
  const Stream stream{device, current_stream(device)};
  Graph* graph = open_at(device, stream.second);
  if (!graph) return;
  graph->nodes.push_back(std::move(node));
  graph->streams[stream][stream]++;
}

void recorded_in_capture(int64_t event, int device, int64_t stream) {
  if (!open_count.load(std::memory_order_relaxed)) return;
  std::lock_guard guard(all().lock);
  if (Graph* graph = open_at(device, stream)) graph->events[event] = graph->streams[{device, stream}];
}

void waited_in_capture(int64_t event, int device, int64_t stream) {
  if (!open_count.load(std::memory_order_relaxed)) return;
  std::lock_guard guard(all().lock);
  for (auto& [number, graph] : all().graphs)
    if (graph->open && graph->events.count(event)) {
      Nodes& before = graph->streams[{device, stream}];
      for (const auto& [of, count] : graph->events[event]) before[of] = std::max(before[of], count);
    }
}

bool refused_in_capture(int device, int64_t stream) {
  return refused([&](const Graph& graph) {
    if (stream == NO_STREAM) return false;
    for (const auto& [captured, before] : graph.streams)
      if (captured.first == device && (stream == ALL_STREAMS || stream == captured.second)) return true;
    return false;
  });
}

bool refused_in_capture(int64_t event) {
  return refused([&](const Graph& graph) { return graph.events.count(event) != 0; });
}

void refuse_in_capture(int device, int64_t stream) {
  if (refused_in_capture(device, stream)) raise_cuda_error(900, "operation not permitted when stream is capturing");
}

void capture_begin(int64_t number, int device, int64_t stream, int64_t pool, CaptureMode mode) {
  auto graph = std::make_shared<Graph>();
  graph->number = number;
  graph->device = device;
  graph->mode = mode;
  graph->thread = this_thread().number;
  graph->origin = {device, stream};
  graph->streams[graph->origin];
  {
    std::lock_guard guard(all().lock);
    all().graphs[number] = graph;
    open_count++;
  }
  write({.code = Code::CAPTURE_BEGIN, .device = device, .stream = stream, .a = number, .b = pool});
}

void capture_end(int64_t number) {
  auto graph = graph_of(number);
  TORCH_CHECK(graph && graph->open, "CUDAGraph::capture_end() called without a capture that is running");
  {
    std::lock_guard guard(all().lock);
    graph->open = false;
    graph->spares.clear();
    open_count--;
  }
  write({.code = Code::CAPTURE_END, .device = graph->device, .stream = current_stream(graph->device), .a = number});
  if (graph->broken) raise_cuda_error(901, "operation failed due to a previous error during capture");
  const Nodes& joined = graph->streams[graph->origin];
  for (const auto& [stream, before] : graph->streams) {
    auto own = before.find(stream), known = joined.find(stream);
    if (own != before.end() && (known == joined.end() || known->second < own->second))
      raise_cuda_error(904, "capturing stream has unjoined work");
  }
}

void replay(int64_t number, int device, int64_t stream) {
  auto graph = graph_of(number);
  TORCH_CHECK(graph && !graph->open, "Called CUDAGraph::replay without a preceding successful capture.");
  check_usable(device);
  write({.code = Code::GRAPH_LAUNCH, .device = device, .stream = stream, .a = number});
  for (auto& node : graph->nodes)
    if (!failed(device)) node();
}

void free_graph(int64_t number) {
  std::shared_ptr<Graph> gone; // its memory is freed, and so logged, without the lock
  {
    std::lock_guard guard(all().lock);
    auto found = all().graphs.find(number);
    if (found == all().graphs.end()) return;
    gone = found->second;
    if (gone->open) open_count--;
    all().graphs.erase(found);
  }
  write({.code = Code::GRAPH_FREE, .device = gone->device, .a = number});
}

} // namespace unstall
