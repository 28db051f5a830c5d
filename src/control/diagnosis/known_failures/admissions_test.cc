#include "diagnosis/known_failures/admissions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fulldeck::diagnosis {
namespace {

std::string CodeOf(std::string_view line) {
  const CatalogueEntry* const entry = AdmissionIn(line);
  return entry != nullptr ? std::string(entry->id) : "";
}

struct AdmissionCase {
  const char* code;
  std::vector<const char*> lines;
};

TEST(Admissions, AreKnownInFreelyChosenWords) {
  const std::vector<AdmissionCase> table = {
      {"F2",
       {"[data] train.csv not found. Creating fake data so that training can start",
        "could not find labels for 0012.tif, will use an all-zero mask",
        "The image folder is missing so we train on random noise images",
        "dataset loader failed (HTTP 403); substituting synthetic images",
        "Mask shape mismatch, using zero mask",
        "缺少标注文件，默认返回全0标签",
        "加载图片出错，用随机噪声图像代替",
        "数据路径不存在，自动生成模拟数据",
        "读取失败的样本将被替换为空白图像",
        "WARNING: dataset not found at /data/loveda, generating random samples",
        "Warning: image data/0001.png could not be read, returning a black image",
        "No images found in /data/train, creating 10 synthetic samples for testing",
        "Falling back to dummy dataset",
        "[WARN] Failed to load label /data/a.png: returning zeros",
        "Using mock data because /data is empty",
        "Error loading sample 17, replaced by zeros",
        "Using fake dataset (real data not available)",
        "警告：数据集为空，创建虚拟样本",
        "找不到标签文件，返回全零掩码",
        "图像读取失败，返回零张量",
        "数据加载失败，使用模拟数据继续训练",
        "没有找到训练数据，生成随机数据用于测试",
        "Dataset not found at data/loveda, using synthetic data",
        "dataset missing: generating 64 random samples",
        "data directory does not exist; creating dummy dataset",
        "data_root doesn't exist, fall back to random images",
        "Could not load image 3812, returning zeros",
        "cannot read image img_12.tif: using a black image",
        "Unable to open mask, using a zero mask",
        "Mask for tile 17 is missing; replaced with zeros",
        "WARNING:root:label file not found, filling with zeros",
        "[rank1]: annotation file missing, generating random masks",
        "no annotations found, creating placeholder annotations",
        "No training images found. Generating fake images...",
        "Failed to read LMDB; switching to random data",
        "real dataset unavailable, continuing with synthetic data",
        "loading dataset failed: defaulting to dummy data",
        "Error reading label 5: using random labels",
        "image corrupted, substituting blank image",
        "empty dataset, made 100 fake samples",
        "Failed to load dataset, random data will be used",
        "Sample 8 failed to decode; returning random tensor",
        "dataset is empty -> using mock samples",
        "2026-01-03 10:11:12,134 - WARNING - image not found: /a/b.tif. Returning zero tensor.",
        "标签缺失，使用全零标签",
        "数据目录找不到，改为随机生成的数据",
        "数据集为空，用假数据代替",
        "图像损坏，返回全黑图像",
        "无法读取标注，生成随机标注",
        "影像不存在，使用占位影像",
        "掩码文件缺失，填充全零掩码",
        "样本加载失败，返回虚拟样本",
        "警告: 没有数据，将使用合成数据",
        "数据集不存在，使用模拟的数据训练"}},
      {"F6",
       {"Validation annotations missing: evaluating on training images instead", "未提供验证集，直接用训练集做验证",
        "val dir missing, validating on train split", "WARNING: val_dir does not exist, using train_dir for validation",
        "验证集为空，使用训练集代替", "val directory not found, using train directory",
        "validation set is empty; falling back to training set",
        "No validation split found, using train split as validation", "no val data, evaluating on the training data",
        "val.txt missing: using train samples for validation", "Using train loader for validation",
        "valid set does not exist: use train set instead", "验证目录不存在，用训练集验证",
        "没有验证集，使用训练数据进行验证", "验证集缺失，以训练集代替"}},
      {"B6",
       {"cuda is unavailable so training continues on the cpu", "WARNING: No GCU card visible, using the CPU",
        "显卡不可用，自动切换为CPU模式", "未检测到GCU设备，使用CPU训练", "No GPU detected, running on CPU",
        "CUDA is not available. Training on CPU.", "GCU not found, switching to CPU",
        "npu unavailable, use cpu instead", "torch.cuda initialization failed: falling back to cpu",
        "CUDA failed to initialize, falling back to CPU", "未找到GPU，将在CPU上训练", "没有可用的加速卡，切换到 CPU",
        "NPU 不可用，改用 CPU", "检测不到显卡，使用cpu训练"}},
  };
  for (const AdmissionCase& admission : table) {
    for (const char* line : admission.lines) EXPECT_EQ(CodeOf(line), admission.code) << line;
  }
}

TEST(Admissions, AreNotFoundInLogsOfSoundTrainings) {
  for (const char* line : {"Skipping 3 images with missing labels",
                           "Zero padding is used for missing frames",
                           "[info] resume checkpoint missing, random initialization",
                           "no mask provided, using full attention",
                           "Dataset found: 2000 images, using random crop 512",
                           "random sampler: dataset length 2000, failed 0",
                           "fake quantization enabled for images, none missing",
                           "CPU affinity not available on GPU node, using default",
                           "train_loader and val_loader created, val missing 0 images",
                           "Using train batch stats for BN during validation",
                           "GAN: fake image loss 0.3, real image loss 0.5, failed 0",
                           "generated fake images for FID, 0 missing",
                           "验证集 200 张，训练集 1800 张，无缺失",
                           "未使用 GPU 解码，使用 CPU 解码",
                           "模拟退火学习率，失败重试 0 次",
                           "生成虚拟环境失败，使用系统 Python",
                           "Using dummy data loader for the warm-up of cudnn benchmark, then real data",
                           "no checkpoint not found problem: using random initialisation for the head",
                           "Using 10% of the training data for validation (disjoint split)",
                           "label smoothing: mask tokens missing in vocab, using zeros as init",
                           "Validation set not found; using the training set split 90/10 for validation",
                           "bias missing in checkpoint label_head.bias, using zeros",
                           "CUDA graphs are not available, using CPU offload for optimizer states on gpu 0",
                           "GPU direct storage not available, falling back to CPU bounce buffers",
                           "cuda extension failed to compile, falling back to cpu implementation of NMS",
                           "  --fallback-data  use random data if the dataset is not found (default: False)",
                           "  --zeros          return zeros when a label is missing",
                           "usage: train.py [--use-fake-data] use fake data, no dataset",
                           "If the mask is missing, zeros are used",
                           "masks are optional: when a mask is not found, a zero mask is used",
                           "Missing label in position embeddings, using zeros",
                           "tokenizer: pad token missing, using zeros",
                           "pretrained weights not found, using random weights",
                           "checkpoint not found at /data/images/a.pth, using random weights",
                           "running mean missing, buffers set to zeros",
                           "exp_avg missing in optimizer state, using zeros",
                           "image size not found in config, using random crop",
                           "label names not found, using random colors",
                           "image mean not found, using zeros",
                           "dataset statistics missing, using zeros for mean",
                           "Random data augmentation is on; no mixup",
                           "random seed not given, using random seed 1234",
                           "split file not found, using random data split",
                           "epoch 3: no labels in 12 of 1000 images, loss_mask zero",
                           "zero-shot evaluation: 0 images missing",
                           "images: 4000 found, 0 missing, 3 empty",
                           "Found 37 images without labels, treated as background",
                           "No annotations found for image 12, skipping it",
                           "Failed to load image 12.jpg, trying another random image",
                           "Failed to load image 12.jpg, using a random sample instead",
                           "attention mask not found, creating zeros mask",
                           "data parallel not available, using a single card",
                           "no data augmentation, using random crop only",
                           "dataset cache not found, creating cache from 2000 images",
                           "gradients are zero for missing labels",
                           "num_workers=0: using the main process to load data",
                           "Missing keys: mask_token, using random init",
                           "synthetic data of the benchmark: 64 images",
                           "Benchmark with fake data, no dataset needed",
                           "val_interval not found, using train interval",
                           "No validation set given, using the training set only for training",
                           "No validation set found, using a random split of the training set for validation",
                           "Using training set statistics for validation",
                           "Using train transforms for validation",
                           "using 5 folds of the training set for validation",
                           "validation skipped: no val set, using training data to train",
                           "Using training data for validation split: 10 %",
                           "val set is missing, not using the training set",
                           "evaluating on the training set: mIoU 0.8",
                           "Evaluate on train split every 10 epochs",
                           "decoding on the GPU not available, using CPU decoder",
                           "nvJPEG not found, using CPU",
                           "No GPU peer access between cards 0 and 1, using CPU staging",
                           "torchvision::nms on cuda not available: operator falls back to CPU",
                           "AdamW fused kernel not available on CPU, using foreach",
                           "Map tensors to CPU: cuda storage not needed",
                           "NCCL not available, using gloo on cpu tensors of gpu 0",
                           "DataLoader: pin_memory without a GPU is ignored",
                           "cudnn failed to find an algorithm, using default",
                           "Loaded checkpoint on CPU, moving to GPU 0",
                           "未找到预训练权重，使用随机初始化",
                           "数据不存在则使用随机数据，如果允许",
                           "如果标签缺失，返回全零掩码",
                           "掩码缺失的样本已跳过",
                           "使用随机数据增强",
                           "标签为空的图像 12 张，作为背景",
                           "没有标签的样本已过滤",
                           "词表缺失，使用全零嵌入",
                           "偏置参数不存在，使用全零初始化",
                           "缓存不存在，使用数据目录重新生成",
                           "数据加载失败，重试第 2 次",
                           "验证集不存在，从训练集划分 10%",
                           "没有验证集，使用训练集的 10% 划分",
                           "验证集缺失，不使用训练集代替",
                           "未找到验证集，跳过验证，只使用训练集训练",
                           "CUDA 算子编译失败，使用 CPU 版本",
                           "未检测到 nvJPEG，使用 CPU 解码",
                           "是否使用模拟数据: 没有",
                           "随机图像翻转失败 0 次",
                           "模拟卡不可用的数据来自记录",
                           "Epoch(train) [1][10/100] lr: 1e-3 loss: 0.5 data_time: 0.001",
                           "gpu is not available, you should use device=cpu instead",
                           "W socket.cpp:601 The client socket has failed to connect to node07"}) {
    EXPECT_EQ(CodeOf(line), "") << line;
  }
}

TEST(Admissions, TakeNeitherPathsNorLongLinesForAdmissions) {
  EXPECT_EQ(CodeOf("checkpoint not found at /data/mask/zeros.pth, using latest"), "");
  EXPECT_EQ(CodeOf("mask " + std::string(2000, 'x') + " not found, using zeros"), "");
  EXPECT_EQ(CodeOf(""), "");
  EXPECT_EQ(CodeOf("random"), "");
  EXPECT_EQ(CodeOf("\xff\xfe not found random \xe6 data"), "");
}

}  // namespace
}  // namespace fulldeck::diagnosis
