// What the program did, as records of fixed size in the order in which they were written: see the contract in log.py,
// whose numbers these are. Appending takes no GIL and never calls Python.
#pragma once
#include <c10/core/Device.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace unstall {

enum class Code : uint8_t {
  OP_BEGIN = 0, OP_END, MARK_BEGIN, MARK_END, LAUNCH, COPY, MALLOC, FREE, USE_STREAM, EVENT_RECORD, EVENT_WAIT,
  SYNC_EVENT, SYNC_STREAM, SYNC_DEVICE, EMPTY_CACHE, CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH, GRAPH_FREE, PIN, SLEEP,
  ADVANCE, ASSERT = 26,
};

// Of COPY's flags: the direction in the low bits (0 is from one device to another), and what else is known of it.
enum CopyFlags : uint8_t { PEER = 0, H2D = 1, D2H = 2, D2D = 3, PINNED = 4, NON_BLOCKING = 8, READS_VALUE = 16 };

struct Record {
  int64_t host_ns, computing_ns, a, b, stream;
  int32_t thread, stack, id, uses;
  uint8_t code;
  int8_t device;
  uint8_t flags, pad[5];
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
  const Use* uses = nullptr;
  size_t use_count = 0;
};

// Nothing is written while it is off: before configure(), and in forked children, which have no GPU.
bool logging();
void set_logging(bool on);
void write(const Entry& entry);

// Nothing names this event any more.
void event_gone(int64_t event);

// All that was written since the last take, which the log holds no longer. Of an event that is gone nothing comes later.
struct Taken {
  std::vector<Record> records;
  std::vector<Use> uses;
  std::vector<int64_t> gone_events;
};
Taken take();
// More than the keeper wants to leave undrained.
bool log_is_long();

int32_t name_number(std::string_view name);
std::string name_of(int32_t number);
std::vector<std::string> names_from(size_t first);

int64_t now_ns();

// One thread's own. `computing` is how deep it is within kernels of the CPU that work for the virtual GPU: operators that those call
// are no operators of the program.
struct ThreadState {
  int32_t number;
  int computing = 0;
  int64_t computing_ns = 0;
  std::vector<int32_t> stacks; // one for each operator that is open
};
ThreadState& this_thread();

// The Python stack for what this thread does now: the innermost open operator's, as that cannot change within it.
int32_t stack_here();

// The time between its making and its end counts as time in which values were computed.
class Computing {
 public:
  Computing() : thread_(this_thread()), since_(now_ns()) { thread_.computing++; }
  ~Computing() {
    if (--thread_.computing == 0) thread_.computing_ns += now_ns() - since_;
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  ThreadState& thread_;
  int64_t since_;
};

} // namespace unstall
