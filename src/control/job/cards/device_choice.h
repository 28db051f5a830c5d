// The forms of --devices, read but not yet applied to the cards of a machine (job/cards/card_selection.h does that).
// Pure.
//
//   auto          the visible cards
//   cpu           none: ranks on the host's processors
//   gcu, nvidia   the visible cards of this kind or vendor; gpu: of any
//   4             the first 4 visible ones
//   0,2,3  0-3    these, by the numbers that `fulldeck devices` shows; `3,` is card 3 alone
//   gcu:4  gcu:0,2  the last two of one kind, where a machine has several
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
  std::optional<int> count;         // the first so many
  std::vector<int> indices;         // these and no others, in this order, each once; empty: all

  bool is_auto() const { return !cpu && !kind && !count && indices.empty(); }
};

base::Result<DeviceChoice> ParseDeviceChoice(std::string_view text);

// What a card may be asked for as: gpu, kinds (gcu, cuda …), names of torch (xla, hip), vendors (enflame …).
const std::vector<std::string>& DeviceKinds();
// "there is no kind 'gcuu'; did you mean gcu? Kinds: …"; nothing when it is one.
std::optional<std::string> WhatIsWrongWithKind(std::string_view kind);

}  // namespace fulldeck::job
