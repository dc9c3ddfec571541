// What Python calls: see the contract in load.py.
#include "asserts.h"
#include "device_values.h"
#include "devices.h"
#include "division.h"
#include "faults.h"
#include "kernels.h"
#include "nccl.h"
#include "operators.h"
#include "peers.h"
#include "simulator.h"
#include "tensor_types.h"
#include "tensors.h"
#include "termination.h"
#include "waits.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace unstall {
namespace {

void configure(int devices, const std::string& numerics, py::object simulator, int major, bool has_tf32) {
  if (devices < 1 || devices > MOST_DEVICES)
    throw py::value_error("devices must be from 1 to " + std::to_string(MOST_DEVICES));
  if (numerics != "real" && numerics != "skip" && numerics != "device")
    throw py::value_error("numerics is 'real', 'skip' or 'device'");
  settings().devices = devices;
  settings().skip = numerics == "skip";
  settings().as_device = numerics == "device";
  settings().major = major;
  settings().has_tf32 = has_tf32;
  if (settings().as_device) register_device_values();
  set_simulator(simulator.ptr());
  read_stacks(true);
  watch_operators();
  set_logging(true);
}

template <class T>
py::bytes bytes_of(const std::vector<T>& rows) {
  return py::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(T));
}

py::tuple taken() {
  auto [records, uses, gone_events] = take();
  return py::make_tuple(bytes_of(records), bytes_of(uses), bytes_of(gone_events));
}

void append(
    int code, int device, int64_t stream, int64_t a, int64_t b, const py::object& id_or_name, int flags) {
  int32_t id = py::isinstance<py::str>(id_or_name) ? name_number(id_or_name.cast<std::string>())
      : id_or_name.is_none()                       ? -1
                                                   : id_or_name.cast<int32_t>();
  if (Code(code) == Code::SLEEP || Code(code) == Code::EMPTY_CACHE) check_usable(device);
  auto record = [&] {
    write({.code = Code(code), .device = device, .stream = stream, .a = a, .b = b, .id = id, .flags = uint8_t(flags)});
  };
  if (Code(code) == Code::EMPTY_CACHE) waiting(Emptying{device}, record);
  else record();
}

void begin_capture(int64_t graph, int device, int64_t stream, int64_t pool, const std::string& mode) {
  auto how = mode == "thread_local" ? CaptureMode::THREAD_LOCAL
      : mode == "relaxed"           ? CaptureMode::RELAXED
                                    : CaptureMode::GLOBAL;
  capture_begin(graph, device, stream, pool, how);
}

const at::Tensor& tensor_of(const py::object& object) {
  if (!THPVariable_Check(object.ptr())) throw py::type_error("expected a tensor");
  return THPVariable_Unpack(object.ptr());
}

int64_t allocation_of(const py::object& object) {
  const auto& tensor = tensor_of(object);
  if (!tensor.has_storage()) return 0;
  Block* block = block_of(*tensor.storage().unsafeGetStorageImpl());
  return block ? block->allocation : 0;
}

c10::StorageImpl& storage_of(const py::object& object) {
  if (!THPStorage_Check(object.ptr())) throw py::type_error("expected a storage");
  return *THPStorage_Unpack(object.ptr()).unsafeGetStorageImpl();
}

void resize_storage(const py::object& object, int64_t bytes) {
  resize_bytes(storage_of(object), bytes);
}

} // namespace
} // namespace unstall

PYBIND11_MODULE(_shim, m) {
  using namespace unstall;
  using py::arg;
  this_thread(); // number 0
  register_kernels();

  m.def("configure", configure, arg("devices"), arg("numerics"), arg("simulator") = py::none(),
        arg("major") = 9, arg("has_tf32") = true);
  m.def("take", taken);
  m.def("signatures", [](size_t first) { return py::reinterpret_steal<py::object>(signatures_from(first)); });
  m.def("names", names_from);
  m.def("faults", [](size_t first) { return py::reinterpret_steal<py::object>(faults_from(first)); });
  m.def("stacks", [](uint32_t first) { return py::reinterpret_steal<py::object>(stacks_from(first)); });
  m.def("unknown_reads", unknown_reads);
  m.def("assumed_finds", assumed_finds);
  m.def("divisions_by_zero", divisions_by_zero);
  m.def("now_ns", now_ns);
  m.def("moment", [] {
    Moment here = moment_here();
    return py::make_tuple(here.stack, here.host_ns, here.computing_ns);
  });
  m.def("set_logging", set_logging, arg("on"));
  m.def("set_headroom", set_headroom, arg("device"), arg("bytes"));
  m.def("raise_later", [](const py::object& exception) { raise_later(exception.ptr()); }, arg("exception"));
  m.def("hold_signals", hold_signals);
  m.def("release_signals", release_signals);
  m.def("keep_at_termination", [](const py::object& keep) { keep_at_termination(keep.ptr()); }, arg("keep"));
  m.def("append", append, arg("code"), arg("device") = -1, arg("stream") = 0, arg("a") = 0, arg("b") = 0,
        arg("id_or_name") = py::none(), arg("flags") = 0);

  m.def("give", give);
  m.def("give_at_end", give_at_end);
  m.def("take_over", take_over, arg("given"));
  m.def("begin_after", begin_after, arg("given"));
  m.def("let_autograd_end", let_autograd_end, py::call_guard<py::gil_scoped_release>());
  m.def("set_telling_ns", [](int64_t ns) { telling_ns = ns; }, arg("ns"));
  m.def("set_threads", set_threads, arg("count"));
  m.def("this_thread", [] { return this_thread().number; });
  m.def("device_count", [] { return settings().devices; });
  m.def("current_device", current_device);
  m.def("set_device", [](int device) { set_current_device(device_number(device)); });
  m.def("current_stream", [](int device) { return current_stream(device_number(device)); });
  m.def("set_stream", [](int device, int64_t stream) { set_current_stream(device_number(device), stream); });
  m.def("new_stream", [](int device, int priority) { return new_stream(device_number(device), priority); },
        arg("device"), arg("priority") = 0);

  m.def("new_event", new_event);
  m.def("record_event", [](int64_t event, int device, int64_t stream) { record_event(event, device, stream); },
        arg("id"), arg("device"), arg("stream"));
  m.def("wait_event", wait_event, arg("id"), arg("device"), arg("stream"));
  m.def("sync_event", sync_event, arg("id"));
  m.def("sync_stream", [](int device, int64_t stream) { sync_stream(device, stream); }, arg("device"), arg("stream"));
  m.def("sync_device", [](int device) { sync_device(device_number(device)); });

  m.def("set_wait_watcher", [](const py::object& watcher) { set_wait_watcher(watcher.ptr()); }, arg("watcher"));
  m.def("set_guarding", set_guarding, arg("on"));
  m.def("set_cached", set_cached, arg("device"), arg("stream"), arg("small"), arg("large"));
  m.def("set_sync_debug_mode", set_sync_debug_mode, arg("mode"));
  m.def("sync_debug_mode", sync_debug_mode);

  m.def("capture_begin", begin_capture, arg("graph"), arg("device"), arg("stream"), arg("pool"),
        arg("mode") = "global");
  m.def("refused_in_capture", py::overload_cast<int, int64_t>(refused_in_capture), arg("device"), arg("stream"));
  m.def("refuse_forks", refuse_forks);
  m.def("capture_end", capture_end, arg("graph"));
  m.def("replay", replay, arg("graph"), arg("device"), arg("stream"), py::call_guard<py::gil_scoped_release>());
  m.def("free_graph", free_graph, arg("graph"));
  m.def("is_capturing", [](int device, int64_t stream) { return capturing(device, stream); });

  m.def("default_generator", [](int device) { // one object a device: the caller keeps it
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(device)));
  });
  m.def("share_storage", [](const py::object& storage) {
    auto& bytes = storage_of(storage); // kept by the caller
    py::gil_scoped_release released;
    return share_bytes(bytes);
  }, arg("storage"));
  m.def("shared_storage", [](int pid, int descriptor, int64_t bytes, int device) {
    return py::reinterpret_steal<py::object>(
        THPStorage_Wrap(c10::Storage(storage_over_shared(pid, descriptor, bytes, device_number(device)))));
  }, arg("pid"), arg("descriptor"), arg("bytes"), arg("device"));
  m.def("release_shared", release_shared, arg("pid"), arg("descriptor"));
  m.def("define_nccl", define_nccl, arg("c10d"));
  m.def("finish_messages", finish_messages, py::call_guard<py::gil_scoped_release>());
  m.def("make_tensor_type", make_tensor_type, arg("type"));
  m.def("set_default_tensor_type", set_default_tensor_type, arg("type"));
  m.def("allocation_of", allocation_of, arg("tensor"));
  m.def("host_reads", [](const py::object& tensor, const std::string& name) {
    log_host_read(tensor_of(tensor), name.c_str());
  }, arg("tensor"), arg("name"));
  m.def("resize_storage", resize_storage, arg("storage"), arg("bytes"));
  m.def("is_pinned", [](uintptr_t pointer) { return is_pinned(reinterpret_cast<const void*>(pointer)); });
}
