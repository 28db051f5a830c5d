// Splits the bytes of one stream into lines, whatever the sizes of the reads. Pure: no descriptor, no clock.
//
// A line ends at '\n'; '\r's directly before it belong to the newline. A '\r' elsewhere restarts the line, as a
// terminal would show it: the text before it (a state of a progress bar) is reported as overwritten, and the line is
// the text after the last '\r'. A line longer than kLongestLine is split, never inside a UTF-8 character. All other
// bytes are passed on unchanged.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fulldeck::logs {

// Number of bytes at the end of `text` that begin a UTF-8 character but do not complete it: 0 to 3.
std::size_t UnfinishedCharacter(std::string_view text);

// Memory: at most kLongestLine bytes. One thread.
class LineSplitter {
 public:
  static constexpr std::size_t kLongestLine = 64 * 1024;

  // The views are valid during the call only and contain no '\n'.
  class Sink {
   public:
    // `goes_on`: the line was too long, and the next call passes more of it.
    virtual void OnLine(std::string_view text, bool goes_on) = 0;
    virtual void OnOverwritten(std::string_view text) = 0;

   protected:
    ~Sink() = default;
  };

  void Feed(std::string_view bytes, Sink& sink);

  // The stream is complete: an unfinished line is passed on as a line. Afterwards the splitter can be reused.
  void Finish(Sink& sink);

  // The received part of the line that has not ended. The next text that the sink receives begins with it.
  std::string_view unfinished() const { return unfinished_; }
  // Whether a '\r' restarted that line.
  bool rewritten() const { return rewritten_; }

 private:
  void Keep(std::string_view bytes, Sink& sink);
  void EndLine(std::string_view rest, Sink& sink);

  std::string unfinished_;
  bool after_return_ = false;  // a '\r' followed unfinished_; the next byte decides its meaning
  bool rewritten_ = false;
};

}  // namespace fulldeck::logs
