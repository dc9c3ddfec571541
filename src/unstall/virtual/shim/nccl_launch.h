// How a call of NCCL is launched: on which stream, when its ranks meet, and what the log says of it.
#pragma once

#include "nccl_work.h"

#include <atomic>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

namespace unstall {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// One call of the program's. `move` moves the values of a collective, on tensors of the CPU.
struct Call {
  c10d::OpType type;
  const char* name; // torch's, as in Kineto's traces
  Tensors inputs, outputs;
  std::function<void()> move = {};
  const char* reduction = "";
  int peer = -1; // of a message
};

// A process group that launches calls. Which calls torch makes is VirtualNccl's concern (nccl.cpp).
class LaunchingNccl : public c10d::Backend {
 public:
  LaunchingNccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options);

  c10::intrusive_ptr<NcclOptions> options() const { return options_; }
  uint64_t getSequenceNumberForGroup() override { return collectives_; }

 protected:
  std::vector<uint64_t> members() const; // as ranks of the job
  WorkPtr run(c10d::OpType type, std::vector<Call> calls, bool async, bool holds_host = false);

  c10::intrusive_ptr<NcclOptions> options_;
  Peers peers_;

 private:
  int64_t own_stream(int device, int peer);
  std::tuple<int64_t, int64_t> meet(const std::vector<Call>& calls, int64_t ready_ns);
  void send_values(const Tensor& values, int to, int64_t ready_ns);
  void log(
      int device, int64_t stream, const std::vector<Call>& calls, uint64_t number, int64_t ready_ns, int64_t latest_ns,
      int64_t latest_sender_ns);

  std::map<std::pair<int, int>, int64_t> streams_;
  std::atomic<uint64_t> collectives_{0}, messages_{0};
};

} // namespace unstall
