#include "logs/line_splitter.h"

#include <algorithm>
#include <cstring>

namespace fulldeck::logs {
namespace {

// Finds successive occurrences of one byte; visits each position only once.
class Finder {
 public:
  Finder(std::string_view text, char wanted) : text_(text), wanted_(wanted) {}

  // The first occurrence at or after `from`; the size of the text if there is none.
  std::size_t NextAt(std::size_t from) {
    if (!known_ || found_ < from) {
      const void* place = std::memchr(text_.data() + from, wanted_, text_.size() - from);
      found_ =
          place == nullptr ? text_.size() : static_cast<std::size_t>(static_cast<const char*>(place) - text_.data());
      known_ = true;
    }
    return found_;
  }

 private:
  std::string_view text_;
  char wanted_;
  std::size_t found_ = 0;
  bool known_ = false;
};

}  // namespace

std::size_t UnfinishedCharacter(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

void LineSplitter::Keep(std::string_view bytes, Sink& sink) {
  while (unfinished_.size() + bytes.size() > kLongestLine) {
    const std::size_t taken = kLongestLine - unfinished_.size();
    unfinished_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    const std::size_t held_back = UnfinishedCharacter(unfinished_);
    sink.OnLine(std::string_view(unfinished_).substr(0, kLongestLine - held_back), true);
    unfinished_.erase(0, kLongestLine - held_back);
  }
  unfinished_.append(bytes);
}

void LineSplitter::EndLine(std::string_view rest, Sink& sink) {
  if (unfinished_.empty() && rest.size() <= kLongestLine) {
    sink.OnLine(rest, false);
  } else {
    Keep(rest, sink);
    sink.OnLine(unfinished_, false);
    unfinished_.clear();
  }
  rewritten_ = false;
}

void LineSplitter::Feed(std::string_view bytes, Sink& sink) {
  Finder newlines(bytes, '\n');
  Finder returns(bytes, '\r');
  for (std::size_t at = 0; at < bytes.size();) {
    if (after_return_) {
      const char next = bytes[at];
      if (next == '\r') {
        ++at;
        continue;
      }
      after_return_ = false;
      if (next != '\n') {
        sink.OnOverwritten(unfinished_);
        unfinished_.clear();
        rewritten_ = true;
      }
    }
    const std::size_t newline = newlines.NextAt(at);
    const std::size_t carriage_return = returns.NextAt(at);
    const std::size_t stop = std::min(newline, carriage_return);
    const std::string_view text = bytes.substr(at, stop - at);
    if (stop == bytes.size()) {
      Keep(text, sink);
    } else if (stop == newline) {
      EndLine(text, sink);
    } else {
      Keep(text, sink);
      after_return_ = true;
    }
    at = stop + 1;
  }
}

void LineSplitter::Finish(Sink& sink) {
  if (!unfinished_.empty()) EndLine({}, sink);
  after_return_ = false;
  rewritten_ = false;
}

}  // namespace fulldeck::logs
