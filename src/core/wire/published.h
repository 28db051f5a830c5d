// Published<T>: the last complete value of one writer, in memory shared by processes. The writer never waits, and a
// reader never sees half a value: not of a writer that is stopped or killed in the middle of one either, because the
// value that was complete before stays readable until the next is. Not for several writers at a time.
//
// There are two copies and a count of complete writes. Write number n goes to copy n % 2 while readers look at the
// other, and then the count becomes n. So the only thing that can disturb a reader is a writer that finishes one whole
// write and begins a second while the reader copies; then it tries again.
//
// Lives in zeroed memory, without a constructor: a count of 0 means never written.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace fulldeck::wire {

enum class Reading {
  kValue,
  kNeverWritten,
  kBeingWritten,  // the writer was faster than the reader in every one of many tries
  kDamaged,       // what stands there cannot be right: something wrote over it. Published itself never says this.
};

template <typename T>
class alignas(64) Published {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> && sizeof(T) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(T) / 8;
  static constexpr int kTries = 1000;  // of some tens of nanoseconds each

 public:
  // The writer's thread only.
  void Write(const T& value) {
    Words words{};
    std::memcpy(words.data(), &value, sizeof value);
    // Relaxed: nobody else writes the count.
    const std::uint64_t next = writes_.load(std::memory_order_relaxed) + 1;
    auto& copy = copies_[next % 2];
    // Release, each: pairs with the acquire load of the same word in Read. A reader that meets a word of this write
    // also sees the count of the write before it, so that its second look at the count tells it that it was overtaken.
    for (std::size_t i = 0; i < kWords; ++i) copy[i].store(words[i], std::memory_order_release);
    // Release: pairs with the first load in Read. Who sees this count sees all words of this write.
    writes_.store(next, std::memory_order_release);
  }

  // What the writer wrote last, for changing a part of it; zero bytes before the first time. The writer's thread only.
  T LastWritten() const {
    // Relaxed: a thread sees its own writes. (A thread that took the part over was told so with an order of its own.)
    const auto& copy = copies_[writes_.load(std::memory_order_relaxed) % 2];
    Words words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = copy[i].load(std::memory_order_relaxed);
    return FromWords(words);
  }

  // Any thread of any process; also through a mapping that cannot be written.
  std::optional<T> Read(Reading* reading) const {
    for (int i = 0; i < kTries; ++i) {
      // Acquire: pairs with the last store in Write.
      const std::uint64_t before = writes_.load(std::memory_order_acquire);
      if (before == 0) {
        *reading = Reading::kNeverWritten;
        return std::nullopt;
      }
      const auto& copy = copies_[before % 2];
      Words words{};
      // Acquire, each: pairs with the release store of the word. Keeps the load of the count below behind these, and if
      // one of these words came from write before + 2, that load sees at least before + 1.
      for (std::size_t k = 0; k < kWords; ++k) words[k] = copy[k].load(std::memory_order_acquire);
      if (writes_.load(std::memory_order_relaxed) == before) {
        *reading = Reading::kValue;
        return FromWords(words);
      }
    }
    *reading = Reading::kBeingWritten;
    return std::nullopt;
  }

 private:
  using Words = std::array<std::uint64_t, kWords>;
  static T FromWords(const Words& words) {
    T value{};
    std::memcpy(&value, words.data(), sizeof value);
    return value;
  }
  std::atomic<std::uint64_t> writes_;
  std::array<std::array<std::atomic<std::uint64_t>, kWords>, 2> copies_;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

}  // namespace fulldeck::wire
