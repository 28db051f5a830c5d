// The layers below that know no torch, for sources that also see torch: both define CHECK, and each keeps its own.
#pragma once

#pragma push_macro("CHECK")
#undef CHECK
#include "base/log.h"
#include "base/text.h"
#include "dataset/augment.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "imagery/image.h"
#include "predict/findings.h"
#include "predict/mosaic.h"
#include "predict/result_files.h"
#include "predict/sliding_window.h"
#include "predict/trained_model.h"
#include "config/read.h"
#include "report/palette.h"
#pragma pop_macro("CHECK")
