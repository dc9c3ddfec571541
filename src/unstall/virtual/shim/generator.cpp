#include "devices.h"

#include "log.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <atomic>
#include <cstring>

namespace unstall {
namespace {

// Sixteen bytes, as torch.cuda.get_rng_state() gives.
struct State16 {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

// splitmix64, so that neighbouring offsets give unrelated numbers.
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr uint64_t STEP = 4; // of the offset

struct Virtual final : c10::GeneratorImpl {
  explicit Virtual(int device)
      : GeneratorImpl(
            c10::Device(c10::kCUDA, c10::DeviceIndex(device)), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(uint64_t seed) override {
    state->seed = seed;
    state->offset = 0;
  }
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    state->offset = offset;
  }
  uint64_t get_offset() const override { return state->offset; }
  uint64_t current_seed() const override { return state->seed; }
  uint64_t seed() override {
    uint64_t random = c10::detail::getNonDeterministicRandom(true);
    set_current_seed(random);
    return random;
  }
  void set_state(const c10::TensorImpl& wanted) override {
    TORCH_CHECK(
        wanted.dtype() == caffe2::TypeMeta::Make<uint8_t>() && wanted.is_contiguous() &&
            wanted.device().is_cpu(),
        "RNG state must be a torch.ByteTensor");
    TORCH_CHECK(wanted.numel() == sizeof(State16) || wanted.numel() == sizeof(uint64_t), "RNG state is wrong size");
    State16 given;
    std::memcpy(&given, wanted.data(), size_t(wanted.numel()));
    state->seed = given.seed;
    state->offset = given.offset;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto bytes = at::detail::empty_cpu({int64_t(sizeof(State16))}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), state.get(), sizeof(State16));
    return bytes.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    auto* given = dynamic_cast<Virtual*>(other.get());
    TORCH_CHECK(given, "Expected a CUDA Generator");
    state = given->state;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    auto copy = c10::make_intrusive<Virtual>(device().index());
    copy->state = state;
    return copy;
  }
  GeneratorImpl* clone_impl() const override {
    auto* copy = new Virtual(device().index());
    *copy->state = *state;
    return copy;
  }
  uint64_t draw() {
    std::lock_guard guard(mutex_);
    uint64_t drawn = mixed(state->seed ^ mixed(state->offset));
    state->offset += STEP;
    return drawn;
  }
  // Takes back the last number, which nobody used; does nothing if another thread has drawn since.
  void put_back(uint64_t drawn) {
    std::lock_guard guard(mutex_);
    if (state->offset >= STEP && drawn == mixed(state->seed ^ mixed(state->offset - STEP))) state->offset -= STEP;
  }

  uint64_t seed_of_atomics() { return mixed(~state->seed ^ mixed(atomics_++)); }

  std::shared_ptr<State16> state = std::make_shared<State16>();

 private:
  std::atomic<uint64_t> atomics_{0}; // operators with atomics so far
};

Virtual& the_default(int device) {
  return *static_cast<Virtual*>(default_generator(device).unsafeGetGeneratorImpl());
}

uint64_t seed_from(const std::optional<at::Generator>& generator, int device) {
  const at::Generator& chosen = generator && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(
      chosen.device().is_cuda(), "Expected a 'cuda' device type for generator but found '", chosen.device(), "'");
  return static_cast<Virtual*>(chosen.unsafeGetGeneratorImpl())->draw();
}

} // namespace

const at::Generator& default_generator(int device) {
  static auto* generators = [] {
    auto* all = new std::array<at::Generator, MOST_DEVICES>;
    for (int i = 0; i < MOST_DEVICES; i++) (*all)[size_t(i)] = at::make_generator<Virtual>(i);
    return all;
  }();
  return (*generators)[size_t(device_number(device))];
}

at::Generator new_generator(int device) {
  return at::make_generator<Virtual>(device_number(device));
}

uint64_t seed_of_atomics(int device) {
  return the_default(device).seed_of_atomics();
}

at::Generator draw_from(const std::optional<at::Generator>& generator, int device) {
  return at::detail::createCPUGenerator(seed_from(generator, device));
}

struct InsteadOfDefault::State {
  at::mt19937 engine;
  std::optional<float> float_sample;
  std::optional<double> double_sample;
  uint64_t seed; // of the CPU's generator meanwhile
};

// Held while an InsteadOfDefault lives: two at once would restore each other's state.
static Lock& the_only_one() {
  static auto* lock = new Lock;
  return *lock;
}

static bool has_drawn(const at::mt19937& engine, uint64_t seed) {
  auto now = engine.data(), fresh = at::mt19937(seed).data();
  return now.left_ != fresh.left_ || now.next_ != fresh.next_;
}

InsteadOfDefault::InsteadOfDefault(int device) : device_(device) {
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  uint64_t seed = the_default(device).draw();
  the_only_one().lock(); // from here on nothing raises
  std::lock_guard guard(cpu->mutex_);
  before_ = new State{cpu->engine(), cpu->next_float_normal_sample(), cpu->next_double_normal_sample(), seed};
  cpu->set_current_seed(seed);
}

InsteadOfDefault::~InsteadOfDefault() {
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  std::lock_guard guard(cpu->mutex_);
  if (!has_drawn(cpu->engine(), before_->seed)) the_default(device_).put_back(before_->seed); // a dropout of 0
  cpu->set_engine(before_->engine);
  cpu->set_next_float_normal_sample(before_->float_sample);
  cpu->set_next_double_normal_sample(before_->double_sample);
  delete before_;
  the_only_one().unlock();
}

} // namespace unstall
