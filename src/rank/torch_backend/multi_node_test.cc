// Groups whose ranks are on several nodes. Here a node is just a string; tests with real network namespaces are
// separate.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "torch_backend/gloo_groups.h"
#include "torch_backend/node_topology.h"
#include "torch_backend/ranks_for_test.h"

namespace fulldeck::torch_backend {
namespace {

using c10d::ReduceOp;

TEST(NodeTopology, NumbersNodesByTheirFirstRanks) {
  const NodeTopology map = NodeTopology::Of({{"b", "bert"}, {"a", "anna"}, {"b", "bert"}, {"a", "anna"}});
  EXPECT_EQ(map.nodes(), 2);
  EXPECT_EQ(map.node_of, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(map.members, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(map.names, (std::vector<std::string>{"bert", "anna"}));
  EXPECT_TRUE(map.even());
  EXPECT_EQ(map.LocalRank(2), 1);
  EXPECT_EQ(map.LocalRank(1), 0);
  EXPECT_FALSE(NodeTopology::Of({{"a", ""}, {"a", ""}, {"b", ""}}).even());
}

TEST(NodeTopology, NodesSurviveTheirTextAndBadTextHurtsNobody) {
  const NodeIdentity here = ThisNode();
  EXPECT_EQ(NodeIdentity::FromText(here.ToText()).key, here.key);
  EXPECT_NE(here.key.find(" net "), std::string::npos);
  EXPECT_EQ(NodeIdentity::FromText("key\n\x1b[31mname").name.find('\x1b'), std::string::npos);
  EXPECT_EQ(NodeIdentity::FromText("").key, "");
}

c10::intrusive_ptr<c10d::Backend> OnNode(const RankOfTest& self, const std::string& node,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  BackendRequest request = self.Request(timeout);
  request.node_for_tests = node;
  return MakeBackend(request);
}

void ExchangeEverything(const RankOfTest& self, c10d::Backend& backend) {
  const int n = self.size;
  const auto types = {at::kBool,   at::kByte, at::kShort,    at::kUInt16, at::kInt,    at::kUInt32,      at::kLong,
                      at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat,  at::kDouble, at::kComplexFloat};
  for (const at::ScalarType type : types) {
    for (const std::int64_t count : {0, 1, 5, 1001}) {
      const at::Tensor base = at::arange(count, at::kLong).remainder(3);
      const auto of = [&](int rank) { return (base + rank % 2).clamp(0, type == at::kBool ? 1 : 3).to(type); };
      std::vector<at::Tensor> all;
      for (int rank = 0; rank < n; ++rank) all.push_back(of(rank).to(at::kComplexDouble));
      const at::Tensor stack = at::stack(all);
      const auto reduced = [&](ReduceOp::RedOpType op) {
        std::vector<at::Tensor> tensors = {of(self.rank)};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        backend.allreduce(tensors, options)->wait();
        return tensors[0];
      };
      if (type == at::kBool) {
        MUST_EQUAL(reduced(ReduceOp::SUM), at::real(stack.sum(0)).gt(0));
        MUST_EQUAL(reduced(ReduceOp::BAND), at::real(stack.sum(0)).eq(n));
        continue;
      }
      MUST_EQUAL(reduced(ReduceOp::SUM), stack.sum(0).to(type));
      if (c10::isComplexType(type)) continue;
      const at::Tensor real = at::real(stack);
      if (count > 0) {
        MUST_EQUAL(reduced(ReduceOp::MAX), std::get<0>(real.max(0)).to(type));
        MUST_EQUAL(reduced(ReduceOp::MIN), std::get<0>(real.min(0)).to(type));
      }
      if (c10::isFloatingType(type)) {
        MUST(at::allclose(reduced(ReduceOp::AVG).to(at::kDouble), real.mean(0), 1e-2));
      }
    }
  }
  for (const std::int64_t count : {1, 7, 3000}) {
    const auto of = [&](int rank, int other = 0) { return at::arange(count, at::kShort) + rank * 10 + other; };
    for (int root = 0; root < n; ++root) {
      std::vector<at::Tensor> one = {of(self.rank)};
      c10d::BroadcastOptions broadcast;
      broadcast.rootRank = root;
      backend.broadcast(one, broadcast)->wait();
      MUST_EQUAL(one[0], of(root));

      std::vector<at::Tensor> sum = {of(self.rank)};
      c10d::ReduceOptions reduce;
      reduce.rootRank = root;
      backend.reduce(sum, reduce)->wait();
      at::Tensor expected = of(0);
      for (int rank = 1; rank < n; ++rank) expected = expected + of(rank);
      MUST_EQUAL(sum[0], self.rank == root ? expected : of(self.rank));

      std::vector<at::Tensor> input = {of(self.rank)};
      std::vector<std::vector<at::Tensor>> lists;
      std::vector<std::vector<at::Tensor>> parts;
      if (self.rank == root) {
        lists.emplace_back();
        parts.emplace_back();
        for (int rank = 0; rank < n; ++rank) {
          lists[0].push_back(at::empty({count}, at::kShort));
          parts[0].push_back(of(root, rank));
        }
      }
      c10d::GatherOptions gather;
      gather.rootRank = root;
      backend.gather(lists, input, gather)->wait();
      for (int rank = 0; self.rank == root && rank < n; ++rank) {
        MUST_EQUAL(lists[0][static_cast<std::size_t>(rank)], of(rank));
      }
      std::vector<at::Tensor> part = {at::empty({count}, at::kShort)};
      c10d::ScatterOptions scatter;
      scatter.rootRank = root;
      backend.scatter(part, parts, scatter)->wait();
      MUST_EQUAL(part[0], of(root, self.rank));
    }
    at::Tensor gathered = at::empty({n * count}, at::kShort);
    at::Tensor mine = of(self.rank);
    backend._allgather_base(gathered, mine)->wait();
    at::Tensor scattered = at::empty({count}, at::kShort);
    backend._reduce_scatter_base(scattered, gathered)->wait();
    for (int rank = 0; rank < n; ++rank) MUST_EQUAL(gathered.narrow(0, rank * count, count), of(rank));
    MUST_EQUAL(scattered, of(self.rank) * n);

    std::vector<at::Tensor> from;
    std::vector<at::Tensor> to;
    for (int rank = 0; rank < n; ++rank) {
      from.push_back(of(self.rank, rank));
      to.push_back(at::empty({count}, at::kShort));
    }
    backend.alltoall(to, from)->wait();
    for (int rank = 0; rank < n; ++rank) MUST_EQUAL(to[static_cast<std::size_t>(rank)], of(rank, self.rank));

    std::vector<at::Tensor> sent = {of(self.rank)};
    std::vector<at::Tensor> received = {at::empty({count}, at::kShort)};
    const int next = (self.rank + 1) % n;
    const int previous = (self.rank + n - 1) % n;
    const auto send = backend.send(sent, next, 4);
    backend.recv(received, previous, 4)->wait();
    send->wait();
    MUST_EQUAL(received[0], of(previous));
  }
  backend.barrier()->wait();
  backend.monitoredBarrier(c10d::BarrierOptions(), true);
}

TEST(MultiNode, EvenNodesReduceInSharedMemoryFirst) {
  RunRanks(4, [](const RankOfTest& self) {
    // Interleaved, so that the ranks are not in node order.
    const auto backend = OnNode(self, self.rank % 2 == 0 ? "a" : "b");
    MUST(Has(DescriptionOf(backend), "4 ranks on 2 hosts, 2 on each"));
    ExchangeEverything(self, *backend);
    const PathCounts before = PathsOf(backend);
    MUST(before.local == 0 && before.hierarchical > 0 && before.flat > 0);
    std::vector<at::Tensor> tensors = {at::ones({100})};
    backend->allreduce(tensors)->wait();
    MUST(PathsOf(backend).hierarchical == before.hierarchical + 1);
    MUST(PathsOf(backend).flat == before.flat);
    backend->shutdown();
  });
}

TEST(MultiNode, UnevenNodesGoOverGlooAlone) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = OnNode(self, self.rank < 2 ? "a" : "b");
    MUST(Has(DescriptionOf(backend), "not equally many on each"));
    ExchangeEverything(self, *backend);
    MUST(PathsOf(backend).hierarchical == 0 && PathsOf(backend).flat > 0);
    backend->shutdown();
  });
}

// Whether any other thread of this process would be killed by SIGPIPE.
bool AThreadDiesOfPipeSignal() {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      ++threads;
      if ((std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1) == 0) return true;
    }
  }
  MUST(threads > 0);
  return false;
}

TEST(MultiNode, NoThreadOfGlooEndsAProgramByWritingToADeadPeer) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = OnNode(self, self.rank == 0 ? "a" : "b");
    backend->barrier()->wait();
    MUST(!AThreadDiesOfPipeSignal());
    backend->shutdown();
  });
}

TEST(WithoutPipeSignal, DropsTheSignalAndRestoresTheMask) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const WithoutPipeSignal none;
    pthread_kill(pthread_self(), SIGPIPE);
    const WithoutPipeSignal nested;
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));
  EXPECT_EQ(sigismember(&after, SIGPIPE), 0);
}

TEST(MultiNode, ADeathOnOneNodeEndsTheCallsOfAll) {
  RanksOptions options;
  options.exit_statuses = {0, 0, 0, -SIGKILL};
  RunRanks(
      4,
      [](const RankOfTest& self) {
        // The timeout is longer than the test's limit, so a call that only ends by timeout fails the test.
        const auto backend = OnNode(self, self.rank < 2 ? "a" : "b", std::chrono::minutes(10));
        backend->barrier()->wait();
        if (self.rank == 3) kill(getpid(), SIGKILL);
        std::vector<at::Tensor> tensors = {at::ones({100})};
        const auto call = [&] {
          for (int i = 0; i < 2; ++i) backend->allreduce(tensors)->wait();
        };
        MUST_THROW(call());
        MUST_THROW(backend->barrier()->wait());
        backend->shutdown();
      },
      options);
}

}  // namespace
}  // namespace fulldeck::torch_backend
