// Detects scripts whose own log admits that something is missing and that they continue anyway: with placeholder data,
// the training set instead of the validation set, or one process instead of several.
#pragma once

#include <string_view>

#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

// The line contains all parts in this order.
bool Holds(std::string_view line, const Signature& signature);
// The line contains a part that gives it a different meaning than the entry.
bool IsHarmless(std::string_view line, const CatalogueEntry& entry);

// The entry that a line of a rank's log admits; nullptr for most lines. Lines of fulldeck itself never match. Thread
// safe.
const CatalogueEntry* AdmissionIn(std::string_view line);

}  // namespace fulldeck::diagnosis
