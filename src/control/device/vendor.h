// A vendor: one small object that knows where its cards leave traces and how to put the answers together. One file a
// vendor; vendors that leave nothing but PCI functions and nodes share other_vendors.cc.
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
  std::vector<Card> cards;                          // by index
  std::optional<std::string> absence;               // with no card: "not here, because …", without the vendor's name
  std::vector<std::string> failures;                // a source that should have told and did not, in words
  std::vector<std::string> notes;                   // what the sources say about themselves
  std::optional<std::string> visibility;            // the variable in force: "CUDA_VISIBLE_DEVICES=0,2"
  std::optional<std::string> bad_visibility;        // what is wrong with it
  std::optional<std::string> container_visibility;  // what the container runtime was told: "NVIDIA_VISIBLE_DEVICES=all"
};

class Vendor {
 public:
  virtual ~Vendor() = default;
  virtual const VendorTraits& traits() const = 0;

  // Whom to ask on this machine. Looks at files only; no traces of the vendor, no sources.
  virtual std::vector<Source> Sources(const Survey& survey, const base::Environment& environment) const = 0;

  // Cards from the survey and from what the sources answered, in the order of Sources(). Pure but for reading files
  // below survey.root. Visibility and holders are filled in later, by the same code for all.
  virtual VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const = 0;
};

// Every vendor with real cards, in the order in which they are shown.
std::vector<std::unique_ptr<Vendor>> RealVendors();

// Where a vendor's library may lie: paths of files that are there, and on a machine the bare names for the loader too.
std::vector<std::string> LibraryCandidates(const base::SystemRoot& root, const std::vector<std::string>& names,
                                           const std::vector<std::string>& folders);

std::unique_ptr<Vendor> MakeNvidia();
std::unique_ptr<Vendor> MakeEnflame();
std::unique_ptr<Vendor> MakeAscend();
std::unique_ptr<Vendor> MakeIluvatar();
std::unique_ptr<Vendor> MakeVendorOfPciFunctions(const VendorTraits& traits);

}  // namespace fulldeck::device
