// As much of gloo as torch's ProcessGroupGloo.hpp must be shown to be compiled: wheels of torch hold gloo, but not its
// headers. The shim hands these objects on and looks into none, so what they are made of is not said here.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
struct Store {
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
} // namespace rendezvous

namespace transport {
class Device {};
class UnboundBuffer {};
} // namespace transport

} // namespace gloo
