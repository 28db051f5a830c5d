#include "agent/preload_variable.h"

#include <cstdlib>
#include <cstring>

#include "wire/variables.h"

namespace fulldeck::agent {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD";

bool IsSeparator(char character) {
  return character == ':' || character == ' ';
}

// Whether `row` is NAME=value.
bool Names(const char* row, std::string_view name) {
  return std::strncmp(row, name.data(), name.size()) == 0 && row[name.size()] == '=';
}

// Returns NAME=value with a shorter list; nullptr if the list becomes empty. The old string is not modified: it may be
// a constant.
char* ShorterRow(const char* row, std::string_view library) {
  const std::string_view list(row + kPreload.size() + 1);
  char* const shorter = static_cast<char*>(std::malloc(kPreload.size() + 1 + list.size() + 1));
  if (shorter == nullptr) return nullptr;
  std::memcpy(shorter, row, kPreload.size() + 1 + list.size());
  const std::size_t length = RemoveEntry(shorter + kPreload.size() + 1, list.size(), library);
  shorter[kPreload.size() + 1 + length] = '\0';
  if (length != 0) return shorter;
  std::free(shorter);
  return nullptr;
}

}  // namespace

std::size_t RemoveEntry(char* list, std::size_t length, std::string_view entry) {
  std::size_t begin = 0;
  while (!entry.empty() && begin < length) {
    std::size_t end = begin;
    while (end < length && !IsSeparator(list[end])) ++end;
    if (std::string_view(list + begin, end - begin) != entry) {
      begin = end + 1;
      continue;
    }
    // Remove the separator before it, or, at the beginning, the one after it.
    if (begin > 0) {
      --begin;
    } else if (end < length) {
      ++end;
    }
    std::memmove(list + begin, list + end, length - end);
    length -= end - begin;
    if (begin > 0) ++begin;
  }
  return length;
}

const char* FindVariable(char* const* environment, std::string_view name) {
  if (environment == nullptr) return nullptr;
  for (; *environment != nullptr; ++environment) {
    if (Names(*environment, name)) return *environment + name.size() + 1;
  }
  return nullptr;
}

void RemoveAgent(char** environment, std::string_view library) {
  if (environment == nullptr || library.empty()) return;
  char** kept = environment;
  for (char** row = environment; *row != nullptr; ++row) {
    if (Names(*row, wire::kAgentVariable)) continue;
    char* shown = Names(*row, kPreload) ? ShorterRow(*row, library) : *row;
    if (shown != nullptr) *kept++ = shown;
  }
  *kept = nullptr;
}

}  // namespace fulldeck::agent
