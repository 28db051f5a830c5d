// The results of the backend's collectives on one node.
#include "torch_backend/backend.h"

#include <signal.h>

#include <future>

#include "torch_backend/ranks_for_test.h"

namespace fulldeck::torch_backend {
namespace {

using c10d::ReduceOp;

// The options of a call whose caller waits for it, and of one whose caller does not.
template <typename Options>
Options Waiting(Options options = {}) {
  if constexpr (requires { options.asyncOp; }) options.asyncOp = false;
  return options;
}

at::Tensor AllReduced(c10d::Backend& backend, const at::Tensor& tensor, ReduceOp op = ReduceOp::SUM) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  backend.allreduce(tensors, Waiting(options))->wait();
  return tensor;
}

TEST(Backend, AllReducesEveryTypeAndReduction) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    const auto types = {at::kBool,     at::kByte,   at::kChar,   at::kShort,        at::kUInt16,
                        at::kInt,      at::kUInt32, at::kLong,   at::kUInt64,       at::kHalf,
                        at::kBFloat16, at::kFloat,  at::kDouble, at::kComplexFloat, at::kComplexDouble};
    for (const at::ScalarType type : types) {
      for (const std::int64_t count : {0, 1, 7, 1000, 70001}) {
        const at::Tensor base = at::arange(count, at::kLong).remainder(2);
        const auto of = [&](int rank) { return (base + rank % 2).clamp(0, type == at::kBool ? 1 : 2).to(type); };
        const at::Tensor a = of(0).to(at::kComplexDouble);
        at::Tensor sum = at::zeros({count}, at::kComplexDouble);
        for (int rank = 0; rank < self.size; ++rank) sum += of(rank).to(at::kComplexDouble);
        if (type == at::kBool) {
          MUST_EQUAL(AllReduced(*backend, of(self.rank)), at::real(sum).gt(0));
          MUST_EQUAL(AllReduced(*backend, of(self.rank), ReduceOp::PRODUCT), at::real(sum).eq(self.size));
          continue;
        }
        MUST_EQUAL(AllReduced(*backend, of(self.rank)), sum.to(type));
        if (c10::isComplexType(type)) continue;
        std::vector<at::Tensor> all;
        for (int rank = 0; rank < self.size; ++rank) all.push_back(of(rank).to(at::kDouble));
        const at::Tensor stack = at::stack(all);
        if (count > 0) {
          MUST_EQUAL(AllReduced(*backend, of(self.rank), ReduceOp::MIN), std::get<0>(stack.min(0)).to(type));
          MUST_EQUAL(AllReduced(*backend, of(self.rank), ReduceOp::MAX), std::get<0>(stack.max(0)).to(type));
        }
        MUST_EQUAL(AllReduced(*backend, of(self.rank), ReduceOp::PRODUCT), stack.prod(0).to(type));
        if (c10::isFloatingType(type)) {
          const at::Tensor mean = (at::real(sum) / self.size).to(type);
          MUST(at::allclose(AllReduced(*backend, of(self.rank), ReduceOp::AVG).to(at::kDouble), mean.to(at::kDouble),
                            1e-2));
        } else {
          const at::Tensor bits = of(0).to(at::kLong).bitwise_or(of(1).to(at::kLong)).bitwise_or(of(2).to(at::kLong));
          MUST_EQUAL(AllReduced(*backend, of(self.rank), ReduceOp::BOR), bits.to(type));
        }
      }
    }
    MUST(PathsOf(backend).local > 0);
    MUST(PathsOf(backend).flat == 0 && PathsOf(backend).hierarchical == 0);
    MUST(Has(DescriptionOf(backend), "3 ranks on 1 host"));
  });
}

TEST(Backend, RefusesWhatCannotBeReducedByNameAndMovesItAllTheSame) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    std::vector<at::Tensor> tensors = {at::full({5}, self.rank + 1, at::kFloat).to(at::kFloat8_e4m3fn)};
    const std::string text = MUST_THROW(backend->allreduce(tensors));
    MUST(Has(text, "Float8_e4m3fn"));
    backend->broadcast(tensors)->wait();
    MUST_EQUAL(tensors[0].to(at::kFloat), at::ones({5}));

    c10d::AllreduceOptions bits;
    bits.reduceOp = ReduceOp::BAND;
    std::vector<at::Tensor> floats = {at::ones({2})};
    MUST(Has(MUST_THROW(backend->allreduce(floats, bits)), "Float"));
    c10d::AllreduceOptions smallest;
    smallest.reduceOp = ReduceOp::MIN;
    std::vector<at::Tensor> complex = {at::ones({2}, at::kComplexFloat)};
    MUST(Has(MUST_THROW(backend->allreduce(complex, smallest)), "complex"));
    std::vector<at::Tensor> nowhere = {at::ones({2}, at::kMeta)};
    MUST(Has(MUST_THROW(backend->allreduce(nowhere)), "meta"));
    std::vector<at::Tensor> none;
    MUST(Has(MUST_THROW(backend->allreduce(none)), "single-element"));
    // The group is not affected.
    MUST_EQUAL(AllReduced(*backend, at::ones({2})), at::full({2}, 2.0));
  });
}

TEST(Backend, PremultipliesBeforeItSums) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    const at::Tensor tensor = at::full({3}, self.rank + 1.0);
    MUST_EQUAL(AllReduced(*backend, tensor, c10d::makePreMulSum(0.5 + self.rank)), at::full({3}, 0.5 * 1 + 1.5 * 2));
    const at::Tensor by_tensor = at::full({3}, 2.0);
    MUST_EQUAL(AllReduced(*backend, by_tensor, c10d::makePreMulSum(at::full({1}, 3.0))), at::full({3}, 12.0));
  });
}

TEST(Backend, TreatsTensorsAsTheyAreNotAsTheirMemoryLies) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    // The same values with a different memory layout on each rank.
    const at::Tensor values = at::arange(12.0).view({3, 4});
    const at::Tensor mine = self.rank == 0 ? values.clone() : values.t().contiguous().t();
    MUST(mine.is_contiguous() == (self.rank == 0));
    MUST_EQUAL(AllReduced(*backend, mine), values * 2);

    const at::Tensor wide = at::zeros({4, 6});
    std::vector<at::Tensor> column = {wide.slice(1, 1, 6, 2)};
    column[0].fill_(self.rank + 1);
    c10d::BroadcastOptions root;
    root.rootRank = 1;
    backend->broadcast(column, root)->wait();
    MUST_EQUAL(column[0], at::full({4, 3}, 2.0));
    MUST_EQUAL(wide.slice(1, 0, 6, 2), at::zeros({4, 3}));

    const at::Tensor lazy = at::_conj(at::complex(at::ones({2}), at::full({2}, 3.0)));
    MUST(lazy.is_conj());
    MUST_EQUAL(AllReduced(*backend, lazy).resolve_conj(), at::complex(at::full({2}, 2.0), at::full({2}, -6.0)));

    const at::Tensor one_in_memory = at::ones({1}).expand({4});
    MUST(Has(MUST_THROW(AllReduced(*backend, one_in_memory)), "the same memory"));
    MUST_EQUAL(AllReduced(*backend, at::ones({})), at::full({}, 2.0));
  });
}

TEST(Backend, MovesDataAsEveryCollectiveSays) {
  RunRanks(4, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    const int n = self.size;
    for (const std::int64_t count : {1, 5, 40000}) {
      const auto of = [&](int rank, int other = 0) { return at::arange(count, at::kLong) * 100 + rank * 10 + other; };
      for (int root = 0; root < n; ++root) {
        std::vector<at::Tensor> one = {of(self.rank)};
        c10d::BroadcastOptions broadcast;
        broadcast.rootRank = root;
        backend->broadcast(one, Waiting(broadcast))->wait();
        MUST_EQUAL(one[0], of(root));

        std::vector<at::Tensor> reduced = {of(self.rank)};
        c10d::ReduceOptions reduce;
        reduce.rootRank = root;
        backend->reduce(reduced, reduce)->wait();
        at::Tensor sum = at::zeros({count}, at::kLong);
        for (int rank = 0; rank < n; ++rank) sum += of(rank);
        MUST_EQUAL(reduced[0], self.rank == root ? sum : of(self.rank));

        std::vector<at::Tensor> input = {of(self.rank)};
        std::vector<std::vector<at::Tensor>> lists;
        if (self.rank == root) {
          lists.emplace_back();
          for (int rank = 0; rank < n; ++rank) lists[0].push_back(at::empty({count}, at::kLong));
        }
        c10d::GatherOptions gather;
        gather.rootRank = root;
        backend->gather(lists, input, Waiting(gather))->wait();
        if (self.rank == root) {
          for (int rank = 0; rank < n; ++rank) MUST_EQUAL(lists[0][static_cast<std::size_t>(rank)], of(rank));
        }

        std::vector<std::vector<at::Tensor>> parts;
        if (self.rank == root) {
          parts.emplace_back();
          for (int rank = 0; rank < n; ++rank) parts[0].push_back(of(root, rank));
        }
        std::vector<at::Tensor> part = {at::empty({count}, at::kLong)};
        c10d::ScatterOptions scatter;
        scatter.rootRank = root;
        backend->scatter(part, parts, scatter)->wait();
        MUST_EQUAL(part[0], of(root, self.rank));
      }

      std::vector<at::Tensor> input = {of(self.rank)};
      std::vector<std::vector<at::Tensor>> lists(1);
      for (int rank = 0; rank < n; ++rank) lists[0].push_back(at::empty({count}, at::kLong));
      backend->allgather(lists, input)->wait();
      at::Tensor flat = at::empty({n * count}, at::kLong);
      backend->_allgather_base(flat, input[0])->wait();
      for (int rank = 0; rank < n; ++rank) {
        MUST_EQUAL(lists[0][static_cast<std::size_t>(rank)], of(rank));
        MUST_EQUAL(flat.narrow(0, rank * count, count), of(rank));
      }
      // In place, and with an input that overlaps two chunks of the output.
      at::Tensor in_place = at::zeros({n * count}, at::kLong);
      at::Tensor own = in_place.narrow(0, self.rank * count, count);
      own.copy_(of(self.rank));
      backend->_allgather_base(in_place, own)->wait();
      MUST_EQUAL(in_place, flat);
      if (count > 1) {
        at::Tensor across = in_place.narrow(0, 1, count);
        const at::Tensor before = across.clone();
        backend->_allgather_base(in_place, across)->wait();
        for (int rank = 0; rank < n; ++rank) MUST_EQUAL(in_place.narrow(0, rank * count, count), before);
      }

      at::Tensor scattered = at::empty({count}, at::kLong);
      at::Tensor all = at::cat({of(0), of(1), of(2), of(3)}) + self.rank;
      backend->_reduce_scatter_base(scattered, all, Waiting(c10d::ReduceScatterOptions()))->wait();
      MUST_EQUAL(scattered, of(self.rank) * n + 6);
      std::vector<at::Tensor> outputs = {at::empty({count}, at::kLong)};
      std::vector<std::vector<at::Tensor>> inputs = {{of(0), of(1), of(2), of(3)}};
      backend->reduce_scatter(outputs, inputs)->wait();
      MUST_EQUAL(outputs[0], of(self.rank) * n);

      std::vector<at::Tensor> to;
      std::vector<at::Tensor> from;
      for (int rank = 0; rank < n; ++rank) {
        from.push_back(of(self.rank, rank).narrow(0, 0, rank % 2 == 0 ? count : 1));
        to.push_back(at::empty({self.rank % 2 == 0 ? count : 1}, at::kLong));
      }
      backend->alltoall(to, from)->wait();
      for (int rank = 0; rank < n; ++rank) {
        MUST_EQUAL(to[static_cast<std::size_t>(rank)],
                   of(rank, self.rank).narrow(0, 0, self.rank % 2 == 0 ? count : 1));
      }
    }
    backend->barrier()->wait();
  });
}

TEST(Backend, SplitsRowsBetweenRanks) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    // Rank r sends r + q rows to rank q.
    std::vector<std::int64_t> input_splits;
    std::vector<std::int64_t> output_splits;
    for (int other = 0; other < self.size; ++other) {
      input_splits.push_back(self.rank + other);
      output_splits.push_back(self.rank + other);
    }
    const std::int64_t rows = 3 * self.rank + 3;
    at::Tensor input = at::full({rows, 2}, self.rank, at::kFloat);
    at::Tensor output = at::full({rows, 2}, -1, at::kFloat);
    backend->alltoall_base(output, input, output_splits, input_splits)->wait();
    std::vector<at::Tensor> expected;
    for (int other = 0; other < self.size; ++other)
      expected.push_back(at::full({self.rank + other, 2}, other, at::kFloat));
    MUST_EQUAL(output, at::cat(expected));

    std::vector<std::int64_t> none;
    at::Tensor equal = at::arange(6.0);
    at::Tensor result = at::empty({6});
    backend->alltoall_base(result, equal, none, none)->wait();
    MUST_EQUAL(result, at::tensor({0.0, 1.0, 0.0, 1.0, 0.0, 1.0}).to(at::kFloat) + 2 * self.rank);
    std::vector<std::int64_t> wrong = {1, 1, 1};
    MUST(Has(MUST_THROW(backend->alltoall_base(result, equal, none, wrong)), "doesn't match"));
    at::Tensor odd = at::empty({7});
    MUST(Has(MUST_THROW(backend->alltoall_base(odd, odd, none, none)), "does not divide"));
  });
}

TEST(Backend, CoalescesCallsIntoOne) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    std::vector<at::Tensor> tensors = {at::full({3}, self.rank + 1.0), at::full({2, 2}, 10.0 * (self.rank + 1)),
                                       at::full({4}, 2, at::kFloat).t()};
    backend->allreduce_coalesced(tensors)->wait();
    MUST_EQUAL(tensors[0], at::full({3}, 3.0));
    MUST_EQUAL(tensors[1], at::full({2, 2}, 30.0));
    std::vector<at::Tensor> mixed = {at::ones({3}), at::ones({2}, at::kLong)};
    backend->allreduce_coalesced(mixed)->wait();
    MUST_EQUAL(mixed[1], at::full({2}, 2, at::kLong));

    std::vector<at::Tensor> inputs = {at::full({2}, self.rank, at::kLong), at::full({1}, self.rank + 5, at::kLong)};
    std::vector<at::Tensor> outputs = {at::empty({4}, at::kLong), at::empty({2}, at::kLong)};
    backend->allgather_into_tensor_coalesced(outputs, inputs)->wait();
    MUST_EQUAL(outputs[0], at::tensor({0, 0, 1, 1}, at::kLong));
    MUST_EQUAL(outputs[1], at::tensor({5, 6}, at::kLong));
    std::vector<std::vector<at::Tensor>> lists(2);
    for (auto& list : lists) list = {at::empty({2}, at::kLong), at::empty({1}, at::kLong)};
    backend->allgather_coalesced(lists, inputs)->wait();
    MUST_EQUAL(lists[1][0], at::tensor({1, 1}, at::kLong));
    MUST_EQUAL(lists[0][1], at::tensor({5}, at::kLong));
    std::vector<at::Tensor> sums = {at::empty({2}, at::kLong), at::empty({1}, at::kLong)};
    std::vector<at::Tensor> parts = {at::arange(4, at::kLong), at::arange(2, at::kLong)};
    backend->reduce_scatter_tensor_coalesced(sums, parts)->wait();
    MUST_EQUAL(sums[0], (at::arange(2, at::kLong) + 2 * self.rank) * 2);
    MUST_EQUAL(sums[1], at::full({1}, 2 * self.rank, at::kLong));

    // Messages larger than any buffer in both directions: only safe if nothing on the way blocks.
    at::Tensor out = at::full({1 << 20}, self.rank, at::kInt);
    at::Tensor in = at::empty({1 << 20}, at::kInt);
    std::vector<at::Tensor> sent = {out};
    std::vector<at::Tensor> received = {in};
    std::vector<at::Tensor> reduced = {at::ones({4})};
    backend->startCoalescing();
    backend->send(sent, 1 - self.rank, 0);
    backend->recv(received, 1 - self.rank, 0);
    backend->allreduce(reduced, Waiting(c10d::AllreduceOptions()));
    const auto all = backend->endCoalescing();
    all->wait();
    MUST(all->isCompleted() && all->isSuccess());
    MUST(all->result().size() == 3);
    MUST_EQUAL(in, at::full({1 << 20}, 1 - self.rank, at::kInt));
    MUST_EQUAL(reduced[0], at::full({4}, 2.0));
  });
}

TEST(Backend, AddsSparseTensors) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    // Rank r has r + 1 entries, with duplicates; the sizes are those of an embedding's gradient.
    const at::Tensor indices = at::arange(self.rank + 1, at::kLong).remainder(2).view({1, -1});
    const at::Tensor values = at::full({self.rank + 1, 2}, self.rank + 1.0);
    const at::Tensor mine = at::sparse_coo_tensor(indices, values, {4, 2});
    const at::Tensor dense = mine.to_dense();
    std::vector<at::Tensor> tensors = {mine};
    backend->allreduce(tensors)->wait();
    MUST(tensors[0].is_sparse());
    MUST_EQUAL(tensors[0].to_dense(), AllReduced(*backend, dense));
    c10d::AllreduceOptions product;
    product.reduceOp = ReduceOp::PRODUCT;
    MUST(Has(MUST_THROW(backend->allreduce(tensors, product)), "only works with ReduceOp.SUM"));
    std::vector<at::Tensor> other = {at::sparse_coo_tensor(indices, values, {4 + self.rank, 2})};
    MUST(Has(MUST_THROW(backend->allreduce(other)->wait()), "other sizes"));
  });
}

TEST(Backend, SendsAndReceives) {
  RunRanks(3, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    for (const std::int64_t count : {0, 3, 500000}) {
      // Every rank to every rank, with crossing tags, and without waiting for sends before the receives are posted.
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      std::vector<std::pair<at::Tensor, int>> received;
      for (int other = 0; other < self.size; ++other) {
        if (other == self.rank) continue;
        for (const int tag : {7, 3}) {
          std::vector<at::Tensor> message = {at::full({count}, self.rank * 100 + tag, at::kInt)};
          works.push_back(backend->send(message, other, tag));
        }
      }
      for (int other = 0; other < self.size; ++other) {
        if (other == self.rank) continue;
        for (const int tag : {3, 7}) {
          std::vector<at::Tensor> message = {at::empty({count}, at::kInt)};
          works.push_back(backend->recv(message, other, tag));
          received.emplace_back(message[0], other * 100 + tag);
        }
      }
      for (const auto& work : works) MUST(work->wait());
      for (const auto& [tensor, value] : received) MUST_EQUAL(tensor, at::full({count}, value, at::kInt));
    }
    if (self.rank == 0) {
      int sum = 0;
      for (int i = 0; i < 2; ++i) {
        std::vector<at::Tensor> message = {at::empty({2, 3}).t()};
        const auto work = backend->recvAnysource(message, 1);
        work->wait();
        MUST_EQUAL(message[0], at::full({3, 2}, work->sourceRank(), at::kFloat));
        sum += work->sourceRank();
      }
      MUST(sum == 3);
    } else {
      std::vector<at::Tensor> message = {at::full({3, 2}, self.rank, at::kFloat)};
      backend->send(message, 0, 1)->wait();
    }
    std::vector<at::Tensor> message = {at::ones({1})};
    MUST_THROW(backend->send(message, self.rank, 0)->wait());
    MUST_THROW(backend->send(message, 17, 0)->wait());
    MUST_THROW(backend->send(message, (self.rank + 1) % 3, -1)->wait());
  });
}

TEST(Backend, AMessageArrivesThoughItsSenderHasLeft) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    std::vector<at::Tensor> message = {at::full({100}, 5.0)};
    if (self.rank == 1) {
      backend->send(message, 0, 0)->wait();
      backend->shutdown();
      self.store->set("left", std::string("yes"));
      return;
    }
    self.store->wait({"left"}, std::chrono::seconds(30));
    message[0].zero_();
    backend->recv(message, 1, 0)->wait();
    MUST_EQUAL(message[0], at::full({100}, 5.0));
  });
}

TEST(Backend, FuturesHoldTheResultAndCallbacksMayCallAgain) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    std::vector<at::Tensor> tensors = {at::full({2}, self.rank + 1.0)};
    std::vector<at::Tensor> later = {at::full({2}, 7.0)};
    const auto work = backend->allreduce(tensors);
    // In the callback: a call that is queued behind another is waited for in the thread that would run it.
    const auto future = work->getFuture()->then(
        [&](c10::ivalue::Future& done) {
          MUST(work->isCompleted() && work->isSuccess());
          std::vector<at::Tensor> inner = {done.value().toTensorVector()[0].clone()};
          std::vector<at::Tensor> before = {at::ones({3})};
          const auto first = backend->allreduce(before);
          backend->allreduce(inner)->wait();
          first->wait();
          return c10::IValue(inner[0] + before[0][0]);
        },
        c10::TensorType::get());
    future->wait();
    MUST_EQUAL(future->value().toTensor(), at::full({2}, 3.0 * 2 + 2));
    MUST(work->isCompleted() && work->isSuccess());
    MUST(work->getFutureResult()->completed());
    const auto done = backend->allreduce(later);
    done->wait();
    MUST_EQUAL(done->getFuture()->value().toTensorVector()[0], at::full({2}, 14.0));
    MUST_EQUAL(done->result()[0], at::full({2}, 14.0));
    MUST(done->getSequencenumber() == 4);
    MUST(backend->getSequenceNumberForGroup() == 4);
  });
}

TEST(Backend, CallsThatNobodyWaitsForMayCrossBetweenGroups) {
  RunRanks(2, [](const RankOfTest& self) {
    BackendRequest request = self.Request();
    request.group_name = "one";
    request.store = c10::make_intrusive<c10d::PrefixStore>("one", self.store);
    const auto one = MakeBackend(request);
    request.group_name = "two";
    request.store = c10::make_intrusive<c10d::PrefixStore>("two", self.store);
    const auto two = MakeBackend(request);
    MUST(one != two);
    for (int i = 0; i < 20; ++i) {
      std::vector<at::Tensor> a = {at::ones({4})};
      std::vector<at::Tensor> b = {at::full({4}, 2.0)};
      const auto& first = self.rank == 0 ? one : two;
      const auto& second = self.rank == 0 ? two : one;
      auto& in_first = self.rank == 0 ? a : b;
      auto& in_second = self.rank == 0 ? b : a;
      const auto begun = first->allreduce(in_first);
      second->allreduce(in_second)->wait();
      begun->wait();
      MUST_EQUAL(a[0], at::full({4}, 2.0));
      MUST_EQUAL(b[0], at::full({4}, 4.0));
    }
    // The order of one group is kept, whichever thread runs a call.
    std::vector<at::Tensor> tensors = {at::ones({1})};
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 50; ++i) {
      works.push_back(
          one->allreduce(tensors, i % 3 == 0 ? Waiting(c10d::AllreduceOptions()) : c10d::AllreduceOptions()));
    }
    for (const auto& work : works) work->wait();
    MUST_EQUAL(tensors[0], at::full({1}, std::pow(2.0F, 50)));
  });
}

TEST(Backend, IsTheSameForEveryDeviceOfAGroupAndAnotherAfterShutdown) {
  RunRanks(2, [](const RankOfTest& self) {
    BackendRequest request = self.Request();
    request.group_name = "default_pg";
    request.store = c10::make_intrusive<c10d::PrefixStore>("cpu", self.store);
    const auto for_cpu = MakeBackend(request);
    request.store = c10::make_intrusive<c10d::PrefixStore>("cuda", self.store);
    MUST(MakeBackend(request) == for_cpu);
    AllReduced(*for_cpu, at::ones({1}));
    for_cpu->shutdown();
    for_cpu->shutdown();
    MUST(Has(MUST_THROW(AllReduced(*for_cpu, at::ones({1}))), "has left the group 'default_pg'"));
    const auto again = MakeBackend(request);
    MUST(again != for_cpu);
    MUST_EQUAL(AllReduced(*again, at::ones({1})), at::full({1}, 2.0));
    MUST_THROW(PathsOf(nullptr));
  });
}

TEST(Backend, AllocatesMemoryThatTheOthersReachAndKeepsItAfterShutdown) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    MUST(backend->supportsTensorAlloc(-1));
    MUST(!backend->supportsTensorAlloc(0));
    at::Tensor tensor = backend->allocateTensor(100000, at::TensorOptions().dtype(at::kFloat));
    tensor.fill_(self.rank + 1);
    MUST_EQUAL(AllReduced(*backend, tensor), at::full({100000}, 3.0));
    MUST(backend->allocateTensor(0, at::kFloat).numel() == 0);
    MUST_THROW(backend->allocateTensor(-1, at::kFloat));
    backend->shutdown();
    tensor.fill_(4.0);
    MUST_EQUAL(tensor, at::full({100000}, 4.0));
  });
}

TEST(Backend, OneRankIsAGroupToo) {
  RunRanks(1, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    MUST_EQUAL(AllReduced(*backend, at::ones({3})), at::ones({3}));
    at::Tensor in = at::arange(4.0);
    at::Tensor out = at::empty({4});
    backend->_allgather_base(out, in)->wait();
    MUST_EQUAL(out, in);
    backend->barrier()->wait();
    backend->monitoredBarrier(c10d::BarrierOptions(), true);
  });
}

}  // namespace
}  // namespace fulldeck::torch_backend
