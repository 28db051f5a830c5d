// The torch-free layer of checkpoints, for sources that also see torch: both define CHECK, and each keeps its own.
#pragma once

#pragma push_macro("CHECK")
#undef CHECK
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"
#pragma pop_macro("CHECK")
