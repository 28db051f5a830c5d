"""Writes the examples of the public C++ headers and of the documents into one source, which the build compiles:
    header_examples.py SOURCE_DIR OUTPUT.cc
An example is the first indented block of a header's opening comment, or a ```cpp block of a document. It becomes the
body of a function whose parameters are what the example assumes; they are listed in EXAMPLES, and an example that is
not listed is an error. `for (...)` loops twice, and an ellipsis at the start of a line is removed."""
import glob
import os
import re
import sys

SESSION = "std::unique_ptr<fulldeck::Session> session"
BATCH = "at::Tensor images, at::Tensor labels"
MODEL = "fulldeck::DataParallel<Net> model"

# The assumptions of each example.
EXAMPLES = {
    "include/fulldeck/adamw.h": "std::shared_ptr<Net> net",
    "include/fulldeck/checkpoint.h": "std::shared_ptr<Net> model, torch::optim::AdamW& adamw, fulldeck::Sampler& sampler, "
                                     "const fulldeck::Team& team, std::int64_t steps",
    "include/fulldeck/data_parallel.h": SESSION + ", " + BATCH + ", LossFunction loss",
    "include/fulldeck/grad_scaler.h": SESSION + ", fulldeck::DataParallel<Net>& model, torch::optim::SGD& optimizer, " + BATCH,
    "include/fulldeck/micro_batches.h": SESSION + ", fulldeck::DataParallel<Net>& model, torch::optim::SGD& optimizer, " + BATCH,
    "include/fulldeck/random.h": SESSION + ", int epoch, int sample_index",
    "include/fulldeck/sampler.h": SESSION + ", std::vector<int> data, TrainFunction Train, SaveFunction save",
    "include/fulldeck/session.h": "std::shared_ptr<Net> model, Loader loader, double loss, int batch_size",
    "docs/data-parallel.md": "std::vector<torch::data::Example<>> loader",
    "docs/torch-backend.md": "c10::intrusive_ptr<c10d::Store> store, int rank, int size",
    "docs/training-session.md": "std::vector<int> data, double loss",
}

# Declarations for all examples.
PREAMBLE = """// Made by tests/header_examples.py.
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fulldeck/adamw.h"
#include "fulldeck/checkpoint.h"
#include "fulldeck/data_parallel.h"
#include "fulldeck/grad_scaler.h"
#include "fulldeck/gradients.h"
#include "fulldeck/micro_batches.h"
#include "fulldeck/random.h"
#include "fulldeck/sampler.h"
#include "fulldeck/session.h"
#include "torch_backend/backend.h"

#pragma GCC diagnostic ignored "-Wunused-variable"

namespace {
struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE_IMPL(Model, Net);
struct Loader {
  at::Tensor Next() { return {}; }
};
using LossFunction = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
using TrainFunction = std::function<void(const std::vector<std::uint64_t>&)>;
using SaveFunction = std::function<void(const std::string&)>;
[[maybe_unused]] at::Tensor Loss(const at::Tensor& x, const at::Tensor&) { return x; }
}  // namespace
"""


def of_header(text):
    """The first indented block of the opening comment."""
    opening = text[:text.index("#pragma once")]
    lines, started = [], False
    for line in opening.splitlines():
        if line.startswith("//   "):
            started = True
            lines.append(line[5:])
        elif started:
            break
    return ["\n".join(lines)] if lines else []


def of_document(text):
    return re.findall(r"^```cpp\n(.*?)^```", text, re.S | re.M)


def compilable(example):
    example = re.sub(r"for \((\.\.\.|…)\)", "for (int round_of_example = 0; round_of_example < 2; ++round_of_example)", example)
    lines = [re.sub(r"^(\s*)…", r"\1", line) for line in example.splitlines()]
    return "\n".join("  " + line for line in lines if line.strip())


def main(top, output):
    found = {}
    for pattern, read in (("include/fulldeck/*.h", of_header), ("docs/*.md", of_document)):
        for path in sorted(glob.glob(os.path.join(top, pattern))):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if "extern \"C\"" in text:  # a C header: its example is C, which the test programs cover
                continue
            examples = read(text)
            if examples:
                found[os.path.relpath(path, top)] = examples
    unlisted = sorted(set(found) ^ set(EXAMPLES))
    if unlisted:
        sys.exit("header_examples.py: examples and the list EXAMPLES differ: " + ", ".join(unlisted))
    parts = [PREAMBLE]
    for number, (path, examples) in enumerate(sorted(found.items())):
        for each, example in enumerate(examples):
            parts.append("// {}\n[[maybe_unused]] static void Example{}_{}({}) {{\n{}\n}}\n".format(
                path, number, each, EXAMPLES[path], compilable(example)))
    text = "\n".join(parts)
    try:
        with open(output, encoding="utf-8") as file:
            if file.read() == text:
                return
    except OSError:
        pass
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
