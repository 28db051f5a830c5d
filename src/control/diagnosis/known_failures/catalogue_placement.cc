// Chapter B: device placement and DDP.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> PlacementEntries() {
  return {
      {
          .id = "B1",
          .title = "model is not on the card that DDP was given",
          .english = {"The model was wrapped while its parameters were still on the CPU or on another device than "
                      "device_ids names; MMEngine does this when it does not know the card.",
                      "Move the model first (model.to(device)), then wrap it. Pass device_ids=[local_rank] on CUDA "
                      "only and leave it out for CPU and other cards."},
          .chinese =
              {"包装 DDP 时，模型参数仍在 CPU 上，或不在 device_ids 指定的设备上；MMEngine 不认识该加速卡时就会这样。",
               "先 model.to(device) 再包装；device_ids=[local_rank] 只用于 CUDA，CPU 和其他加速卡不要传。"},
          .any_of = {{"DistributedDataParallel device_ids and output_device arguments only work with"},
                     {"DistributedDataParallel's input module must be on the same type of devices"},
                     {"module must have its parameters and buffers on device", "but found one of them on device"},
                     {"device_ids can only be None or contain a single element"}},
      },
      {
          .id = "B2",
          .title = "device name unknown to this torch",
          .english = {"torch does not know the device type in the string. Stacks differ: Enflame T20 calls its cards "
                      "xla:N, S60 gcu:N; the name exists only after the vendor's module was imported.",
                      "Import the vendor's module before the first torch.device(...), and use the name that this stack "
                      "registers (T20: xla:0, S60: gcu:0, Ascend: npu:0)."},
          .chinese = {"torch 不认识该设备名。各软件栈命名不同：燧原 T20 为 xla:N，S60 为 "
                      "gcu:N；且导入厂商模块之后名称才生效。",
                      "在第一次使用 torch.device(...) "
                      "之前导入厂商模块，并使用该栈注册的名称（T20：xla:0，S60：gcu:0，昇腾：npu:0）。"},
          .any_of = {{"Expected one of cpu", "device type at start of device string"},
                     {"Invalid device string: 'gcu"},
                     {"Invalid device string: 'xla"},
                     {"Invalid device string: 'npu"},
                     {"Invalid device string: 'mlu"},
                     {"Invalid device string: 'musa"},
                     {"Invalid device string: 'dtu"}},
      },
      {
          .id = "B3",
          .title = "vendor call that does not exist",
          .english = {"The code calls a method or type of the card's stack that this stack does not offer; the name "
                      "was probably guessed after .cuda().",
                      "Use model.to(device) and tensor.to(device) in place of .gcu() and the like, and look up what is "
                      "there: python -c \"import torch_gcu; print(dir(torch_gcu))\"."},
          .chinese = {"代码调用了该软件栈并不提供的方法或类型，名称多半是照着 .cuda() 猜的。",
                      "用 model.to(device)、tensor.to(device) 代替 .gcu() 等写法，并查看实际接口：python -c \"import "
                      "torch_gcu; print(dir(torch_gcu))\"。"},
          .any_of = {{"object has no attribute 'gcu'"},
                     {"object has no attribute 'npu'"},
                     {"object has no attribute 'mlu'"},
                     {"object has no attribute 'musa'"},
                     {"object has no attribute 'dtu'"},
                     {"GcuFloatTensor"},
                     {"module 'torch_gcu", "has no attribute"},
                     {"module 'torch.gcu", "has no attribute"},
                     {"cannot import name '", "from 'torch_gcu"}},
          .unless = {"INFO"},
      },
      {
          .id = "B4",
          .title = "SyncBatchNorm on a device it does not support",
          .english =
              {"torch's SyncBatchNorm has kernels for GPUs only, and the model or its input is on another device.",
               "Use norm_cfg=dict(type='BN') (or GroupNorm) in the config, or leave out convert_sync_batchnorm; if a "
               "GPU is meant, move model and input there first."},
          .chinese = {"torch 的 SyncBatchNorm 只有 GPU 实现，而模型或输入在其他设备上。",
                      "配置中改用 norm_cfg=dict(type='BN')（或 GroupNorm），或不要调用 "
                      "convert_sync_batchnorm；若本应在 GPU 上运行，先把模型和输入移过去。"},
          .any_of = {{"SyncBatchNorm layers only work with"},
                     {"SyncBatchNorm expected input tensor to be on"},
                     {"SyncBatchNorm", "only supports", "GPU"}},
          .unless = {"UserWarning"},
      },
      {
          .id = "B5",
          .title = "tensors of one operation on different devices",
          .english = {"Part of the data stayed behind: often labels or a constant on the CPU while the model is on the "
                      "card, or a tensor on another card.",
                      "Move the whole batch, labels included, to the model's device before the step, and create new "
                      "tensors with device=x.device. The traceback names the operation."},
          .chinese =
              {"一次运算中的张量不在同一设备：常见的是标签或常量留在 CPU，而模型在加速卡上，或张量落在另一张卡上。",
               "每步之前把整个 batch（包括标签）移到模型所在设备，新建张量时写 device=x.device；traceback "
               "会指出是哪个运算。"},
          .any_of = {{"is not a Dtu node"},
                     {"Expected all tensors to be on the same device"},
                     {"xpected object of device type", "but got device type"},
                     {"Expected object of backend", "but got backend"},
                     {"Input type (torch.FloatTensor) and weight type (torch.cuda."},
                     {"Input type (torch.HalfTensor) and weight type (torch.cuda."},
                     {"Input type (torch.cuda.", "and weight type (torch.FloatTensor)"},
                     {"Input type (torch.cuda.", "and weight type (torch.HalfTensor)"},
                     {"Input type (CPU", "and weight type (CUDA"},
                     {"Input type (CUDA", "and weight type (CPU"},
                     {"indices should be either on cpu or on the same device as the indexed tensor"},
                     {"Tensor for argument", "is on CPU, but expected"},
                     {"Tensor for", "is on CPU", "but expected", "on GPU"},
                     {"Input, output and indices must be on the current device"},
                     {"Pointer argument (at ", "cannot be accessed from Triton (cpu tensor"}},
      },
      {
          .id = "B6",
          .title = "card asked for, CPU used",
          .confidence = Confidence::kLikely,
          .english = {"The script did not get its card and went on with the CPU: training runs, the cards stay idle.",
                      "Stop the run, see with `fulldeck devices` what is there, and let the script fail instead: "
                      "assert next(model.parameters()).device.type != 'cpu'."},
          .chinese = {"脚本没有拿到加速卡，悄悄改用 CPU 继续：训练在跑，卡却空闲。",
                      "停止训练，用 fulldeck devices 查看设备，并让脚本直接失败：assert "
                      "next(model.parameters()).device.type != 'cpu'。"},
          .any_of = {{"WARNING: B6:"},
                     {"GCU", "alling back to CPU"},
                     {"gcu", "alling back to CPU"},
                     {"GCU", "allback to CPU"},
                     {"GCU", "using CPU"},
                     {"GCU", "回退到CPU"},
                     {"GCU", "使用CPU"},
                     {"gcu", "使用CPU"},
                     {"NPU", "not available", "alling back to CPU"},
                     {"MLU", "not available", "alling back to CPU"},
                     {"MUSA", "not available", "alling back to CPU"},
                     {"回退到CPU"},
                     {"回退到 CPU"}},
          // And what admission_words.h knows.
          .admissions =
              {{"不可用", "回退到cpu"}, {"不可用", "使用cpu"}, {"不可用", "使用 cpu"}, {"回退到cpu"}, {"回退到 cpu"}},
          .unless = {"aten::", "operator", "kernel", "decod", "JPEG", "codec", "Adam", "optimizer"},
      },
      {
          .id = "B7",
          .title = "vendor module not imported",
          .english = {"torch.gcu (torch.npu, ...) exists only after the vendor's module was imported; without the "
                      "import the card counts as not available.",
                      "Put import torch_gcu (torch_npu, torch_mlu, torch_musa) right behind import torch in the script "
                      "that each rank runs, and ask torch_gcu.is_available(), not torch.gcu."},
          .chinese =
              {"torch.gcu（torch.npu 等）要在导入厂商模块之后才存在；没有导入时，卡会被当作不可用。",
               "在每个 rank 运行的脚本中，紧接 import torch 之后写 import "
               "torch_gcu（torch_npu、torch_mlu、torch_musa），并用 torch_gcu.is_available() 判断，而不是 torch.gcu。"},
          .any_of = {{"GCU not available"},
                     {"GCU is not available"},
                     {"GCU 不可用"},
                     {"GCU不可用"},
                     {"module 'torch' has no attribute 'gcu'"},
                     {"module 'torch' has no attribute 'npu'"},
                     {"module 'torch' has no attribute 'mlu'"},
                     {"module 'torch' has no attribute 'musa'"},
                     {"lease register PrivateUse1HooksInterface"},
                     {"Could not run 'aten::", "from the 'PrivateUse1' backend"}},
          .unless = {"alling back to CPU", "allback to CPU", "using CPU", "使用CPU", "回退到"},
      },
      {
          .id = "B8",
          .title = "two ranks on one card",
          .english = {"More ranks were started than cards are visible, or every rank chose the same card, so that two "
                      "ranks share one.",
                      "Start as many ranks as `fulldeck devices` lists (--nproc_per_node), and choose the card by "
                      "LOCAL_RANK (torch.cuda.set_device(int(os.environ['LOCAL_RANK']))) before the first collective."},
          .chinese = {"启动的 rank 多于可见的卡，或各 rank 选了同一张卡，导致两个 rank 共用一张卡。",
                      "按 fulldeck devices 列出的卡数设置 --nproc_per_node，并在第一次集合通信之前按 LOCAL_RANK "
                      "选卡（torch.cuda.set_device(int(os.environ['LOCAL_RANK']))）。"},
          .any_of = {{"WARNING: B8:"},
                     {"Duplicate GPU detected"},
                     {"MisconfigurationException: You requested gpu"},
                     {"But your machine only has:"}},
      },
      {
          .id = "B9",
          .title = "card number that this process cannot see",
          .confidence = Confidence::kLikely,
          .english = {"The process asked for a card beyond those visible to it: a visibility variable hides cards and "
                      "the index is applied a second time, or more ranks were started than there are cards.",
                      "Compare on each rank: echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK with torch.cuda.device_count(). "
                      "Either let the variable list all cards and index by LOCAL_RANK, or give each rank one card and "
                      "use index 0; start no more ranks than cards."},
          .chinese = {"进程请求的卡号超出其可见范围：可见性变量已隐藏部分卡，编号又被映射一次；或 rank 数多于卡数。",
                      "在每个 rank 上比较 CUDA_VISIBLE_DEVICES、LOCAL_RANK 与 "
                      "torch.cuda.device_count()：要么变量列出全部卡并按 LOCAL_RANK 编号，要么每个 rank "
                      "只见一张卡并用编号 0；rank 数不要多于卡数。"},
          .any_of = {{"WARNING: B9:"},
                     {"invalid device ordinal"},
                     {"device >= 0 && device < num_gpus"},
                     {"cudaErrorInvalidDevice"},
                     {"hipErrorInvalidDevice"},
                     {"CUDA_ERROR_INVALID_DEVICE"},
                     {"Invalid CUDA 'device="},
                     {"AssertionError: Invalid device id"}},
          .unless = {"NCCL INFO", "DeviceFunction"},
      },
  };
}

}  // namespace fulldeck::diagnosis
