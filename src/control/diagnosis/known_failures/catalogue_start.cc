// Chapter A: distributed start and backends.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> StartEntries() {
  return {
      {
          .id = "A1",
          .title = "collective backend unknown to this torch",
          .english = {"The script asks torch.distributed for a backend that this build of torch does not have; a "
                      "vendor's backend appears only after the vendor's module is imported, and some stacks carry it "
                      "in a module of their own.",
                      "Import the vendor's module (torch_gcu, torch_npu, ...) before init_process_group and see "
                      "whether it registers the backend. If it does not, start with backend=\"gloo\" and stage tensors "
                      "through host memory."},
          .chinese = {"脚本向 torch.distributed 请求的通信后端在当前 torch "
                      "中不存在；厂商后端要在导入厂商模块之后才会注册，有的软件栈把它放在自己的模块里。",
                      "在 init_process_group 之前先导入厂商模块（torch_gcu、torch_npu "
                      "等），确认它是否注册了该后端；若没有，改用 backend=\"gloo\" 并经主机内存中转张量。"},
          .any_of = {{"Invalid backend: 'eccl"},
                     {"Invalid backend: 'hccl"},
                     {"Invalid backend: 'cncl"},
                     {"Invalid backend: 'mccl"},
                     {"ValueError: Invalid backend: "},
                     {"nvalid backend", "eccl"},
                     {"nsupported backend", "eccl"},
                     {"nknown backend", "eccl"},
                     {"ProcessGroupECCL", "not available"},
                     {"ProcessGroupECCL", "not found"},
                     {"has no attribute 'ProcessGroupECCL'"},
                     {"cannot import name 'ProcessGroupECCL'"},
                     {"nknown c10d backend type"},
                     {"but we don't know which communication backend"},
                     {"But we don't know which communication backend"},
                     {"Distributed package doesn't have MPI built in"},
                     {"Distributed package doesn't have UCC built in"},
                     {"Distributed package doesn't have XCCL built in"},
                     {"Distributed package doesn't have GLOO built in"}},
          .unless = {"Invalid backend: 'nccl"},
      },
      {
          .id = "A2",
          .title = "backend does not take tensors of this device",
          .english = {"A collective got a tensor on a device that its backend cannot handle: Gloo takes CPU and CUDA "
                      "tensors only, NCCL only CUDA ones.",
                      "Copy the tensor to the CPU for a Gloo collective and back afterwards, or name a backend for "
                      "each device: init_process_group(\"cpu:gloo,cuda:nccl\")."},
          .chinese = {"集合通信收到的张量所在设备不被该后端支持：Gloo 只支持 CPU 和 CUDA 张量，NCCL 只支持 CUDA 张量。",
                      "使用 Gloo 时先把张量拷到 "
                      "CPU、通信后再拷回；或为每种设备指定后端：init_process_group(\"cpu:gloo,cuda:nccl\")。"},
          .any_of = {{"ProcessGroupGloo::", "unsupported"},
                     {"ProcessGroupGloo::", "not supported"},
                     {"ProcessGroupGloo", "does not support device"},
                     {"No backend type associated with device type"},
                     {"Tensors must be CUDA and dense"}},
          .unless = {"UserWarning"},
      },
      {
          .id = "A3",
          .title = "CUDA called on a machine without an NVIDIA driver",
          .english = {"Code reached torch.cuda (MMEngine does so for every launcher) where no NVIDIA driver is "
                      "installed or visible.",
                      "Run `fulldeck devices` to see the cards that are there. With another vendor's cards, start "
                      "torch.distributed without torch.cuda.set_device and with that vendor's device; with NVIDIA "
                      "cards, make nvidia-smi work first (in a container: start it with --gpus all)."},
          .chinese = {"代码调用了 torch.cuda（MMEngine 的启动路径总会调用），但机器上没有或看不到 NVIDIA 驱动。",
                      "用 fulldeck devices 查看实际的加速卡。若是其他厂商的卡，初始化时不要调用 "
                      "torch.cuda.set_device，改用该厂商的设备；若是 NVIDIA 卡，先让 nvidia-smi 正常（容器需加 --gpus "
                      "all）。"},
          .any_of = {{"Found no NVIDIA driver on your system"}},
          .unless = {"UserWarning", "CUDA initialization: Found", "WARNING"},
      },
      {
          .id = "A3b",
          .title = "CUDA-written code on a torch without CUDA",
          .english =
              {"The installed torch was built without CUDA, but the code places tensors on cuda or calls torch.cuda.",
               "Check with: python -c \"import torch; print(torch.__version__, torch.version.cuda)\". With NVIDIA "
               "cards install a CUDA wheel of torch; with other cards or none, replace the cuda calls (.cuda(), "
               "set_device, device='cuda') with the device that is there."},
          .chinese = {"已安装的 torch 不带 CUDA，而代码把张量放到 cuda 上或调用了 torch.cuda。",
                      "用 python -c \"import torch; print(torch.__version__, torch.version.cuda)\" 检查。有 NVIDIA "
                      "卡就安装带 CUDA 的 torch；否则把 .cuda()、set_device、device='cuda' 改为实际存在的设备。"},
          .any_of = {{"Torch not compiled with CUDA enabled"},
                     {"module 'torch._C' has no attribute '_cuda_"},
                     {"cannot import name '_cuda_", "from 'torch._C'"},
                     {"Cannot access accelerator device when none is available"},
                     {"AmpOptimizerWrapper", "is only available training on gpu"},
                     {"Could not run 'aten::empty", "from the 'CUDA' backend"},
                     {"PyTorch is not linked with support for cuda devices"}},
          .unless = {"UserWarning", "WARNING"},
      },
      {
          .id = "A4",
          .title = "nccl chosen where it cannot work",
          .english = {"The backend was left at nccl, but this torch has no NCCL or the machine shows no NVIDIA card.",
                      "Choose the backend by device: gloo on CPU, the vendor's own on its cards, nccl only on NVIDIA "
                      "(dist_cfg=dict(backend='gloo') in an MMEngine config). With NVIDIA cards install a CUDA wheel "
                      "of torch."},
          .chinese = {"通信后端仍是 nccl，但当前 torch 不含 NCCL，或机器上看不到 NVIDIA 卡。",
                      "按设备选择后端：CPU 用 gloo，其他厂商用其自己的后端，只有 NVIDIA 用 nccl（MMEngine 配置中写 "
                      "dist_cfg=dict(backend='gloo')）；若有 NVIDIA 卡，请安装带 CUDA 的 torch。"},
          .any_of = {{"Distributed package doesn't have NCCL"},
                     {"ProcessGroupNCCL is only supported with GPUs"},
                     {"ProcessGroupNCCL", "no GPUs found"},
                     {"cannot import name 'ProcessGroupNCCL'"},
                     {"has no attribute 'ProcessGroupNCCL'"},
                     {"Invalid backend: 'nccl"}},
      },
      {
          .id = "A5",
          .title = "connection to a peer rank was lost",
          .weight = Weight::kSymptom,
          .confidence = Confidence::kLikely,
          .english = {"Another rank went away while this one was talking to it; this is the echo of its death, seldom "
                      "a fault of the network itself.",
                      "Look for the rank that ended first: its log holds the cause. If no rank died, set "
                      "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME to the interface that `ip route get PEER` names."},
          .chinese = {"通信过程中另一个 rank 消失了；这通常是它退出后的连带现象，很少是网络本身的问题。",
                      "先找最早退出的 rank，原因在它的日志里。若没有 rank 退出，用 ip route get 对端地址 "
                      "查出网卡，并设置 GLOO_SOCKET_IFNAME 或 NCCL_SOCKET_IFNAME。"},
          .any_of = {{"Connection closed by peer"},
                     {"gloo/transport/tcp", "Connection reset by peer"},
                     {"gloo/transport/tcp", "Broken pipe"},
                     {"RuntimeError: Connection reset by peer"},
                     {"RuntimeError: Broken pipe"},
                     {"DistNetworkError: Connection reset by peer"},
                     {"DistNetworkError: Broken pipe"},
                     {"DistNetworkError: failed to recv"},
                     {"DistNetworkError: sendBytes failed"},
                     {"store->get(", "got error: Connection reset by peer"},
                     {"store->get(", "got error: failed to recv"},
                     {"store->get(", "got error: Broken pipe"},
                     {"NCCL WARN", "Connection closed by remote peer"},
                     {"ncclRemoteError: A call failed"}},
          .unless = {"wandb", "urllib3", "requests.exceptions", "http"},
      },
      {
          .id = "A6",
          .title = "Horovod missing or built without torch",
          .english = {"The code uses Horovod, and the one installed is absent, or a stock wheel that was built without "
                      "support for this torch or this card.",
                      "Install the vendor's Horovod wheel that belongs to your stack; for NVIDIA or CPU: "
                      "HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir horovod. Or start the script with "
                      "torch.distributed instead."},
          .chinese = {"代码使用 Horovod，但它未安装，或安装的是不支持当前 torch 或加速卡的通用版本。",
                      "安装与软件栈配套的厂商 Horovod 包；NVIDIA 或 CPU 可用 HOROVOD_WITH_PYTORCH=1 pip install "
                      "--no-cache-dir horovod；也可以改用 torch.distributed 启动。"},
          .any_of = {{"Horovod is not available"},
                     {"Extension horovod.torch has not been built"},
                     {"orovod", "has not been built with"},
                     {"Error: No module named 'horovod"},
                     {"Error: No module named horovod"},
                     {"Horovod is not installed"}},
          .unless = {"INFO", "UserWarning", "DEBUG"},
      },
      {
          .id = "A7",
          .title = "distributed start given up, each rank alone",
          .confidence = Confidence::kLikely,
          .english = {"No backend could be started and the script went on as a single process. Each rank now trains "
                      "alone as rank 0 and writes to the same folder; nothing is shared.",
                      "Stop the run. Remove the fallback so that a failed init_process_group ends the process, check "
                      "that torch.distributed.get_world_size() equals the number of ranks, then cure the error printed "
                      "above this line."},
          .chinese = {"没有任何通信后端启动成功，脚本退回单进程继续运行：每个 rank 都以 rank 0 "
                      "身份各自训练并写同一目录，彼此没有同步。",
                      "停止训练；去掉退回逻辑，让 init_process_group 失败即退出，并检查 "
                      "torch.distributed.get_world_size() 等于 rank 数，再解决上方的报错。"},
          .any_of = {{"WARNING: A7:"},
                     {"alling back to single process"},
                     {"alling back to single-process"},
                     {"alling back to non-distributed"},
                     {"all back to single process"},
                     {"allback to single process"},
                     {"all back to single-process"},
                     {"allback to single-process"},
                     {"回退到单进程"},
                     {"退回单进程"},
                     {"回退到单卡"},
                     {"回退到单机"},
                     {"回退到非分布式"}},
          .admissions = {{"back to single process"},
                         {"back to single-process"},
                         {"back to non-distributed"},
                         {"回退到单进程"},
                         {"退回单进程"},
                         {"回退到单卡"},
                         {"回退到非分布式"}},
          .unless = {"okeniz", "num_proc", "num_workers", "DataLoader", "dataloader"},
      },
      {
          .id = "A8",
          .title = "Accelerate found no card",
          .confidence = Confidence::kLikely,
          .english = {"Accelerate does not know the card of this machine or sees none, and settled on the CPU; started "
                      "as several ranks, each may then work alone with num_processes=1.",
                      "Run `fulldeck devices` and `accelerate env`. Import the vendor's module before Accelerator(), "
                      "print accelerator.num_processes on each rank, and set ACCELERATE_USE_CPU=true with "
                      "mixed_precision=no where CPU is meant."},
          .chinese = {"Accelerate 不认识或看不到本机的加速卡，于是选择了 CPU；多 rank 启动时，各 rank 可能以 "
                      "num_processes=1 各自运行。",
                      "运行 fulldeck devices 和 accelerate env；在 Accelerator() 之前导入厂商模块，并在每个 rank 打印 "
                      "accelerator.num_processes；确实要用 CPU 时设置 ACCELERATE_USE_CPU=true 和 mixed_precision=no。"},
          .any_of = {{"fp16 mixed precision requires a GPU"},
                     {"FP16 mixed precision requires a GPU"},
                     {"bf16 mixed precision requires PyTorch >= 1.10 and a supported device"},
                     {"recision", "with `mixed_precision` arg", "requires a GPU"},
                     {"FP8 mixed precision requires a GPU"},
                     {"FP16 Mixed precision training with AMP or APEX", "can only be used on CUDA devices"},
                     {"mixed precision training with AMP", "can only be used on CUDA devices"},
                     {"Your setup doesn't support bf16/gpu"}},
      },
      {
          .id = "A9",
          .title = "not all ranks came to the start",
          .english = {"The ranks did not all reach the rendezvous in time: fewer were started than WORLD_SIZE says, "
                      "one died before, or MASTER_ADDR and MASTER_PORT cannot be reached.",
                      "Count the processes that run and compare with WORLD_SIZE (nnodes x nproc_per_node), look for a "
                      "rank that ended earlier, and try from each host: nc -zv MASTER_ADDR MASTER_PORT. Use the same "
                      "address, port and job id on every host."},
          .chinese = {"规定时间内没有集齐所有 rank：启动的进程数少于 WORLD_SIZE，或有 rank 提前退出，或 "
                      "MASTER_ADDR、MASTER_PORT 不可达。",
                      "核对实际进程数与 WORLD_SIZE（nnodes × nproc_per_node），查找提前退出的 rank，并在每台主机上执行 "
                      "nc -zv MASTER_ADDR MASTER_PORT；各主机的地址、端口、任务号必须一致。"},
          .any_of = {{"Timed out after", "waiting for clients"},
                     {"Timed out after", "waiting for workers"},
                     {"imed out waiting for clients"},
                     {"wait timeout after", "keys:"},
                     {"connect() timed out"},
                     {"The client socket has timed out after"},
                     {"Timed out initializing process group in store based barrier"},
                     {"Error: Socket Timeout"},
                     {"store->get(", "got error: Socket Timeout"},
                     {"store->get(", "got error: wait timeout"},
                     {"RendezvousTimeoutError"},
                     {"RendezvousConnectionError"},
                     {"The connection to the C10d store has failed"},
                     {"endezvous", "has timed out"},
                     {"The client socket has failed to connect to any network address"},
                     {"Error: The IPv4 network addresses of"},
                     {"Error: The IPv6 network addresses of"},
                     {"Gloo connectFullMesh failed"}},
          .unless = {"keep-alive heartbeat", "failed to shutdown the rendezvous", "http"},
      },
  };
}

}  // namespace fulldeck::diagnosis
