// A vendor: one small object that knows where its cards can be found and how to combine what the sources report. One
// file per vendor; vendors with nothing but PCI functions and device nodes share other_vendors.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "device/card.h"
#include "device/source.h"
#include "device/survey.h"
#include "device/vendor_traits.h"

namespace fulldeck::device {

struct VendorReport {
  std::string vendor;  // VendorTraits::name
  std::string title;
  std::vector<Card> cards;                    // by index
  std::optional<std::string> absence;         // if there is no card: "not here, because …", without the vendor's name
  std::vector<std::string> failures;          // messages about sources that should have answered and did not
  std::vector<std::string> notes;             // what the sources report about themselves
  std::optional<std::string> visibility;      // the variable in force: "CUDA_VISIBLE_DEVICES=0,2"
  std::optional<std::string> bad_visibility;  // what is wrong with that variable
  // the setting of the container runtime: "NVIDIA_VISIBLE_DEVICES=all"
  std::optional<std::string> container_visibility;
};

class Vendor {
 public:
  virtual ~Vendor() = default;
  virtual const VendorTraits& traits() const = 0;

  // The sources to query on this machine. Only checks files; if there is no trace of the vendor, returns no sources.
  virtual std::vector<Source> Sources(const Survey& survey, const base::Environment& environment) const = 0;

  // Combines the cards of the survey with the answers of the sources, which are in the order of Sources(). Pure
  // except that it reads files below survey.root. Visibility and holders are filled in later, by the same code for
  // all vendors.
  virtual VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const = 0;
};

// Every vendor with real cards, in display order.
std::vector<std::unique_ptr<Vendor>> RealVendors();

// Possible locations of a vendor's library: paths of existing files and, on a real machine, also the bare names for
// the dynamic loader.
std::vector<std::string> LibraryCandidates(const base::SystemRoot& root, const std::vector<std::string>& names,
                                           const std::vector<std::string>& folders);

std::unique_ptr<Vendor> MakeNvidia();
std::unique_ptr<Vendor> MakeEnflame();
std::unique_ptr<Vendor> MakeAscend();
std::unique_ptr<Vendor> MakeIluvatar();
std::unique_ptr<Vendor> MakeVendorOfPciFunctions(const VendorTraits& traits);

}  // namespace fulldeck::device
