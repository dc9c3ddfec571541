#include "call.h"

#include "asserts.h"
#include "device_values.h"
#include "division.h"
#include "faults.h"
#include "kernels.h"
#include "operators.h"
#include "waits.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>

#include <algorithm>

namespace unstall {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// How many threads of the CPU compute while this lives: as many on whichever thread of the program, since the order in
// which sums are added up, and so their rounding, depends on it. torch has a number for each thread: a DataLoader that
// pins has 1 set, which the thread that autograd makes later takes over, but not the main thread.
class SameThreads {
 public:
  SameThreads() : before_(at::get_num_threads()) {
    static const int all = before_; // of the first computation
    changed_ = before_ != all;
    if (changed_) at::set_num_threads(all);
  }
  ~SameThreads() {
    if (changed_) at::set_num_threads(before_);
  }
  SameThreads(const SameThreads&) = delete;
  SameThreads& operator=(const SameThreads&) = delete;

 private:
  int before_;
  bool changed_;
};

// The arguments of one call as they were, and as the CPU's kernel gets them.
class OperatorCall {
 public:
  OperatorCall(const About& about, const OperatorHandle& op, Stack* stack)
      : about_(about), op_(op), stack_(stack), first_(stack->size() - about.written.size()) {}

  void run() {
    const c10::ArrayRef<IValue> given(stack_->data() + first_, about_.written.size());
    device_ = device_of(about_, op_, given);
    check_usable(device_);
    if (about_.refusals.any) about_.refusals.check(given);
    bool reads = about_.reads && (about_.output_size < 0 || argument(size_t(about_.output_size)).isNone());
    if (!reads) {
      run_launching();
      return;
    }
    refuse_in_capture(device_, current_stream(device_));
    check_finished(device_);
    Waiting wait(AWait{WaitKind::VALUE, about_.reads, false, true});
    log_read(device_, about_.reads, nullptr, run_launching());
    wait.over();
  }

 private:
  // Returns whether the simulation of the launch includes the operator's read of a value.
  bool run_launching() {
    bool captured = !about_.view && capturing_here(device_);
    const bool apart = !captured && has_gradients_apart();
    if (apart) first_gradient_.emplace(launch_of(*about_.first_gradient, captured, gradients(true)));
    Launch launch = apart ? launch_of(*about_.other_gradients, captured, gradients(false))
                          : launch_of(about_.number, captured, std::nullopt);
    if (captured) capture(launch);
    else if (about_.view) run_values();
    else if (failed(device_)) run_without_values();
    else if (!settings().skip) about_.asserts ? run_asserting() : run_values();
    else if (all_known(all_read()) && is_small()) run_small();
    else if (!compares_or_counts() || !run_of_zeros()) run_shapes();
    size_t results = op_.schema().returns().size(), elements = 0;
    for (size_t i = stack_->size() - results + (apart ? 1 : 0); i < stack_->size(); i++)
      elements += output((*stack_)[i], launch);
    if (results == 0)
      for (auto& pair : pairs_) elements += size_t(pair.first.numel());
    return !about_.view && elements && launch.log();
  }

  // `last`: what stands for the last argument.
  Launch launch_of(OpName name, bool captured, std::optional<IValue> last) {
    Launch launch(name, device_);
    const size_t count = about_.written.size() - (last ? 1 : 0);
    for (size_t i = 0; i < count; i++) launch.input(argument(i), about_.written[i]);
    if (last) launch.input(*last);
    if (about_.tf32) launch.multiplies(rounds_to_tf32(*about_.tf32));
    if (about_.search && !captured && at::globalContext().benchmarkCuDNN()) launch.searches(*about_.search);
    return launch;
  }

  // Whether cuDNN computes the gradients of a convolution's input and of its weight, one after the other: the workspace
  // of the first is freed before the second gradient is allocated. If the gradient of the output has to be copied, each
  // copies it, except if the convolution is transposed.
  bool has_gradients_apart() {
    if (!about_.first_gradient) return false;
    auto wanted = mask();
    const Tensor &gradient = argument(0).toTensor(), &input = argument(1).toTensor(), &weight = argument(2).toTensor();
    const bool transposed = argument(7).toBool();
    if (!wanted[0] || !wanted[1] || input.numel() == 0 || weight.dim() != input.dim() || input.dim() < 3) return false;
    if (!at::globalContext().userEnabledCuDNN() || input.scalar_type() == at::kDouble) return false;
    const bool each_channel_alone = !transposed && weight.size(1) == 1 && input.size(1) > 1;
    auto all = [&](at::MemoryFormat format) {
      bool kept = !transposed || gradient.is_contiguous(format);
      return kept && input.is_contiguous(format) && weight.is_contiguous(format);
    };
    auto last = weight.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
    return !each_channel_alone && (all(at::MemoryFormat::Contiguous) || (weight.dim() > 3 && all(last)));
  }

  c10::List<bool> mask() { return argument(about_.written.size() - 1).toBoolList(); }

  // The mask of the first gradient alone, or of the others.
  IValue gradients(bool first) {
    auto wanted = mask();
    return c10::List<bool>({first, !first && wanted[1], !first && wanted[2]});
  }

  IValue& argument(size_t i) { return (*stack_)[first_ + i]; }

  Stack arguments() const { return Stack(stack_->begin() + int64_t(first_), stack_->end()); }

  // The arguments are as `before` again, after a kernel raised.
  void take_back(const Stack& before) {
    pairs_.clear();
    stack_->resize(first_);
    stack_->insert(stack_->end(), before.begin(), before.end());
  }

  using Convert = Tensor (*)(const Tensor&);

  Tensor converted(const Tensor& tensor, Convert convert) {
    Tensor made = convert(tensor);
    if (tensor.defined() && tensor.is_cuda()) pairs_.emplace_back(tensor, made);
    return made;
  }

  void convert_value(IValue& value, Convert convert, c10::DeviceType device) {
    if (value.isTensor()) {
      value = converted(value.toTensor(), convert);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& one : value.toTensorVector()) list.push_back(converted(one, convert));
      value = std::move(list);
    } else if (is_list_of_tensors(value)) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& one : optional_tensors(value))
        list.push_back(one ? std::optional<Tensor>(converted(*one, convert)) : std::nullopt);
      value = std::move(list);
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(device);
    }
  }

  void convert_all(Convert convert, c10::DeviceType device) {
    for (size_t i = 0; i < about_.written.size(); i++) convert_value(argument(i), convert, device);
  }

  void run_values() {
    convert_all(to_cpu, c10::kCPU);
    compute(op_, about_, device_, *stack_);
    back(true);
    if (about_.any_written)
      for (auto& [cuda, cpu] : pairs_) follow(cuda, cpu);
  }

  // After an assertion failed the device computes nothing.
  void run_without_values() {
    if (!meta()) raise_failure(device_);
    back_from_meta();
  }

  // If CUDA's kernel would assert, the CPU's raises. If the shapes are wrong, the Meta kernel raises, too.
  void run_asserting() {
    const Stack before = arguments();
    try {
      run_values();
    } catch (const std::exception& error) {
      std::string why = wrong_values(about_.name, error);
      if (why.empty()) throw;
      take_back(before);
      if (!meta()) throw;
      back_from_meta();
      assertion_failed(device_, fault_of(op_, before, why));
    }
  }

  void run_small() {
    std::vector<Tensor> written = all_written();
    run_values();
    for (const Tensor& tensor : written) was_written(tensor, Origin::COMPUTED);
  }

  // Computes from the zeros that the program reads of values that were not computed. False, with nothing computed, if
  // that raises or divides integers by them.
  bool run_of_zeros() {
    for (const Tensor& tensor : all_read())
      if (origin_of(tensor) == Origin::MISSING) computed([&] { to_cpu(tensor).zero_(); });
    if (divides_by_zero()) return false;
    std::vector<Tensor> written = all_written();
    const Stack before = arguments();
    try {
      run_values();
    } catch (const std::exception&) {
      take_back(before);
      return false;
    }
    for (const Tensor& tensor : written) was_written(tensor, Origin::ASSUMED);
    for_each_result([](const Tensor& tensor) { was_written(tensor, Origin::ASSUMED); });
    return true;
  }

  bool divides_by_zero() {
    if (!about_.divides) return false;
    const Stack before = arguments();
    convert_all(to_cpu, c10::kCPU);
    const auto odd = odd_division(about_, *stack_);
    take_back(before);
    return odd && odd->by_zero();
  }

  static bool has_kernel(const OperatorHandle& op, const About& about, c10::DispatchKey key) {
    return about.substitute || op.hasComputedKernelForDispatchKey(key);
  }

  static void run_kernel(const OperatorHandle& op, const About& about, c10::DispatchKeySet keys, Stack& stack) {
    computed([&] {
      unstall::run_kernel(op, about.substitute, keys, &stack);
    });
  }

  static void compute(const OperatorHandle& op, const About& about, int device, Stack& stack) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        has_kernel(op, about, c10::DispatchKey::CPU), "the virtual GPU cannot run ", about.name,
        ": it computes by kernels of the CPU, and torch has none for this operator");
    std::optional<InsteadOfDefault> instead;
    if (about.draws) instead.emplace(device);
    if (about.generator >= 0) {
      auto& given = stack[stack.size() - about.written.size() + size_t(about.generator)];
      given = draw_from(given.isNone() ? std::nullopt : std::optional(given.toGenerator()), device);
    }
    OnDevice on_device(device);
    SameThreads threads;
    AsDevice as_device;
    if (about.divides) run_division(op, about, device, stack);
    else run_kernel(op, about, keys_of_cpu(op), stack);
  }

  static void run_division(const OperatorHandle& op, const About& about, int device, Stack& stack) {
    const size_t first = stack.size() - about.written.size();
    const auto odd = odd_division(about, stack);
    if (odd) stack[first + 1] = odd->divisor();
    run_kernel(op, about, keys_of_cpu(op), stack);
    if (!odd) return;
    computed([&] { odd->put_right(stack[first].toTensor()); });
    const bool for_shapes = capturing_here(device);
    if (odd->by_zero() && !for_shapes) divides_by_zero_here();
  }

  // `stack`: ends in arguments on the CPU.
  static std::optional<OddDivision> odd_division(const About& about, const Stack& stack) {
    const size_t count = about.written.size();
    return computed([&] {
      return OddDivision::in(about.name, c10::ArrayRef<IValue>(stack.data() + stack.size() - count, count));
    });
  }

  // Calls act(tensor, whether the operator reads its values) for each argument.
  template <class F>
  void for_each_argument(F&& act) {
    for (size_t i = 0; i < about_.written.size(); i++)
      for_each_tensor(argument(i), [&](const Tensor& tensor) {
        if (!tensor.defined()) return;
        bool overwritten = about_.written[i] && (about_.out[i] || (about_.overwrites && covers_storage(tensor)));
        act(tensor, !overwritten);
      });
  }

  std::vector<Tensor> all_read() {
    std::vector<Tensor> tensors;
    for_each_argument([&](const Tensor& tensor, bool is_read) {
      if (is_read) tensors.push_back(tensor);
    });
    return tensors;
  }

  static bool all_known(const std::vector<Tensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) { return known(tensor); });
  }

  // If numerics are skipped: whether the tensors are so small that they are still computed, if all inputs are known.
  bool is_small() {
    int64_t elements = 0;
    bool reads_any = false;
    for_each_argument([&](const Tensor& tensor, bool is_read) {
      elements += tensor.numel();
      reads_any = reads_any || is_read;
    });
    constexpr int64_t SURELY_SMALL = 2048; // so is what two of these make together
    if (elements <= SURELY_SMALL && reads_any) return true;
    return arguments_are_small() && results_are([](const Tensor& tensor) { return tensor.numel() <= MOST_KNOWN; });
  }

  // If numerics are skipped: whether small tensors give small masks or integers. A check of all values, or a search, is
  // taken to go otherwise than that of zeros.
  bool compares_or_counts() {
    if (about_.checks || about_.reads || !arguments_are_small()) return false;
    bool any = false;
    const bool all = results_are([&](const Tensor& tensor) {
      any = true;
      return at::isIntegralType(tensor.scalar_type(), true) && tensor.numel() <= MOST_KNOWN;
    });
    return any && all;
  }

  bool arguments_are_small() {
    bool small = true;
    for_each_argument([&](const Tensor& tensor, bool) { small = small && tensor.numel() <= MOST_KNOWN; });
    return small;
  }

  // Whether all results are as `condition` says, by their shapes and types. True if torch has no Meta kernel.
  template <class F>
  bool results_are(F&& condition) {
    Stack shapes = arguments();
    OperatorCall call(about_, op_, &shapes);
    call.device_ = device_;
    if (!call.meta()) return true;
    return std::all_of(shapes.begin(), shapes.end(), [&](const IValue& value) {
      return !value.isTensor() || !value.toTensor().defined() || condition(value.toTensor());
    });
  }

  // Replaces the arguments on the stack by results without values. False, with nothing changed, if torch has no Meta
  // kernel or that raised.
  bool meta() {
    if (!has_kernel(op_, about_, c10::DispatchKey::Meta)) return false;
    const Stack before = arguments();
    try {
      convert_all(to_meta, c10::kMeta);
      if (about_.generator >= 0) argument(size_t(about_.generator)) = IValue();
      run_meta();
      return true;
    } catch (const std::exception&) {
      // If the arguments are wrong, computing raises, too.
      take_back(before);
      return false;
    }
  }

  void run_meta() {
    if (!about_.shapes) return run_kernel(op_, about_, c10::DispatchKeySet(c10::DispatchKey::Meta), *stack_);
    computed([&] {
      about_.shapes->callBoxed(op_, c10::DispatchKeySet(c10::DispatchKey::Meta), stack_);
    });
  }

  void back_from_meta() {
    change_results([&](const Tensor& meta, bool host) -> Tensor {
      for (auto& [cuda, shape] : pairs_)
        if (shape.is_same(meta)) return cuda;
      return host && meta.defined() ? computed([&] { return at::zeros_like(meta, at::kCPU); }) : from_meta(meta, device_);
    });
    if (about_.any_written)
      for (auto& [cuda, shape] : pairs_) follow_meta(cuda, shape);
  }

  void run_shapes() {
    std::vector<Tensor> written = all_written();
    if (meta()) {
      back_from_meta();
      if (about_.reads && about_.substitute) warn_assumed();
    } else {
      run_values(); // of meaningless bytes
      if (about_.reads) warn_unknown();
    }
    for (const Tensor& tensor : written) set_known(tensor, false);
    for_each_result([this](const Tensor& tensor) {
      // A check of all values, such as isfinite(x).all(), is taken to hold: programs stop if it does not.
      const bool holds = about_.checks && tensor.numel() <= MOST_KNOWN;
      if (holds) to_cpu(tensor).fill_(1);
      set_known(tensor, holds);
    });
  }

  template <class F>
  void for_each_result(F&& act) {
    for (size_t i = stack_->size() - op_.schema().returns().size(); i < stack_->size(); i++)
      for_each_tensor((*stack_)[i], act);
  }

  template <class F>
  static void for_each_tensor(const IValue& value, F&& act) {
    if (value.isTensor()) {
      act(value.toTensor());
    } else if (is_list_of_tensors(value)) {
      for (const IValue& one : value.toListRef())
        if (one.isTensor()) act(one.toTensor());
    }
  }

  std::vector<Tensor> all_written() {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < about_.written.size(); i++)
      if (about_.written[i]) for_each_tensor(argument(i), [&](const Tensor& tensor) { tensors.push_back(tensor); });
    return tensors;
  }

  // If numerics are skipped: whether the values of what a node reads and writes are known, which its replays find out.
  struct NodeKnown {
    std::vector<Known> reads, writes, overwrites; // `overwrites`: all of the storage

    bool all_read() const {
      return std::all_of(reads.begin(), reads.end(), [](const Known& known) { return *known == Origin::COMPUTED; });
    }
    void set(bool known) const {
      for (const Known& each : known ? overwrites : writes) *each = known ? Origin::COMPUTED : Origin::MISSING;
    }
    static void add(std::vector<Known>& to, const Tensor& tensor) {
      if (Known known = known_of(tensor)) to.push_back(std::move(known));
    }
  };

  NodeKnown known_to_node(const std::vector<Tensor>& read, const std::vector<Tensor>& written) {
    NodeKnown known;
    for (const Tensor& tensor : read) NodeKnown::add(known.reads, tensor);
    for (const Tensor& tensor : written) {
      NodeKnown::add(known.writes, tensor);
      if (covers_storage(tensor)) NodeKnown::add(known.overwrites, tensor);
    }
    for_each_result([&](const Tensor& tensor) {
      if (!tensor.defined()) return;
      if (std::any_of(written.begin(), written.end(), [&](const Tensor& each) { return each.is_alias_of(tensor); }))
        return; // it is not written yet
      set_known(tensor, false); // until the first replay
      NodeKnown::add(known.writes, tensor);
      NodeKnown::add(known.overwrites, tensor);
    });
    return known;
  }

  // For a graph: results have shapes now, and values at each replay.
  void capture(Launch& launch) {
    const bool few = !settings().skip || is_small();
    std::vector<Tensor> written = all_written(), read = all_read();
    Stack arguments = this->arguments();
    OperatorCall kept(about_, op_, &arguments);
    kept.device_ = device_;
    kept.convert_all(to_cpu, c10::kCPU);
    bool by_shapes = op_.hasTag(at::Tag::pointwise) && all_in_order();
    bool by_values = few && about_.elementwise && !by_shapes;
    if (!by_values && meta()) {
      back_from_meta();
    } else {
      run_on_copies();
    }
    NodeKnown known = settings().skip ? known_to_node(read, written) : NodeKnown{};
    std::vector<Tensor> results;
    for_each_result([&](const Tensor& tensor) { results.push_back(to_cpu(tensor)); });
    std::optional<Captured> captured;
    if (about_.asserts) launch.captured_as((captured = captured_here())->node);
    const bool grad = c10::GradMode::is_enabled(); // without gradients, the CPU's LSTM rounds otherwise
    keep(device_, [op = op_, about = &about_, device = device_, arguments, results, captured, few, known, grad] {
      c10::AutoGradMode as_captured(grad);
      const bool values = few && known.all_read();
      known.set(values);
      if (!values) return;
      Stack stack = arguments;
      try {
        compute(op, *about, device, stack);
      } catch (const std::exception& error) {
        std::string why = about->asserts ? wrong_values(about->name, error) : "";
        if (why.empty()) throw;
        assertion_failed(device, fault_of(op, arguments, why), captured);
        return;
      }
      size_t next = 0;
      for (const IValue& value : stack)
        for_each_tensor(value, [&](const Tensor& tensor) {
          const Tensor& result = results[next++];
          if (tensor.defined() && !result.is_alias_of(tensor)) computed([&] { result.copy_(tensor); });
        });
    });
  }

  // Whether the elements of all arguments lie in memory in the order of their indices. Then Meta kernels of pointwise
  // operators choose the strides that other kernels choose.
  bool all_in_order() {
    bool all = true;
    for (size_t i = 0; i < about_.written.size(); i++)
      for_each_tensor(argument(i), [&](const Tensor& tensor) {
        all = all && (!tensor.defined() || tensor.strides() == c10::IntArrayRef(c10::contiguous_strides(tensor.sizes())));
      });
    return all;
  }

  // For shapes, if torch has no Meta kernel, or one that chooses other strides: the arguments are not written to.
  void run_on_copies() {
    const Stack before = arguments();
    try {
      run_on(about_.elementwise ? copied : zeros);
    } catch (const std::exception&) {
      if (about_.elementwise) throw;
      take_back(before);
      run_on(copied); // of a matrix that cannot be singular, for one
    }
  }

  // What is not written to is copied, too, if its values may say where in memory something is: they are not computed yet.
  void run_on(Tensor (*replace)(const Tensor&)) {
    convert_all(to_cpu, c10::kCPU);
    auto replaced = [&](const Tensor& cpu) {
      if (!cpu.defined() || !is_converted(cpu)) return cpu;
      Tensor other = computed([&] { return replace(cpu); });
      for (auto& pair : pairs_)
        if (pair.second.is_same(cpu)) pair.second = other;
      return other;
    };
    for (size_t i = 0; i < about_.written.size(); i++) {
      IValue& value = argument(i);
      if (!about_.written[i] && about_.elementwise) continue;
      if (value.isTensor()) {
        value = replaced(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& one : value.toTensorVector()) list.push_back(replaced(one));
        value = std::move(list);
      }
    }
    compute(op_, about_, device_, *stack_);
    back(false);
    if (about_.any_written)
      for (auto& [cuda, copy] : pairs_) follow_meta(cuda, copy);
  }

  bool is_converted(const Tensor& cpu) const {
    for (const auto& pair : pairs_)
      if (pair.second.is_same(cpu)) return true;
    return false;
  }

  static Tensor copied(const Tensor& cpu) {
    return cpu.clone();
  }

  static Tensor zeros(const Tensor& cpu) {
    return at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options()).zero_();
  }

  // The tensor that the CPU's kernel returned, on the virtual GPU: an argument itself, a view of one, or a new one.
  Tensor back_from(const Tensor& cpu, bool values) {
    if (!cpu.defined() || !cpu.is_cpu()) return cpu;
    for (auto& [cuda, on_cpu] : pairs_)
      if (on_cpu.is_same(cpu)) return cuda;
    if (cpu.has_storage()) {
      auto* bytes = cpu.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      for (auto& [cuda, on_cpu] : pairs_)
        if (on_cpu.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == bytes)
          return over(cpu, cuda.storage());
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        cpu.layout() == c10::kStrided, "the virtual GPU computes dense tensors only, not sparse ones, as ", about_.name,
        " gives");
    Tensor fresh = values ? to_cuda(cpu, device_) : empty_as(cpu, device_);
    pairs_.emplace_back(fresh, cpu); // another result may be a view of it
    return fresh;
  }

  // `values`: whether the CPU computed them. If not, new tensors get memory of their own.
  void back(bool values) {
    change_results([&](const Tensor& cpu, bool host) { return host ? cpu : back_from(cpu, values); });
  }

  // Replaces each result tensor by change(tensor, whether it stays on the host).
  template <class F>
  void change_results(F&& change) {
    size_t results = op_.schema().returns().size(), first = stack_->size() - results;
    for (size_t i = 0; i < results; i++) {
      IValue& value = (*stack_)[first + i];
      bool host = about_.stays_on_host(i);
      if (value.isTensor()) {
        value = change(value.toTensor(), host);
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& one : value.toTensorVector()) list.push_back(change(one, host));
        value = std::move(list);
      }
      if (i == 0 && first_gradient_) {
        first_gradient_->output(value.toTensor());
        first_gradient_->log();
      }
    }
  }

  static size_t output(const IValue& value, Launch& launch) {
    if (value.isTensor()) {
      launch.output(value.toTensor());
      return value.toTensor().defined() ? size_t(value.toTensor().numel()) : 0;
    }
    if (!value.isTensorList()) return 0; // an answer, as to whether cuDNN takes some arguments, needs no kernel
    size_t elements = 0;
    for (const Tensor& one : value.toTensorVector()) {
      launch.output(one);
      elements += size_t(one.numel());
    }
    return elements;
  }

  const About& about_;
  const OperatorHandle& op_;
  Stack* stack_;
  size_t first_;
  int device_ = 0;
  std::optional<Launch> first_gradient_; // if it is launched before the other gradients are allocated
  c10::SmallVector<std::pair<Tensor, Tensor>, 8> pairs_; // a tensor of the virtual GPU, and what it was converted to
};

} // namespace

void call(const About& about, const OperatorHandle& op, Stack* stack) {
  OperatorCall(about, op, stack).run();
}

} // namespace unstall
