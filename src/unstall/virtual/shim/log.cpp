extern "C" {
#include "_frames.h" // first: it includes Python.h
}
#include "log.h"

#include "asserts.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace unstall {
namespace {

constexpr size_t LONG = size_t(1) << 16;
constexpr int64_t LONG_GAP_NS = 100'000; // between two records: worth asking whether the thread was on a core

struct Log {
  Lock lock;
  std::vector<Record> records;
  std::vector<Use> uses;
  std::vector<int64_t> gone_events;
};

struct Names {
  Lock lock;
  std::deque<std::string> names; // grows without moving what it holds
  std::unordered_map<std::string_view, int32_t> numbers;
};

// Never destroyed: storages are freed, and so logged, after static objects are.
Log& the_log() {
  static auto* log = new Log;
  return *log;
}

Names& the_names() {
  static auto* names = new Names;
  return *names;
}

struct ServingThread {
  pid_t number;
  clockid_t clock; // of the time that it was on a core
};

struct Serving {
  Lock lock;
  std::vector<ServingThread> threads; // those that run operators and no Python
};

Serving& serving() {
  static auto* all = new Serving;
  return *all;
}

int64_t time_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time); // leaves it 0 if the thread has ended
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// Whether a thread of this process runs, or is about to: it has no core yet, or waits for a page of memory.
bool is_running(pid_t thread) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", int(thread));
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false; // it has ended
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[std::max<ssize_t>(size, 0)] = 0;
  const char* name_end = std::strrchr(text, ')'); // the state follows the name, which may have any letters
  return name_end && name_end[1] == ' ' && (name_end[2] == 'R' || name_end[2] == 'D');
}

constexpr int64_t LONGEST_END_NS = 5'000'000; // on a core: other programs may keep a thread waiting for one

std::atomic<bool> on{false};
std::atomic<bool> is_long{false};
std::atomic<int32_t> threads{0};

} // namespace

std::shared_mutex& bytes_in_use() {
  static auto* mutex = new std::shared_mutex;
  return *mutex;
}

bool logging() {
  return on.load(std::memory_order_relaxed);
}

std::atomic<int64_t> telling_ns{0};

void set_logging(bool wanted) {
  on = wanted;
}

int64_t now_ns() {
  return time_of(CLOCK_MONOTONIC);
}

ThreadState& this_thread() {
  static thread_local ThreadState state{threads++};
  return state;
}

int32_t stack_here() {
  auto& stacks = this_thread().stacks;
  return stacks.empty() || stacks.back() == CHANGES ? python_stack() : stacks.back();
}

static OnCore on_core_now() {
  rusage used{}; // its time on a core may be a tick old
  getrusage(RUSAGE_THREAD, &used);
  return {now_ns(), time_of(CLOCK_THREAD_CPUTIME_ID), used.ru_nvcsw};
}

// For how long another process had the thread's core in the time `gap` before now: at least. If the thread also gave the
// core up by itself, as to read a file, nobody knows. `spent` is time right before the gap that was not the program's.
static int64_t without_core(const OnCore& last, int64_t gap, int64_t spent) {
  if (!last.at) return 0;
  OnCore here = on_core_now();
  if (here.waits != last.waits) return 0;
  return std::clamp<int64_t>(here.at - last.at - (here.cpu_ns - last.cpu_ns) - spent, 0, gap);
}

// Takes the time that the thread spent since its last record on what is not the program's.
static int64_t computing_until(ThreadState& thread, int64_t now) {
  int64_t spent = std::exchange(thread.computing_ns, 0);
  if (thread.own_since) spent += now - std::exchange(thread.own_since, now);
  int64_t gap = now - std::exchange(thread.written_at, now) - spent;
  if (gap < LONG_GAP_NS) return spent;
  return spent + without_core(std::exchange(thread.on_core, {}), gap, spent);
}

// Whether the program itself may work between a record of this kind and the next one, rather than an operator.
static bool leads_to_the_program(Code code) {
  return code != Code::OP_BEGIN && code != Code::LAUNCH && code != Code::COPY && code != Code::MALLOC &&
      code != Code::WORK;
}

Moment moment_here() {
  int32_t stack = stack_here();
  auto& thread = this_thread();
  int64_t now = now_ns();
  Moment here{stack, now, computing_until(thread, now)};
  thread.on_core = on_core_now();
  return here;
}

namespace {

struct HandOver {
  int64_t begins_after = 0;
  bool has_records = false;
};
thread_local HandOver hand_over;

} // namespace

int64_t give() {
  static std::atomic<int64_t> latest{0};
  if (!logging()) return 0;
  if (hand_over.begins_after) return hand_over.begins_after;
  int64_t before = latest, number;
  do number = std::max(now_ns(), before + 1);
  while (!latest.compare_exchange_weak(before, number));
  write({.code = Code::GIVE, .a = number});
  return number;
}

int64_t give_at_end() {
  return hand_over.has_records ? give() : hand_over.begins_after;
}

void take_over(int64_t given) {
  if (given) write({.code = Code::TAKE, .a = given});
}

void begin_after(int64_t given) {
  hand_over.begins_after = given;
}

void write(const Entry& entry) {
  if (!logging()) return;
  hand_over.has_records = true;
  take_over(std::exchange(hand_over.begins_after, 0));
  auto& thread = this_thread();
  Record record{};
  // The Python code sleeps, not the innermost operator.
  record.stack = entry.code == Code::ADVANCE ? python_stack() : stack_here();
  record.a = entry.a;
  record.b = entry.b;
  record.stream = entry.stream;
  record.thread = thread.number;
  record.id = entry.id;
  record.uses = int32_t(entry.use_count);
  record.code = uint8_t(entry.code);
  record.device = int8_t(entry.device);
  record.flags = entry.flags;
  record.content = entry.content;
  record.within = thread.within;
  if (entry.code == Code::OP_BEGIN && record.stack == NO_PYTHON && !std::exchange(thread.serves, true)) {
    clockid_t clock = CLOCK_MONOTONIC;
    pthread_getcpuclockid(pthread_self(), &clock);
    std::lock_guard guard(serving().lock);
    serving().threads.push_back({gettid(), clock});
  }
  {
    auto& log = the_log();
    std::lock_guard guard(log.lock);
    record.host_ns = now_ns(); // under the lock, so that times ascend along the log
    record.computing_ns = computing_until(thread, record.host_ns);
    log.records.push_back(record);
    log.uses.insert(log.uses.end(), entry.uses, entry.uses + entry.use_count);
    if (log.records.size() > LONG) is_long.store(true, std::memory_order_relaxed);
  }
  // What was asked at the end of an operator holds for what follows it, such as the end of a tensor.
  if (!leads_to_the_program(entry.code)) thread.on_core = {};
  else if (entry.code == Code::OP_END || !thread.on_core.at) thread.on_core = on_core_now();
}

void let_autograd_end() {
  std::vector<ServingThread> threads;
  {
    std::lock_guard guard(serving().lock);
    threads = serving().threads;
  }
  int64_t since = now_ns();
  for (auto [thread, clock] : threads) {
    if (thread == gettid()) continue;
    int64_t until = time_of(clock) + LONGEST_END_NS;
    while (is_running(thread) && time_of(clock) < until) usleep(20);
  }
  this_thread().computing_ns += now_ns() - since; // the program would not wait
}

void event_gone(int64_t event) {
  if (!logging()) return;
  auto& log = the_log();
  std::lock_guard guard(log.lock);
  log.gone_events.push_back(event);
}

Taken take() {
  Taken taken;
  taken.records.reserve(LONG);
  auto& log = the_log();
  std::lock_guard guard(log.lock);
  taken.records.swap(log.records);
  taken.uses.swap(log.uses);
  taken.gone_events.swap(log.gone_events);
  is_long = false;
  return taken;
}

bool log_is_long() {
  return is_long.load(std::memory_order_relaxed);
}

int32_t name_number(std::string_view name) {
  auto& names = the_names();
  std::lock_guard guard(names.lock);
  auto found = names.numbers.find(name);
  if (found != names.numbers.end()) return found->second;
  names.names.emplace_back(name);
  auto number = int32_t(names.names.size() - 1);
  names.numbers.emplace(names.names.back(), number);
  return number;
}

std::string name_of(int32_t number) {
  auto& names = the_names();
  std::lock_guard guard(names.lock);
  return names.names.at(size_t(number));
}

std::vector<std::string> names_from(size_t first) {
  auto& names = the_names();
  std::lock_guard guard(names.lock);
  std::vector<std::string> result;
  for (size_t i = first; i < names.names.size(); i++) result.push_back(names.names[i]);
  return result;
}

// Forks: every Lock is held while the process is copied.

namespace {

struct All {
  std::mutex lock;
  std::vector<Lock*> locks;
};

All& all() {
  static auto* all = new All;
  return *all;
}

void before_fork() {
  all().lock.lock();
  for (Lock* each : all().locks) each->lock();
}

void after_fork() {
  for (Lock* each : all().locks) each->unlock();
  all().lock.unlock();
}

void in_child() {
  after_fork();
  set_logging(false);
  forked();
}

} // namespace

Lock::Lock() {
  static const int registered = pthread_atfork(before_fork, after_fork, in_child);
  (void)registered;
  std::lock_guard guard(all().lock);
  all().locks.push_back(this);
}

namespace {
std::atomic<bool> reading{false};
}

int32_t python_stack() {
  return reading.load(std::memory_order_relaxed) ? frames_here_all() : NO_FRAME;
}

_object* stacks_from(uint32_t first) {
  return frames_stacks(first);
}

void read_stacks(bool wanted) {
  static const int registered = pthread_atfork(nullptr, nullptr, frames_forked);
  (void)registered;
  reading = wanted && frames_supported();
}

} // namespace unstall
