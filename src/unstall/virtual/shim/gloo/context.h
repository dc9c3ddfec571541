// The part of gloo that torch's ProcessGroupGloo.hpp needs to compile: torch's wheels have gloo, but not its headers.
// The other headers here are those that it includes by name. The shim only passes these objects on, so their members
// are left out.
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
