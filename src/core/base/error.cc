#include "fulldeck/error.h"

namespace fulldeck {

Error::~Error() = default;
Refusal::~Refusal() = default;

}  // namespace fulldeck
