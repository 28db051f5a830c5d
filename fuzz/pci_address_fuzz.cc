#include "base/check.h"
#include "device/pci_address.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto address = fulldeck::device::NormalPciAddress(fulldeck::fuzz::AsText(data, size));
  if (!address) return 0;
  FULLDECK_CHECK(address->size() >= 12 && address->size() <= 16);
  FULLDECK_CHECK(fulldeck::device::NormalPciAddress(*address) == address);
  return 0;
}
