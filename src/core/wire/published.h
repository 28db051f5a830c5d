// Published<T>: the last complete value of one writer, in memory shared by processes. The writer never waits, and a
// reader never sees a torn value. This also holds if the writer is stopped or killed in the middle of a write, because
// the previous value stays readable until the next one is complete. Not for several concurrent writers.
//
// There are two copies and a count of complete writes. Write number n goes to copy n % 2 while readers use the other;
// then the count becomes n. So a reader is disturbed only by a writer that finishes one whole write and begins a second
// one while the reader copies; the reader then tries again.
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
  kBeingWritten,  // the writer overtook the reader in every one of kTries tries
  kDamaged,       // the value is invalid: something overwrote it; returned by the users of Published, never by Read()
};

template <typename T>
class alignas(64) Published {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> && sizeof(T) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(T) / 8;
  static constexpr int kTries = 1000;  // each takes some tens of nanoseconds

 public:
  // Called on the writer's thread only.
  void Write(const T& value) {
    Words words{};
    std::memcpy(words.data(), &value, sizeof value);
    // Relaxed: only this thread writes the count.
    const std::uint64_t next = writes_.load(std::memory_order_relaxed) + 1;
    auto& copy = copies_[next % 2];
    // Release, each: pairs with the acquire load of the same word in Read. A reader that sees a word of this write also
    // sees the count of the previous write, so its second load of the count shows that it was overtaken.
    for (std::size_t i = 0; i < kWords; ++i) copy[i].store(words[i], std::memory_order_release);
    // Release: pairs with the first load in Read. A reader that sees this count sees all words of this write.
    writes_.store(next, std::memory_order_release);
  }

  // The value of the last write, for updating single fields; all zero before the first write. Writer's thread only.
  T LastWritten() const {
    // Relaxed: a thread sees its own writes. (If another thread takes over as the writer, the handover itself must
    // synchronize the two.)
    const auto& copy = copies_[writes_.load(std::memory_order_relaxed) % 2];
    Words words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = copy[i].load(std::memory_order_relaxed);
    return FromWords(words);
  }

  // Thread safe, in any process; also through a read-only mapping.
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
      // Acquire, each: pairs with the release store of the word. Keeps the load of the count below from moving before
      // these loads; and if one of these words came from write before + 2, that load sees at least before + 1.
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
