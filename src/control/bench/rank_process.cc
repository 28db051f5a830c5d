#include "bench/rank_process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/log.h"
#include "bench/measurement.h"
#include "bench/rank_protocol.h"
#include "bench/timeline.h"

namespace fulldeck::bench {
namespace {

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// mpirun sets each rank's number before MPI is initialized. Only sent if MPI is not available.
int RankBeforeMpi() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  // Anything that is not a number means rank 0.
  return rank != nullptr ? std::atoi(rank) : 0;  // NOLINT(cert-err34-c,bugprone-unchecked-string-to-number-conversion)
}

int Fail(const std::string& message) {
  base::Log(base::Severity::kError, message);
  return EXIT_FAILURE;
}

}  // namespace

int RunRankProcess(const RankProcess& process) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto socket = LineSocket::Connect(process.socket);
  if (!socket) return Fail(socket.error().message);
  auto library = process.fulldeck ? JoinFulldeck(*process.fulldeck) : JoinOpenMpi();
  if (!library) {
    const Greeting greeting{process.fulldeck ? process.fulldeck->rank : RankBeforeMpi(), "", library.error().message};
    const auto sent = socket->Send(Dump(ToJson(greeting)));
    return sent ? EXIT_SUCCESS : Fail(sent.error().message);
  }
  const Greeting greeting{(*library)->rank(), (*library)->About(), std::nullopt};
  if (const auto sent = socket->Send(Dump(ToJson(greeting))); !sent) return Fail(sent.error().message);

  int timelines = 0;
  while (const auto line = socket->Receive()) {
    const auto order = ReadOrder(*line);
    if (!order) return Fail(order.error().message);
    Json answer;
    if (order->kind == Order::Kind::kMeasure) {
      answer = ToJson(Measure(**library, order->cell));
    } else if (process.fulldeck) {
      FulldeckMember member = *process.fulldeck;
      member.key += "-timeline-" + std::to_string(timelines++);
      answer = ToJson(TraceAllReduce(member, *order->cell.element, order->cell.bytes, order->cell.shared));
    }
    if (const auto sent = socket->Send(Dump(answer)); !sent) return Fail(sent.error().message);
  }
  return EXIT_SUCCESS;
}

}  // namespace fulldeck::bench
