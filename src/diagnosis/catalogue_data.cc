// Chapters F, G and H: data, checkpoints, containers.
#include "diagnosis/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> DataEntries() {
  return {
      {
          .id = "F1",
          .title = "data path missing",
          .confidence = Confidence::kLikely,
          .english = {"A file or folder that the run reads is not where the config says: wrong root, wrong case, one "
                      "level too deep or too shallow, or not mounted on this host.",
                      "Run ls on the path in the line and on its parents until one exists, then correct data_root or "
                      "the list file; a relative path counts from the folder the job was started in."},
          .chinese =
              {"运行要读取的文件或目录不在配置所写的位置：根目录写错、大小写不符、层级多一级或少一级，或本机未挂载。",
               "对报错中的路径及其上级逐级执行 ls，找到存在的一级后修正 data_root "
               "或清单文件；相对路径以任务启动时的目录为准。"},
          .any_of = {{"FileNotFoundError: "},
                     {"Caught FileNotFoundError in DataLoader worker"},
                     {"IOError: [Errno 2] No such file or directory"},
                     {"OSError: [Errno 2] No such file or directory"},
                     {"NotADirectoryError: "},
                     {"OSError: ", " not found."},
                     {"is not a checkpoint file"},
                     {"RuntimeError: Found 0 files in"},
                     {"RuntimeError: Found 0 images in"},
                     {"Found no valid file for the classes"},
                     {"Couldn't find any class folder in"},
                     {"Dataset not found or corrupted"},
                     {"Dataset not found", "missing path"},
                     {"DatasetNotFoundError: "},
                     {"can't open/read file: check file path/integrity"},
                     {"AssertionError: ", "No images found in"},
                     {"Error: No labels", "Can not train"},
                     {"RasterioIOError: ", "No such file or directory"},
                     {"lmdb.", "Error: ", "No such file or directory"},
                     {"Unable to open file (unable to open file: name", "No such file or directory"},
                     {"Unable to synchronously open file", "No such file or directory"},
                     {"No such file or directory (os error 2)"},
                     {"AssertionError: ", "does not exist"},
                     {"RuntimeError: ", "annotation", "does not exist"},
                     {"OSError: ", "does not appear to have a file named"},
                     {"is not a local folder and is not a valid model identifier"}},
          .unless = {"except FileNotFoundError",
                     ".py'",
                     ".py\"",
                     ".py does not exist",
                     ".yaml'",
                     ".yaml\"",
                     ".yml'",
                     ".yml\"",
                     ".sh'",
                     "-smi'",
                     "efsmi",
                     "nvcc",
                     "'ninja'",
                     "'g++'",
                     "'gcc'",
                     "'/dev/",
                     "/dev/shm",
                     "'git'",
                     "'ffmpeg'",
                     "cannot open shared object file",
                     "torch.cuda",
                     "Warning: "},
      },
      {
          .id = "F2",
          .title = "data set is empty",
          .confidence = Confidence::kLikely,
          .english = {"The data set came up with no samples: every file was filtered out, the split list is empty or "
                      "the search pattern matches nothing. Placeholder data in its place would train on nothing real.",
                      "Print len(dataset) and its first item before training; check data_root, split file, file suffix "
                      "and filters, and remove any fallback to placeholder data."},
          .chinese =
              {"数据集没有任何样本：文件全部被过滤、划分清单为空，或匹配模式什么也没匹配到；用占位数据顶替只会白训。",
               "训练前打印 len(dataset) 和第一个样本；检查 "
               "data_root、划分文件、文件后缀与过滤条件，并去掉退回占位数据的逻辑。"},
          .any_of = {{"need at least one array to concatenate"},
                     {"need at least one array to stack"},
                     {"stack expects a non-empty TensorList"},
                     {"num_samples should be a positive integer value, but got num_samples=0"},
                     {" - Loaded 0 images"},
                     {" INFO", "Loaded 0 images"},
                     {"Loaded 0 samples"},
                     {"Total samples for ", "dataset: 0"},
                     {"datasets should not be an empty iterable"},
                     {"Dataset is empty"},
                     {"Error: ", "dataset is empty"},
                     {"No training samples found"},
                     {"using placeholder data"},
                     {"Using placeholder data"},
                     {"alling back to dummy data"},
                     {"creating placeholder "},
                     {"using random masks"}},
          .unless = {"dataset: 0."},
      },
      {
          .id = "F4",
          .title = "samples or labels of the wrong type or shape",
          .confidence = Confidence::kLikely,
          .english = {"What the data set hands out does not fit the loss or the batch: labels of the wrong number "
                      "type, masks with a colour axis, or images of different sizes in one batch.",
                      "Print dtype and shape of two samples. Labels: mask.long() with shape [N,H,W] (read masks with "
                      "one channel). Sizes: resize, crop or pad to one size before the batch is stacked."},
          .chinese =
              {"数据集给出的内容与损失函数或批次不符：标签数值类型不对、掩码带有颜色通道，或同一批次里图像大小不同。",
               "打印两个样本的 dtype 和 shape。标签用 mask.long()，形状为 "
               "[N,H,W]（掩码按单通道读取）；组批前把图像缩放、裁剪或填充到同一尺寸。"},
          .any_of = {{"expected scalar type", "but found"},
                     {"Expected object of scalar type", "but got scalar type"},
                     {"only batches of spatial targets supported"},
                     {"stack expects each tensor to be equal size"},
                     {"invalid argument 0: Sizes of tensors must match except in dimension 0"},
                     {"each element in list of batch should be of equal size"},
                     {"default_collate: batch must contain tensors"},
                     {"batch must contain tensors, numbers, dicts or lists"},
                     {"Trying to resize storage that is not resizable"},
                     {"multi-target not supported"},
                     {"Expected target size", "got torch.Size"},
                     {"nll_loss", "not implemented for '"},
                     {"cross_entropy", "not implemented for '"},
                     {"Expected floating point type for target with class probabilities"},
                     {"Found dtype ", " but expected "},
                     {"can't be cast to the desired output type"},
                     {"Error: Using a target size", "different to the input size"},
                     {"Error: Target size", "must be the same as input size"},
                     {"Input type (unsigned char) and"},
                     {"Input type (double) and"},
                     {"inhomogeneous shape after"},
                     {"expected input batch_size", "to match target batch_size"},
                     {"Expected input batch_size", "to match target batch_size"}},
          .unless = {"UserWarning", "DeprecationWarning"},
      },
      {
          .id = "F5",
          .title = "label outside the range of classes",
          .english = {"A label is not in 0 … classes-1: often a mask whose value 0 means no data and whose classes "
                      "start at 1 (LoveDA), a wrong num_classes, or 255 that is not ignored.",
                      "Print the unique values of a few masks. Shift them (reduce_zero_label=True, or label-1 with the "
                      "no-data value mapped to ignore_index=255) or correct num_classes; CUDA_LAUNCH_BLOCKING=1 shows "
                      "the line."},
          .chinese = {"有标签不在 0 … 类别数-1 之内：常见于 0 表示无数据、类别从 1 起的掩码（如 LoveDA）、num_classes "
                      "写错，或 255 未被忽略。",
                      "打印几张掩码的唯一值；用 reduce_zero_label=True（或标签减 1 并把无数据映射到 "
                      "ignore_index=255）平移，或改正 num_classes；设 CUDA_LAUNCH_BLOCKING=1 可看到出错行。"},
          .any_of = {{"Assertion `t >= 0"},
                     {"_classes` failed"},
                     {"nll_loss", "Assertion"},
                     {"NLLLoss2d.cu", "Assertion"},
                     {"ClassNLLCriterion", "Assertion"},
                     {"IndexError: Target ", " is out of bounds"},
                     {"RuntimeError: Target ", " is out of bounds"},
                     {"Class values must be smaller than num_classes"},
                     {"Class values must be non-negative"},
                     {"Assertion `target_val >= zero"},
                     {"Assertion `cur_target >= 0"},
                     {"Assertion", "THCUNN"}},
      },
      {
          .id = "F7",
          .title = "parameters get no gradient",
          .confidence = Confidence::kLikely,
          .english =
              {"Part of the model takes no part in the loss, so it learns nothing: an unused head or branch, a batch "
               "without the labels of a task, frozen weights, or masks replaced by zeros.",
               "Set TORCH_DISTRIBUTED_DEBUG=DETAIL to get the parameters by name; add them to the loss, freeze them "
               "before the wrap, or pass find_unused_parameters=True. Check that masks hold more than one value."},
          .chinese = {"模型有一部分没有参与损失，因而学不到东西：未使用的头或分支、某个任务缺标签的批次、被冻结的权重，"
                      "或掩码被零代替。",
                      "设 TORCH_DISTRIBUTED_DEBUG=DETAIL 得到参数名；让它们参与损失、在包装前冻结，或传 "
                      "find_unused_parameters=True；并确认掩码里不止一种取值。"},
          .any_of = {{"Expected to have finished reduction in the prior iteration before starting a new one"},
                     {"arameters which did not receive grad for rank"},
                     {"arameter indices which did not receive grad for rank"},
                     {"does not require grad and does not have a grad_fn"},
                     {"None of the inputs have requires_grad=True"},
                     {"ask missing", "zeros"},
                     {"ask not found", "zeros"},
                     {"optimizer got an empty parameter list"}},
          .unless = {"UserWarning", "warnings.warn"},
      },
      {
          .id = "G1",
          .title = "checkpoint refused by weights_only",
          .english = {"From PyTorch 2.6 on, torch.load takes plain tensors only; this checkpoint also holds Python "
                      "objects (config, NumPy values, optimizer classes).",
                      "For a file you trust: torch.load(path, weights_only=False), or "
                      "torch.serialization.add_safe_globals([...]) with the class in the message; or set "
                      "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1; newer MMEngine releases do so themselves."},
          .chinese =
              {"自 PyTorch 2.6 起 torch.load 默认只接受纯张量；该检查点还含有 Python 对象（配置、NumPy "
               "值、优化器类）。",
               "来源可信时用 torch.load(path, weights_only=False)，或用 torch.serialization.add_safe_globals([...]) "
               "放行报错中的类，或设 TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1；新版 MMEngine 已自行处理。"},
          .any_of = {{"Weights only load failed"},
                     {"WeightsUnpickler error"},
                     {"Unsupported global: GLOBAL"},
                     {"Error: ", "Unsupported operand", "weights_only"},
                     {"'weights_only' is an invalid keyword argument"},
                     {"got an unexpected keyword argument 'weights_only'"}},
          .unless = {"FutureWarning"},
      },
      {
          // A warning in most logs, so that a failure that ends the run is told first.
          .id = "G2",
          .title = "pretrained weights do not reach the model",
          .weight = Weight::kSymptom,
          .confidence = Confidence::kLikely,
          .english =
              {"Names in the checkpoint and in the model do not meet (a prefix such as backbone. or module., another "
               "architecture), so weights are left out and training starts from random values there.",
               "Compare list(checkpoint['state_dict'])[:5] with list(model.state_dict())[:5]; add or strip the prefix "
               "(init_cfg prefix='backbone.', key.removeprefix('module.')) and load with strict=True once."},
          .chinese =
              {"检查点与模型的参数名对不上（如 backbone. 或 module. "
               "前缀，或结构不同），权重被丢弃，相应部分从随机值开始训练。",
               "比较 list(checkpoint['state_dict'])[:5] 与 list(model.state_dict())[:5]；补上或去掉前缀（init_cfg 的 "
               "prefix='backbone.'、key.removeprefix('module.')），并用 strict=True 加载一次验证。"},
          .any_of = {{"is not in the pretrained model"},
                     {"is not in the pre-trained model"},
                     {"Missing key(s) in state_dict:"},
                     {"Unexpected key(s) in state_dict:"},
                     {"missing_keys=['module."},
                     {"unexpected_keys=['module."},
                     {"missing keys in source state_dict: backbone.conv1."},
                     {"missing keys in source state_dict: backbone.patch_embed"},
                     {"missing keys in source state_dict: backbone.stem"},
                     {"missing keys in source state_dict: backbone.layer1"},
                     {"unexpected key in source state_dict: module."},
                     {"==> Done (loaded 0/"},
                     {"Error(s) in loading state_dict for"}},
      },
      {
          .id = "G4",
          .title = "checkpoint of a model of another size",
          .english =
              {"Shapes in the checkpoint differ from the model's: most often another number of classes in the head, "
               "else another architecture or input size. mmengine and mmcv only warn and leave these weights random.",
               "Set num_classes to what the checkpoint was trained with, or start afresh from it: load it with "
               "load_from (not resume) after removing the head's keys; resume only with an unchanged model."},
          .chinese = {"检查点的形状与模型不同：多为分类头类别数不同，也可能是结构或输入尺寸不同。mmengine、mmcv "
                      "只给警告，这些权重保持随机。",
                      "把 num_classes 设为检查点训练时的值；若要迁移，删去头部的键后用 load_from 加载（不要用 "
                      "resume）；resume 只用于未改动的模型。"},
          .any_of = {{"size mismatch for ", "copying a param with shape"},
                     {"size mismatch for ", "the shape in current model is"},
                     {"num_classes", "does not matches the length of"},
                     {"num_classes", "does not match the length of"},
                     {"loaded state dict contains a parameter group that doesn't match the size"},
                     {"loaded state dict has a different number of parameter groups"},
                     {"While copying the parameter named", "whose dimensions in the model are"}},
      },
      {
          .id = "G5",
          .title = "every rank writes the same file",
          .weight = Weight::kSymptom,
          .confidence = Confidence::kPossible,
          .english = {"All ranks create or write the same folder or checkpoint at once and get in each other's way.",
                      "Write on rank 0 only (if rank == 0: …; dist.barrier()), create folders with os.makedirs(path, "
                      "exist_ok=True), and give each run its own work_dir."},
          .chinese = {"所有 rank 同时创建或写入同一个目录或检查点，相互冲突。",
                      "只在 rank 0 写（if rank == 0: …; dist.barrier()），用 os.makedirs(path, exist_ok=True) "
                      "建目录，并给每次运行单独的 work_dir。"},
          .any_of = {{"FileExistsError: "}, {"Stale file handle"}, {"Unable to lock file"}, {"unable to lock file"}},
          .unless = {"except FileExistsError"},
      },
      {
          .id = "H1",
          .title = "shared memory or limits too small in the container",
          .confidence = Confidence::kLikely,
          .english =
              {"/dev/shm (64 MiB by default in a container), the number of open files or the lockable memory is too "
               "small for the data loader's workers or for the collectives.",
               "Start the container with --shm-size=32g (or --ipc=host) and --ulimit memlock=-1 --ulimit "
               "nofile=1048576; look with: df -h /dev/shm; ulimit -n -l. Until then fewer workers (num_workers) help."},
          .chinese = {"/dev/shm（容器默认仅 64 MiB）、可打开文件数或可锁定内存，对数据加载进程或集合通信来说太小。",
                      "启动容器时加 --shm-size=32g（或 --ipc=host）以及 --ulimit memlock=-1 --ulimit "
                      "nofile=1048576；用 df -h /dev/shm 和 ulimit -n -l 查看；临时可减小 num_workers。"},
          .any_of = {{"Unexpected bus error encountered in worker"},
                     {"insufficient shared memory"},
                     {"killed by signal: Bus error"},
                     {"workers are out of shared memory"},
                     {"unable to write to file </torch_"},
                     {"unable to open shared memory object"},
                     {"unable to mmap", "</torch_"},
                     {"unable to resize file </torch_"},
                     {"unable to allocate shared memory"},
                     {"Error while creating shared memory segment"},
                     {"No space left on device", "/dev/shm"},
                     {"/dev/shm", "No space left on device"},
                     {"posix_fallocate failed", "No space left on device"},
                     {"shared memory", "No space left on device"},
                     {"Error while attaching to shared memory segment"},
                     {"Too many open files"},
                     {"received 0 items of ancdata"},
                     {"RLIMIT_MEMLOCK is", "severely limit"},
                     {"ibv_reg_mr", "Cannot allocate memory"},
                     {"ibv_create_cq", "Cannot allocate memory"},
                     {"ibv_create_qp", "Cannot allocate memory"},
                     {"Bus error (core dumped)"},
                     {"Signal 7 (SIGBUS)"},
                     {"exitcode: -7)"},
                     {"exitcode  : -7 "}},
          .unless = {"NCCL INFO"},
      },
      {
          // Many scripts call these tools for information only, so that anything else comes first.
          .id = "H2",
          .title = "vendor tool absent",
          .weight = Weight::kSymptom,
          .confidence = Confidence::kLikely,
          .english = {"The vendor's card tool is not in this container or not on PATH. Cards may work without it, but "
                      "a script that asks it for their number finds none.",
                      "List the cards with: fulldeck devices, which needs no vendor tool. If none is shown, start the "
                      "container with the device nodes and the vendor's runtime; else mount the tool from the host."},
          .chinese =
              {"该容器内没有厂商的卡管理工具，或不在 PATH 上。没有它卡也可能可用，但靠它数卡的脚本会得到零张。",
               "用 fulldeck devices "
               "列出卡（不依赖厂商工具）。若一张都没有，启动容器时带上设备节点和厂商运行时；否则从主机挂载该工具。"},
          .any_of = {{"efsmi: ", "not found"},
                     {"efsmi", "No such file or directory"},
                     {"No such file or directory", "efsmi"},
                     {"nvidia-smi: ", "not found"},
                     {"No such file or directory: 'nvidia-smi'"},
                     {"nvidia-smi: No such file or directory"},
                     {"npu-smi: ", "not found"},
                     {"No such file or directory: 'npu-smi'"},
                     {"rocm-smi: ", "not found"},
                     {"No such file or directory: 'rocm-smi'"},
                     {"cnmon: ", "not found"},
                     {"mthreads-gmi: ", "not found"},
                     {"-smi\": executable file not found in $PATH"},
                     {"efsmi", "executable file not found"}},
      },
  };
}

}  // namespace fulldeck::diagnosis
