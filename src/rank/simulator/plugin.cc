// The entry point of the plugin: checks that torch's PrivateUse1 is free, and registers the simulated cards there.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "base/text.h"
#include "fulldeck/simulator.h"
#include "simulator/card.h"
#include "simulator/counts.h"
#include "simulator/fallback.h"
#include "simulator/generator.h"
#include "simulator/guard.h"
#include "simulator/memory.h"

namespace fulldeck::simulator {
namespace {

std::mutex g_mutex;
std::atomic<bool> g_registered = false;  // a load with acquire sees what Register() wrote
// Never freed: a caller may hold the text of an earlier failure.
const std::string* g_error = nullptr;

int Fail(int code, const std::string& text) {
  g_error = new std::string(text);
  return code;
}

// Which library already uses PrivateUse1; empty: none.
std::string TakenBy() {
  if (c10::is_privateuse1_backend_registered()) {
    return "a library has given torch's third-party device the name \"" +
           base::Printable(c10::get_privateuse1_backend()) + "\"";
  }
  if (at::isPrivateUse1HooksRegistered() || c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1)) {
    return "a library has registered torch's third-party device";
  }
  const auto empty = c10::Dispatcher::singleton().findSchema({"aten::empty", "memory_format"});
  if (empty && empty->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return "a library has registered kernels of torch's third-party device";
  }
  return {};
}

// Whether torch uses the name for a built-in device type, with which this one would be confused.
bool TorchKnows(const std::string& kind) {
  try {
    return c10::Device(kind + ":0").type() != c10::DeviceType::PrivateUse1;
  } catch (const c10::Error&) {
    return false;
  }
}

torch::Library& LibraryFor(const char* name_space, c10::DispatchKey key) {
  // Registrations end with the library object, so it is leaked.
  return *new torch::Library(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
}

void Register() {
  c10::register_privateuse1_backend(KindName());
  // Newer torch versions look up the third-party device's name before those of built-in types.
  TORCH_CHECK(!TorchKnows(KindName()), "it takes the name ", KindName(), " for a device of its own");
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &MemoryOf(-1), 255);
  RegisterGuard();
  RegisterHooks();
  torch::Library& kernels = LibraryFor("aten", c10::DispatchKey::PrivateUse1);
  RegisterMemoryOperators(kernels);
  RegisterComputeOperators(kernels);
  RegisterBatchNorm(kernels);
  RegisterRecurrentCells(kernels);
  RegisterFallback(kernels, LibraryFor("_", c10::DispatchKey::PrivateUse1));
  RegisterAutocast(LibraryFor("aten", c10::DispatchKey::AutocastPrivateUse1),
                   LibraryFor("_", c10::DispatchKey::AutocastPrivateUse1));
}

int Initialize() {
  if (g_registered) return 0;
  std::string problem;
  if (const int code = ReadServer(problem); code != 0) return Fail(code, problem);
  // torch lists these two as built-in types without an implementation, and lets a third-party device use the names.
  if (KindName() != "xla" && KindName() != "hpu" && TorchKnows(KindName())) {
    return Fail(ENODEV, "torch has a device \"" + KindName() +
                            "\" of its own and takes no other of that name. To train, simulate gcu, xla, npu, mlu, "
                            "musa, sdaa or hpu.");
  }
  const std::string taken = TakenBy();
  if (!taken.empty()) {
    return Fail(EBUSY, "The simulated cards stay away: " + taken +
                           " already. Unset FULLDECK_SIMULATE to use the real cards, or do not load that library.");
  }
  try {
    Register();
  } catch (const std::exception& error) {
    return Fail(EPROTO, std::string("torch ") + TORCH_VERSION + " does not take the simulated cards: " +
                            base::Printable(std::string_view(error.what()).substr(0, 600)));
  }
  g_registered = true;
  return 0;
}

}  // namespace
}  // namespace fulldeck::simulator

using namespace fulldeck::simulator;

extern "C" {

int fulldeck_torch_plugin_init(void) {
  const std::lock_guard lock(g_mutex);
  return Initialize();
}

const char* fulldeck_torch_plugin_error(void) {
  const std::lock_guard lock(g_mutex);
  return g_error == nullptr ? "" : g_error->c_str();
}

const char* fulldeck_simulator_name(void) {
  return !g_registered ? "" : KindName().c_str();
}

int fulldeck_simulator_cards(void) {
  return g_registered ? CardCount() : 0;
}

int fulldeck_simulator_memory(int card, fulldeck_simulator_figures* out) {
  if (card < 0 || card >= CardCount()) return ENODEV;
  const MemoryFigures figures = FiguresOf(card);
  const std::uint64_t total = BytesOfCard();
  const std::uint64_t held = BytesHeld(card);
  *out = {figures.held, figures.peak, held < total ? total - held : 0, total};
  return 0;
}

void fulldeck_simulator_reset_peak(int card) {
  if (card >= 0 && card < CardCount()) ResetPeak(card);
}

int fulldeck_simulator_set_seed(int card, uint64_t seed) {
  if (card < 0 || card >= CardCount()) return ENODEV;
  at::Generator generator = DefaultGenerator(card);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
  return 0;
}

uint64_t fulldeck_simulator_seed(int card) {
  return card < 0 || card >= CardCount() ? 0 : DefaultGenerator(card).current_seed();
}

size_t fulldeck_simulator_get_state(int card, void* out, size_t capacity) {
  if (card < 0 || card >= CardCount()) return 0;
  const auto state = DefaultGenerator(card).unsafeGetGeneratorImpl()->get_state();
  if (capacity >= state->storage().nbytes()) std::memcpy(out, state->data(), state->storage().nbytes());
  return state->storage().nbytes();
}

int fulldeck_simulator_set_state(int card, const void* state, size_t bytes) {
  if (card < 0 || card >= CardCount()) return ENODEV;
  at::Generator generator = DefaultGenerator(card);
  try {
    const auto tensor = generator.unsafeGetGeneratorImpl()->get_state();
    if (bytes != tensor->storage().nbytes()) return EINVAL;
    std::memcpy(tensor->mutable_data(), state, bytes);
    const std::lock_guard lock(generator.mutex());
    generator.unsafeGetGeneratorImpl()->set_state(*tensor);
    return 0;
  } catch (const std::exception&) {  // torch does not accept it
    return EINVAL;
  }
}

size_t fulldeck_simulator_counts(char* out, size_t capacity) {
  const std::string text = CountsText();
  if (capacity > 0) {
    const std::size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
  }
  return text.size();
}

void fulldeck_simulator_reset_counts(void) {
  ResetCounts();
}

}  // extern "C"
