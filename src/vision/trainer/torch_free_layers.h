// The layers below that know no torch, for sources that also see torch: both define CHECK, and each keeps its own.
#pragma once

#pragma push_macro("CHECK")
#undef CHECK
#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"
#pragma pop_macro("CHECK")
