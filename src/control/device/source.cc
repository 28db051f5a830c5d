#include "device/source.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/environment.h"
#include "base/event_loop.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "device/libraries/vendor_helper.h"
#include "wire/bytes_header.h"

namespace fulldeck::device {
namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr base::Duration kKilledTimeout = std::chrono::milliseconds(100);

enum class Drained { kOpen, kEnded, kTooLong };

// Reads what the pipe holds now.
Drained Drain(int fd, std::size_t limit, std::string& text) {
  std::array<char, 8192> chunk;
  for (;;) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN ? Drained::kOpen : Drained::kEnded;
    if (got == 0) return Drained::kEnded;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > limit) return Drained::kTooLong;
  }
}

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "ended with code " + std::to_string(WEXITSTATUS(wait_status));
}

// Kills the process and its group. Waits only a moment: a process that hangs in the kernel cannot be reaped.
std::optional<int> KillAndReap(pid_t pid) {
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
  base::EventLoop loop;
  std::optional<int> status;
  bool ended = false;
  const auto watch = loop.WhenExited(pid, [&](std::optional<int> wait_status) {
    status = wait_status;
    ended = true;
  });
  if (!watch) return std::nullopt;
  const base::TimePoint deadline = loop.clock().Now() + kKilledTimeout;
  while (!ended && loop.clock().Now() < deadline) loop.RunOnce(deadline - loop.clock().Now());
  return status;
}

// Tools print in the user's language and may use a pager or colors; their parsers expect neither.
std::vector<std::string> PlainEnvironment() {
  std::vector<std::string> variables = {"LC_ALL=C", "TERM=dumb"};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("LC_") && !text.starts_with("LANG") && !text.starts_with("TERM="))
      variables.emplace_back(text);
  }
  return variables;
}

}  // namespace

const char* LibraryKindName(LibraryKind kind) {
  switch (kind) {
    case LibraryKind::kNvml:
      return "nvml";
    case LibraryKind::kEfml:
      return "efml";
    case LibraryKind::kDcmi:
      return "dcmi";
    case LibraryKind::kIxml:
      return "ixml";
  }
  return "";
}

std::optional<LibraryKind> ParseLibraryKind(std::string_view name) {
  for (const LibraryKind kind : {LibraryKind::kNvml, LibraryKind::kEfml, LibraryKind::kDcmi, LibraryKind::kIxml}) {
    if (name == LibraryKindName(kind)) return kind;
  }
  return std::nullopt;
}

// A query in progress. Each subclass starts its process and knows when its answer is complete.
class Question {
 public:
  virtual ~Question() = default;
  bool answered() const { return answer_.has_value(); }
  base::Result<SourceReading> TakeAnswer() { return std::move(*answer_); }
  void Fail(std::string message) { answer_ = base::Error{std::move(message)}; }

  // Adds its descriptors to the loop until it is answered.
  virtual void Begin(base::EventLoop& loop) = 0;
  virtual void GiveUp(base::Duration deadline) = 0;

 protected:
  std::optional<base::Result<SourceReading>> answer_;
};

// Lives as long as its process answers correctly; any failure ends it, and the next Query starts a new one.
class SourceRunner::Helper final : public Question {
 public:
  Helper(LibraryKind kind, std::vector<std::string> candidates, std::string program)
      : kind_(kind), candidates_(std::move(candidates)), program_(std::move(program)) {}
  ~Helper() override { End(); }

  bool Serves(const Source& source) const { return source.library == kind_ && source.candidates == candidates_; }

  void Begin(base::EventLoop& loop) override {
    answer_.reset();
    received_.clear();
    if (pid_ <= 0) {
      const auto started = Start();
      if (!started) return Fail(started.error().message);
    }
    // If the helper has just died, this write fails; reading its answer then reports how it ended.
    const char request = 1;
    [[maybe_unused]] const auto written = write(request_.get(), &request, 1);
    const auto watch = loop.WhenReadable(answer_pipe_.get(), [this] { Receive(); });
    if (!watch) return FailAndEnd(watch.error().message);
    loop_ = &loop;
    watch_ = *watch;
  }

  void GiveUp(base::Duration deadline) override {
    FailAndEnd("did not answer within " + base::FormatSeconds(deadline) +
               " (hangs, or needs longer: --timeout gives it more); its helper process was killed");
  }

 private:
  base::Result<void> Start() {
    auto requests = base::MakePipe();
    auto answers = base::MakePipe();
    if (!requests) return requests.error();
    if (!answers) return answers.error();
    base::SpawnOptions options;
    options.arguments = {program_, "vendor-helper", LibraryKindName(kind_)};
    options.arguments.insert(options.arguments.end(), candidates_.begin(), candidates_.end());
    options.descriptors = {{0, requests->read_end.get()}, {kHelperAnswerFd, answers->write_end.get()}};
    options.parent_death_signal = SIGKILL;
    const auto pid = base::Spawn(options);
    if (!pid) return pid.error();
    pid_ = *pid;
    request_ = std::move(requests->write_end);
    answer_pipe_ = std::move(answers->read_end);
    return base::SetNonBlocking(answer_pipe_.get());
  }

  void Receive() {
    const Drained drained = Drain(answer_pipe_.get(), kHelperLongestAnswer + sizeof(wire::BytesHeader), received_);
    if (received_.size() >= sizeof(wire::BytesHeader)) {
      wire::BytesHeader header;
      std::memcpy(&header, received_.data(), sizeof header);
      const auto fits =
          wire::CheckHeader(header, kHelperMagic, kHelperVersion, kHelperLongestAnswer, "the helper's answer");
      if (!fits) return FailAndEnd(fits.error().message);
      if (received_.size() >= sizeof header + header.length) {
        answer_ = DecodeAnswer(received_.substr(sizeof header, header.length));
        Unwatch();
        // If the library could not be opened, start a new process next time: it may work by then.
        if (!*answer_) End();
        return;
      }
    }
    if (drained == Drained::kOpen) return;
    const pid_t pid = pid_;
    Unwatch();
    const auto status = KillAndReap(std::exchange(pid_, 0));
    End();
    Fail(status ? "its helper process " + DescribeEnd(*status) + " before it answered"
                : "its helper process " + std::to_string(pid) + " closed its end before it answered");
  }

  void FailAndEnd(std::string message) {
    Unwatch();
    End();
    Fail(std::move(message));
  }

  void Unwatch() {
    if (loop_ != nullptr) loop_->Remove(watch_);
    loop_ = nullptr;
  }

  void End() {
    request_.Reset();
    answer_pipe_.Reset();
    if (pid_ > 0) KillAndReap(std::exchange(pid_, 0));
  }

  const LibraryKind kind_;
  const std::vector<std::string> candidates_;
  const std::string program_;
  pid_t pid_ = 0;
  base::UniqueFd request_;
  base::UniqueFd answer_pipe_;
  std::string received_;
  base::EventLoop* loop_ = nullptr;
  base::EventLoop::Id watch_ = 0;
};

class SourceRunner::ToolRun final : public Question {
 public:
  explicit ToolRun(const Source& source) : source_(source) {}
  ~ToolRun() override {
    if (pid_ > 0) KillAndReap(pid_);
  }

  void Begin(base::EventLoop& loop) override {
    auto output = base::MakePipe();
    if (!output) return Fail(output.error().message);
    base::SpawnOptions options;
    options.arguments = source_.command;
    options.environment = PlainEnvironment();
    options.descriptors = {{1, output->write_end.get()}, {2, output->write_end.get()}};
    options.parent_death_signal = SIGKILL;
    const auto pid = base::Spawn(options);
    if (!pid) return Fail(pid.error().message);
    pid_ = *pid;
    output_ = std::move(output->read_end);
    loop_ = &loop;
    const auto non_blocking = base::SetNonBlocking(output_.get());
    if (!non_blocking) return Fail(non_blocking.error().message);
    const auto readable = loop.WhenReadable(output_.get(), [this] { Receive(); });
    const auto exited = loop.WhenExited(pid_, [this](std::optional<int> status) { Finish(status); });
    if (!readable || !exited) return Fail("cannot be waited for");
    readable_ = *readable;
    exited_ = *exited;
  }

  void GiveUp(base::Duration deadline) override {
    Unwatch();
    KillAndReap(std::exchange(pid_, 0));
    Fail("did not answer within " + base::FormatSeconds(deadline) + "; it was killed");
  }

 private:
  void Receive() {
    const Drained drained = Drain(output_.get(), kLongestText, text_);
    if (drained == Drained::kTooLong) {
      Unwatch();
      KillAndReap(std::exchange(pid_, 0));
      Fail("printed more than " + base::FormatByteSize(kLongestText) + "; it was killed");
    }
    // After the end of the output, only the exit remains to wait for.
    if (drained == Drained::kEnded) loop_->Remove(readable_);
  }

  void Finish(std::optional<int> status) {
    pid_ = 0;
    Drain(output_.get(), kLongestText, text_);
    Unwatch();
    SourceReading reading = source_.parser(text_);
    const bool well = status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
    if (!well && reading.cards.empty()) {
      std::string message = status ? DescribeEnd(*status) : "ended";
      if (!reading.notes.empty()) message += ": " + base::Join(reading.notes, " ");
      return Fail(std::move(message));
    }
    if (!well && status) reading.notes.push_back(source_.title + " " + DescribeEnd(*status) + ".");
    answer_ = std::move(reading);
  }

  void Unwatch() {
    loop_->Remove(readable_);
    loop_->Remove(exited_);
  }

  const Source& source_;
  pid_t pid_ = 0;
  base::UniqueFd output_;
  std::string text_;
  base::EventLoop* loop_ = nullptr;
  base::EventLoop::Id readable_ = 0;
  base::EventLoop::Id exited_ = 0;
};

SourceRunner::SourceRunner(std::string helper_program) : helper_program_(std::move(helper_program)) {}
SourceRunner::~SourceRunner() = default;

std::vector<Answer> SourceRunner::Query(const std::vector<Source>& sources, base::Duration deadline) {
  // A helper whose library has crashed leaves a pipe without a reader: the write must fail, not kill this process.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before {};
  sigaction(SIGPIPE, &ignore, &before);

  base::EventLoop loop;
  std::vector<std::unique_ptr<ToolRun>> tool_runs;
  std::vector<Question*> questions;
  for (const Source& source : sources) {
    if (source.library) {
      auto helper = std::find_if(helpers_.begin(), helpers_.end(), [&](const auto& h) { return h->Serves(source); });
      if (helper == helpers_.end()) {
        helpers_.push_back(std::make_unique<Helper>(*source.library, source.candidates, helper_program_));
        helper = std::prev(helpers_.end());
      }
      questions.push_back(helper->get());
    } else {
      tool_runs.push_back(std::make_unique<ToolRun>(source));
      questions.push_back(tool_runs.back().get());
    }
  }
  for (Question* question : questions) question->Begin(loop);
  const auto all_answered = [&] {
    return std::all_of(questions.begin(), questions.end(), [](const Question* q) { return q->answered(); });
  };
  const base::TimePoint end = loop.clock().Now() + deadline;
  while (!all_answered() && loop.clock().Now() < end) loop.RunOnce(end - loop.clock().Now());

  std::vector<Answer> answers;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (!questions[i]->answered()) questions[i]->GiveUp(deadline);
    answers.push_back({sources[i].title, questions[i]->TakeAnswer()});
  }
  tool_runs.clear();
  sigaction(SIGPIPE, &before, nullptr);
  return answers;
}

}  // namespace fulldeck::device
