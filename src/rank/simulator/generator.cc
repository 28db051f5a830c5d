#include "simulator/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>

#include "simulator/card.h"
#include "wire/simulated_spec.h"

namespace fulldeck::simulator {
namespace {

class CardGenerator final : public c10::GeneratorImpl {
 public:
  CardGenerator(int card, at::Generator host)
      : c10::GeneratorImpl({c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(card)},
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  void set_current_seed(std::uint64_t seed) override { host_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { host_.set_offset(offset); }
  std::uint64_t get_offset() const override { return host_.get_offset(); }
  std::uint64_t current_seed() const override { return host_.current_seed(); }
  std::uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override { host_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host_.unsafeGetGeneratorImpl()->get_state(); }

  const at::Generator& host() const { return host_; }

 private:
  CardGenerator* clone_impl() const override { return new CardGenerator(device_.index(), host_.clone()); }

  at::Generator host_;
};

}  // namespace

const at::Generator& DefaultGenerator(int card) {
  static auto& all = *[] {
    auto* made = new std::array<at::Generator, wire::kMaxSimulatedCards>;
    for (int i = 0; i < CardCount(); ++i) (*made)[static_cast<std::size_t>(i)] = NewGenerator(i);
    return made;
  }();
  CheckCard(static_cast<c10::DeviceIndex>(card));
  return all[static_cast<std::size_t>(card)];
}

at::Generator NewGenerator(int card) {
  return at::make_generator<CardGenerator>(card, at::make_generator<at::CPUGeneratorImpl>());
}

at::Generator HostGenerator(const std::optional<at::Generator>& generator, int card) {
  const at::Generator& chosen = generator && generator->defined() ? *generator : DefaultGenerator(card);
  TORCH_CHECK(chosen.device().type() == c10::DeviceType::PrivateUse1, "Expected a '", KindName(),
              "' device type for generator but found '", chosen.device().type(), "'");
  TORCH_CHECK(chosen.device().index() == card, "Expected a generator of ", CardName(card), " but found one of ",
              CardName(chosen.device().index()));
  return static_cast<CardGenerator*>(chosen.unsafeGetGeneratorImpl())->host();
}

}  // namespace fulldeck::simulator
