#include "asserts.h"

#include "devices.h"
#include "log.h"
#include "operators.h"

#include <c10/util/Exception.h>
#include <c10/util/env.h>

#include <array>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace unstall {
namespace {

// Of ATen/native/cuda: IndexKernel, ScatterGatherKernel, Indexing, NLLLoss2d, Loss, MultinomialKernel, Distributions,
// EmbeddingBag, MaxUnpooling, TensorCompare.
const std::unordered_set<std::string> asserting = {
    "aten::index", "aten::_unsafe_index", "aten::_index_put_impl_", "aten::index_put_", "aten::index_put",
    "aten::gather", "aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_",
    "aten::scatter_reduce", "aten::scatter_reduce_", "aten::index_select", "aten::index_add", "aten::index_add_",
    "aten::index_copy", "aten::index_copy_", "aten::index_fill", "aten::index_fill_", "aten::index_reduce",
    "aten::index_reduce_", "aten::take", "aten::put_", "aten::nll_loss_forward", "aten::nll_loss_backward",
    "aten::nll_loss2d_forward", "aten::nll_loss2d_backward", "aten::multi_margin_loss",
    "aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_forward",
    "aten::multilabel_margin_loss_backward", "aten::binary_cross_entropy", "aten::multinomial", "aten::bernoulli",
    "aten::bernoulli_", "aten::poisson", "aten::masked_scatter_", "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only", "aten::max_unpool2d", "aten::max_unpool3d", "aten::_assert_async"};

// Texts of the CPU kernels' errors about values. Errors about shapes and dtypes differ, or the Meta kernels raise them
// too.
constexpr const char* OF_VALUES[] = {
    "out of bounds", "out of range", "out of DATA bounds", "not in the valid range", "but found idx to be",
    "should be between 0 and 1", "probability tensor contains", "invalid multinomial distribution", "p_in >= 0",
    "invalid Poisson rate", "number of ones in mask", "invalid max index"};

struct Failure {
  std::string op, check;
  int32_t stack = -1;
  int64_t number = -1; // of the fault
};

struct Failures {
  Lock lock;
  std::array<Failure, MOST_DEVICES> first;
  std::unordered_map<int64_t, int> events; // recorded after the failure, with their device
};

Failures& failures() {
  static auto* all = new Failures;
  return *all;
}

bool launches_block() {
  static const bool block = c10::utils::check_env("CUDA_LAUNCH_BLOCKING").value_or(false);
  return block;
}

} // namespace

std::atomic<uint64_t> failed_devices{0}, lost_devices{0};
std::atomic<bool> forks_refused{false}, in_refused_fork{false};
static_assert(MOST_DEVICES <= 64);

bool asserts_values(const c10::OperatorName& name) {
  return asserting.count(name.name) != 0;
}

std::string wrong_values(const c10::OperatorName& name, const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  std::string said = ours ? ours->what_without_backtrace() : error.what();
  said = said.substr(0, said.find('\n'));
  said = said.substr(0, said.find("  (Could this error message")); // of checks that have no words of their own
  if (name.name == "aten::_assert_async") return said;
  for (const char* words : OF_VALUES)
    if (said.find(words) != std::string::npos) return said;
  return "";
}

Captured captured_here() {
  static std::atomic<int64_t> nodes{0};
  return {++nodes, operator_here(), stack_here()};
}

void assertion_failed(int device, Fault fault, const std::optional<Captured>& captured) {
  Failure failure{
      captured ? captured->op : operator_here(), fault.check, captured ? captured->stack : stack_here(),
      keep_fault(std::move(fault))};
  write({.code = Code::ASSERT, .device = device, .stream = current_stream(device), .a = failure.number,
         .b = captured ? captured->node : 0, .id = name_number(failure.op)});
  {
    std::lock_guard guard(failures().lock);
    if (!failed(device)) failures().first[size_t(device)] = std::move(failure);
    failed_devices |= uint64_t(1) << device;
  }
  if (launches_block()) raise_failure(device);
}

void refuse_forks() {
  forks_refused = true;
}

void forked() {
  if (!forks_refused) return;
  in_refused_fork = true;
  failed_devices = lost_devices = ~uint64_t(0);
}

// In the words of c10/cuda/CUDAException.cpp and CUDAMiscFunctions.cpp, and then in ours.
void raise_failure(int device) {
  if (in_refused_fork)
    raise_cuda_error(
        3,
        "initialization error\n"
        "Search for `cudaErrorInitializationError' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
        "unstall: this process was forked after its parent had asked for CUDA; start it by spawn");
  Failure failure;
  {
    std::lock_guard guard(failures().lock);
    failure = failures().first[size_t(device)];
  }
  uint64_t mine = uint64_t(1) << device;
  if (!(lost_devices.fetch_or(mine) & mine)) write({.code = Code::NOTICE, .device = device, .a = failure.number});
  std::string text =
      "device-side assert triggered\n"
      "Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
      "information.";
  if (!launches_block())
    text +=
        "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
        "be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1";
  text += "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";
  std::string place = place_of(failure.stack);
  text += "unstall: the assert is of " + failure.op + (place.empty() ? "" : ", launched at " + place) + " (" +
      failure.check + ")";
  raise_cuda_error(710, text.c_str());
}

void recorded_after_failure(int64_t event, int device) {
  std::lock_guard guard(failures().lock);
  failures().events[event] = device;
}

void check_event(int64_t event) {
  if (!failed_devices.load(std::memory_order_relaxed)) return;
  int device = -1;
  {
    std::lock_guard guard(failures().lock);
    auto found = failures().events.find(event);
    if (found != failures().events.end()) device = found->second;
  }
  if (device >= 0) check_finished(device);
}

} // namespace unstall
