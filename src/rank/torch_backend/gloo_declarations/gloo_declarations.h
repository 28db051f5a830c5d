// The declarations of Gloo that ProcessGroupGloo.hpp needs, because torch's wheels do not ship Gloo's headers: the
// types that it holds only by pointer, and the two classes whose members it uses. Gloo itself is inside libtorch_cpu;
// nothing is ever defined here.
//
// The files next to this one replace Gloo's headers of the same names. The layout is checked where it matters: see
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
