// The engine's headers, for sources that also see torch's: both define CHECK, and each keeps its own.
#pragma once

#pragma push_macro("CHECK")
#undef CHECK
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"
#pragma pop_macro("CHECK")
