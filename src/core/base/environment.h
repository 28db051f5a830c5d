// Environment variables as a value, so that code that reads them can be tested without changing the process.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::base {

class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables) : variables_(variables) {}

  // The variables of this process. Must not be called while another thread calls setenv.
  static Environment OfThisProcess();

  // A variable that is set but empty gives an empty string; one that is not set gives nullopt.
  std::optional<std::string> Get(std::string_view name) const;

  // Changes this object, not the process.
  void Set(std::string name, std::string value);
  void Remove(std::string_view name);

  using Variables = std::map<std::string, std::string, std::less<>>;
  const Variables& all() const { return variables_; }

 private:
  Variables variables_;
};

}  // namespace fulldeck::base
