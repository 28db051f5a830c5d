#include "device/libraries/vendor_helper.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/dynamic_library.h"
#include "base/text.h"
#include "device/libraries/library_reader.h"
#include "wire/bytes_header.h"

namespace fulldeck::device {
namespace {

using Json = nlohmann::json;

base::Result<std::unique_ptr<LibraryReader>> OpenReader(LibraryKind kind, base::DynamicLibrary library) {
  switch (kind) {
    case LibraryKind::kNvml:
      return OpenNvml(std::move(library));
    case LibraryKind::kEfml:
      return OpenEfml(std::move(library));
    case LibraryKind::kDcmi:
      return OpenDcmi(std::move(library));
    case LibraryKind::kIxml:
      return OpenIxml(std::move(library));
  }
  return base::Error{"unknown kind of library"};
}

base::Result<std::unique_ptr<LibraryReader>> OpenFirst(LibraryKind kind, const std::vector<std::string>& candidates) {
  // Use the first library that loads. Otherwise report those that exist but do not load; report missing files only if
  // there is nothing else.
  std::string missing;
  std::string broken;
  for (const std::string& candidate : candidates) {
    auto library = base::DynamicLibrary::Open(candidate);
    if (library) return OpenReader(kind, std::move(*library));
    const std::string& reason = library.error().message;
    // The loader's "No such file" message may also name a dependency of the library, so compare the file name.
    const bool nowhere = reason.starts_with(candidate + ": cannot open shared object file: No such file");
    std::string& reasons = nowhere ? missing : broken;
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (!broken.empty()) return base::Error{"cannot be loaded: " + broken};
  return base::Error{"is not installed (" + missing + ")", ENOENT};
}

bool WriteWhole(int fd, const void* bytes, std::size_t length) {
  const char* position = static_cast<const char*>(bytes);
  while (length > 0) {
    const ssize_t written = write(fd, position, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    position += written;
    length -= static_cast<std::size_t>(written);
  }
  return true;
}

template <typename T>
void Put(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

void PutText(Json& object, const char* key, const std::optional<std::string>& value) {
  if (value) object[key] = base::Printable(*value);
}

Json PrintableList(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(base::Printable(text));
  return list;
}

Json Encode(const CardReading& card) {
  Json object = Json::object();
  Put(object, "index", card.index);
  PutText(object, "model", card.model);
  PutText(object, "serial", card.serial);
  PutText(object, "uuid", card.uuid);
  PutText(object, "pci_address", card.pci_address);
  PutText(object, "firmware", card.firmware);
  Put(object, "memory_total_bytes", card.memory_total_bytes);
  Put(object, "memory_used_bytes", card.memory_used_bytes);
  Put(object, "memory_used_percent", card.memory_used_percent);
  Put(object, "utilisation_percent", card.utilization_percent);
  Put(object, "power_watts", card.power_watts);
  Put(object, "power_limit_watts", card.power_limit_watts);
  Put(object, "temperature_celsius", card.temperature_celsius);
  PutText(object, "state", card.state);
  if (card.processes) {
    Json processes = Json::array();
    for (const ProcessOnCard& process : *card.processes) {
      Json entry = {{"pid", process.pid}};
      Put(entry, "memory_bytes", process.memory_bytes);
      processes.push_back(entry);
    }
    object["processes"] = processes;
  }
  object["notes"] = PrintableList(card.notes);
  return object;
}

// The helper is our program, but the library inside it may have corrupted its memory: check every type before use.
void Get(const Json& object, const char* key, std::optional<double>& value) {
  if (object.contains(key) && object[key].is_number()) value = object[key].get<double>();
}
void Get(const Json& object, const char* key, std::optional<std::uint64_t>& value) {
  if (object.contains(key) && object[key].is_number_unsigned()) value = object[key].get<std::uint64_t>();
}
void Get(const Json& object, const char* key, std::optional<int>& value) {
  if (object.contains(key) && object[key].is_number_integer()) value = object[key].get<int>();
}
void Get(const Json& object, const char* key, std::optional<std::string>& value) {
  if (object.contains(key) && object[key].is_string()) value = base::Printable(object[key].get<std::string>());
}
void Get(const Json& object, const char* key, std::vector<std::string>& texts) {
  if (!object.contains(key) || !object[key].is_array()) return;
  for (const Json& text : object[key]) {
    if (text.is_string()) texts.push_back(base::Printable(text.get<std::string>()));
  }
}

CardReading DecodeCard(const Json& object) {
  CardReading card;
  Get(object, "index", card.index);
  Get(object, "model", card.model);
  Get(object, "serial", card.serial);
  Get(object, "uuid", card.uuid);
  Get(object, "pci_address", card.pci_address);
  Get(object, "firmware", card.firmware);
  Get(object, "memory_total_bytes", card.memory_total_bytes);
  Get(object, "memory_used_bytes", card.memory_used_bytes);
  Get(object, "memory_used_percent", card.memory_used_percent);
  Get(object, "utilisation_percent", card.utilization_percent);
  Get(object, "power_watts", card.power_watts);
  Get(object, "power_limit_watts", card.power_limit_watts);
  Get(object, "temperature_celsius", card.temperature_celsius);
  Get(object, "state", card.state);
  if (object.contains("processes") && object["processes"].is_array()) {
    card.processes.emplace();
    for (const Json& entry : object["processes"]) {
      std::optional<int> pid;
      Get(entry, "pid", pid);
      if (!pid) continue;
      ProcessOnCard process{*pid, std::nullopt};
      Get(entry, "memory_bytes", process.memory_bytes);
      card.processes->push_back(process);
    }
  }
  Get(object, "notes", card.notes);
  return card;
}

}  // namespace

std::string EncodeAnswer(const base::Result<SourceReading>& answer) {
  Json object = Json::object();
  if (!answer) {
    object["error"] = base::Printable(answer.error().message);
  } else {
    object["source"] = base::Printable(answer->source);
    PutText(object, "driver_version", answer->driver_version);
    object["notes"] = PrintableList(answer->notes);
    object["cards"] = Json::array();
    for (const CardReading& card : answer->cards) object["cards"].push_back(Encode(card));
  }
  return object.dump();
}

base::Result<SourceReading> DecodeAnswer(const std::string& json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return base::Error{"the helper sent something that is not JSON"};
  std::optional<std::string> error;
  Get(object, "error", error);
  if (error) return base::Error{*error};
  std::optional<std::string> source;
  Get(object, "source", source);
  if (!source) return base::Error{"the helper's answer has no source"};
  SourceReading reading;
  reading.source = *source;
  Get(object, "driver_version", reading.driver_version);
  Get(object, "notes", reading.notes);
  if (object.contains("cards") && object["cards"].is_array()) {
    for (const Json& card : object["cards"]) {
      if (card.is_object()) reading.cards.push_back(DecodeCard(card));
    }
  }
  return reading;
}

int RunVendorHelper(LibraryKind kind, const std::vector<std::string>& candidates) {
  base::Result<std::unique_ptr<LibraryReader>> reader = OpenFirst(kind, candidates);
  for (;;) {
    char request = 0;
    const ssize_t got = read(STDIN_FILENO, &request, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    base::Result<SourceReading> answer = base::Error{};
    if (reader) {
      answer = (*reader)->Read();
    } else if (reader.error().system_error == ENOENT || reader.error().system_error == ENOTSUP) {
      // Not an error: the library is not installed or not supported.
      answer = SourceReading{LibraryKindName(kind), std::nullopt, {}, {reader.error().message}};
    } else {
      answer = reader.error();
    }
    const std::string json = EncodeAnswer(answer);
    const wire::BytesHeader header =
        wire::MakeHeader(kHelperMagic, kHelperVersion, static_cast<std::uint32_t>(json.size()));
    if (!WriteWhole(kHelperAnswerFd, &header, sizeof header) ||
        !WriteWhole(kHelperAnswerFd, json.data(), json.size())) {
      return 1;
    }
  }
  // Skip the reader's destructor: a library that hangs or crashes in its shutdown can no longer do harm.
  _exit(0);
}

}  // namespace fulldeck::device
