#include "diagnosis/known_failures/admission_words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace fulldeck::diagnosis {
namespace {

using Words = std::vector<std::string_view>;

// ---- English: words and the words near them

// A set of words, given as a space-separated list.
class WordSet {
 public:
  explicit WordSet(std::string_view words) {
    while (!words.empty()) {
      const auto end = std::min(words.find(' '), words.size());
      if (end > 0) words_.push_back(words.substr(0, end));
      words.remove_prefix(std::min(end + 1, words.size()));
    }
    std::sort(words_.begin(), words_.end());
  }

  bool Has(std::string_view word) const { return std::binary_search(words_.begin(), words_.end(), word); }

 private:
  Words words_;
};

const WordSet& Data() {
  static const WordSet set(
      "data dataset datasets sample samples image images img imgs picture pictures photo photos video videos label "
      "labels "
      "mask masks annotation annotations caption captions tile tiles truth");
  return set;
}

// After a word of Data(): the phrase is not about data.
const WordSet& NoData() {
  static const WordSet set(
      "loader loaders loading parallel type types dtype format size sizes shape augmentation augmentations augment "
      "order "
      "ordering sampler sampling smoothing head heads token tokens name names weights ratio statistics stats processor "
      "preprocessor encoder decoder split splits shuffling transform transforms module embedding from");
  return set;
}

// Replacements for data …
const WordSet& StandIns() {
  static const WordSet set(
      "random zero zeros zeroed black blank synthetic dummy fake placeholder mock simulated artificial");
  return set;
}

// … and words for them if data was mentioned before.
const WordSet& Fillers() {
  static const WordSet set("tensor tensors array arrays vector vectors values value noise numbers filled");
  return set;
}

const WordSet& Replacing() {
  static const WordSet set(
      "using use uses generating generate generates generated creating create creates created returning return returns "
      "returned substituting substitute substituted replaced replacing filling filled fill defaulting continuing "
      "proceeding switching making made back fallback by with on");
  return set;
}

// A line with one of these is not about training data, or describes a possibility.
const WordSet& Unrelated() {
  static const WordSet set(
      "init initial initialization initialisation initialize initialized initializing initialise initialised weight "
      "weights "
      "bias biases checkpoint checkpoints ckpt pretrained token tokens tokenizer vocab vocabulary embedding embeddings "
      "buffer buffers seed seeds optional attention optimizer momentum smoothing warmup ratio order augmentation "
      "augmentations shuffle shuffling sampler benchmark benchmarking profiling mean std statistics stats palette "
      "colors "
      "prior latent anchors proposals pad padding padded loss losses metric metrics score scores gradient gradients "
      "onnx "
      "export tracing flops another other different");
  return set;
}

const WordSet& Conditions() {
  static const WordSet set("if when whenever unless case where whether");
  return set;
}

bool IsLetter(char letter) {
  return letter >= 'a' && letter <= 'z';
}

bool IsDigit(char letter) {
  return letter >= '0' && letter <= '9';
}

// Paths and names of files and members are not evidence: /data/train, a.png, label_head.bias.
bool IsName(std::string_view chunk) {
  const bool has_letters = std::any_of(chunk.begin(), chunk.end(), IsLetter);
  if (has_letters && chunk.find('/') != std::string_view::npos) return true;
  const auto dot = chunk.find('.');
  return dot != std::string_view::npos && dot + 1 < chunk.size() &&
         (IsLetter(chunk[dot + 1]) || IsDigit(chunk[dot + 1]));
}

void AppendWords(std::string_view chunk, Words& words) {
  for (std::size_t i = 0; i < chunk.size();) {
    std::size_t end = i;
    while (end < chunk.size() && IsLetter(chunk[end])) ++end;
    if (end == i) {
      while (end < chunk.size() && IsDigit(chunk[end])) ++end;
    }
    if (end > i) {
      words.push_back(chunk.substr(i, end - i));
      i = end;
    } else {
      if (chunk[i] == '%') words.push_back(chunk.substr(i, 1));
      ++i;
    }
  }
}

Words WordsOf(std::string_view line, bool with_names = false) {
  Words words;
  while (!line.empty()) {
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    if (with_names || !IsName(line.substr(0, end))) AppendWords(line.substr(0, end), words);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

std::string_view At(const Words& words, std::size_t at) {
  return at < words.size() ? words[at] : std::string_view();
}

bool HoldsAny(const Words& words, std::size_t begin, std::size_t end, const WordSet& set) {
  for (std::size_t i = begin; i < std::min(end, words.size()); ++i) {
    if (set.Has(words[i])) return true;
  }
  return false;
}

std::size_t Before(std::size_t at, std::size_t words) {
  return at > words ? at - words : 0;
}

bool IsDataAt(const Words& words, std::size_t at) {
  return Data().Has(At(words, at)) && !NoData().Has(At(words, at + 1));
}

// "not found", "does not exist", "could not be read", "failed", "no images": something is missing.
bool IsLackAt(const Words& words, std::size_t at, const WordSet& things) {
  static const WordSet lacks(
      "missing unavailable absent empty corrupt corrupted unreadable cannot unable failed fails failure");
  static const WordSet ends("found exist exists existing available present readable loaded");
  static const WordSet helpers("could couldn can");
  static const WordSet attempts("loading reading opening decoding");
  const std::string_view word = words[at];
  const std::string_view next = At(words, at + 1);
  // "0 missing": nothing is missing.
  if (next == "0" || (at > 0 && words[at - 1] == "0")) return false;
  if (lacks.Has(word)) return true;
  if (word == "not" || word == "t") {
    return ends.Has(next) || ends.Has(At(words, at + 2)) || (at > 0 && helpers.Has(words[at - 1]));
  }
  if (word == "error") return attempts.Has(next) || attempts.Has(At(words, at + 2));
  return word == "no" && HoldsAny(words, at + 1, at + 4, things);
}

// nullopt if the lack is only hypothetical: "use zeros if the mask is missing".
std::optional<std::size_t> FindLack(const Words& words, const WordSet& things, std::size_t from = 0) {
  for (std::size_t i = from; i < words.size(); ++i) {
    if (!IsLackAt(words, i, things)) continue;
    if (!HoldsAny(words, Before(i, 6), i, Conditions())) return i;
  }
  return std::nullopt;
}

// "not using", "no longer falling back", "instead of being replaced", "please use". A negation before "not found,
// using" does not count.
bool IsNegated(const Words& words, std::size_t at) {
  static const WordSet negations(
      "not never longer without avoid avoiding of refuse refusing refused t than to should must please can may might");
  static const WordSet between("falling fall fell going be being been");
  while (at > 0 && between.Has(words[at - 1])) --at;
  return at > 0 && negations.Has(words[at - 1]);
}

// A line of a program's help or list of options.
bool IsHelp(std::string_view line) {
  const auto begin = line.find_first_not_of(" \t");
  return (begin != std::string_view::npos && line.substr(begin).starts_with("-")) ||
         line.find("(default") != std::string_view::npos || line.find("usage:") != std::string_view::npos;
}

bool ReplacesDataInEnglish(std::string_view line) {
  static const WordSet passive("used generated created substituted returned");
  const Words words = WordsOf(line);
  if (!HoldsAny(words, 0, words.size(), StandIns()) || HoldsAny(words, 0, words.size(), Unrelated())) return false;
  if (IsHelp(line)) return false;
  const auto lack = FindLack(words, Data());
  // "creating a few synthetic samples", "returning zeros"; the missing thing need not be mentioned: "falling back to
  // fake data".
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!StandIns().Has(words[i])) continue;
    std::optional<std::size_t> object;
    for (std::size_t next = i + 1; !object && next <= i + 2; ++next) {
      if (Data().Has(At(words, next))) object = next;
    }
    // A random sample of the dataset itself.
    const bool is_another = words[i] == "random" && object && words[*object] == "sample";
    const bool names_data = object && IsDataAt(words, *object) && !is_another;
    const bool is_filler = !object && (words[i] == "zeros" || Fillers().Has(At(words, i + 1)));
    std::optional<std::size_t> verb;
    for (std::size_t before = Before(i, 4); before < i; ++before) {
      if (Replacing().Has(words[before])) verb = before;
    }
    const bool is_active = verb && !IsNegated(words, *verb);
    const bool is_passive = !verb && names_data && HoldsAny(words, *object + 1, *object + 5, passive);
    if (!is_active && !is_passive) continue;
    if (names_data && (lack || (is_active && words[*verb] == "back"))) return true;
    if (!is_filler || !lack) continue;
    for (std::size_t near = Before(*lack, 6); near < *lack + 6; ++near) {
      if (near != i && IsDataAt(words, near)) return true;
    }
  }
  return false;
}

// "the training set split 90/10", "the train split into two", "the training set for training": `at` is after "train".
bool IsDividedOrForTraining(const Words& words, std::size_t at) {
  for (std::size_t i = at; i < at + 4; ++i) {
    const std::string_view next = At(words, i + 1);
    if (At(words, i) == "split" && !next.empty() && (IsDigit(next[0]) || next == "into")) return true;
    if (i > at && (At(words, i) == "training" || At(words, i) == "train")) return true;
  }
  return false;
}

bool ValidatesOnTrainingInEnglish(std::string_view line) {
  static const WordSet validation("val valid validation validating dev eval evaluation");
  static const WordSet training("train training");
  static const WordSet sets(
      "set sets split data dataset dir directory folder files images samples list loader dataloader");
  static const WordSet verbs("using use uses validating evaluating back fallback defaulting switching reusing");
  static const WordSet parts(
      "% percent ratio portion part subset fraction disjoint splitting splitted random randomly held hold holdout fold "
      "folds carved carving only");
  const Words words = WordsOf(line);
  if (!HoldsAny(words, 0, words.size(), training) || !HoldsAny(words, 0, words.size(), validation)) return false;
  if (HoldsAny(words, 0, words.size(), parts) || IsHelp(line)) return false;
  const auto lack = FindLack(words, validation);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!training.Has(words[i]) || !sets.Has(At(words, i + 1))) continue;
    std::optional<std::size_t> verb;
    for (std::size_t before = Before(i, 4); before < i; ++before) {
      if (verbs.Has(words[before])) verb = before;
    }
    if (!verb || IsNegated(words, *verb)) continue;
    if (IsDividedOrForTraining(words, i + 1)) continue;
    if (lack && HoldsAny(words, Before(*lack, 5), *lack + 5, validation)) return true;
    const std::string_view joins = At(words, i + 2);
    if ((joins == "for" || joins == "as") && HoldsAny(words, i + 3, i + 5, validation) && !sets.Has(At(words, i + 5)) &&
        !Conditions().Has(At(words, i + 4))) {
      return true;
    }
  }
  return false;
}

bool TrainsOnCpuInEnglish(std::string_view line) {
  static const WordSet cards(
      "cuda gpu gpus gcu gcus npu npus mlu mlus musa device devices accelerator accelerators card cards");
  static const WordSet parts(
      "graph graphs extension extensions direct kernel kernels op ops operator operators buffer buffers offload "
      "offloading "
      "memory allocator decoder decoding codec nms implementation version optimizer peer backend dataloader");
  static const WordSet lacks("unavailable missing failed fails failure");
  static const WordSet ends("available found detected visible usable present");
  static const WordSet verbs("using use uses back on switching fallback to");
  const Words words = WordsOf(line, true);  // torch.cuda
  if (!HoldsAny(words, 0, words.size(), cards) || HoldsAny(words, 0, words.size(), parts) || IsHelp(line)) return false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "cpu") continue;
    std::size_t verb = Before(i, 3);
    while (verb < i && !verbs.Has(words[verb])) ++verb;
    if (verb == i || IsNegated(words, verb)) continue;
    for (std::size_t lack = 0; lack < i; ++lack) {
      const bool negated = (words[lack] == "not" || words[lack] == "t") && HoldsAny(words, lack + 1, lack + 3, ends);
      const bool none = words[lack] == "no" && HoldsAny(words, lack + 1, lack + 4, cards);
      if (!negated && !none && !lacks.Has(words[lack])) continue;
      if (HoldsAny(words, Before(lack, 4), lack + 4, cards) && !HoldsAny(words, Before(lack, 6), lack, Conditions()))
        return true;
    }
  }
  return false;
}

// ---- Chinese: no spaces, so substrings of the line

template <std::size_t kCount>
std::size_t FindOne(std::string_view line, const std::array<std::string_view, kCount>& parts, std::size_t from = 0) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view part : parts) first = std::min(first, line.find(part, from));
  return first;
}

template <std::size_t kCount>
bool HoldsOne(std::string_view line, const std::array<std::string_view, kCount>& parts) {
  return FindOne(line, parts) != std::string_view::npos;
}

constexpr std::array<std::string_view, 19> kLacks = {"未提供",   "未给出", "出错", "缺失", "缺少",   "找不到", "未找到",
                                                     "没有找到", "不存在", "失败", "为空", "没有可", "无法",   "不可用",
                                                     "未检测",   "没检测", "损坏", "没有", "不完整"};
constexpr std::array<std::string_view, 11> kConditions = {"则使用", "如果", "若",     "假如", "当",  "一旦",
                                                          "是否",   "可选", "默认值", "除非", "以免"};
constexpr std::array<std::string_view, 16> kNegations = {"不使用", "不再",   "不会",   "不允许", "不要", "没有使用",
                                                         "未使用", "请勿",   "禁止",   "避免",   "拒绝", "不用",
                                                         "不得",   "不返回", "不生成", "不回退"};

bool ReplacesDataInChinese(std::string_view line) {
  constexpr std::array<std::string_view, 8> kData = {"数据", "样本", "图像", "图片", "影像", "标签", "掩码", "标注"};
  constexpr std::array<std::string_view, 12> kVerbs = {"使用", "用",   "返回", "生成", "创建", "回退",
                                                       "代替", "替代", "填充", "改为", "构造", "替换"};
  constexpr std::array<std::string_view, 7> kStandIns = {"随机", "模拟", "占位", "虚拟", "假", "合成", "伪造"};
  constexpr std::array<std::string_view, 9> kFillers = {"全零", "零张量", "零矩阵", "零掩码",  "零填充",
                                                        "全黑", "空白图", "全0",    "随机张量"};
  constexpr std::array<std::string_view, 19> kUnrelated = {"初始化", "权重", "参数", "偏置",   "词表",   "分词", "词汇",
                                                           "嵌入",   "缓冲", "种子", "预训练", "检查点", "增强", "顺序",
                                                           "打乱",   "采样", "划分", "自监督", "注意力"};
  const std::size_t lack = FindOne(line, kLacks);
  if (lack == std::string_view::npos || HoldsOne(line, kConditions) || HoldsOne(line, kNegations)) return false;
  if (HoldsOne(line, kUnrelated) || FindOne(line, kVerbs) == std::string_view::npos) return false;
  for (const std::string_view stand_in : kStandIns) {
    for (auto at = line.find(stand_in); at != std::string_view::npos; at = line.find(stand_in, at + 1)) {
      std::string_view rest = line.substr(at + stand_in.size());
      for (const std::string_view joint : {"生成的", "噪声", "的", "符", " "}) {
        if (rest.starts_with(joint)) rest.remove_prefix(joint.size());
      }
      const bool has_data =
          std::any_of(kData.begin(), kData.end(), [&](std::string_view part) { return rest.starts_with(part); });
      if (has_data) return true;
    }
  }
  return HoldsOne(line, kFillers) && HoldsOne(line, kData);
}

bool ValidatesOnTrainingInChinese(std::string_view line) {
  constexpr std::array<std::string_view, 3> kValidation = {"验证集", "验证数据", "验证目录"};
  constexpr std::array<std::string_view, 4> kTraining = {"训练集", "训练数据", "训练样本", "训练目录"};
  constexpr std::array<std::string_view, 6> kVerbs = {"使用", "用", "以", "回退", "代替", "替代"};
  constexpr std::array<std::string_view, 12> kParts = {
      "划分", "拆分", "切分", "抽取", "比例", "%", "部分", "分出", "折", "跳过验证", "训练集训练", "训练集进行训练"};
  const auto validation = FindOne(line, kValidation);
  if (validation == std::string_view::npos || HoldsOne(line, kParts)) return false;
  if (HoldsOne(line, kConditions) || HoldsOne(line, kNegations)) return false;
  const auto lack = FindOne(line, kLacks);
  if (lack == std::string_view::npos) return false;
  const auto verb = FindOne(line, kVerbs);
  if (verb == std::string_view::npos) return false;
  const auto training = FindOne(line, kTraining, verb);
  return training != std::string_view::npos && training - verb <= 12;
}

bool TrainsOnCpuInChinese(std::string_view line) {
  constexpr std::array<std::string_view, 9> kCards = {"gcu",  "gpu",    "cuda", "npu", "mlu",
                                                      "musa", "加速卡", "显卡", "设备"};
  constexpr std::array<std::string_view, 7> kVerbs = {"使用", "用", "回退", "切换", "退回", "改在", "将在"};
  constexpr std::array<std::string_view, 9> kLacksOfCards = {"未检测到", "没有检测到", "检测不到", "未找到",  "找不到",
                                                             "不可用",   "没有可用",   "未发现",   "没有发现"};
  constexpr std::array<std::string_view, 8> kUnrelated = {"算子",   "解码", "编译", "扩展",
                                                          "优化器", "缓冲", "卸载", "内存"};
  if (!HoldsOne(line, kCards) || HoldsOne(line, kUnrelated)) return false;
  if (HoldsOne(line, kConditions) || HoldsOne(line, kNegations)) return false;
  const auto lack = FindOne(line, kLacksOfCards);
  if (lack == std::string_view::npos) return false;
  const auto cpu = line.find("cpu", lack);
  return cpu != std::string_view::npos &&
         HoldsOne(line.substr(Before(cpu, 16), std::min<std::size_t>(cpu, 16)), kVerbs);
}

}  // namespace

bool ReplacesData(std::string_view line) {
  return ReplacesDataInEnglish(line) || ReplacesDataInChinese(line);
}

bool ValidatesOnTraining(std::string_view line) {
  return ValidatesOnTrainingInEnglish(line) || ValidatesOnTrainingInChinese(line);
}

bool TrainsOnCpu(std::string_view line) {
  return TrainsOnCpuInEnglish(line) || TrainsOnCpuInChinese(line);
}

}  // namespace fulldeck::diagnosis
