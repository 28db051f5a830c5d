// The results of `fulldeck bench collectives`, as text and as JSON. docs/bench.md describes both.
#pragma once

#include <string>

#include "bench/collectives_bench.h"

namespace fulldeck::cli {

// One table for each number of ranks and operation, followed by the conditions of the measurement.
std::string BenchText(const bench::BenchPlan& plan, const bench::BenchFigures& figures, bool colors);
std::string BenchJson(const bench::BenchPlan& plan, const bench::BenchFigures& figures);

// "1.70 µs", "33.2 ms", "1.25 s": three digits.
std::string TimeText(double seconds);

}  // namespace fulldeck::cli
