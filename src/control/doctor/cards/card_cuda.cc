#include "doctor/cards/card_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "doctor/cards/card_cuda_driver.h"
#include "doctor/cards/card_kernels.h"
#include "doctor/collectives/proof_lines.h"
#include "doctor/step_times.h"

namespace fulldeck::doctor {
namespace {

using Json = ProofLines::Json;
using Failure = std::optional<std::string>;  // nullopt: success

constexpr std::size_t kCopyBytes = std::size_t{64} << 20;
constexpr std::uint32_t kThreads = 1U << 18;
constexpr std::uint32_t kBlock = 256;
constexpr std::uint32_t kProofSteps = 64;
constexpr std::uint32_t kPaceSteps = 20000;
constexpr std::uint32_t kSeed = 0x5eedcafeU;

double SecondsSince(base::TimePoint begin) {
  return std::chrono::duration<double>(base::SteadyClock::Instance().Now() - begin).count();
}

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

// Uncorrected memory errors as far as NVML reports them; the rest is absent.
void QueryMemoryErrors(const CudaRequest& request, Json& figures) {
  for (const std::string& candidate : request.management) {
    auto library = base::DynamicLibrary::Open(candidate);
    if (!library) continue;
    const auto init = library->Find<int()>("nvmlInit_v2");
    const auto handle = library->Find<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (init == nullptr || handle == nullptr || request.pci_address.empty()) return;
    void* device = nullptr;
    if (init() != 0 || handle(request.pci_address.c_str(), &device) != 0) return;
    if (const auto errors = library->Find<int(void*, int, int, unsigned long long*)>("nvmlDeviceGetTotalEccErrors")) {
      unsigned long long count = 0;
      if (errors(device, 1, 0, &count) == 0) figures["ecc_uncorrected"] = count;
    }
    if (const auto rows =
            library->Find<int(void*, unsigned*, unsigned*, unsigned*, unsigned*)>("nvmlDeviceGetRemappedRows")) {
      unsigned corrected = 0;
      unsigned uncorrected = 0;
      unsigned pending = 0;
      unsigned failed = 0;
      if (rows(device, &corrected, &uncorrected, &pending, &failed) == 0) {
        figures["rows_pending"] = pending != 0;
        figures["rows_failed"] = failed != 0;
      }
    }
    return;
  }
}

class CudaProof {
 public:
  CudaProof(const CudaDriver& driver, const CudaRequest& request, ProofLines& lines)
      : driver_(driver), request_(request), lines_(lines) {}

  // nullopt, or the driver's error. Wrong values are in wrong().
  Failure Run() {
    const std::pair<const char*, Failure (CudaProof::*)()> steps[] = {
        {"allocate", &CudaProof::Allocate}, {"copy", &CudaProof::Copy},     {"compute", &CudaProof::Compute},
        {"pace", &CudaProof::Pace},         {"memory", &CudaProof::Memory}, {"busy", &CudaProof::Busy},
        {"free", &CudaProof::Free},
    };
    for (const auto& [name, step] : steps) {
      lines_.Step(name);
      if (Failure failure = (this->*step)()) return failure;
      if (!wrong_.empty()) return std::nullopt;
    }
    return std::nullopt;
  }

  const std::string& wrong() const { return wrong_; }
  Json& figures() { return figures_; }

 private:
  Failure Find() {
    if (!request_.pci_address.empty() && driver_.DeviceGetByPCIBusId != nullptr &&
        driver_.DeviceGetByPCIBusId(&device_, request_.pci_address.c_str()) == 0) {
      return std::nullopt;
    }
    return driver_.Failure(driver_.DeviceGet(&device_, request_.ordinal), "finding the card");
  }

  Failure Allocate() {
    if (Failure failure = Find()) return failure;
    Describe();
    if (Failure failure = driver_.Failure(driver_.CtxCreate(&context_, 0, device_), "opening the card")) return failure;
    std::size_t total = 0;
    if (Failure failure = driver_.Failure(driver_.MemGetInfo(&free_, &total), "asking for free memory")) return failure;
    figures_["memory_free"] = free_;
    copy_bytes_ = std::min(kCopyBytes, free_ / 8) & ~std::size_t{4095};
    if (copy_bytes_ == 0)
      return fmt::format("it has {} of free memory, too little to prove anything", base::FormatByteSize(free_));
    return driver_.Failure(driver_.MemAlloc(&block_, copy_bytes_), "allocating memory");
  }

  void Describe() {
    std::array<char, 256> name{};
    if (driver_.DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device_) == 0) {
      figures_["name"] = base::Printable(name.data());
    }
    std::array<unsigned char, 16> uuid{};
    if (driver_.DeviceGetUuid != nullptr && driver_.DeviceGetUuid(uuid.data(), device_) == 0) {
      std::string text = "GPU-";
      for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", uuid[i]);
      }
      figures_["uuid"] = text;
    }
    int value = 0;
    if (driver_.DeviceGetAttribute(&value, kCudaAttributeEcc, device_) == 0) figures_["ecc"] = value != 0;
    if (driver_.DeviceGetAttribute(&value, kCudaAttributeMultiprocessors, device_) == 0 && value > 0) {
      multiprocessors_ = static_cast<unsigned>(value);
    }
    int minor = 0;
    if (driver_.DeviceGetAttribute(&value, kCudaAttributeMajor, device_) == 0 &&
        driver_.DeviceGetAttribute(&minor, kCudaAttributeMinor, device_) == 0) {
      figures_["capability"] = fmt::format("{}.{}", value, minor);
    }
  }

  Failure Copy() {
    void* there = nullptr;
    void* back = nullptr;
    if (Failure failure = driver_.Failure(driver_.MemAllocHost(&there, copy_bytes_), "pinning host memory"))
      return failure;
    if (Failure failure = driver_.Failure(driver_.MemAllocHost(&back, copy_bytes_), "pinning host memory"))
      return failure;
    auto* const words = static_cast<std::uint32_t*>(there);
    for (std::size_t i = 0; i < copy_bytes_ / 4; ++i) words[i] = PatternAt(i, kSeed);
    std::memset(back, 0, copy_bytes_);
    StepTimes there_times;
    StepTimes back_times;
    while (!there_times.Enough() || !back_times.Enough()) {
      there_times.Begin();
      if (Failure failure = driver_.Failure(driver_.MemcpyHtoD(block_, there, copy_bytes_), "copying to the card"))
        return failure;
      if (Failure failure = Wait("copying to the card")) return failure;
      there_times.End();
      back_times.Begin();
      if (Failure failure = driver_.Failure(driver_.MemcpyDtoH(back, block_, copy_bytes_), "copying from the card"))
        return failure;
      back_times.End();
    }
    if (std::memcmp(there, back, copy_bytes_) != 0) {
      const auto* const got = static_cast<const std::uint32_t*>(back);
      std::size_t first = copy_bytes_ / 4;
      std::size_t different = 0;
      for (std::size_t i = 0; i < copy_bytes_ / 4; ++i) {
        if (got[i] == words[i]) continue;
        ++different;
        first = std::min(first, i);
      }
      wrong_ = fmt::format("memory does not give back what was written: {} of {} words differ, the first at byte {}",
                           different, copy_bytes_ / 4, first * 4);
    }
    figures_["to_card"] = static_cast<double>(copy_bytes_) / there_times.Typical();
    figures_["from_card"] = static_cast<double>(copy_bytes_) / back_times.Typical();
    figures_["copied"] = copy_bytes_;
    driver_.MemFreeHost(there);
    driver_.MemFreeHost(back);
    return std::nullopt;
  }

  Failure Compute() {
    void* module = nullptr;
    if (Failure failure = driver_.Failure(driver_.ModuleLoadData(&module, kCardKernels),
                                          "translating the test program for this card"))
      return failure;
    for (const auto& [function, name] : {std::pair<void**, const char*>{&fill_, "fulldeck_fill"},
                                         {&check_, "fulldeck_check"},
                                         {&compute_, "fulldeck_compute"}}) {
      if (Failure failure =
              driver_.Failure(driver_.ModuleGetFunction(function, module, name), "finding the test program"))
        return failure;
    }
    threads_ = static_cast<std::uint32_t>(std::min<std::size_t>(kThreads, copy_bytes_ / 8));
    if (Failure failure = LaunchCompute(kProofSteps)) return failure;
    std::vector<std::uint32_t> whole(threads_);
    std::vector<float> real(threads_);
    if (Failure failure = driver_.Failure(driver_.MemcpyDtoH(whole.data(), block_, threads_ * 4), "copying results"))
      return failure;
    if (Failure failure = driver_.Failure(
            driver_.MemcpyDtoH(real.data(), block_ + threads_ * std::size_t{4}, threads_ * 4), "copying results"))
      return failure;
    std::uint32_t different = 0;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      const Computed right = ComputedBy(i, kProofSteps);
      // Bitwise: an expected NaN is correct.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      if (whole[i] == right.whole && std::memcmp(&real[i], &right.real, 4) == 0) continue;
      if (different++ == 0) {
        wrong_ = fmt::format("the first is number {}: {} and {} instead of {} and {}", i, whole[i], real[i],
                             right.whole, right.real);
      }
    }
    if (different > 0)
      wrong_ = fmt::format("{} of {} results differ from the processor's; {}", different, threads_, wrong_);
    return std::nullopt;
  }

  Failure Pace() {
    StepTimes times;
    if (Failure failure = LaunchCompute(kPaceSteps)) return failure;
    while (!times.Enough()) {
      times.Begin();
      if (Failure failure = LaunchCompute(kPaceSteps)) return failure;
      times.End();
    }
    figures_["pace"] = times.Typical();
    return std::nullopt;
  }

  Failure Memory() {
    std::size_t total = 0;
    if (Failure failure = driver_.Failure(driver_.MemGetInfo(&free_, &total), "asking for free memory")) return failure;
    auto bytes = static_cast<std::size_t>(static_cast<double>(free_) * request_.memory_share) & ~std::size_t{4095};
    CudaPointer field = 0;
    // Free memory may be fragmented, or another process may allocate it at this moment.
    int code = 0;
    while (bytes >= 4096 && (code = driver_.MemAlloc(&field, bytes)) == kCudaOutOfMemory)
      bytes = bytes / 2 & ~std::size_t{4095};
    if (bytes < 4096) return std::nullopt;
    if (Failure failure = driver_.Failure(code, "allocating memory")) return failure;
    std::uint64_t words = bytes / 4;
    double fastest = 0;
    for (std::uint32_t seed : {kSeed, ~kSeed}) {
      CudaPointer found_at = block_;
      const std::array<std::uint64_t, 2> none{0, ~std::uint64_t{0}};
      std::array<std::uint64_t, 2> found{};
      if (Failure failure =
              driver_.Failure(driver_.MemcpyHtoD(found_at, none.data(), sizeof none), "copying to the card"))
        return failure;
      const base::TimePoint begin = Now();
      void* fill_arguments[] = {&field, &words, &seed};
      if (Failure failure = Launch(fill_, Blocks(words), fill_arguments, "filling memory")) return failure;
      fastest = std::max(fastest, static_cast<double>(bytes) / std::max(SecondsSince(begin), 1e-9));
      void* check_arguments[] = {&field, &words, &seed, &found_at};
      if (Failure failure = Launch(check_, Blocks(words), check_arguments, "reading memory back")) return failure;
      if (Failure failure =
              driver_.Failure(driver_.MemcpyDtoH(found.data(), found_at, sizeof found), "copying results"))
        return failure;
      if (found[0] != 0) {
        wrong_ = fmt::format("memory does not keep what is written: {} of {} words changed, the first at byte {} of {}",
                             found[0], words, found[1] * 4, base::FormatByteSize(bytes));
        return std::nullopt;
      }
      lines_.Step("memory");  // a heartbeat
    }
    figures_["memory"] = fastest;
    figures_["memory_proved"] = bytes;
    return driver_.Failure(driver_.MemFree(field), "freeing memory");
  }

  Failure Busy() {
    const base::TimePoint begin = Now();
    while (SecondsSince(begin) < request_.busy_seconds) {
      if (Failure failure = LaunchCompute(kPaceSteps)) return failure;
    }
    return std::nullopt;
  }

  Failure Free() {
    if (Failure failure = driver_.Failure(driver_.MemFree(block_), "freeing memory")) return failure;
    QueryMemoryErrors(request_, figures_);
    return driver_.Failure(driver_.CtxDestroy(context_), "closing the card");
  }

  unsigned Blocks(std::uint64_t words) const {
    return static_cast<unsigned>(
        std::min<std::uint64_t>((words + kBlock - 1) / kBlock, std::uint64_t{multiprocessors_} * 16));
  }

  Failure LaunchCompute(std::uint32_t steps) {
    CudaPointer whole = block_;
    CudaPointer real = block_ + threads_ * std::size_t{4};
    std::uint32_t count = threads_;
    void* arguments[] = {&whole, &real, &count, &steps};
    return Launch(compute_, (count + kBlock - 1) / kBlock, arguments, "computing");
  }

  Failure Launch(void* function, unsigned blocks, void** arguments, const char* what) {
    if (Failure failure = driver_.Failure(
            driver_.LaunchKernel(function, blocks, 1, 1, kBlock, 1, 1, 0, nullptr, arguments, nullptr), what)) {
      return failure;
    }
    return Wait(what);
  }

  Failure Wait(const char* what) { return driver_.Failure(driver_.CtxSynchronize(), what); }

  const CudaDriver& driver_;
  const CudaRequest& request_;
  ProofLines& lines_;
  Json figures_ = Json::object();
  std::string wrong_;
  int device_ = 0;
  unsigned multiprocessors_ = 64;
  void* context_ = nullptr;
  std::size_t free_ = 0;
  std::size_t copy_bytes_ = 0;
  std::uint32_t threads_ = 0;
  CudaPointer block_ = 0;
  void* fill_ = nullptr;
  void* check_ = nullptr;
  void* compute_ = nullptr;
};

}  // namespace

int ProveCudaCard(const CudaRequest& request) {
  ProofLines lines(request.card, "the CUDA driver");
  lines.Step("driver");
  bool nowhere = false;
  const auto driver = CudaDriver::Open(request.libraries, &nowhere);
  if (!driver) {
    if (nowhere) {
      ProofLines::Unavailable(driver.error().message);
    } else {
      lines.Refused(driver.error().message);
    }
    return 1;
  }
  lines.set_way("CUDA driver " + driver->VersionText());
  CudaProof proof(*driver, request, lines);
  const Failure failure = proof.Run();
  if (failure) {
    lines.Refused(*failure);
  } else if (!proof.wrong().empty()) {
    lines.Wrong(proof.wrong());
  } else {
    lines.Sound(proof.figures());
    return 0;
  }
  return 1;
}

}  // namespace fulldeck::doctor
