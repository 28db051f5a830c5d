#include "patch/inserted_lines.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace fulldeck::patch {
namespace {

constexpr std::string_view kBegin = "# fulldeck patch mmengine: begin";
constexpr std::string_view kEnd = "# fulldeck patch mmengine: end";

struct Line {
  std::string_view text;  // without its line ending
  std::string_view end;   // "\n", "\r\n", or empty for the last line
  std::size_t offset = 0;
  bool in_string = false;  // begins inside a triple-quoted string
};

std::size_t Indentation(std::string_view line) {
  return std::min(line.find_first_not_of(" \t"), line.size());
}

std::string_view Words(const Line& line) {
  return line.text.substr(Indentation(line.text));
}

// Tracks Python's strings through one line. `open` is the quote of the string in which the line begins, or 0.
char AfterLine(std::string_view line, char open) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool three = (c == '"' || c == '\'') && line.substr(i, 3) == std::string(3, c);
    if (open != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == open && three) {
        open = 0;
        i += 2;
      }
    } else if (c == '#') {
      return 0;
    } else if (three) {
      open = c;
      i += 2;
    } else if (c == '"' || c == '\'') {
      for (++i; i < line.size() && line[i] != c; ++i) {
        if (line[i] == '\\') ++i;
      }
    }
  }
  return open;
}

std::vector<Line> Lines(std::string_view source) {
  std::vector<Line> lines;
  char open = 0;
  for (std::size_t at = 0; at < source.size();) {
    const std::size_t newline = std::min(source.find('\n', at), source.size());
    const bool carriage = newline > at && source[newline - 1] == '\r';
    const std::size_t text_end = carriage ? newline - 1 : newline;
    const std::size_t next = std::min(newline + 1, source.size());
    const Line line{source.substr(at, text_end - at), source.substr(text_end, next - text_end), at, open != 0};
    open = AfterLine(line.text, open);
    lines.push_back(line);
    at = next;
  }
  return lines;
}

// The lines of the function's body: [first, last).
struct Body {
  std::size_t first = 0, last = 0;
};

base::Result<Body> FindWrapModel(const std::vector<Line>& lines) {
  std::optional<std::size_t> definition;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].in_string || !Words(lines[i]).starts_with("def wrap_model(")) continue;
    if (definition) return base::Error{"there are two functions wrap_model in it"};
    definition = i;
  }
  if (!definition) return base::Error{"there is no function wrap_model in it"};
  const std::size_t outside = Indentation(lines[*definition].text);
  // The header may span several lines, which are indented like a body; it ends with the first line that ends in a
  // colon.
  std::size_t i = *definition;
  while (i < lines.size() && !base::Trim(lines[i].text).ends_with(":")) ++i;
  Body body{std::min(i + 1, lines.size()), lines.size()};
  for (i = body.first; i < lines.size(); ++i) {
    if (lines[i].in_string || base::Trim(lines[i].text).empty()) continue;
    if (Indentation(lines[i].text) <= outside && !Words(lines[i]).starts_with("#")) {
      body.last = i;
      break;
    }
  }
  return body;
}

std::optional<std::size_t> FindPlace(const std::vector<Line>& lines, const Body& body) {
  for (std::size_t i = body.first; i < body.last; ++i) {
    if (!lines[i].in_string && Words(lines[i]).starts_with("if model_wrapper_cfg is None:")) return i;
  }
  for (std::size_t i = body.first; i < body.last; ++i) {
    const std::string_view words = Words(lines[i]);
    // Must be a statement of its own, not the middle of a call that spans lines.
    const bool assigns = words.starts_with("model = ") || words.starts_with("return ");
    if (!lines[i].in_string && assigns && words.find("DistributedDataParallel(") != std::string_view::npos) return i;
  }
  return std::nullopt;
}

std::string LinesToInsert(std::string_view margin, std::string_view end, TraceWhen when) {
  const std::string guard =
      when == TraceWhen::kAlways ? "" : "    if __import__(\"os\").environ.get(\"FULLDECK_TRACE_DDP\") == \"1\":\n    ";
  const std::string block = std::string(kBegin) +
                            " (fulldeck patch mmengine --restore takes these lines out)\n"
                            "try:\n"
                            "    from fulldeck.adapters import trace as _fulldeck_trace\n" +
                            guard +
                            "    _fulldeck_trace.before_wrap(model)\n"
                            "except Exception:  # a report is never a reason to fail\n"
                            "    pass\n" +
                            std::string(kEnd) + "\n";
  std::string text;
  for (const std::string_view line : base::Split(std::string_view(block).substr(0, block.size() - 1), '\n')) {
    text += std::string(margin) + std::string(line) + std::string(end);
  }
  return text;
}

}  // namespace

bool HasLines(std::string_view source) {
  return source.find(kBegin) != std::string_view::npos || source.find(kEnd) != std::string_view::npos;
}

base::Result<std::string> WithLines(std::string_view source, TraceWhen when) {
  if (source.find('\0') != std::string_view::npos) return base::Error{"it is not a text"};
  if (HasLines(source)) return base::Error{"lines of fulldeck are in it already"};
  const std::vector<Line> lines = Lines(source);
  const auto body = FindWrapModel(lines);
  if (!body) return body.error();
  const auto place = FindPlace(lines, *body);
  if (!place) return base::Error{"its wrap_model makes no data-parallel wrapper in a way that is known"};
  const Line& line = lines[*place];
  std::string text(source.substr(0, line.offset));
  text += LinesToInsert(line.text.substr(0, Indentation(line.text)), line.end.empty() ? "\n" : line.end, when);
  text += source.substr(line.offset);
  return text;
}

std::optional<std::string> WithoutLines(std::string_view source) {
  std::optional<std::size_t> begin, end;
  const std::vector<Line> lines = Lines(source);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (Words(lines[i]).starts_with(kBegin)) {
      if (begin) return std::nullopt;
      begin = i;
    } else if (Words(lines[i]).starts_with(kEnd)) {
      if (end) return std::nullopt;
      end = i;
    }
  }
  if (!begin || !end || *end < *begin) return std::nullopt;
  std::string text(source.substr(0, lines[*begin].offset));
  if (*end + 1 < lines.size()) text += source.substr(lines[*end + 1].offset);
  return text;
}

}  // namespace fulldeck::patch
