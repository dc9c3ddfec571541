#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "launches.h"

#include "devices.h"
#include "memory.h"
#include "simulator.h"
#include "waits.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>

namespace unstall {
namespace {

enum Tag : int64_t { NONE, TENSOR, LIST, INT, BOOL, INTS, BOOLS, STRING, SCALAR, OUTPUTS, PRECISION };

constexpr int REPEATED_BIT = 32, IN_HOST_MEMORY_BIT = 33; // of a TENSOR's small values

// Whether a tensor of a device has pinned memory of the host, which kernels read and write over the link.
bool is_mapped(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !tensor.has_storage()) return false;
  auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return !block_of(*storage) && is_pinned(storage->data());
}

int64_t tagged(Tag tag, int64_t small) {
  return int64_t(tag) | small << 8;
}

struct Key {
  const int64_t* data;
  size_t size;
  bool operator==(const Key& other) const {
    return size == other.size && std::equal(data, data + size, other.data);
  }
};

struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < key.size; i++) {
      hash = (hash ^ uint64_t(key.data[i])) * 0xBF58476D1CE4E5B9u;
      hash ^= hash >> 31;
    }
    return hash;
  }
};

struct Table {
  Lock lock;
  std::deque<std::vector<int64_t>> keys; // by number; never moved
  std::vector<CallFacts> facts;          // by number
  std::unordered_map<Key, int32_t, Hash> numbers;
  std::set<std::pair<int, int32_t>> searched; // (device, signature)
};

Table& table() {
  static auto* table = new Table;
  return *table;
}

} // namespace

OpName::OpName(std::string_view name, std::string_view overload)
    : name(name_number(name)), overload(name_number(overload)) {}

Signature::Signature(OpName name) {
  key_.push_back(name.name);
  key_.push_back(name.overload);
}

void Signature::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key_.push_back(NONE);
    return;
  }
  auto sizes = tensor.sizes();
  int64_t repeated = is_repeated(tensor);
  int64_t mapped = is_mapped(tensor);
  key_.push_back(tagged(TENSOR, int64_t(tensor.scalar_type()) | int64_t(sizes.size()) << 16 |
                                repeated << REPEATED_BIT | mapped << IN_HOST_MEMORY_BIT));
  key_.append(sizes.begin(), sizes.end());
  auto strides = tensor.strides();
  key_.append(strides.begin(), strides.end());
}

// Whether an input has the memory of an earlier one, as in mul(x, x): a kernel reads it from memory once.
bool Signature::is_repeated(const at::Tensor& tensor) {
  if (in_outputs_ || !tensor.has_storage()) return false;
  std::tuple<const void*, int64_t, int64_t> memory = {
      tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.numel()};
  if (std::find(memory_.begin(), memory_.end(), memory) != memory_.end()) return true;
  memory_.push_back(memory);
  return false;
}

void Signature::add(const c10::IValue& value) {
  if (value.isTensor()) {
    add(value.toTensor());
  } else if (value.isNone()) {
    key_.push_back(NONE);
  } else if (value.isInt()) {
    key_.push_back(INT);
    key_.push_back(value.toInt());
  } else if (value.isBool()) {
    key_.push_back(tagged(BOOL, value.toBool()));
  } else if (value.isIntList()) {
    auto list = value.toIntVector();
    key_.push_back(tagged(INTS, int64_t(list.size())));
    key_.append(list.begin(), list.end());
  } else if (value.isBoolList()) {
    auto list = value.toBoolList();
    key_.push_back(tagged(BOOLS, int64_t(list.size())));
    for (bool one : list) key_.push_back(one);
  } else if (value.isString()) {
    key_.push_back(tagged(STRING, name_number(value.toStringView())));
  } else if (value.isTensorList() || (value.isList() && !value.isDoubleList())) {
    auto list = value.toListRef();
    key_.push_back(tagged(LIST, int64_t(list.size())));
    for (const auto& one : list) add(one);
  } else {
    // Only whether it is 0: a dropout or weight decay of 0 runs other kernels.
    key_.push_back(tagged(SCALAR, !(value.isDouble() && value.toDouble() == 0)));
  }
}

void Signature::outputs() {
  in_outputs_ = true;
  key_.push_back(OUTPUTS);
}

void Signature::precision(bool tf32) {
  key_.push_back(tagged(PRECISION, tf32));
}

Signature Signature::of(OpName other) const {
  Signature same = *this;
  same.key_[0] = other.name;
  same.key_[1] = other.overload;
  return same;
}

int32_t Signature::number() const {
  auto& all = table();
  std::lock_guard guard(all.lock);
  auto found = all.numbers.find(Key{key_.data(), key_.size()});
  if (found != all.numbers.end()) return found->second;
  all.keys.emplace_back(key_.begin(), key_.end());
  auto& kept = all.keys.back();
  auto number = int32_t(all.keys.size() - 1);
  all.facts.emplace_back();
  all.numbers.emplace(Key{kept.data(), kept.size()}, number);
  return number;
}

namespace {

PyObject* numbers_at(const int64_t*& at, int64_t count) {
  PyObject* tuple = PyTuple_New(count);
  for (int64_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(*at++));
  return tuple;
}

} // namespace

std::string dtype_name(c10::ScalarType type) {
  static const std::unordered_map<std::string, std::string> names = {
      {"Byte", "uint8"}, {"Char", "int8"}, {"Short", "int16"}, {"Int", "int32"}, {"Long", "int64"},
      {"Half", "float16"}, {"Float", "float32"}, {"Double", "float64"}, {"ComplexHalf", "complex32"},
      {"ComplexFloat", "complex64"}, {"ComplexDouble", "complex128"}, {"Bool", "bool"}, {"BFloat16", "bfloat16"},
      {"UInt16", "uint16"}, {"UInt32", "uint32"}, {"UInt64", "uint64"}, {"Float8_e5m2", "float8_e5m2"},
      {"Float8_e4m3fn", "float8_e4m3fn"}};
  std::string name = c10::toString(type);
  auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

namespace {

PyObject* value_at(const int64_t*& at) {
  int64_t head = *at++, small = head >> 8;
  switch (Tag(head & 0xFF)) {
    case TENSOR: {
      int64_t dims = small >> 16 & 0xFFFF;
      PyObject* sizes = numbers_at(at, dims);
      PyObject* strides = numbers_at(at, dims);
      auto name = dtype_name(c10::ScalarType(small & 0xFFFF));
      auto* repeated = small >> REPEATED_BIT & 1 ? Py_True : Py_False;
      if (small >> IN_HOST_MEMORY_BIT & 1)
        return Py_BuildValue("(ssNNOO)", "t", name.c_str(), sizes, strides, repeated, Py_True);
      if (small >> REPEATED_BIT & 1) return Py_BuildValue("(ssNNO)", "t", name.c_str(), sizes, strides, repeated);
      return Py_BuildValue("(ssNN)", "t", name.c_str(), sizes, strides);
    }
    case LIST: {
      PyObject* tuple = PyTuple_New(small);
      for (int64_t i = 0; i < small; i++) PyTuple_SET_ITEM(tuple, i, value_at(at));
      return Py_BuildValue("(sN)", "l", tuple);
    }
    case INT:
      return PyLong_FromLongLong(*at++);
    case BOOL:
      return PyBool_FromLong(long(small));
    case INTS:
      return numbers_at(at, small);
    case BOOLS: {
      PyObject* tuple = PyTuple_New(small);
      for (int64_t i = 0; i < small; i++) PyTuple_SET_ITEM(tuple, i, PyBool_FromLong(long(*at++)));
      return tuple;
    }
    case STRING:
      return PyUnicode_FromString(name_of(int32_t(small)).c_str());
    case SCALAR:
      return Py_BuildValue("(sO)", "s", small ? Py_True : Py_False);
    default:
      return Py_NewRef(Py_None);
  }
}

PyObject* signature_of(const std::vector<int64_t>& key) {
  const int64_t *at = key.data() + 2, *end = key.data() + key.size();
  PyObject* parts[2] = {PyList_New(0), PyList_New(0)};
  const char* precision = "";
  for (int part = 0; at != end;) {
    if (Tag(*at & 0xFF) == PRECISION) {
      precision = *at++ >> 8 ? "tf32" : "ieee";
      continue;
    }
    if (*at == OUTPUTS) {
      part = 1, at++;
      continue;
    }
    PyObject* value = value_at(at);
    PyList_Append(parts[part], value);
    Py_DECREF(value);
  }
  PyObject* inputs = PyList_AsTuple(parts[0]);
  PyObject* outputs = PyList_AsTuple(parts[1]);
  Py_DECREF(parts[0]);
  Py_DECREF(parts[1]);
  return Py_BuildValue(
      "(ssNNs)", name_of(int32_t(key[0])).c_str(), name_of(int32_t(key[1])).c_str(), inputs, outputs,
      precision);
}

} // namespace

PyObject* signatures_from(size_t first) {
  std::vector<const std::vector<int64_t>*> fresh;
  {
    auto& all = table();
    std::lock_guard guard(all.lock);
    for (size_t i = first; i < all.keys.size(); i++) fresh.push_back(&all.keys[i]);
  }
  PyObject* list = PyList_New(0);
  for (const auto* key : fresh) {
    PyObject* one = signature_of(*key);
    PyList_Append(list, one);
    Py_DECREF(one);
  }
  return list;
}

namespace {

// Asked once for each signature.
CallFacts facts_of(int32_t signature) {
  auto& all = table();
  {
    std::lock_guard guard(all.lock);
    if (CallFacts known = all.facts[size_t(signature)]; known.growth >= 0) return known;
  }
  CallFacts facts = call_facts(signature);
  std::lock_guard guard(all.lock);
  return all.facts[size_t(signature)] = facts;
}

} // namespace

Use use_of(const at::Tensor& tensor, bool write) {
  Use use{};
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return use;
  auto* impl = tensor.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  int64_t size = int64_t(impl->itemsize()), extent = 1;
  for (int64_t i = 0; i < impl->dim(); i++) extent += (impl->size(i) - 1) * impl->stride(i);
  use.offset = impl->storage_offset() * size;
  use.bytes = extent * size;
  use.write = write;
  if (Block* block = block_of(*storage)) {
    use.allocation = block->allocation;
  } else if (tensor.is_cpu()) {
    auto [number, into] = pinned_block(storage->data());
    use.allocation = number;
    use.offset += into;
  }
  return use;
}

void Launch::use(const at::Tensor& tensor, bool write) {
  Use use = use_of(tensor, write);
  if (use.allocation) uses_.push_back(use);
}

void Launch::input(const c10::IValue& value, bool written) {
  signature_.add(value);
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().is_cuda()) use(value.toTensor(), written);
  } else if (value.isList()) {
    for (const auto& one : value.toListRef())
      if (one.isTensor() && one.toTensor().defined() && one.toTensor().is_cuda()) use(one.toTensor(), written);
  }
}

void Launch::output(const at::Tensor& tensor) {
  if (!in_outputs_) signature_.outputs();
  in_outputs_ = true;
  signature_.add(tensor);
  use(tensor, true);
}

namespace {

// Returns whether the simulation of the launch includes the operator's read of a value.
bool log_call(int device, int32_t signature, int64_t node, c10::ArrayRef<Use> uses) {
  int64_t stream = current_stream(device);
  CallFacts facts = logging() ? facts_of(signature) : CallFacts{};
  waiting(Launching{device, stream, signature}, [&] {
    log_launch({.code = Code::LAUNCH, .device = device, .stream = stream, .a = node, .id = signature,
                .uses = uses.data(), .use_count = uses.size()}, std::max(facts.growth, int64_t(0)));
  });
  return facts.reads;
}

} // namespace

void Launch::log_search() {
  int32_t number = signature_.of(*search_).number();
  {
    auto& all = table();
    std::lock_guard guard(all.lock);
    if (!all.searched.emplace(device_, number).second) return;
  }
  log_call(device_, number, 0, {});
}

bool Launch::log() {
  if (!in_outputs_) signature_.outputs();
  in_outputs_ = true;
  if (in_tf32_) signature_.precision(*in_tf32_);
  if (search_) log_search();
  return log_call(device_, signature_.number(), node_, uses_);
}

void log_read(int device, int64_t bytes, const Use* of, bool simulated) {
  int64_t stream = current_stream(device);
  const uint8_t more = simulated ? SIMULATED : 0;
  write({.code = Code::COPY, .device = device, .stream = stream, .a = bytes, .b = -1,
         .flags = uint8_t(D2H | READS_VALUE | more), .uses = of, .use_count = of ? size_t(1) : 0});
  sync_stream(device, stream, more);
}

} // namespace unstall
