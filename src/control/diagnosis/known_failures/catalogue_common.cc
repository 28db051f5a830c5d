// Chapter I: failures met again and again in the logs of strangers.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> CommonEntries() {
  return {
      {
          // explain.cc turns this into C8 where the numbers show that another process holds the card.
          .id = "I1",
          .title = "card out of memory",
          .english = {"Model, activations and optimizer of this process do not fit into the card's memory.",
                      "Halve the micro-batch and double gradient accumulation; then a smaller crop, activation "
                      "checkpointing, bf16 or a sharded optimizer. If much is reserved but unallocated: "
                      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."},
          .chinese =
              {"本进程的模型、激活与优化器状态超出了卡的显存。",
               "微批减半、梯度累积加倍；再考虑缩小裁剪尺寸、激活重计算、bf16 "
               "或分片优化器。若已保留而未分配的显存很多，设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True。"},
          .any_of = {{"out of memory. Tried to allocate"},
                     {"CUDA out of memory"},
                     {"HIP out of memory"},
                     {"NPU out of memory"},
                     {"GCU out of memory"},
                     {"MLU out of memory"},
                     {"MUSA out of memory"},
                     {"XPU out of memory"},
                     {"MPS backend out of memory"},
                     {"OutOfMemoryError: "},
                     {"CUDA error: out of memory"},
                     {"CUDA error", ": out of memory"},
                     {"HIP error: out of memory"},
                     {"Cuda failure", "out of memory"},
                     {"hipErrorOutOfMemory"},
                     {"cudaErrorMemoryAllocation"},
                     {"topsErrorMemoryAllocation"},
                     {"CUBLAS_STATUS_ALLOC_FAILED"},
                     {"CUDNN_STATUS_ALLOC_FAILED"},
                     {"CUSOLVER_STATUS_ALLOC_FAILED"},
                     {"CUDA_ERROR_OUT_OF_MEMORY"},
                     {"RESOURCE_EXHAUSTED", "ut of memory"},
                     {"OOM when allocating tensor"},
                     {"Out of memory error on GPU"},
                     {"Failed to CUDA calloc"},
                     {"Failed to CUDA malloc"},
                     {"EL0004"},
                     {"No available memory for the cache blocks"},
                     {"device memory", "alloc", "rtMalloc", "failed"}},
          .unless = {"java.", "raise ", "except ", "NCCL INFO"},
      },
      {
          .id = "I2",
          .title = "killed: host memory gone",
          .confidence = Confidence::kLikely,
          .english =
              {"The kernel, the container or the scheduler killed the process, nearly always because the host's memory "
               "or the job's share of it was used up; or an allocation in host memory failed.",
               "Look with: dmesg -T | grep -i oom; Slurm: sacct -j JOB -o State,MaxRSS. Ask for more memory (--mem), "
               "lower num_workers and prefetch_factor, and do not load the whole data set in every rank."},
          .chinese =
              {"进程被内核、容器或调度器杀死，几乎总是因为主机内存或任务的内存配额耗尽；或主机内存分配失败。",
               "用 dmesg -T | grep -i oom 查看；Slurm 用 sacct -j 作业号 -o State,MaxRSS。申请更多内存（--mem），减小 "
               "num_workers 与 prefetch_factor，不要每个 rank 都把整个数据集读入内存。"},
          .any_of = {{"exitcode: -9)"},
                     {"exitcode  : -9 "},
                     {"exitcode: 137)"},
                     {"exitcode  : 137 "},
                     {"Signal 9 (SIGKILL)"},
                     {"\nKilled\n"},
                     {"\nKilled "},
                     {": Killed\n"},
                     {": line ", " Killed "},
                     {"oom_kill"},
                     {"oom-kill"},
                     {"OUT_OF_MEMORY"},
                     {"out-of-memory handler"},
                     {"Out of memory: Kill"},
                     {"killed by signal: 9"},
                     {"DataLoader worker (pid", "exited unexpectedly"},
                     {"terminated with signal SIGKILL"},
                     {"Signals.SIGKILL: 9"},
                     {"return code = -9"},
                     {"returned non-zero exit status -9"},
                     {"returned non-zero exit status 137"},
                     {"exit code 137"},
                     {"exit status 137"},
                     {"OOMKilled"},
                     {"[Errno 12] Cannot allocate memory"},
                     {"fork: Cannot allocate memory"},
                     {"DefaultCPUAllocator: can't allocate memory"},
                     {"DefaultCPUAllocator: not enough memory"},
                     {"alloc_cpu.cpp", "allocate memory"},
                     {"MemoryError: Unable to allocate"},
                     {"std::bad_alloc"},
                     {"xceeded", "memory limit", "killed"},
                     {"xceeded job memory limit"},
                     {"xceeded step memory limit"},
                     {"killed due to the node running low on memory"},
                     {"on signal 9 (Killed)"}},
          .unless = {"Killed by signal 15", "Killed by signal 2", "Killed by signal 1.", "Killed by user", "ibv_",
                     "CUDA_ERROR_OUT_OF_MEMORY", "Xid"},
      },
      {
          .id = "I3",
          .title = "a collective operation timed out",
          .weight = Weight::kSymptom,
          .english = {"One rank never came to the collective that the others wait in: it died, hangs, is still loading "
                      "data or writing a checkpoint, or took another branch with other collectives.",
                      "Find the rank that is missing from the time-out lines (or has the lowest sequence number) and "
                      "look at its log or at py-spy dump --pid PID. Rank-0-only work needs a barrier or a longer "
                      "timeout= in init_process_group; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 records the calls."},
          .chinese = {"其他 rank 都在等待的集合操作，有一个 rank "
                      "始终没有到达：它已退出、卡住、仍在读数据或写检查点，或走了集合操作不同的分支。",
                      "找出超时信息里缺席（或序号最小）的 rank，查看它的日志或用 py-spy dump --pid 进程号。只由 rank 0 "
                      "做的耗时工作要加 barrier 或加大 init_process_group 的 "
                      "timeout=；TORCH_NCCL_TRACE_BUFFER_SIZE=2000 可记录调用。"},
          .any_of = {{"Watchdog caught collective operation timeout"},
                     {"milliseconds before timing out"},
                     {"NCCL operations have failed or timed out"},
                     {"Timed out waiting ", "ms for "},
                     {"failed to pass monitoredBarrier"},
                     {"monitoredBarrier", "timed out"},
                     {"Ranks", "failed to pass monitoredBarrier"},
                     {"EI0006"},
                     {"EI0002"},
                     {"etting socket times out"},
                     {"HCCL", "notify wait", "time"},
                     {"Error: Socket Timeout"},
                     {"got error: Socket Timeout"},
                     {"got error: wait timeout"},
                     {"wait timeout after ", "ms, keys:"},
                     {"RendezvousTimeoutError"},
                     {"watchdog got stuck for"},
                     {"due to a collective timeout"},
                     {"HCCL", "operation timeout"},
                     {"WorkHCCL(", "Timeout"},
                     {"WorkECCL(", "timing out"},
                     {"Application timeout caused pair closure"}},
          .unless = {"NCCL INFO"},
      },
      {
          .id = "I4",
          .title = "only the launcher's summary",
          .weight = Weight::kSummary,
          .confidence = Confidence::kPossible,
          .english = {"This log holds only the launcher's last words: a rank failed, but its own message is not here.",
                      "Read the output of the rank named under Root Cause, higher up or in its own file: torchrun "
                      "--log-dir logs --tee 3 keeps one a rank; @record from "
                      "torch.distributed.elastic.multiprocessing.errors around main() fills error_file."},
          .chinese = {"日志里只有启动器的结尾摘要：某个 rank 失败了，但它自己的报错不在这里。",
                      "查看 Root Cause 所列 rank 在更前面或单独文件中的输出：torchrun --log-dir logs --tee 3 会为每个 "
                      "rank 保存一份；给 main() 加上 torch.distributed.elastic.multiprocessing.errors 的 @record "
                      "可填充 error_file。"},
          .any_of = {{"ChildFailedError"},
                     {"multiprocessing.api", "failed (exitcode:"},
                     {"multiprocessing/api.py", "failed (exitcode:"},
                     {"Root Cause (first observed failure)"},
                     {"error_file: <N/A>"},
                     {"CalledProcessError: ", "returned non-zero exit status"},
                     {"ProcessExitedException"},
                     {"exits with return code = "},
                     {"srun: error: ", "Exited with exit code"},
                     {"mpirun detected that one or more processes exited with non-zero status"},
                     {"Primary job  terminated normally, but"},
                     {"traceback : To enable traceback see"}},
          .unless = {"ninja", "cmake", "return code = 0"},
      },
      {
          .id = "I5",
          .title = "disk full or quota used up",
          .english = {"The file system, or your quota on it, had no room for a checkpoint, log or cache file; what was "
                      "being written is cut short.",
                      "Look with: df -h, df -i and quota -s for the folder in the line. Delete old checkpoints, keep "
                      "fewer (max_keep_ckpts, save_total_limit), and point work_dir, TMPDIR and the caches (HF_HOME, "
                      "TORCH_HOME) at a larger disk."},
          .chinese = {"文件系统或你的配额已没有空间写检查点、日志或缓存；正在写的文件不完整。",
                      "对报错目录执行 df -h、df -i、quota "
                      "-s；删除旧检查点，少留几份（max_keep_ckpts、save_total_limit），并把 work_dir、TMPDIR "
                      "和缓存（HF_HOME、TORCH_HOME）指向更大的磁盘。"},
          .any_of = {{"No space left on device"},
                     {"Disk quota exceeded"},
                     {"FilesystemQuotaExceeded"},
                     {"[Errno 122]"},
                     {"PytorchStreamWriter failed writing file"},
                     {"inline_container.cc", "unexpected pos"},
                     {"File size limit exceeded"},
                     {"StorageFull"},
                     {"not enough free disk space"},
                     {"errno = 28"}},
          .unless = {"/dev/shm", "torch_", "shared memory", "posix_fallocate", "UserWarning"},
      },
      {
          .id = "I6",
          .title = "driver older than the runtime",
          .english = {"The NVIDIA driver of this host is older than the CUDA that this torch or container was built "
                      "for, or its kernel module and libraries are of different versions.",
                      "Compare nvidia-smi (driver) with python -c 'import torch; print(torch.version.cuda)'. Update "
                      "the driver, or install torch for an older CUDA; after a driver update reload the module or "
                      "reboot; for error 803 or 804 take the cuda-compat folder out of LD_LIBRARY_PATH."},
          .chinese = {"本机 NVIDIA 驱动比该 torch 或容器所用的 CUDA 旧，或内核模块与库的版本不一致。",
                      "比较 nvidia-smi（驱动）与 python -c 'import torch; "
                      "print(torch.version.cuda)'。升级驱动，或安装面向较旧 CUDA 的 "
                      "torch；驱动更新后要重载模块或重启；错误 803、804 时把 cuda-compat 目录移出 LD_LIBRARY_PATH。"},
          .any_of = {{"driver on your system is too old"},
                     {"PTX was compiled with an unsupported toolchain"},
                     {"Error 803"},
                     {"Error 804"},
                     {"driver version is insufficient for CUDA runtime"},
                     {"cudaErrorInsufficientDriver"},
                     {"unsupported display driver / cuda driver combination"},
                     {"forward compatibility was attempted on non supported HW"},
                     {"Failed to initialize NVML: Driver/library version mismatch"},
                     {"unsatisfied condition: cuda>="},
                     {"compatibility mode is UNAVAILABLE"},
                     {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
                     {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}},
          .unless = {"NCCL WARN nvmlInit", "NCCL INFO"},
      },
      {
          .id = "I7",
          .title = "ended from outside",
          .confidence = Confidence::kLikely,
          .english =
              {"The run did not fail by itself: the terminal was closed (signal 1), somebody pressed Ctrl-C (2), or "
               "the scheduler ended it (15, time limit, preemption).",
               "Start long runs under tmux, nohup or a scheduler. Under Slurm ask for more --time, or save on a signal "
               "before the end (#SBATCH --signal=B:USR1@300, --requeue) and resume from the last checkpoint."},
          .chinese =
              {"运行不是自己出错的：终端被关闭（信号 1）、有人按了 Ctrl-C（2），或调度器结束了它（15、时限、抢占）。",
               "长任务放在 tmux、nohup 或调度器下运行。Slurm 下加大 --time，或在结束前凭信号保存（#SBATCH "
               "--signal=B:USR1@300、--requeue），再从最后的检查点恢复。"},
          .any_of = {{"got signal: 1"},
                     {"got signal: 2"},
                     {"DUE TO TIME LIMIT"},
                     {"DUE TO PREEMPTION"},
                     {"DUE TO NODE FAILURE"},
                     {"JOB ", " CANCELLED AT "},
                     {"death signal, shutting down"},
                     {"Signal 1 (SIGHUP)"},
                     {"Signal 2 (SIGINT)"},
                     {"KeyboardInterrupt"},
                     {"Killed by signal 15"},
                     {"Killed by signal 2"},
                     {"Killed by signal 1."},
                     {" Terminated  "},
                     {" Hangup  "},
                     {"exitcode: -1)"},
                     {"exitcode  : -1 "},
                     {"exitcode: -2)"},
                     {"exitcode  : -2 "},
                     {"job killed: walltime"}},
          .unless = {"except KeyboardInterrupt", "except (KeyboardInterrupt", "raise KeyboardInterrupt"},
      },
      {
          .id = "I8",
          .title = "process group not initialised",
          .english = {"A distributed call (often SyncBatchNorm, a sampler or a barrier) ran in a program that no "
                      "launcher started or that has not called init_process_group.",
                      "Start it with torchrun --nproc-per-node N train.py and --launcher pytorch where the script has "
                      "that flag; for one card replace SyncBN by BN and leave the distributed sampler out."},
          .chinese = {"程序没有经启动器启动，或还没调用 init_process_group，就执行了分布式操作（常见为 "
                      "SyncBatchNorm、采样器或 barrier）。",
                      "用 torchrun --nproc-per-node N train.py 启动，脚本有 --launcher 选项时加 --launcher "
                      "pytorch；单卡时把 SyncBN 换成 BN，不用分布式采样器。"},
          .any_of = {{"Default process group has not been initialized"},
                     {"Default process group is not initialized"},
                     {"please make sure to call init_process_group"},
                     {"Process group has not been initialized"},
                     {"torch.distributed has not been initialized"}},
          .unless = {"Warning: ", "raise "},
      },
      {
          .id = "I9",
          .title = "network failure between ranks",
          .confidence = Confidence::kLikely,
          .english = {"The ranks cannot reach each other: wrong interface, firewall, port or address, a peer that is "
                      "gone, or a faulty InfiniBand link.",
                      "Run again with NCCL_DEBUG=INFO and see which address fails; name the interface with "
                      "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME (ip -br addr), test the port with nc -zv HOST PORT, "
                      "and rule InfiniBand out with NCCL_IB_DISABLE=1. If a peer died first, its log has the cause."},
          .chinese = {"rank 之间无法连通：网卡、防火墙、端口或地址不对，对端已退出，或 InfiniBand 链路故障。",
                      "用 NCCL_DEBUG=INFO 重跑看哪个地址失败；用 NCCL_SOCKET_IFNAME 和 GLOO_SOCKET_IFNAME 指定网卡（ip "
                      "-br addr 查看），用 nc -zv 主机 端口 测试，用 NCCL_IB_DISABLE=1 排除 "
                      "InfiniBand。若对端先退出，原因在它的日志里。"},
          .any_of = {{"ncclSystemError"},
                     {"unhandled system error"},
                     {"ncclRemoteError"},
                     {"NCCL WARN Connect to", "failed"},
                     {"NCCL WARN", "Connection refused"},
                     {"NCCL WARN", "No route to host"},
                     {"NCCL WARN", "Connection timed out"},
                     {"NCCL WARN", "Connection reset by peer"},
                     {"NCCL WARN", "Connection closed by remote peer"},
                     {"NCCL WARN", "ibv_modify_qp"},
                     {"NCCL WARN NET/IB", "Got completion", "error"},
                     {"NCCL WARN NET/IB", "Got completion", "status"},
                     {"NCCL WARN", "no socket interface found"},
                     {"NCCL WARN", "No socket interface found"},
                     {"NCCL WARN", "Network is unreachable"},
                     {"Gloo connectFullMesh failed"},
                     {"client socket has timed out"},
                     {"RendezvousConnectionError"},
                     {"DistNetworkError"},
                     {"connect() timed out"},
                     {"gloo", "No route to host"},
                     {"gloo", "Connection refused"},
                     {"Unable to find address for: "}},
          .unless = {"nvmlInit", "libnccl-net", "NCCL INFO", "ibv_reg_mr", "Cannot allocate memory", "server socket",
                     "Address already in use", "keep-alive heartbeat", "failed to shutdown the rendezvous"},
      },
      {
          .id = "I10",
          .title = "checkpoint cut short",
          .confidence = Confidence::kLikely,
          .english = {"The file is incomplete or not a checkpoint at all: the writer was stopped or the disk was full, "
                      "a download broke off, or it is a Git LFS pointer or an HTML page.",
                      "Look with: ls -l FILE; head -c 200 FILE. Go back to the checkpoint before it or fetch it again "
                      "(git lfs pull). Write to a temporary name and os.replace() it, on rank 0 only."},
          .chinese = {"文件不完整，或根本不是检查点：写入被中断或磁盘已满、下载中断，或其实是 Git LFS 指针或网页。",
                      "用 ls -l 文件 和 head -c 200 文件 查看；退回上一个检查点或重新下载（git lfs pull）。保存时只在 "
                      "rank 0 写临时文件再 os.replace() 改名。"},
          .any_of = {{"failed finding central directory"},
                     {"PytorchStreamReader failed"},
                     {"EOFError: Ran out of input"},
                     {"pickle data was truncated"},
                     {"invalid header or archive is corrupted"},
                     {"unexpected EOF, expected"},
                     {"UnpicklingError: invalid load key"},
                     {"UnpicklingError: unpickling stack underflow"},
                     {"SafetensorError", "deserializing header"},
                     {"MetadataIncompleteBuffer"},
                     {"nvalid magic number; corrupt file"},
                     {"storage has wrong byte size"},
                     {"storage has wrong size"},
                     {"Unable to open file (truncated file"},
                     {"Unable to synchronously open file (truncated file"},
                     {"BadZipFile: "},
                     {"invalid hash value (expected"}},
          .unless = {"FutureWarning"},
      },
      {
          .id = "I11",
          .title = "no card visible",
          .confidence = Confidence::kLikely,
          .english =
              {"The process sees no card, or fewer than it asks for: a visibility variable that is empty or names "
               "cards that are not there, a container or job without cards, or a driver that is down.",
               "Run fulldeck devices in the same shell and echo $CUDA_VISIBLE_DEVICES. Unset or correct the variable; "
               "docker run --gpus all; Slurm: --gres=gpu:N. If the host shows none either, the driver is not loaded."},
          .chinese = {"进程看不到卡，或看到的比要用的少：可见性变量为空或写了不存在的卡、容器或作业没有分到卡，或驱动没"
                      "有工作。",
                      "在同一 shell 里运行 fulldeck devices 并 echo $CUDA_VISIBLE_DEVICES；删除或改正该变量；docker "
                      "run --gpus all；Slurm 加 --gres=gpu:N。主机上也看不到时，是驱动没有加载。"},
          .any_of = {{"No CUDA GPUs are available"},
                     {"No HIP GPUs are available"},
                     {"no CUDA-capable device is detected"},
                     {"no ROCm-capable device is detected"},
                     {"torch.cuda.is_available() is False"},
                     {"couldn't communicate with the NVIDIA driver"},
                     {"Failed to initialize NVML: Unknown Error"},
                     {"Unexpected error from cudaGetDeviceCount()"},
                     {"ut your machine only has: []"},
                     {"Invalid CUDA 'device="},
                     {"No supported gpu backend found"},
                     {"No devices were found"},
                     {"could not select device driver"},
                     {"unknown or invalid runtime name: nvidia"},
                     {"integer modulo by zero"},
                     {"CUDA_ERROR_NO_DEVICE"},
                     {"cudaErrorNoDevice"},
                     {"No NPU devices"},
                     {"Invalid device id"},
                     {"Error: ", "CUDA is not available"}},
          .unless = {"Error 803", "Error 804", "too old", "NCCL INFO", "Disabling", "disabling", "gradscaler",
                     "GradScaler", "autocast"},
      },
      {
          .id = "I12",
          .title = "attribute asked of the DDP wrapper",
          .english = {"The model is wrapped by (Distributed)DataParallel, which does not pass attributes of the inner "
                      "model on.",
                      "Reach the inner model: model.module.NAME, or getattr(model, 'module', model).NAME so that it "
                      "works with and without the wrapper. Call forward on the wrapper only."},
          .chinese = {"模型被 (Distributed)DataParallel 包装，包装层不转发内部模型的属性。",
                      "通过 model.module.属性 访问，或用 getattr(model, 'module', model).属性 兼容有无包装；forward "
                      "仍须调用包装层。"},
          .any_of = {{"DataParallel' object has no attribute"}},
          .unless = {"'gcu'"},
      },
      {
          .id = "I13",
          .title = "built for other cards",
          .english = {"The installed torch, or an extension, has no code for this card's generation, or was built "
                      "without card support at all.",
                      "Compare torch.cuda.get_device_capability() with torch.cuda.get_arch_list(). Install a wheel "
                      "that covers the card, or rebuild the extension with TORCH_CUDA_ARCH_LIST (FORCE_CUDA=1 for "
                      "mmcv); on cards before Ampere switch FlashAttention and bf16 off."},
          .chinese =
              {"安装的 torch 或扩展不含这一代卡的代码，或编译时根本没有启用加速卡支持。",
               "比较 torch.cuda.get_device_capability() 与 torch.cuda.get_arch_list()；安装支持该卡的版本，或用 "
               "TORCH_CUDA_ARCH_LIST 重编扩展（mmcv 加 FORCE_CUDA=1）；Ampere 以前的卡请关闭 FlashAttention 和 bf16。"},
          .any_of = {{"no kernel image is available"},
                     {"FlashAttention only supports Ampere GPUs or newer"},
                     {"FlashAttention only support", "GPUs or newer"},
                     {"ot compiled with CUDA support"},
                     {"ot compiled with GPU support"},
                     {"ot compiled with GPU"},
                     {"is not compatible with the current PyTorch installation"},
                     {"no longer supports this GPU"},
                     {"CUDA error: invalid device function"},
                     {"HIP error: invalid device function"},
                     {"hipErrorNoBinaryForGpu"},
                     {"HSA_STATUS_ERROR_INVALID_ISA"},
                     {"implementation for device cuda", "not found"},
                     {"n't build with CUDA support"},
                     {"n't built with CUDA support"},
                     {"Error: ", "doesn't support bf16"},
                     {"bfloat16", "only supported on", "compute capability"}},
          .unless = {"faiss", "TensorFlow"},
      },
      {
          .id = "I14",
          .title = "extension does not build",
          .english = {"A C++ or CUDA extension could not be compiled: no nvcc or headers, a CUDA toolkit other than "
                      "torch's, or a compiler that is too new or too old. The first line with error: above says which.",
                      "Compare nvcc --version with python -c 'import torch; print(torch.version.cuda)', set CUDA_HOME "
                      "to the matching toolkit, install ninja and a supported g++, delete ~/.cache/torch_extensions "
                      "and try again; or take a prebuilt wheel."},
          .chinese =
              {"C++ 或 CUDA 扩展编译失败：缺少 nvcc 或头文件、CUDA 工具包与 torch "
               "的不一致，或编译器过新过旧。前面第一条 error: 说明是哪一种。",
               "比较 nvcc --version 与 python -c 'import torch; print(torch.version.cuda)'，把 CUDA_HOME "
               "指向一致的工具包，安装 ninja 和受支持的 g++，删除 ~/.cache/torch_extensions 后重试；或改用预编译包。"},
          .any_of = {{"Error building extension"},
                     {"'ninja'", "returned non-zero"},
                     {"The detected CUDA version", "mismatches"},
                     {"Ninja is required to load C++ extensions"},
                     {"Error: CUDA_HOME environment variable is not set"},
                     {"error: command", "nvcc' failed"},
                     {"error: command", "g++' failed"},
                     {"error: command", "gcc' failed"},
                     {"error: command", "c++' failed"},
                     {"unsupported GNU version"},
                     {"fatal error: cuda"},
                     {"fatal error: cusparse"},
                     {"fatal error: cublas"},
                     {"fatal error: torch/"},
                     {"fatal error: Python.h"},
                     {"CUDAMismatchException"},
                     {"MissingCUDAException"},
                     {"nvcc fatal"},
                     {"ninja: build stopped: subcommand failed"},
                     {"ERROR: Could not build wheels for"},
                     {"ERROR: Failed to build installable wheels"},
                     {"Unable to JIT load the"},
                     {"No such file or directory: ", "bin/nvcc'"},
                     {"No such file or directory: 'nvcc'"},
                     {"No such file or directory: 'ninja'"}},
      },
      {
          .id = "I15",
          .title = "index out of range or bad address on the card",
          .confidence = Confidence::kLikely,
          .english =
              {"A kernel read or wrote outside its tensor: an index too large for an embedding, gather or scatter, a "
               "wrong shape in a custom operator, or (without an Assertion line) a label out of range.",
               "Run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to get the true line; check index.min() and "
               "index.max() against the table (tokens against vocabulary size). In a custom operator: "
               "compute-sanitizer python train.py."},
          .chinese = {"核函数访问了张量之外的地址：embedding、gather、scatter 的索引过大，自定义算子形状不对，或（没有 "
                      "Assertion 行时）标签越界。",
                      "用 CUDA_LAUNCH_BLOCKING=1 或在 CPU 上跑一次得到真正出错的行；检查 index.min()、index.max() "
                      "与表的大小（词元与词表）。自定义算子用 compute-sanitizer python train.py。"},
          .any_of = {{"IndexKernel.cu", "Assertion"},
                     {"index out of bounds\"` failed"},
                     {"srcIndex < srcSelectDimSize"},
                     {"Indexing.cu", "Assertion"},
                     {"ScatterGatherKernel.cu", "Assertion"},
                     {"idx_dim >= 0 && idx_dim < index_size"},
                     {"IndexKernelUtils", "Assertion"},
                     {"vectorized_gather_kernel", "Assertion"},
                     {"illegal memory access"},
                     {"device-side assert triggered"},
                     {"CUDA error: misaligned address"},
                     {"cudaErrorIllegalAddress"},
                     {"hipErrorIllegalAddress"},
                     {"Memory access fault by GPU"},
                     {"CUDA error: unspecified launch failure"},
                     {"IndexError: index out of range in self"},
                     {"MTE instruction is out of range"},
                     {"the vector core exception"},
                     {"the aicore exception"},
                     {"NVRM: Xid", "): 31,"},
                     {"NVRM: Xid", "): 13,"}},
      },
      {
          .id = "I16",
          .title = "broken card",
          .english = {"The card itself reports a fault: memory errors that cannot be corrected, a lost link, or it has "
                      "fallen off the bus.",
                      "Take the card out of the run (leave its index out of CUDA_VISIBLE_DEVICES) and note it: "
                      "nvidia-smi -q -d ECC,ROW_REMAPPER and dmesg | grep -i xid. Reset it with nvidia-smi -r -i N or "
                      "reboot; if it comes back, have it replaced."},
          .chinese = {"卡本身报告故障：无法纠正的显存错误、链路丢失，或已从总线上掉卡。",
                      "把该卡移出运行（CUDA_VISIBLE_DEVICES 不写它的编号），并用 nvidia-smi -q -d ECC,ROW_REMAPPER 和 "
                      "dmesg | grep -i xid 留证；用 nvidia-smi -r -i N 复位或重启；再次出现就更换。"},
          .any_of = {{"uncorrectable ECC error"},
                     {"ECCUncorrectable"},
                     {"ECCNotCorrectable"},
                     {"CUDA_ERROR_ECC_UNCORRECTABLE"},
                     {"uncorrectable NVLink error"},
                     {"fallen off the bus"},
                     {"GPU is lost"},
                     {"Unable to determine the device handle for GPU"},
                     {"NVRM: Xid", "): 48,"},
                     {"NVRM: Xid", "): 63,"},
                     {"NVRM: Xid", "): 64,"},
                     {"NVRM: Xid", "): 74,"},
                     {"NVRM: Xid", "): 79,"},
                     {"NVRM: Xid", "): 94,"},
                     {"NVRM: Xid", "): 95,"},
                     {"ulti bit ecc"},
                     {"ulti-bit ECC"},
                     {"MULTI BIT ECC"},
                     {"hardware stack error"}},
      },
      {
          .id = "I17",
          .title = "no steps in an epoch",
          .confidence = Confidence::kPossible,
          .english = {"An epoch has no steps, so a mean over them divides by zero: the data set is smaller than one "
                      "global batch (batch × ranks) and drop_last throws the rest away.",
                      "Print len(dataset) and len(loader) on each rank. Lower the batch per rank, set drop_last=False, "
                      "or use fewer ranks; if len(dataset) is 0, look for the data path."},
          .chinese = {"一个 epoch 没有任何步，求平均时除以零：数据集小于一个全局批次（批大小 × rank 数），余下的又被 "
                      "drop_last 丢弃。",
                      "在每个 rank 打印 len(dataset) 和 len(loader)；减小每个 rank 的批大小、设 "
                      "drop_last=False，或减少 rank；len(dataset) 为 0 时检查数据路径。"},
          .any_of = {{"ZeroDivisionError: division by zero"},
                     {"ZeroDivisionError: float division"},
                     {"ZeroDivisionError: integer division"},
                     {"Total optimization steps = 0"},
                     {"Num examples = 0"},
                     {"Num Examples = 0"},
                     {"not a single sample in your epoch_iterator"},
                     {"across ranks is zero"},
                     {"within local rank has zero length"}},
          .unless = {"steps = 0.", "Num examples = 0.", "except ZeroDivisionError"},
      },
      {
          .id = "I18",
          .title = "torch and torchvision of different releases",
          .english = {"torchvision's compiled operators do not fit this torch: the two come from different releases, "
                      "or one is a CPU and the other a CUDA build.",
                      "Show both: pip list | grep -i torch, then install the pair in one command from one index, e.g. "
                      "pip install torch==2.4.1 torchvision==0.19.1 --index-url "
                      "https://download.pytorch.org/whl/cu121; with a vendor torch take the vendor's torchvision."},
          .chinese = {"torchvision 的编译算子与当前 torch 不匹配：两者来自不同版本，或一个是 CPU 版、一个是 CUDA 版。",
                      "用 pip list | grep -i torch 查看，再用一条命令从同一来源成对安装，如 pip install torch==2.4.1 "
                      "torchvision==0.19.1 --index-url https://download.pytorch.org/whl/cu121；厂商版 torch 要配厂商的 "
                      "torchvision。"},
          .any_of = {{"operator torchvision::", "does not exist"},
                     {"Couldn't load custom C++ ops"},
                     {"No such operator torchvision::"},
                     {"PyTorch and torchvision", "compiled with different CUDA"},
                     {"PyTorch and torchvision", "different CUDA versions"},
                     {"Could not run 'torchvision::"},
                     {"torchvision", "requires torch==", "which is incompatible"}},
      },
      {
          .id = "I19",
          .title = "an earlier Ascend process still holds the card",
          .english =
              {"The HCCP service of this NPU could not start: a process of an earlier run still lives on the card.",
               "Find it with: npu-smi info (process table) and ps -ef | grep python. End those processes by their pid, "
               "wait some seconds, start again; give each job its own cards with ASCEND_RT_VISIBLE_DEVICES."},
          .chinese = {"该 NPU 的 HCCP 服务无法启动：上一次运行的进程仍占着这张卡。",
                      "用 npu-smi info 的进程表和 ps -ef | grep python 找到它，按进程号结束，等几秒后重新启动；用 "
                      "ASCEND_RT_VISIBLE_DEVICES 给每个任务分配各自的卡。"},
          .any_of = {{"EJ0001"},
                     {"Maybe the last training process is running"},
                     {"Failed to initialize the HCCP process"}},
      },
  };
}

}  // namespace fulldeck::diagnosis
