#include <dlfcn.h>
#include <fmt/format.h>

#include <limits>

#include "base/text.h"
#include "bench/library.h"
#include "fulldeck/collectives.h"

namespace fulldeck::bench {
namespace {

// The subset of Open MPI's ABI (library version 40: releases 4 and 5) that is used here. Its headers are not needed to
// build, and the library only where it is measured.
constexpr char kLibraryName[] = "libmpi.so.40";
constexpr int kSuccess = 0;
void* const kInPlace = reinterpret_cast<void*>(1);
constexpr int kTag = 1;

struct Handle;  // communicators, datatypes and operations: addresses of objects in the library
using Comm = Handle*;
using Type = Handle*;
using Op = Handle*;

struct Functions {
  int (*init)(int*, char***);
  int (*finalize)();
  int (*comm_rank)(Comm, int*);
  int (*comm_size)(Comm, int*);
  int (*version)(char*, int*);
  int (*error_string)(int, char*, int*);
  int (*set_errhandler)(Comm, Handle*);
  int (*barrier)(Comm);
  int (*bcast)(void*, int, Type, int, Comm);
  int (*all_reduce)(const void*, void*, int, Type, Op, Comm);
  int (*reduce)(const void*, void*, int, Type, Op, int, Comm);
  int (*all_gather)(const void*, int, Type, void*, int, Type, Comm);
  int (*reduce_scatter)(const void*, void*, int, Type, Op, Comm);
  int (*gather)(const void*, int, Type, void*, int, Type, int, Comm);
  int (*scatter)(const void*, int, Type, void*, int, Type, int, Comm);
  int (*all_to_all)(const void*, int, Type, void*, int, Type, Comm);
  int (*send)(const void*, int, Type, int, int, Comm);
  int (*receive)(void*, int, Type, int, int, Comm, void*);
};

// MPI_MAX_LIBRARY_VERSION_STRING and MPI_MAX_ERROR_STRING of Open MPI are 256.
constexpr std::size_t kTextBytes = 256;

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  template <typename Pointer>
  void Take(const char* name, Pointer& pointer) {
    pointer = reinterpret_cast<Pointer>(dlsym(library_, name));
    if (pointer == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

const char* TypeSymbol(const Element& element) {
  switch (element.datatype) {
    case FULLDECK_FLOAT32:
      return "ompi_mpi_float";
    case FULLDECK_FLOAT64:
      return "ompi_mpi_double";
    case FULLDECK_INT8:
      return "ompi_mpi_int8_t";
    case FULLDECK_UINT8:
      return "ompi_mpi_uint8_t";
    case FULLDECK_INT16:
      return "ompi_mpi_int16_t";
    case FULLDECK_INT32:
      return "ompi_mpi_int32_t";
    case FULLDECK_INT64:
      return "ompi_mpi_int64_t";
    default:
      return nullptr;
  }
}

class OpenMpiLibrary final : public Library {
 public:
  explicit OpenMpiLibrary(void* library) : library_(library) {}
  ~OpenMpiLibrary() override {
    if (started_) mpi_.finalize();
  }

  base::Result<void> Start() {
    Symbols symbols(library_);
    symbols.Take("MPI_Init", mpi_.init);
    symbols.Take("MPI_Finalize", mpi_.finalize);
    symbols.Take("MPI_Comm_rank", mpi_.comm_rank);
    symbols.Take("MPI_Comm_size", mpi_.comm_size);
    symbols.Take("MPI_Get_library_version", mpi_.version);
    symbols.Take("MPI_Error_string", mpi_.error_string);
    symbols.Take("MPI_Comm_set_errhandler", mpi_.set_errhandler);
    symbols.Take("MPI_Barrier", mpi_.barrier);
    symbols.Take("MPI_Bcast", mpi_.bcast);
    symbols.Take("MPI_Allreduce", mpi_.all_reduce);
    symbols.Take("MPI_Reduce", mpi_.reduce);
    symbols.Take("MPI_Allgather", mpi_.all_gather);
    symbols.Take("MPI_Reduce_scatter_block", mpi_.reduce_scatter);
    symbols.Take("MPI_Gather", mpi_.gather);
    symbols.Take("MPI_Scatter", mpi_.scatter);
    symbols.Take("MPI_Alltoall", mpi_.all_to_all);
    symbols.Take("MPI_Send", mpi_.send);
    symbols.Take("MPI_Recv", mpi_.receive);
    symbols.Take("ompi_mpi_comm_world", world_);
    symbols.Take("ompi_mpi_op_sum", sum_);
    symbols.Take("ompi_mpi_int64_t", int64_);
    Handle* errors_return = nullptr;
    symbols.Take("ompi_mpi_errors_return", errors_return);
    if (!symbols.missing().empty()) {
      return base::Error{fmt::format("{} has no {}: it is not Open MPI's", kLibraryName, symbols.missing())};
    }
    if (mpi_.init(nullptr, nullptr) != kSuccess) return base::Error{"MPI_Init failed"};
    started_ = true;
    mpi_.set_errhandler(world_, errors_return);
    if (mpi_.comm_rank(world_, &rank_) != kSuccess || mpi_.comm_size(world_, &ranks_) != kSuccess) {
      return base::Error{"MPI_Comm_rank failed"};
    }
    return {};
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  // "Open MPI v4.1.4, package: Debian OpenMPI, …" up to the first comma.
  std::string About() const override {
    std::string text(kTextBytes, '\0');
    int length = 0;
    if (mpi_.version(text.data(), &length) != kSuccess) return "Open MPI";
    text.resize(std::min<std::size_t>(text.find('\0'), kTextBytes));
    return base::Printable(text.substr(0, text.find(',')));
  }

  std::optional<std::string> WhyNot(const Operation& operation, const Element& element,
                                    std::uint64_t count) const override {
    if (TypeSymbol(element) == nullptr) return fmt::format("MPI has no {}", element.name);
    if (operation.has_size && count > std::numeric_limits<int>::max()) {
      return fmt::format("MPI counts elements in an int, and there are {}", count);
    }
    return std::nullopt;
  }

  base::Result<void> Barrier() override { return Outcome(mpi_.barrier(world_)); }

  base::Result<std::int64_t> BroadcastFromRankZero(std::int64_t value) override {
    if (auto done = Outcome(mpi_.bcast(&value, 1, int64_, 0, world_)); !done) return done.error();
    return value;
  }

  base::Result<void> Do(const Call& call) override {
    if (call.element != element_) {
      element_ = call.element;
      type_ = static_cast<Type>(dlsym(library_, TypeSymbol(*element_)));
    }
    const int count = static_cast<int>(call.count);
    switch (call.operation->kind) {
      case OperationKind::kAllReduce:
        return Outcome(mpi_.all_reduce(kInPlace, call.output, count, type_, sum_, world_));
      case OperationKind::kReduce:
        return Outcome(rank_ == 0 ? mpi_.reduce(kInPlace, call.output, count, type_, sum_, 0, world_)
                                  : mpi_.reduce(call.input, nullptr, count, type_, sum_, 0, world_));
      case OperationKind::kBroadcast:
        return Outcome(mpi_.bcast(call.output, count, type_, 0, world_));
      case OperationKind::kAllGather:
        return Outcome(mpi_.all_gather(call.input, count, type_, call.output, count, type_, world_));
      case OperationKind::kReduceScatter:
        return Outcome(mpi_.reduce_scatter(call.input, call.output, count, type_, sum_, world_));
      case OperationKind::kGather:
        return Outcome(mpi_.gather(call.input, count, type_, call.output, count, type_, 0, world_));
      case OperationKind::kScatter:
        return Outcome(mpi_.scatter(call.input, count, type_, call.output, count, type_, 0, world_));
      case OperationKind::kAllToAll:
        return Outcome(mpi_.all_to_all(call.input, count, type_, call.output, count, type_, world_));
      case OperationKind::kSendReceive:
        return SendAndReceive(call, count);
      case OperationKind::kBarrier:
        return Barrier();
    }
    return {};
  }

  base::Result<std::byte*> AllocateShared(std::uint64_t) override {
    return base::Error{"Open MPI's buffers are private here"};
  }
  void FreeShared(std::byte*) override {}

 private:
  base::Result<void> Outcome(int code) const {
    if (code == kSuccess) return {};
    std::string text(kTextBytes, '\0');
    int length = 0;
    if (mpi_.error_string(code, text.data(), &length) != kSuccess) return base::Error{fmt::format("error {}", code)};
    text.resize(std::min<std::size_t>(text.find('\0'), kTextBytes));
    return base::Error{base::Printable(text)};
  }

  base::Result<void> SendAndReceive(const Call& call, int count) {
    const int partner = PartnerOf(rank_, ranks_);
    if (partner < 0) return {};
    const bool first = rank_ < partner;
    if (first) {
      if (auto sent = Outcome(mpi_.send(call.input, count, type_, partner, kTag, world_)); !sent) return sent;
    }
    // No status is needed: MPI_STATUS_IGNORE is a null pointer.
    if (auto got = Outcome(mpi_.receive(call.output, count, type_, partner, kTag, world_, nullptr)); !got) return got;
    return first ? base::Result<void>() : Outcome(mpi_.send(call.input, count, type_, partner, kTag, world_));
  }

  void* const library_;
  Functions mpi_{};
  Comm world_ = nullptr;
  Op sum_ = nullptr;
  Type int64_ = nullptr;
  const Element* element_ = nullptr;
  Type type_ = nullptr;
  bool started_ = false;
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace

base::Result<std::unique_ptr<Library>> JoinOpenMpi() {
  // Its plugins resolve symbols of the library that loaded them, so these must be global.
  void* const opened = dlopen(kLibraryName, RTLD_NOW | RTLD_GLOBAL);
  if (opened == nullptr) {
    const char* reason = dlerror();
    return base::Error{base::Printable(reason != nullptr ? reason : "libmpi cannot be loaded")};
  }
  auto library = std::make_unique<OpenMpiLibrary>(opened);
  if (auto started = library->Start(); !started) return started.error();
  return std::unique_ptr<Library>(std::move(library));
}

}  // namespace fulldeck::bench
