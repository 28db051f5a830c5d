// Makes lines out of the bytes of one stream, however they come in pieces. Pure: no descriptor, no clock.
//
// A line ends at '\n'; '\r's just before it belong to the newline. A '\r' elsewhere starts the line over, as a terminal
// would show it: what stood before it (a state of a progress bar) is told as overwritten, and the line is what stands
// behind the last one. A line longer than kLongestLine comes in pieces, none of which ends inside a UTF-8 character.
// Every other byte is passed on as it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fulldeck::logs {

// Bytes at the end of `text` that begin a UTF-8 character and do not finish it: 0 to 3.
std::size_t UnfinishedCharacter(std::string_view text);

// Memory: at most kLongestLine bytes. One thread.
class LineSplitter {
 public:
  static constexpr std::size_t kLongestLine = 64 * 1024;

  // The texts are valid during the call only and hold no '\n'.
  class Sink {
   public:
    // `goes_on`: the line was too long, and the next call brings more of it.
    virtual void OnLine(std::string_view text, bool goes_on) = 0;
    virtual void OnOverwritten(std::string_view text) = 0;

   protected:
    ~Sink() = default;
  };

  void Feed(std::string_view bytes, Sink& sink);

  // The stream is over: an unfinished line is passed on as a line. Afterwards the splitter is as new.
  void Finish(Sink& sink);

  // What is there of the line that has not ended; the next text that the sink gets begins with it.
  std::string_view unfinished() const { return unfinished_; }
  // Whether that line was started over by a '\r'.
  bool rewritten() const { return rewritten_; }

 private:
  void Keep(std::string_view bytes, Sink& sink);
  void EndLine(std::string_view rest, Sink& sink);

  std::string unfinished_;
  bool after_return_ = false;  // a '\r' followed unfinished_; the next byte says what it meant
  bool rewritten_ = false;
};

}  // namespace fulldeck::logs
