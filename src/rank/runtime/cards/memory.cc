#include "fulldeck/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <new>

#include "base/text.h"
#include "torch_backend/torch_minor.h"

namespace fulldeck {
namespace {

// Torch's common interface to all device allocators was added in 2.9. Before that, memory statistics require the
// vendor's headers. All version differences are in this block.
#if FULLDECK_TORCH_AT_LEAST(2, 9)
using DeviceMemory = c10::DeviceAllocator;
DeviceMemory* MemoryOf(c10::Device device) {
  return dynamic_cast<DeviceMemory*>(c10::GetAllocator(device.type()));
}
// The index type and the query for free memory differ between minor versions.
template <typename Allocator>
void ReadStats(Allocator& memory, c10::Device device, MemoryFigures& figures) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto bytes = [](std::int64_t value) { return static_cast<std::uint64_t>(value < 0 ? 0 : value); };
  const auto stats = memory.getDeviceStats(device.index());
  figures.used = bytes(stats.allocated_bytes[kAll].current);
  figures.peak = bytes(stats.allocated_bytes[kAll].peak);
  figures.reserved = bytes(stats.reserved_bytes[kAll].current);
  if constexpr (requires { memory.getMemoryInfo(device.index()); }) {
    const auto info = memory.getMemoryInfo(device.index());
    figures.free = info.first;
    figures.total = info.second;
  }
}
template <typename Allocator>
void Empty(Allocator& memory) {
  memory.emptyCache();
}
#else
struct DeviceMemory {};
DeviceMemory* MemoryOf(c10::Device) {
  return nullptr;
}
void ReadStats(DeviceMemory&, c10::Device, MemoryFigures&) {}
void Empty(DeviceMemory&) {}
#endif

// "MemTotal:       16384 kB"
std::optional<std::uint64_t> LineOfMeminfo(const std::string& text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string::npos) return std::nullopt;
  const auto end = text.find("kB", at);
  if (end == std::string::npos) return std::nullopt;
  const auto kib = base::ParseInteger<std::uint64_t>(
      base::Trim(std::string_view(text).substr(at + name.size(), end - at - name.size())));
  if (!kib) return std::nullopt;
  return *kib << 10;
}

MemoryFigures ReadHostMemory() {
  MemoryFigures figures;
  std::string line;
  if (std::getline(std::ifstream("/proc/self/statm"), line)) {
    const auto fields = base::Split(line, ' ');
    if (fields.size() > 1) {
      if (const auto pages = base::ParseInteger<std::uint64_t>(fields[1])) {
        figures.used = *pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
        figures.reserved = figures.used;
      }
    }
  }
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) figures.peak = static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
  // The kernel counts pages per thread, so the two sums may differ slightly.
  if (figures.used && figures.peak) figures.peak = std::max(*figures.peak, *figures.used);
  std::ifstream meminfo("/proc/meminfo");
  const std::string text((std::istreambuf_iterator<char>(meminfo)), std::istreambuf_iterator<char>());
  figures.total = LineOfMeminfo(text, "MemTotal:");
  figures.free = LineOfMeminfo(text, "MemAvailable:");
  return figures;
}

}  // namespace

std::string MemoryFigures::ToText() const {
  std::string text;
  if (used) text += base::FormatByteSize(*used) + " used";
  if (used && peak) text += " (peak " + base::FormatByteSize(*peak) + ")";
  if (reserved) text += (text.empty() ? "" : ", ") + base::FormatByteSize(*reserved) + " reserved";
  if (free && total) {
    text += (text.empty() ? "" : ", ") + base::FormatByteSize(*free) + " of " + base::FormatByteSize(*total) + " free";
  }
  return text.empty() ? "its allocator tells no figures" : text;
}

MemoryFigures ReadMemory(c10::Device device) {
  if (device.is_cpu()) return ReadHostMemory();
  MemoryFigures figures;
  try {
    if (DeviceMemory* memory = MemoryOf(device)) ReadStats(*memory, device, figures);
  } catch (const std::exception&) {
    // The allocator has the interface but does not report the values.
  }
  return figures;
}

bool ReleaseCaches(c10::Device device) {
  malloc_trim(0);
  if (device.is_cpu()) return true;
  try {
    DeviceMemory* memory = MemoryOf(device);
    if (memory == nullptr) return false;
    Empty(*memory);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool IsOutOfMemory(const std::exception_ptr& error, std::string* text) {
  const auto set_text = [&](const char* what) {
    if (text == nullptr) return;
    const std::string whole = what;
    *text = base::Printable(whole.substr(0, std::min(whole.find('\n'), std::size_t{400})));
  };
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& caught) {
    set_text(caught.what_without_backtrace());
    return true;
  } catch (const std::bad_alloc& caught) {
    set_text("the host has no memory left (std::bad_alloc)");
    return true;
  } catch (const Error&) {
    return false;  // our errors have their own type for it
  } catch (const c10::DistError&) {
    return false;  // it may quote another rank's out-of-memory error
  } catch (const std::exception& caught) {
    const std::string what = caught.what();
    for (const char* phrase :
         {"out of memory", "OutOfMemory", "can't allocate memory", "ALLOC_FAILED", "not enough memory"}) {
      if (what.find(phrase) == std::string::npos) continue;
      set_text(caught.what());
      return true;
    }
    return false;
  } catch (...) {
    return false;
  }
}

}  // namespace fulldeck
