#include <fmt/format.h>

#include <cstring>

#include "bench/library.h"
#include "fulldeck/collectives.h"

namespace fulldeck::bench {
namespace {

constexpr std::uint64_t kTag = 1;

base::Result<void> Outcome(int code) {
  if (code == FULLDECK_OK) return {};
  return base::Error{fulldeck_error_text()};
}

class FulldeckLibrary final : public Library {
 public:
  FulldeckLibrary(fulldeck_group* group, int rank, int ranks) : group_(group), rank_(rank), ranks_(ranks) {}
  ~FulldeckLibrary() override { fulldeck_group_destroy(group_); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string About() const override { return "through its C interface"; }
  std::optional<std::string> WhyNot(const Operation&, const Element&, std::uint64_t) const override {
    return std::nullopt;
  }

  base::Result<void> Barrier() override { return Outcome(fulldeck_barrier(group_)); }

  base::Result<std::int64_t> BroadcastFromRankZero(std::int64_t value) override {
    const int code = fulldeck_broadcast(group_, &value, 1, FULLDECK_INT64, 0);
    if (code != FULLDECK_OK) return base::Error{fulldeck_error_text()};
    return value;
  }

  base::Result<void> Do(const Call& call) override {
    const int datatype = call.element->datatype;
    switch (call.operation->kind) {
      case OperationKind::kAllReduce:
        return Outcome(fulldeck_all_reduce(group_, call.input, call.output, call.count, datatype, FULLDECK_SUM));
      case OperationKind::kReduce:
        return Outcome(fulldeck_reduce(group_, call.input, call.output, call.count, datatype, FULLDECK_SUM, 0));
      case OperationKind::kBroadcast:
        return Outcome(fulldeck_broadcast(group_, call.output, call.count, datatype, 0));
      case OperationKind::kAllGather:
        return Outcome(fulldeck_all_gather(group_, call.input, call.output, call.count, datatype));
      case OperationKind::kReduceScatter:
        return Outcome(fulldeck_reduce_scatter(group_, call.input, call.output, call.count, datatype, FULLDECK_SUM));
      case OperationKind::kGather:
        return Outcome(fulldeck_gather(group_, call.input, call.output, call.count, datatype, 0));
      case OperationKind::kScatter:
        return Outcome(fulldeck_scatter(group_, call.input, call.output, call.count, datatype, 0));
      case OperationKind::kAllToAll:
        return Outcome(fulldeck_all_to_all(group_, call.input, call.output, call.count, datatype));
      case OperationKind::kSendReceive:
        return SendAndReceive(call);
      case OperationKind::kBarrier:
        return Barrier();
    }
    return {};
  }

  base::Result<std::byte*> AllocateShared(std::uint64_t bytes) override {
    void* memory = nullptr;
    if (fulldeck_allocate(group_, bytes, &memory) != FULLDECK_OK) return base::Error{fulldeck_error_text()};
    return static_cast<std::byte*>(memory);
  }
  void FreeShared(std::byte* memory) override { fulldeck_free(group_, memory); }

 private:
  base::Result<void> SendAndReceive(const Call& call) {
    const int partner = PartnerOf(rank_, ranks_);
    if (partner < 0) return {};
    const std::uint64_t bytes = call.count * call.element->bytes;
    const bool first = rank_ < partner;
    if (first) {
      if (auto sent = Outcome(fulldeck_send(group_, call.input, bytes, partner, kTag)); !sent) return sent;
    }
    if (auto got = Outcome(fulldeck_receive(group_, call.output, bytes, partner, kTag, nullptr)); !got) return got;
    return first ? base::Result<void>() : Outcome(fulldeck_send(group_, call.input, bytes, partner, kTag));
  }

  fulldeck_group* const group_;
  const int rank_;
  const int ranks_;
};

}  // namespace

base::Result<std::unique_ptr<Library>> JoinFulldeck(const FulldeckMember& member) {
  fulldeck_group_options options;
  std::memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.rank = member.rank;
  options.size = member.ranks;
  options.name = "bench";
  options.key = member.key.c_str();
  options.timeout_ms = static_cast<std::uint64_t>(member.timeout_seconds * 1000);
  fulldeck_group* group = nullptr;
  if (fulldeck_group_create(&options, &group) != FULLDECK_OK) return base::Error{fulldeck_error_text()};
  return std::unique_ptr<Library>(std::make_unique<FulldeckLibrary>(group, member.rank, member.ranks));
}

}  // namespace fulldeck::bench
