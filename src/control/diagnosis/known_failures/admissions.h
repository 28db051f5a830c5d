// A script whose own log admits that something is missing, and goes on: placeholder data, the training set in the place
// of the validation set, one process in the place of several.
#pragma once

#include <string_view>

#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

// The line holds all parts, in this order.
bool Holds(std::string_view line, const Signature& signature);
// The line holds a part that makes it mean something else than the entry.
bool IsHarmless(std::string_view line, const CatalogueEntry& entry);

// The entry that a line of a rank's log admits; nullptr for most lines. Lines of fulldeck's own admit nothing. Any
// thread.
const CatalogueEntry* AdmissionIn(std::string_view line);

}  // namespace fulldeck::diagnosis
