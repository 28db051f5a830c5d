// include/fulldeck/collectives.h on top of group.h. No exception leaves a function.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/group.h"
#include "fulldeck/collectives.h"

namespace {

using fulldeck::collectives::Buffer;
using fulldeck::collectives::Datatype;
using fulldeck::collectives::Group;
using fulldeck::collectives::GroupOptions;
using fulldeck::collectives::IsDatatype;
using fulldeck::collectives::IsReduction;
using fulldeck::collectives::Nonfinite;
using fulldeck::collectives::RankBuffer;
using fulldeck::collectives::Reduction;
using fulldeck::collectives::Status;

std::string& ErrorText() {
  thread_local std::string text = "no call of this thread has failed";
  return text;
}

int Give(const Status& status) {
  if (!status.ok()) ErrorText() = status.text();
  return status.code();
}

int Refuse(std::string why) {
  return Give({FULLDECK_ERROR_ARGUMENT, std::move(why)});
}

}  // namespace

struct fulldeck_group {
  std::unique_ptr<Group> group;
};

namespace {

// Running out of memory inside a call is an error like any other. A call that is aborted half-way fails the group,
// because the other members would wait for the rest of it.
template <class Body>
int Call(fulldeck_group* group, Body body) {
  if (group == nullptr) return Refuse("the group is NULL: was fulldeck_group_create successful?");
  try {
    return Give(body(*group->group));
  } catch (const std::exception& exception) {
    group->group->Abort(exception.what());
    return Give({FULLDECK_ERROR_SYSTEM, exception.what()});
  }
}

template <class Body>
int TypedCall(fulldeck_group* group, int datatype, Body body) {
  if (!IsDatatype(datatype)) return Refuse("datatype " + std::to_string(datatype) + " is unknown");
  return Call(group, [&](Group& members) { return body(members, static_cast<Datatype>(datatype)); });
}

template <class Body>
int ReducingCall(fulldeck_group* group, int datatype, int reduction, Body body) {
  if (!IsReduction(reduction)) return Refuse("reduction " + std::to_string(reduction) + " is unknown");
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return body(members, type, static_cast<Reduction>(reduction));
  });
}

// The group limits larger values; here it only prevents overflow.
std::chrono::milliseconds TimeoutOf(std::uint64_t milliseconds) {
  constexpr std::uint64_t kMaxMilliseconds = std::uint64_t{1} << 42;
  return std::chrono::milliseconds(std::min(milliseconds, kMaxMilliseconds));
}

constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 44;

// Splits one buffer into `size` consecutive parts. If the whole is NULL, every part is.
std::vector<Buffer> BuffersPerRank(const Group& group, const void* memory, std::uint64_t count, Datatype datatype) {
  std::vector<Buffer> parts(static_cast<std::size_t>(group.size()));
  if (memory == nullptr) return parts;
  // The group rejects sizes that do not fit into memory; here it only prevents overflow.
  const std::uint64_t bytes = count > kMaxElements ? 0 : count * BytesOf(datatype);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank] = Buffer::Host(static_cast<const std::byte*>(memory) + rank * bytes);
  }
  return parts;
}

std::vector<RankBuffer> BuffersPerRank(const Group& group, const void* memory, const std::uint64_t* counts,
                                       Datatype datatype) {
  std::vector<RankBuffer> parts(static_cast<std::size_t>(group.size()));
  std::uint64_t offset = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank].count = counts[rank];
    if (memory != nullptr) parts[rank].buffer = Buffer::Host(static_cast<const std::byte*>(memory) + offset);
    if (counts[rank] <= kMaxElements) offset += counts[rank] * BytesOf(datatype);
  }
  return parts;
}

}  // namespace

extern "C" {

const char* fulldeck_error_text(void) {
  return ErrorText().c_str();
}

int fulldeck_group_create(const fulldeck_group_options* options, fulldeck_group** out) {
  if (out == nullptr) return Refuse("there is no place for the group: out is NULL");
  *out = nullptr;
  if (options == nullptr ||
      options->struct_bytes < offsetof(fulldeck_group_options, timeout_ms) + sizeof(std::uint64_t)) {
    return Refuse("the options are NULL, or their struct_bytes is not set to sizeof(fulldeck_group_options)");
  }
  try {
    GroupOptions group_options;
    group_options.rank = options->rank;
    group_options.size = options->size;
    group_options.name = options->name == nullptr ? "" : options->name;
    group_options.key = options->key == nullptr ? "" : options->key;
    group_options.check_finite = options->check_finite != 0;
    if (options->timeout_ms > 0) group_options.timeout = TimeoutOf(options->timeout_ms);
    Group::CreateResult made = Group::Create(group_options);
    if (made.group == nullptr) return Give(made.status);
    *out = new fulldeck_group{std::move(made.group)};
    return FULLDECK_OK;
  } catch (const std::exception& exception) {
    return Give({FULLDECK_ERROR_SYSTEM, exception.what()});
  }
}

void fulldeck_group_destroy(fulldeck_group* group) {
  delete group;
}

void fulldeck_group_abort(fulldeck_group* group, const char* reason) {
  if (group == nullptr) return;
  group->group->Abort(reason == nullptr ? "no reason was given" : fulldeck::base::Printable(reason));
}

int fulldeck_group_status(fulldeck_group* group) {
  return Call(group, [](Group& members) { return members.CurrentStatus(); });
}

int fulldeck_group_set_timeout(fulldeck_group* group, uint64_t timeout_ms) {
  if (timeout_ms == 0) return Refuse("a time-out must be longer than 0");
  return Call(group, [&](Group& members) {
    members.SetTimeout(TimeoutOf(timeout_ms));
    return Status();
  });
}

int fulldeck_all_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype,
                        int reduction) {
  return ReducingCall(group, datatype, reduction, [&](Group& members, Datatype type, Reduction how) {
    return members.AllReduce(Buffer::Host(input), Buffer::Host(output), count, type, how);
  });
}

int fulldeck_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype, int reduction,
                    int root) {
  return ReducingCall(group, datatype, reduction, [&](Group& members, Datatype type, Reduction how) {
    return members.Reduce(Buffer::Host(input), Buffer::Host(output), count, type, how, root);
  });
}

int fulldeck_broadcast(fulldeck_group* group, void* buffer, uint64_t count, int datatype, int root) {
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return members.Broadcast(Buffer::Host(buffer), count, type, root);
  });
}

int fulldeck_all_gather(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype) {
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return members.AllGather(Buffer::Host(input), BuffersPerRank(members, output, count, type), count, type);
  });
}

int fulldeck_reduce_scatter(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype,
                            int reduction) {
  return ReducingCall(group, datatype, reduction, [&](Group& members, Datatype type, Reduction how) {
    return members.ReduceScatter(BuffersPerRank(members, input, count, type), Buffer::Host(output), count, type, how);
  });
}

int fulldeck_gather(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype, int root) {
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return members.Gather(Buffer::Host(input), BuffersPerRank(members, output, count, type), count, type, root);
  });
}

int fulldeck_scatter(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype, int root) {
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return members.Scatter(BuffersPerRank(members, input, count, type), Buffer::Host(output), count, type, root);
  });
}

int fulldeck_all_to_all(fulldeck_group* group, const void* input, void* output, uint64_t count, int datatype) {
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    const std::vector<std::uint64_t> counts(static_cast<std::size_t>(members.size()), count);
    return members.AllToAll(BuffersPerRank(members, input, counts.data(), type),
                            BuffersPerRank(members, output, counts.data(), type), type);
  });
}

int fulldeck_all_to_all_v(fulldeck_group* group, const void* input, const uint64_t* input_counts, void* output,
                          const uint64_t* output_counts, int datatype) {
  if (input_counts == nullptr || output_counts == nullptr) return Refuse("all_to_all_v: the counts are NULL");
  return TypedCall(group, datatype, [&](Group& members, Datatype type) {
    return members.AllToAll(BuffersPerRank(members, input, input_counts, type),
                            BuffersPerRank(members, output, output_counts, type), type);
  });
}

int fulldeck_barrier(fulldeck_group* group) {
  return Call(group, [](Group& members) { return members.Barrier(); });
}

int fulldeck_send(fulldeck_group* group, const void* data, uint64_t bytes, int to, uint64_t tag) {
  return Call(group, [&](Group& members) { return members.Send(data, bytes, to, tag); });
}

int fulldeck_receive(fulldeck_group* group, void* data, uint64_t bytes, int from, uint64_t tag, int* came_from) {
  return Call(group, [&](Group& members) { return members.Receive(data, bytes, from, tag, came_from); });
}

int fulldeck_allocate(fulldeck_group* group, uint64_t bytes, void** out) {
  if (out == nullptr) return Refuse("there is no place for the memory: out is NULL");
  *out = nullptr;
  return Call(group, [&](Group& members) {
    Group::Allocation allocation = members.Allocate(bytes);
    *out = allocation.memory;
    return allocation.status;
  });
}

void fulldeck_free(fulldeck_group* group, void* memory) {
  if (group != nullptr) group->group->Free(memory);
}

int fulldeck_nonfinite(fulldeck_group* group, fulldeck_nonfinite_record* record) {
  if (record == nullptr || record->struct_bytes < sizeof(fulldeck_nonfinite_record)) {
    return Refuse("the record is NULL, or its struct_bytes is not set to sizeof(fulldeck_nonfinite_record)");
  }
  if (group == nullptr) return Refuse("the group is NULL");
  const std::optional<Nonfinite> found = group->group->LastNonfinite();
  if (!found) return 0;
  record->rank = found->rank;
  record->element = found->element;
  record->call = found->call;
  return 1;
}

}  // extern "C"
