#include "report/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>

#include "base/files/whole_file.h"
#include "base/host_name.h"
#include "base/text.h"
#include "report/crc32c.h"

namespace fulldeck::report {
namespace {

constexpr std::size_t kMaxWaiting = 64 << 10;

// The subset of Protobuf that events need. Field numbers are those of TensorFlow's event.proto, summary.proto and
// tensor.proto.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

template <typename Unsigned>
void AppendLittleEndian(std::string& to, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i));
}

void AppendKey(std::string& to, int field, WireType type) {
  AppendVarint(to, static_cast<std::uint64_t>(field) << 3 | type);
}

void AppendInteger(std::string& to, int field, std::int64_t value) {
  AppendKey(to, field, kVarint);
  AppendVarint(to, static_cast<std::uint64_t>(value));
}

void AppendDouble(std::string& to, int field, double value) {
  AppendKey(to, field, kFixed64);
  AppendLittleEndian(to, std::bit_cast<std::uint64_t>(value));
}

void AppendFloat(std::string& to, int field, float value) {
  AppendKey(to, field, kFixed32);
  AppendLittleEndian(to, std::bit_cast<std::uint32_t>(value));
}

void AppendBytes(std::string& to, int field, const std::string& bytes) {
  AppendKey(to, field, kBytes);
  AppendVarint(to, bytes.size());
  to += bytes;
}

std::string EventHead(std::int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  AppendDouble(event, 1, now.count());
  AppendInteger(event, 2, step);
  return event;
}

void AppendRecord(std::string& to, const std::string& event) {
  std::string length;
  AppendLittleEndian(length, static_cast<std::uint64_t>(event.size()));
  to += length;
  AppendLittleEndian(to, MaskedCrc32c(length));
  to += event;
  AppendLittleEndian(to, MaskedCrc32c(event));
}

// In a file name, so without slashes.
std::string HostPart() {
  std::string text = base::HostName();
  std::replace(text.begin(), text.end(), '/', '_');
  return text.empty() ? "host" : text;
}

}  // namespace

EventFile::EventFile(base::UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

EventFile::~EventFile() {
  if (file_.valid()) static_cast<void>(Flush());
}

base::Result<EventFile> EventFile::Create(const std::string& folder, std::optional<std::int64_t> resumed_at) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    return base::ErrnoError("cannot make the folder of the event files " + base::Printable(folder), failure.value());
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string name =
      folder + "/events.out.tfevents." + std::to_string(seconds) + "." + HostPart() + "." + std::to_string(getpid());
  std::string path = name;
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  for (int i = 1; fd < 0 && errno == EEXIST && i < 1000; ++i) {
    path = name + "." + std::to_string(i);
    fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  }
  if (fd < 0) return base::ErrnoError("cannot create the event file " + base::Printable(path));

  EventFile file(base::UniqueFd(fd), path);
  std::string version = EventHead(0);
  AppendBytes(version, 3, "brain.Event:2");
  AppendRecord(file.buffer_, version);
  if (resumed_at) {
    // A session log with the status START: the reader ignores later steps of earlier files.
    std::string log;
    AppendInteger(log, 1, 1);
    std::string start = EventHead(*resumed_at + 1);
    AppendBytes(start, 7, log);
    AppendRecord(file.buffer_, start);
  }
  if (auto flushed = file.Flush(); !flushed) return flushed.error();
  return file;
}

base::Result<void> EventFile::Write(std::int64_t step, const std::string& summary_value) {
  std::string summary;
  AppendBytes(summary, 1, summary_value);
  std::string event = EventHead(step);
  AppendBytes(event, 5, summary);
  AppendRecord(buffer_, event);
  return buffer_.size() >= kMaxWaiting ? Flush() : base::Result<void>();
}

base::Result<void> EventFile::Scalar(const std::string& tag, std::int64_t step, double value) {
  std::string summary;
  AppendBytes(summary, 1, tag);
  AppendFloat(summary, 2, static_cast<float>(value));
  return Write(step, summary);
}

base::Result<void> EventFile::Text(const std::string& tag, std::int64_t step, const std::string& text) {
  constexpr int kDtypeString = 7;
  std::string plugin;
  AppendBytes(plugin, 1, "text");
  std::string metadata;
  AppendBytes(metadata, 1, plugin);
  std::string dimension;
  AppendInteger(dimension, 1, 1);
  std::string shape;
  AppendBytes(shape, 2, dimension);
  std::string tensor;
  AppendInteger(tensor, 1, kDtypeString);
  AppendBytes(tensor, 2, shape);
  AppendBytes(tensor, 8, text);
  std::string summary;
  AppendBytes(summary, 1, tag);
  AppendBytes(summary, 8, tensor);
  AppendBytes(summary, 9, metadata);
  return Write(step, summary);
}

base::Result<void> EventFile::Png(const std::string& tag, std::int64_t step, int width, int height,
                                  const std::string& png) {
  constexpr int kColorSpaceRgb = 3;
  std::string image;
  AppendInteger(image, 1, height);
  AppendInteger(image, 2, width);
  AppendInteger(image, 3, kColorSpaceRgb);
  AppendBytes(image, 4, png);
  std::string summary;
  AppendBytes(summary, 1, tag);
  AppendBytes(summary, 4, image);
  return Write(step, summary);
}

base::Result<void> EventFile::Flush() {
  if (buffer_.empty()) return {};
  // Data that could not be written is dropped: a disk that is full for hours must not fill the memory too.
  const std::string bytes = std::move(buffer_);
  buffer_.clear();
  return base::WriteAllTo(file_.get(), bytes, path_);
}

}  // namespace fulldeck::report
