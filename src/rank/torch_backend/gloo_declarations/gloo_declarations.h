// What ProcessGroupGloo.hpp needs of Gloo's headers, which torch's wheels do not ship: names of types that it holds by
// pointer alone, and the two classes of which it uses members. Gloo itself is inside libtorch_cpu; nothing here is ever
// defined.
//
// The files beside this one stand in for Gloo's own names. That the layout is right is checked where it counts: see
// gloo_groups.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
