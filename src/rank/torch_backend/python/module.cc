// The extension `fulldeck._C`: torch_backend/backend.h for Python. Its only user is python/fulldeck/backend.py, which
// loads it when the first group is created. Every function that may block releases the GIL: creating a group waits for
// other processes, and shutting down waits for threads that may need the GIL.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "torch_backend/backend.h"
#include "torch_backend/python/late_threads.h"

namespace py = pybind11;

namespace fulldeck::torch_backend {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

std::string MinorOf(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// The layout of the backend's base classes differs between minor versions. backend.py has already compared them; this
// covers loading the module without it.
void RefuseAnotherTorch() {
  const auto running = py::str(py::module_::import("torch").attr("__version__")).cast<std::string>();
  if (MinorOf(running) == MinorOf(BuiltForTorch())) return;
  throw py::import_error("fulldeck: this extension was built for torch " + std::string(BuiltForTorch()) +
                         " and cannot be used in torch " + running + ". Install fulldeck again from its sources.");
}

BackendPointer CreateBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                             std::chrono::milliseconds timeout, std::string group_name,
                             std::vector<std::int64_t> global_ranks, bool check_finite) {
  BackendRequest request;
  request.store = std::move(store);
  request.rank = rank;
  request.size = size;
  request.timeout = timeout;
  request.group_name = std::move(group_name);
  request.global_ranks = std::move(global_ranks);
  request.check_finite = check_finite;
  return MakeBackend(std::move(request));
}

std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> Paths(const BackendPointer& backend) {
  const PathCounts counts = PathsOf(backend);
  return {counts.local, counts.hierarchical, counts.flat};
}

std::tuple<bool, int, std::uint64_t, std::uint64_t> LastNonfinite(const BackendPointer& backend) {
  const NonfiniteRecord record = NonfiniteOf(backend);
  return {record.found, record.rank, record.element, record.call};
}

}  // namespace
}  // namespace fulldeck::torch_backend

// NOLINTNEXTLINE: the macro's own code
PYBIND11_MODULE(_C, module) {
  using namespace fulldeck::torch_backend;  // NOLINT: the names of this file
  RefuseAnotherTorch();
  // This module binds the classes of stores and backends.
  py::module_::import("torch._C._distributed_c10d");
  module.attr("BUILT_FOR_TORCH") = BuiltForTorch();
  module.attr("LACKING_IN_THIS_TORCH") = LackingInThisTorch();
  module.def("create_backend", torch::wrap_pybind_function_no_gil(CreateBackend), py::arg("store").none(false),
             py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("group_name"), py::arg("global_ranks"),
             py::arg("check_finite"));
  module.def("shutdown_all", torch::wrap_pybind_function_no_gil(ShutdownAllBackends));
  module.def("let_late_threads_hang", LetLateThreadsHang);
  module.def("paths", torch::wrap_pybind_function_no_gil(Paths), py::arg("backend"));
  module.def("describe", torch::wrap_pybind_function_no_gil(DescriptionOf), py::arg("backend"));
  module.def("nonfinite", torch::wrap_pybind_function_no_gil(LastNonfinite), py::arg("backend"));
}
