// How the backend fails, and that it never hangs.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "torch_backend/backend.h"
#include "torch_backend/ranks_for_test.h"

namespace fulldeck::torch_backend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

template <typename Options>
Options Waiting(Options options = {}) {
  if constexpr (requires { options.asyncOp; }) options.asyncOp = false;
  return options;
}

std::vector<at::Tensor> Ones(std::int64_t count = 4) {
  return {at::ones({count})};
}

TEST(BackendFailure, ADeadRankIsNamedToAllWhoWait) {
  RanksOptions options;
  options.exit_statuses = {0, -SIGKILL, 0};
  RunRanks(
      3,
      [](const RankOfTest& self) {
        const auto backend = self.Backend();
        backend->barrier(Waiting(c10d::BarrierOptions()))->wait();
        if (self.rank == 1) kill(getpid(), SIGKILL);
        auto tensors = Ones();
        const auto begin = steady_clock::now();
        // One call waits in its own thread, one in the group's.
        const auto call = [&] {
          if (self.rank == 0) {
            backend->allreduce(tensors, Waiting(c10d::AllreduceOptions()))->wait();
          } else {
            backend->allreduce(tensors)->wait();
          }
        };
        const std::string text = MUST_THROW(call());
        MUST(Has(text, "rank 1"));
        MUST(steady_clock::now() - begin < seconds(40));
        MUST(backend->getError() == c10d::ErrorType::REMOTE_ERROR);
        // The failure is permanent.
        MUST(Has(MUST_THROW(backend->barrier()->wait()), "rank 1"));
        backend->shutdown();
      },
      options);
}

TEST(BackendFailure, AReceiveFromADeadRankEnds) {
  RanksOptions options;
  options.exit_statuses = {0, -SIGKILL};
  RunRanks(
      2,
      [](const RankOfTest& self) {
        const auto backend = self.Backend();
        auto message = Ones(300000);
        std::vector<c10::intrusive_ptr<c10d::Work>> works;
        if (self.rank == 0) works.push_back(backend->recv(message, 1, 0));
        backend->barrier()->wait();
        if (self.rank == 1) kill(getpid(), SIGKILL);
        // No thread waits: the message thread detects it.
        const auto deadline = steady_clock::now() + seconds(20);
        while (!works[0]->isCompleted() && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
        MUST(works[0]->isCompleted() && !works[0]->isSuccess());
        MUST(Has(MUST_THROW(works[0]->wait()), "rank 1"));
      },
      options);
}

TEST(BackendFailure, ATimeOutSaysItsTimeAndWhoIsMissing) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    // Set only now: the rendezvous may take longer.
    backend->setTimeout(milliseconds(400));
    if (self.rank == 0) {
      const auto begin = steady_clock::now();
      const std::string text = MUST_THROW(backend->barrier(Waiting(c10d::BarrierOptions()))->wait());
      MUST(Has(text, " Timed out waiting 400ms"));
      MUST(Has(text, "rank 1") || Has(text, "1"));
      MUST(steady_clock::now() - begin >= milliseconds(390));
      MUST(backend->getError() == c10d::ErrorType::TIMEOUT);
      self.store->set("over", std::string("yes"));
    }
    self.store->wait({"over"}, seconds(30));
  });
}

TEST(BackendFailure, ACallHasATimeOutOfItsOwn) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    if (self.rank == 0) {
      c10d::BarrierOptions options;
      options.timeout = milliseconds(150);
      MUST(Has(MUST_THROW(backend->barrier(options)->wait()), " Timed out waiting 150ms"));
      self.store->set("over", std::string("yes"));
    }
    self.store->wait({"over"}, seconds(30));
  });
}

TEST(BackendFailure, AWaitCanBeGivenUpWithoutGivingUpTheCall) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    auto tensors = Ones();
    auto message = Ones(1);
    if (self.rank == 0) {
      const auto work = backend->allreduce(tensors);
      MUST_THROW(work->wait(milliseconds(50)));
      const auto receive = backend->recv(message, 1, 0);
      MUST(Has(MUST_THROW(receive->wait(milliseconds(50))), "Timed out"));
      self.store->set("go", std::string("on"));
      work->wait();
      receive->wait();
    } else {
      self.store->wait({"go"}, seconds(30));
      backend->allreduce(tensors)->wait();
      message[0].fill_(9);
      backend->send(message, 0, 0)->wait();
    }
    MUST_EQUAL(tensors[0], at::full({4}, 2.0));
    MUST_EQUAL(message[0], at::full({1}, 9.0));
  });
}

TEST(BackendFailure, CallsThatDoNotMatchFailOnAllRanks) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = MakeBackend(self.Request(seconds(20)));
    auto tensors = Ones(self.rank == 0 ? 4 : 5);
    const std::string text = MUST_THROW(backend->allreduce(tensors)->wait());
    MUST(Has(text, "all_reduce"));
    MUST(!Has(text, "Timed out"));
  });
}

TEST(BackendFailure, ShutdownEndsWhatIsUnderWay) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    auto tensors = Ones();
    auto message = Ones();
    if (self.rank == 0) {
      const auto first = backend->allreduce(tensors);
      const auto second = backend->allreduce(tensors);
      const auto receive = backend->recv(message, 1, 0);
      const auto begin = steady_clock::now();
      backend->shutdown();
      MUST(steady_clock::now() - begin < seconds(15));
      for (const auto& work : {first, second, receive}) {
        MUST(work->isCompleted() && !work->isSuccess());
        MUST_THROW(work->wait());
      }
      self.store->set("over", std::string("yes"));
      return;
    }
    self.store->wait({"over"}, seconds(30));
    const auto begin = steady_clock::now();
    MUST(Has(MUST_THROW(backend->allreduce(tensors)->wait()), "rank 0"));
    MUST(steady_clock::now() - begin < seconds(40));
  });
}

TEST(BackendFailure, AGroupThatNobodyUsesAnyMoreIsLeft) {
  RunRanks(2, [](const RankOfTest& self) {
    auto backend = self.Backend();
    auto tensors = Ones();
    backend->allreduce(tensors)->wait();
    if (self.rank == 0) {
      backend.reset();
      self.store->set("left", std::string("yes"));
      self.store->wait({"over"}, seconds(30));
      return;
    }
    self.store->wait({"left"}, seconds(30));
    const auto begin = steady_clock::now();
    MUST(Has(MUST_THROW(backend->allreduce(tensors)->wait()), "rank 0"));
    MUST(steady_clock::now() - begin < seconds(40));
    self.store->set("over", std::string("yes"));
  });
}

TEST(BackendFailure, AbortEndsTheOthersToo) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    auto tensors = Ones();
    if (self.rank == 1) {
      std::thread aborter([&] {
        self.store->wait({"waiting"}, seconds(30));
        backend->abort();
      });
      MUST_THROW(backend->recv(tensors, 0, 0)->wait());
      aborter.join();
      return;
    }
    const auto work = backend->allreduce(tensors);
    self.store->set("waiting", std::string("yes"));
    const auto begin = steady_clock::now();
    MUST(Has(MUST_THROW(work->wait()), "rank 1"));
    MUST(steady_clock::now() - begin < seconds(40));
  });
}

TEST(BackendFailure, ARankThatDoesNotComeIsNamed) {
  RunRanks(2, [](const RankOfTest& self) {
    if (self.rank == 1) return;
    MUST(Has(MUST_THROW(MakeBackend(self.Request(milliseconds(300)))), "did not come within 300 ms: 1"));
  });
}

TEST(BackendFailure, TheMonitoredBarrierNamesWhoIsMissingAndLeavesTheGroupWhole) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    c10d::BarrierOptions options;
    options.timeout = seconds(10);
    backend->monitoredBarrier(options, false);
    backend->monitoredBarrier(options, true);
    options.timeout = milliseconds(300);
    if (self.rank == 0) {
      MUST(Has(MUST_THROW(backend->monitoredBarrier(options, false)),
               "Rank 1 failed to pass monitoredBarrier in 300 ms"));
      MUST(Has(MUST_THROW(backend->monitoredBarrier(options, true)), "Ranks 1, 2 failed to pass monitoredBarrier"));
      options.timeout = milliseconds(0);
      MUST(Has(MUST_THROW(backend->monitoredBarrier(options, false)), "Rank 0 timed out in monitoredBarrier"));
    } else if (self.rank == 2) {
      MUST(Has(
          MUST_THROW(backend->monitoredBarrier(options, false)),
          "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"));
    }
    auto tensors = Ones();
    backend->allreduce(tensors)->wait();
    MUST_EQUAL(tensors[0], at::full({4}, 3.0));
  });
}

TEST(BackendFailure, AForkedChildIsNoMemberAndEndsWell) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    auto tensors = Ones();
    backend->allreduce(tensors)->wait();
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        backend->barrier()->wait();
      } catch (const std::exception& error) {
        code = Has(error.what(), "forked") ? 0 : 2;
      }
      ShutdownAllBackends();
      _exit(code);
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    backend->allreduce(tensors)->wait();
    MUST_EQUAL(tensors[0], at::full({4}, 4.0));
  });
}

TEST(BackendFailure, ProcessesEndWellThoughNobodyShutTheirGroupsDown) {
  RanksOptions options;
  options.through_exit = true;
  for (int round = 0; round < 5; ++round) {
    RunRanks(
        3,
        [&](const RankOfTest& self) {
          std::atexit(ShutdownAllBackends);
          // Kept alive until the end of the process, like a program's globals.
          static auto* kept = new std::vector<c10::intrusive_ptr<c10d::Work>>;
          static auto* groups = new std::vector<c10::intrusive_ptr<c10d::Backend>>;
          const auto backend = self.Backend();
          groups->push_back(backend);
          auto tensors = Ones(100000);
          backend->allreduce(tensors)->wait();
          // Some ranks leave with calls and messages in progress that can never complete.
          if (round % 2 == 1 && self.rank == 0) {
            kept->push_back(backend->allreduce(tensors));
            auto message = Ones();
            kept->push_back(backend->recv(message, 1, 0));
          }
          MUST(backend->supportsTensorAlloc(-1));
          static at::Tensor in_shared_memory = backend->allocateTensor(1000, at::TensorOptions().dtype(at::kFloat));
        },
        options);
  }
}

}  // namespace
}  // namespace fulldeck::torch_backend
