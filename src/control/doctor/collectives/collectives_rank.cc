#include "doctor/collectives/collectives_rank.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files/unique_fd.h"
#include "base/log.h"
#include "base/text.h"
#include "bench/rank_protocol.h"
#include "doctor/collectives/collectives_step.h"
#include "fulldeck/collectives.h"

namespace fulldeck::doctor {
namespace {

using bench::OperationKind;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kDataTag = 1;
constexpr std::uint64_t kReadyTag = 2;
constexpr std::chrono::milliseconds kSlowness(150);
constexpr std::uint64_t kLongMessage = 64 << 10;
constexpr std::size_t kAlignment = 64;

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

Memory Allocate(std::uint64_t bytes) {
  void* made = nullptr;
  // Buffers of size zero still get an address.
  if (posix_memalign(&made, kAlignment, std::max<std::uint64_t>(bytes, 1)) != 0) return nullptr;
  return Memory(static_cast<std::byte*>(made));
}

int ReductionOf(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, int>, 8> kNumbers = {{{"sum", FULLDECK_SUM},
                                                                         {"avg", FULLDECK_AVG},
                                                                         {"min", FULLDECK_MIN},
                                                                         {"max", FULLDECK_MAX},
                                                                         {"prod", FULLDECK_PROD},
                                                                         {"and", FULLDECK_AND},
                                                                         {"or", FULLDECK_OR},
                                                                         {"xor", FULLDECK_XOR}}};
  for (const auto& [word, number] : kNumbers) {
    if (word == name) return number;
  }
  return FULLDECK_SUM;
}

class StepRun {
 public:
  StepRun(fulldeck_group* group, const ProofRank& process, const std::vector<ProofFault>& faults, int progress,
          const Step& step)
      : group_(group),
        process_(process),
        faults_(faults),
        progress_(progress),
        step_(step),
        values_(step, process.ranks) {}

  StepAnswer Run() {
    Be(RankProgress::kPreparing);
    if (step_.from >= 0 ? process_.rank == step_.from || process_.rank == step_.to : true) Calls();
    Be(RankProgress::kWaiting);
    return std::move(answer_);
  }

 private:
  // `peer` matters for faults that name one.
  bool IsFaulty(std::string_view kind, int peer = -1) const {
    return std::any_of(faults_.begin(), faults_.end(), [&](const ProofFault& fault) {
      return fault.kind == kind && fault.rank == process_.rank && fault.operation == step_.operation->name &&
             (fault.peer < 0 || fault.peer == peer);
    });
  }

  void Be(RankProgress::Phase phase) const {
    const RankProgress now{static_cast<std::uint64_t>(step_.number) * 8 + phase, static_cast<std::uint64_t>(getpid())};
    // Only for the message about a hang: a rank that cannot write it still works.
    const ssize_t written = pwrite(progress_, &now, sizeof now, static_cast<off_t>(sizeof now) * process_.rank);
    static_cast<void>(written);
  }

  void Calls() {
    const std::uint64_t width = step_.element->bytes;
    const auto ranks = static_cast<std::uint64_t>(process_.ranks);
    const bool is_root = process_.rank == step_.root;
    std::uint64_t sent = step_.count;
    std::uint64_t came = step_.count;
    switch (step_.operation->kind) {
      case OperationKind::kAllGather:
        came *= ranks;
        break;
      case OperationKind::kReduceScatter:
        sent *= ranks;
        break;
      case OperationKind::kAllToAll:
        sent *= ranks;
        came *= ranks;
        break;
      case OperationKind::kGather:
        came = is_root ? came * ranks : 0;
        break;
      case OperationKind::kScatter:
        sent = is_root ? sent * ranks : 0;
        break;
      case OperationKind::kReduce:
        came = is_root ? came : 0;
        break;
      default:
        break;
    }
    const Memory input = Allocate(sent * width);
    const Memory output = Allocate(came * width);
    if (!input || !output) {
      answer_.failed = base::FormatByteSize((sent + came) * width) + " of memory cannot be had";
      return;
    }
    for (int call = 0; call < step_.calls; ++call) {
      values_.Write(input.get(), sent, process_.rank, 0, call);
      if (IsFaulty("contribute") && call == 0 && sent > 0) input.get()[0] ^= std::byte{1};
      // Old data must not pass for the result.
      std::memset(output.get(), 0xee, came * width);
      if (step_.operation->kind == OperationKind::kBroadcast && is_root)
        std::memcpy(output.get(), input.get(), came * width);
      if (!Call(input.get(), output.get())) return;
      Be(RankProgress::kChecking);
      if (IsFaulty("alter") && call == 0 && came > 0) output.get()[0] ^= std::byte{1};
      CheckResult(output.get(), call);
      Be(RankProgress::kPreparing);
    }
  }

  bool Did(int code) {
    if (code == FULLDECK_OK) return true;
    answer_.failed = fulldeck_error_text();
    return false;
  }

  // Makes and times the call. Pairs synchronize with a message, all others with a barrier.
  bool Call(std::byte* input, std::byte* output) {
    if (step_.sized && step_.from < 0 && !Did(fulldeck_barrier(group_))) return false;
    if (step_.from >= 0 && !SyncWithPartner()) return false;
    if (IsFaulty("exit")) std::_Exit(3);
    if (IsFaulty("kill")) std::raise(SIGKILL);
    if (IsFaulty("hang")) std::this_thread::sleep_for(std::chrono::hours(1));
    Be(RankProgress::kInCall);
    if (IsFaulty("stop")) std::raise(SIGSTOP);
    const Clock::time_point began = Clock::now();
    if (!Do(input, output)) return false;
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
    // Checking the result earlier would take CPU time from ranks that are still in the call.
    if (step_.sized && step_.from < 0 && !Did(fulldeck_barrier(group_))) return false;
    if (step_.from < 0 || process_.rank == step_.from) answer_.times_ns.push_back(static_cast<std::uint64_t>(took));
    return true;
  }

  bool Do(std::byte* input, std::byte* output) {
    const std::uint64_t count = step_.count;
    const int type = step_.element->datatype;
    const int reduction = ReductionOf(step_.reduction);
    switch (step_.operation->kind) {
      case OperationKind::kAllReduce:
        return Did(fulldeck_all_reduce(group_, input, output, count, type, reduction));
      case OperationKind::kReduce:
        return Did(fulldeck_reduce(group_, input, output, count, type, reduction, step_.root));
      case OperationKind::kBroadcast:
        return Did(fulldeck_broadcast(group_, output, count, type, step_.root));
      case OperationKind::kAllGather:
        return Did(fulldeck_all_gather(group_, input, output, count, type));
      case OperationKind::kReduceScatter:
        return Did(fulldeck_reduce_scatter(group_, input, output, count, type, reduction));
      case OperationKind::kGather:
        return Did(fulldeck_gather(group_, input, output, count, type, step_.root));
      case OperationKind::kScatter:
        return Did(fulldeck_scatter(group_, input, output, count, type, step_.root));
      case OperationKind::kAllToAll:
        return Did(fulldeck_all_to_all(group_, input, output, count, type));
      case OperationKind::kBarrier:
        return Did(fulldeck_barrier(group_));
      case OperationKind::kSendReceive:
        return ThereAndBack(input, output);
    }
    return false;
  }

  int Partner() const { return process_.rank == step_.from ? step_.to : step_.from; }

  bool SyncWithPartner() {
    std::byte word{};
    if (process_.rank == step_.to) return Did(fulldeck_send(group_, &word, 1, Partner(), kReadyTag));
    return Did(fulldeck_receive(group_, &word, 1, Partner(), kReadyTag, nullptr));
  }

  bool ThereAndBack(std::byte* input, std::byte* output) {
    const std::uint64_t bytes = step_.count * step_.element->bytes;
    const bool first = process_.rank == step_.from;
    if (first && !Did(fulldeck_send(group_, input, bytes, Partner(), kDataTag))) return false;
    if (!Did(fulldeck_receive(group_, output, bytes, Partner(), kDataTag, nullptr))) return false;
    if (bytes >= kLongMessage && IsFaulty("slow", Partner())) std::this_thread::sleep_for(kSlowness);
    return first || Did(fulldeck_send(group_, input, bytes, Partner(), kDataTag));
  }

  void CheckResult(const std::byte* output, int call) {
    const auto rank = static_cast<std::uint64_t>(process_.rank);
    const bool is_root = process_.rank == step_.root;
    switch (step_.operation->kind) {
      case OperationKind::kAllReduce:
        return CheckChunk(output, 0, StepValues::kReduced, 0, call);
      case OperationKind::kReduce:
        if (is_root) CheckChunk(output, 0, StepValues::kReduced, 0, call);
        return;
      case OperationKind::kBroadcast:
        return CheckChunk(output, 0, step_.root, 0, call);
      case OperationKind::kReduceScatter:
        return CheckChunk(output, 0, StepValues::kReduced, rank * step_.count, call);
      case OperationKind::kScatter:
        return CheckChunk(output, 0, step_.root, rank * step_.count, call);
      case OperationKind::kGather:
        if (!is_root) return;
        [[fallthrough]];
      case OperationKind::kAllGather:
      case OperationKind::kAllToAll:
        for (int from = 0; from < process_.ranks; ++from) {
          const std::uint64_t first = step_.operation->kind == OperationKind::kAllToAll ? rank * step_.count : 0;
          CheckChunk(output, static_cast<std::uint64_t>(from) * step_.count, from, first, call);
        }
        return;
      case OperationKind::kSendReceive:
        return CheckChunk(output, 0, Partner(), 0, call);
      case OperationKind::kBarrier:
        return;
    }
  }

  void CheckChunk(const std::byte* output, std::uint64_t offset, int from, std::uint64_t first, int call) {
    auto wrong = values_.Check(output + offset * step_.element->bytes, step_.count, from, first, call);
    answer_.checked += step_.count;
    if (!wrong || answer_.wrong) return;
    wrong->element += offset;
    answer_.wrong = wrong;
  }

  fulldeck_group* const group_;
  const ProofRank& process_;
  const std::vector<ProofFault>& faults_;
  const int progress_;
  const Step step_;
  StepValues values_;
  StepAnswer answer_;
};

struct LeaveGroup {
  void operator()(fulldeck_group* group) const { fulldeck_group_destroy(group); }
};

int Fail(const std::string& message) {
  base::Log(base::Severity::kError, message);
  return EXIT_FAILURE;
}

std::string Dump(const bench::Json& json) {
  return json.dump(-1, ' ', false, bench::Json::error_handler_t::replace);
}

}  // namespace

int RunProofRank(const ProofRank& process) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto faults = ReadProofFaults(process.fault);
  if (!faults) return Fail(faults.error().message);
  auto socket = bench::LineSocket::Connect(process.socket);
  if (!socket) return Fail(socket.error().message);
  const base::UniqueFd progress(open(process.progress.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));

  fulldeck_group_options options;
  std::memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.rank = process.rank;
  options.size = process.ranks;
  options.name = "doctor";
  options.key = process.key.c_str();
  options.timeout_ms = static_cast<std::uint64_t>(process.timeout_seconds * 1000);
  fulldeck_group* made = nullptr;
  bench::Greeting greeting{process.rank, "through its C interface", std::nullopt};
  if (fulldeck_group_create(&options, &made) != FULLDECK_OK) greeting.absent = fulldeck_error_text();
  const std::unique_ptr<fulldeck_group, LeaveGroup> group(made);
  if (const auto sent = socket->Send(Dump(bench::ToJson(greeting))); !sent) return Fail(sent.error().message);
  if (!group) return EXIT_SUCCESS;

  while (const auto line = socket->Receive()) {
    const auto step = ReadStep(*line);
    if (!step) return Fail(step.error().message);
    StepRun run(group.get(), process, *faults, progress.get(), *step);
    if (const auto sent = socket->Send(LineOf(run.Run())); !sent) return Fail(sent.error().message);
  }
  return EXIT_SUCCESS;
}

std::vector<RankProgress> ReadProgress(const std::string& path, int ranks) {
  std::vector<RankProgress> all(static_cast<std::size_t>(ranks));
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return all;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RankProgress one;
    if (pread(file.get(), &one, sizeof one, static_cast<off_t>(rank * sizeof one)) == sizeof one) all[rank] = one;
  }
  return all;
}

base::Result<std::vector<ProofFault>> ReadProofFaults(std::string_view text) {
  std::vector<ProofFault> faults;
  if (text.empty()) return faults;
  for (const std::string_view one : base::Split(text, ',')) {
    const auto parts = base::Split(one, ':');
    constexpr std::array<std::string_view, 7> kKinds = {"alter", "contribute", "exit", "kill", "hang", "stop", "slow"};
    const base::Error error{"a fault is KIND:RANK:OPERATION[:PEER], and '" + base::Printable(one) + "' is none"};
    if (parts.size() < 3 || parts.size() > 4) return error;
    if (std::find(kKinds.begin(), kKinds.end(), parts[0]) == kKinds.end()) return error;
    const auto rank = base::ParseInteger<int>(parts[1]);
    const auto peer = parts.size() == 4 ? base::ParseInteger<int>(parts[3]) : -1;
    if (!rank || !peer || bench::FindOperation(parts[2]) == nullptr) return error;
    faults.push_back({std::string(parts[0]), *rank, std::string(parts[2]), *peer});
  }
  return faults;
}

}  // namespace fulldeck::doctor
