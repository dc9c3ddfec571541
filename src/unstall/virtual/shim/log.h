// The log: what the program did, as records of fixed size in the order in which they were written. log.py has the
// contract, with the same numbers. Writing takes no GIL and never calls Python.
#pragma once
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

struct _object;

namespace unstall {

// A lock that a fork takes first: otherwise a child could find it held by a thread that the child does not have. Lives
// as long as the process. While one is held, nothing may wait for the GIL, which the forking thread has, nor for
// another Lock.
class Lock : public std::mutex {
 public:
  Lock();
};

enum class Code : uint8_t {
  OP_BEGIN = 0, OP_END, MARK_BEGIN, MARK_END, LAUNCH, COPY, MALLOC, FREE, USE_STREAM, EVENT_RECORD, EVENT_WAIT,
  SYNC_EVENT, SYNC_STREAM, SYNC_DEVICE, EMPTY_CACHE, CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH, GRAPH_FREE, PIN, SLEEP,
  ADVANCE, ASSERT = 26, NOTICE, WORK, COLLECTIVE_CALL, COLLECTIVE, CLOCK, CALL, GIVE,
  TAKE,
};

// Flags of COPY: the direction in the low bits (0 is from one device to another), and how it was called.
enum CopyFlags : uint8_t { PEER = 0, H2D = 1, D2H = 2, D2D = 3, PINNED = 4, NON_BLOCKING = 8, READS_VALUE = 16 };
// Flag of COPY and SYNC_STREAM: the simulation of a launch includes it.
constexpr uint8_t SIMULATED = 32;

// Flag of OP_BEGIN: the operator has nothing to do with a device.
constexpr uint8_t ON_HOST = 1;
// Flag of EVENT_RECORD: the device writes down when it happens.
constexpr uint8_t TIMED = 1;

// What a thread was in before it wrote a record: the innermost open operator.
enum Within : uint8_t { NO_OPERATOR = 0, DEVICE_OPERATOR, HOST_OPERATOR };

struct Record {
  int64_t host_ns, computing_ns, a, b, stream;
  int32_t thread, stack, id, uses;
  uint8_t code;
  int8_t device;
  uint8_t flags, within;
  // Of a COPY from the host: a number for the bytes that it copies, from 1 on. Of an OP_BEGIN of a thread without Python:
  // the number of the thread that called it, plus 1. 0 if not known.
  int32_t content;
};
static_assert(sizeof(Record) == 64);

struct Use {
  int64_t allocation, offset, bytes;
  uint8_t write, pad[7];
};
static_assert(sizeof(Use) == 32);

struct Entry {
  Code code;
  int device = -1;
  int64_t stream = 0, a = 0, b = 0;
  int32_t id = -1;
  uint8_t flags = 0;
  int32_t content = 0;
  const Use* uses = nullptr;
  size_t use_count = 0;
};

// Nothing is written while it is off: before configure(), and in forked children, which have no GPU.
bool logging();
void set_logging(bool on);
void write(const Entry& entry);

// A moment of this thread after which other threads begin or go on, as a number: about its time of CLOCK_MONOTONIC. 0 if
// nothing is logged.
int64_t give();
int64_t give_at_end(); // of a thread that ends: 0 if it has no records
void take_over(int64_t given); // this thread goes on after that moment
// This thread begins after that moment. Its first record tells, since the log knows no threads without records.
void begin_after(int64_t given);

// Nothing names this event any more.
void event_gone(int64_t event);

// Moves out all that was written since the last take. No later record names an event that is gone.
struct Taken {
  std::vector<Record> records;
  std::vector<Use> uses;
  std::vector<int64_t> gone_events;
};
Taken take();
// Whether the log is longer than the simulator should leave it.
bool log_is_long();

int32_t name_number(std::string_view name);
std::string name_of(int32_t number);
std::vector<std::string> names_from(size_t first);

int64_t now_ns();

// What the system said of a thread after a record.
struct OnCore {
  int64_t at = 0; // 0: nobody asked
  int64_t cpu_ns = 0; // for how long it was on a core so far
  long waits = 0; // how often it gave its core up by itself
};

// State of one thread. `computing` counts the CPU kernels that it is in for the virtual GPU: operators that those call
// are not the program's.
struct ThreadState {
  int32_t number;
  int computing = 0;
  int64_t computing_ns = 0;
  int64_t own_since = 0; // see OwnWork; 0: it does none
  int64_t written_at = 0; // when it wrote its last record
  OnCore on_core;
  Within within = NO_OPERATOR;
  std::vector<int32_t> stacks; // one for each operator and annotation that is open
  bool serves = false; // it runs no Python, as autograd's threads
};
ThreadState& this_thread();

// Waits while threads that run operators and no Python are running, at most for a few ms of each thread's time on a
// core. Autograd's thread frees the last tensors of a backward pass, be it done or failed, when it has already woken its
// caller: otherwise, what the caller does next would be logged before that in some runs, and after it in others.
void let_autograd_end();

// The number of this thread's stack of Python frames (lines/_frames.c, read without the GIL): -1 without Python, -2 if
// none can be read. Takes the GIL if code runs that it has not seen before: no lock may be held.
int32_t python_stack();
// As above, of the innermost open operator, since the stack cannot change within it. Within an annotation it can.
constexpr int32_t CHANGES = -3; // in ThreadState::stacks
int32_t stack_here();
// A new list of the stacks from `first` on, each a list of (code, offset). Needs the GIL.
_object* stacks_from(uint32_t first);
void read_stacks(bool wanted);

// Threads that compute hold it together, one that moves a storage's bytes elsewhere holds it alone. Whoever waits for it
// may have the GIL: who holds it must not wait for that.
std::shared_mutex& bytes_in_use();

// The time that it lives counts as time in which values were computed.
class Computing {
 public:
  Computing() : thread_(this_thread()), since_(now_ns()) {
    if (thread_.computing++ == 0) bytes_in_use().lock_shared();
  }
  ~Computing() {
    if (--thread_.computing != 0) return;
    thread_.computing_ns += now_ns() - since_;
    bytes_in_use().unlock_shared();
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  ThreadState& thread_;
  int64_t since_;
};

// What torch takes to tell of an operator's begin or end, apart from what is done then: ns of this machine.
extern std::atomic<int64_t> telling_ns;

// The time that it lives is the log's own work, which the program would not have, and so is what torch took to call it:
// that counts as computing_ns, before the records that are written meanwhile or after them. It calls no Python.
class OwnWork {
 public:
  OwnWork() : thread_(this_thread()) {
    thread_.own_since = now_ns();
    thread_.computing_ns += telling_ns.load(std::memory_order_relaxed);
  }
  ~OwnWork() {
    thread_.computing_ns += now_ns() - thread_.own_since;
    thread_.own_since = 0;
  }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

 private:
  ThreadState& thread_;
};

// Where the calling thread is, for a clock that is read without a record: its stack, the time, and the computing_ns
// since its last record, which its next one then lacks.
struct Moment {
  int32_t stack;
  int64_t host_ns, computing_ns;
};
Moment moment_here();

} // namespace unstall
