#include "dataset/pipeline.h"

#include <fulldeck/random.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "dataset/augment.h"
#include "imagery/kernels.h"

namespace fulldeck::dataset {
namespace {

constexpr int kPatch = 16;
constexpr std::size_t kNamesInAnError = 5;

int PaddedSide(int side) {
  return (side + kPatch - 1) / kPatch * kPatch;
}

std::uint64_t FingerprintOf(const float* planes, std::size_t values, const std::uint8_t* labels, std::size_t pixels,
                            std::int64_t category) {
  base::Hash hash;
  hash.Add(planes, values * sizeof(float));
  hash.Add(labels, pixels);
  hash.Add(&category, sizeof category);
  return hash.Sum();
}

std::shared_ptr<void> PlainMemory(std::size_t bytes) {
  return {::operator new (bytes, std::align_val_t{64}),
          [](void* memory) { ::operator delete (memory, std::align_val_t{64}); }};
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(const Source& source, const model_spec::DataOptions& data, PipelineOptions options);
  ~Impl();

  void Request(BatchRequest request);
  std::size_t requested() const { return jobs_.size(); }
  base::Result<Batch> Next();

 private:
  // The result for one index of a request.
  struct Slot {
    bool readable = false;
    std::string why;  // why it is not readable
    std::int64_t category = -1;
    std::uint64_t fingerprint = 0;
    // With `whole`, the sample until its run of equal sizes is known.
    int width = 0, height = 0;
    std::vector<float> planes;
    std::vector<std::uint8_t> labels;
  };

  // A request in progress. Invariant: the worker that took slot i is the only one to access slots[i] and row i of
  // images and masks, from the increment of `taken` to the increment of `done`, both under mutex_. The caller reads
  // slots only after it has seen done == slots.size() under mutex_, so every write of the workers happens before it.
  struct Job {
    BatchRequest request;
    std::vector<Slot> slots;
    std::shared_ptr<float> images;
    std::shared_ptr<std::uint8_t> masks;
    std::size_t taken = 0, done = 0;  // slots; guarded by mutex_
    std::size_t handed_out = 0;       // slots; used only by the caller
  };

  void Work();
  void Fill(Job& job, std::size_t position) const;
  void OpenWindow();
  std::size_t PixelsOfPlane() const { return static_cast<std::size_t>(data_.size * data_.size); }
  bool segmentation() const { return data_.task == model_spec::Task::kSegmentation; }
  std::size_t channels() const { return data_.bands.size(); }
  template <typename Value>
  std::shared_ptr<Value> Allocate(std::size_t count) const {
    std::shared_ptr<void> memory =
        options_.allocate ? options_.allocate(count * sizeof(Value)) : PlainMemory(count * sizeof(Value));
    return {memory, static_cast<Value*>(memory.get())};
  }
  base::Result<void> CountCorrupt(const Job& job);
  base::Result<Batch> TakeFixed(Job& job);
  base::Result<Batch> TakeRun(Job& job);

  const Source& source_;
  const model_spec::DataOptions data_;
  const PipelineOptions options_;

  // Used only by the caller's thread. Invariant: the workers have been given jobs_[0 … opened_), opened_ ≤ max(1,
  // prefetch), and only these have memory for a batch. This bounds the memory, whatever the number of requests.
  std::deque<std::shared_ptr<Job>> jobs_;  // in the order of the requests
  std::size_t opened_ = 0;                 // number of jobs_ given to the workers
  std::set<std::uint64_t> corrupt_;
  std::vector<std::string> corrupt_reasons_;  // the first few

  std::mutex mutex_;
  std::condition_variable work_;                // a slot can be taken, or stopping_
  std::condition_variable finished_;            // all slots of a job are done; one waiter
  std::deque<std::shared_ptr<Job>> work_jobs_;  // jobs with free slots; guarded by mutex_
  bool stopping_ = false;                       // guarded by mutex_
  std::vector<std::thread> workers_;
};

Pipeline::Impl::Impl(const Source& source, const model_spec::DataOptions& data, PipelineOptions options)
    : source_(source), data_(data), options_(std::move(options)) {
  FULLDECK_CHECK(!options_.whole || (segmentation() && !options_.augment));
  const auto count = std::max<std::int64_t>(1, data_.workers);
  workers_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    workers_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "fulldeck-data");
      Work();
    });
  }
}

Pipeline::Impl::~Impl() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pipeline::Impl::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !work_jobs_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = work_jobs_.front();
    const std::size_t position = job->taken++;
    if (job->taken == job->slots.size()) work_jobs_.pop_front();
    lock.unlock();
    Fill(*job, position);
    lock.lock();
    if (++job->done == job->slots.size()) finished_.notify_one();
  }
}

void Pipeline::Impl::Fill(Job& job, std::size_t position) const {
  Slot& slot = job.slots[position];
  const std::uint64_t index = job.request.indices[position];
  base::Result<Sample> sample = source_.Load(index);
  if (!sample) {
    slot.why = sample.error().message;
    return;
  }
  // The loss of an invalid label is undefined and on some devices ends the process.
  const std::size_t classes = source_.classes().size();
  const std::size_t labels_seen =
      imagery::kernels::LargestLabelPlusOne(sample->mask.values.data(), sample->mask.values.size());
  if (labels_seen > classes) {
    slot.why = "the mask of " + base::Printable(source_.Name(index)) + " has the label " +
               std::to_string(labels_seen - 1) + ", and there are " + std::to_string(classes) + " classes (0 … " +
               std::to_string(classes - 1) + ").";
    return;
  }
  slot.readable = true;
  slot.category = sample->category;
  const std::size_t plane = PixelsOfPlane();
  float* planes = nullptr;
  std::uint8_t* labels = nullptr;
  if (options_.whole) {
    slot.width = PaddedSide(WidthOf(sample->image));
    slot.height = PaddedSide(HeightOf(sample->image));
    slot.labels.resize(static_cast<std::size_t>(slot.width) * slot.height);
    slot.planes.resize(slot.labels.size() * channels());
    planes = slot.planes.data();
    labels = slot.labels.data();
    PrepareWhole(*sample, data_, slot.height, slot.width, planes, labels);
    slot.fingerprint = FingerprintOf(planes, slot.planes.size(), labels, slot.labels.size(), slot.category);
    return;
  }
  planes = job.images.get() + position * plane * channels();
  labels = job.masks ? job.masks.get() + position * plane : nullptr;
  if (options_.augment) {
    RandomStream random(options_.seed, Purpose::kAugmentation, job.request.epoch, index);
    PrepareForTraining(*sample, data_, random, planes, labels);
  } else {
    PrepareResized(*sample, data_, planes, labels);
  }
  slot.fingerprint = FingerprintOf(planes, plane * channels(), labels, labels != nullptr ? plane : 0, slot.category);
}

void Pipeline::Impl::Request(BatchRequest request) {
  FULLDECK_CHECK(!request.indices.empty());
  for (const std::uint64_t index : request.indices) FULLDECK_CHECK(index < source_.size());
  auto job = std::make_shared<Job>();
  job->slots.resize(request.indices.size());
  job->request = std::move(request);
  jobs_.push_back(std::move(job));
  OpenWindow();
}

// Gives the workers the next `prefetch` requests and the memory to write to.
void Pipeline::Impl::OpenWindow() {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, data_.prefetch));
  for (; opened_ < std::min(most, jobs_.size()); ++opened_) {
    const std::shared_ptr<Job>& job = jobs_[opened_];
    if (!options_.whole) {
      const std::size_t pixels = job->slots.size() * PixelsOfPlane();
      job->images = Allocate<float>(pixels * channels());
      if (segmentation()) job->masks = Allocate<std::uint8_t>(pixels);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    work_jobs_.push_back(job);
    work_.notify_all();
  }
}

base::Result<void> Pipeline::Impl::CountCorrupt(const Job& job) {
  for (std::size_t position = 0; position < job.slots.size(); ++position) {
    const Slot& slot = job.slots[position];
    if (slot.readable || !corrupt_.insert(job.request.indices[position]).second) continue;
    if (corrupt_reasons_.size() < kNamesInAnError) corrupt_reasons_.push_back(slot.why);
    if (options_.on_corrupt) options_.on_corrupt({job.request.indices[position], slot.why});
  }
  if (corrupt_.size() <= static_cast<std::size_t>(std::max<std::int64_t>(0, data_.corrupt_allowed))) return {};
  std::string message = std::to_string(corrupt_.size()) + (corrupt_.size() == 1 ? " sample" : " samples") +
                        " cannot be read, and data.corrupt_allowed is " + std::to_string(data_.corrupt_allowed) + ":";
  for (const std::string& why : corrupt_reasons_) message += "\n  " + why;
  if (corrupt_.size() > corrupt_reasons_.size()) message += "\n  …";
  message += "\nRepair or remove these files, or set data.corrupt_allowed to train without them.";
  return base::Error{message};
}

base::Result<Batch> Pipeline::Impl::Next() {
  if (jobs_.empty()) return base::Error{"a batch was asked for that nobody requested."};
  const std::shared_ptr<Job> job = jobs_.front();
  const auto started = std::chrono::steady_clock::now();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&job] { return job->done == job->slots.size(); });
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - started;
  if (job->handed_out == 0) {
    if (auto counted = CountCorrupt(*job); !counted) return counted.error();
    const bool any = std::any_of(job->slots.begin(), job->slots.end(), [](const Slot& slot) { return slot.readable; });
    if (!any) {
      return base::Error{"none of the " + std::to_string(job->slots.size()) +
                         " samples of a batch can be read; the first: " + job->slots.front().why};
    }
  }
  base::Result<Batch> batch = options_.whole ? TakeRun(*job) : TakeFixed(*job);
  if (batch && batch->last) {
    jobs_.pop_front();
    --opened_;
    OpenWindow();
  }
  if (batch) batch->wait_seconds = waited.count();
  return batch;
}

base::Result<Batch> Pipeline::Impl::TakeFixed(Job& job) {
  Batch batch;
  batch.channels = static_cast<std::int64_t>(channels());
  batch.height = batch.width = data_.size;
  const std::size_t plane = PixelsOfPlane();
  base::Hash fingerprint;
  for (std::size_t position = 0; position < job.slots.size(); ++position) {
    const Slot& slot = job.slots[position];
    const std::uint64_t index = job.request.indices[position];
    if (!slot.readable) {
      batch.skipped.push_back(index);
      continue;
    }
    // Samples after a skipped one move up. The caller owns the job here: all its slots are done.
    const auto to = static_cast<std::size_t>(batch.count);
    if (to != position) {
      std::memcpy(job.images.get() + to * plane * channels(), job.images.get() + position * plane * channels(),
                  plane * channels() * sizeof(float));
      if (job.masks) std::memcpy(job.masks.get() + to * plane, job.masks.get() + position * plane, plane);
    }
    ++batch.count;
    batch.indices.push_back(index);
    if (!segmentation()) batch.categories.push_back(slot.category);
    fingerprint.Add(&index, sizeof index);
    fingerprint.Add(&slot.fingerprint, sizeof slot.fingerprint);
  }
  batch.images = std::move(job.images);
  batch.masks = std::move(job.masks);
  batch.fingerprint = fingerprint.Sum();
  return batch;
}

base::Result<Batch> Pipeline::Impl::TakeRun(Job& job) {
  Batch batch;
  batch.channels = static_cast<std::int64_t>(channels());
  base::Hash fingerprint;
  std::vector<Slot*> run;
  std::size_t& position = job.handed_out;
  for (; position < job.slots.size(); ++position) {
    Slot& slot = job.slots[position];
    const std::uint64_t index = job.request.indices[position];
    if (!slot.readable) {
      batch.skipped.push_back(index);
      continue;
    }
    if (!run.empty() && (slot.width != run.front()->width || slot.height != run.front()->height)) break;
    run.push_back(&slot);
    batch.indices.push_back(index);
    fingerprint.Add(&index, sizeof index);
    fingerprint.Add(&slot.fingerprint, sizeof slot.fingerprint);
  }
  batch.last = position == job.slots.size();
  batch.count = static_cast<std::int64_t>(run.size());
  batch.height = run.front()->height;
  batch.width = run.front()->width;
  const std::size_t values = run.front()->planes.size();
  const std::size_t pixels = run.front()->labels.size();
  batch.images = Allocate<float>(run.size() * values);
  batch.masks = Allocate<std::uint8_t>(run.size() * pixels);
  for (std::size_t i = 0; i < run.size(); ++i) {
    std::memcpy(batch.images.get() + i * values, run[i]->planes.data(), values * sizeof(float));
    std::memcpy(batch.masks.get() + i * pixels, run[i]->labels.data(), pixels);
    run[i]->planes = {};
    run[i]->labels = {};
  }
  batch.fingerprint = fingerprint.Sum();
  return batch;
}

Pipeline::Pipeline(const Source& source, const model_spec::DataOptions& data, PipelineOptions options)
    : impl_(std::make_unique<Impl>(source, data, std::move(options))) {}
Pipeline::~Pipeline() = default;

void Pipeline::Request(BatchRequest request) {
  impl_->Request(std::move(request));
}
std::size_t Pipeline::requested() const {
  return impl_->requested();
}
base::Result<Batch> Pipeline::Next() {
  return impl_->Next();
}

}  // namespace fulldeck::dataset
