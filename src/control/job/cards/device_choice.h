// The forms of --devices, parsed but not yet applied to the cards of a machine (job/cards/card_selection.h does
// that). Pure.
//
//   auto          the visible cards
//   cpu           none: ranks run on the node's CPUs
//   gcu, nvidia   the visible cards of this kind or vendor; gpu: of any
//   4             the first 4 visible ones
//   0,2,3  0-3    these, by the numbers that `fulldeck devices` shows; `3,` is only card 3
//   gcu:4  gcu:0,2  the last two forms for one kind, if a machine has several
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fulldeck::job {

struct DeviceChoice {
  bool cpu = false;
  std::optional<std::string> kind;  // absent: any
  std::optional<int> count;         // the first `count` cards
  std::vector<int> indices;         // only these, in this order, each once; empty: all

  bool is_auto() const { return !cpu && !kind && !count && indices.empty(); }
};

base::Result<DeviceChoice> ParseDeviceChoice(std::string_view text);

// Accepted names of kinds: gpu, kinds (gcu, cuda …), torch's names (xla, hip), vendors (enflame …).
const std::vector<std::string>& DeviceKinds();
// "there is no kind 'gcuu'; did you mean gcu? Kinds: …"; nullopt if the kind exists.
std::optional<std::string> WhatIsWrongWithKind(std::string_view kind);

}  // namespace fulldeck::job
