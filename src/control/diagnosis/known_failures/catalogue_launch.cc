// Chapter C: launch, environment, ports.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> LaunchEntries() {
  return {
      {
          .id = "C2",
          .title = "script and launcher disagree about arguments",
          .english = {"The script was handed an argument that it does not know, often --local_rank or --local-rank "
                      "from the launcher, or it misses one that it needs.",
                      "Start with torchrun (or torch.distributed.launch --use_env) and read LOCAL_RANK from the "
                      "environment, or let the script take both spellings: add_argument('--local_rank', "
                      "'--local-rank', type=int, default=int(os.environ.get('LOCAL_RANK', 0)))."},
          .chinese = {"脚本收到了它不认识的参数（多为启动器传入的 --local_rank 或 --local-rank），或缺少必需的参数。",
                      "用 torchrun（或 torch.distributed.launch --use_env）启动并从环境变量读取 "
                      "LOCAL_RANK；或让脚本同时接受两种写法：add_argument('--local_rank', '--local-rank', type=int, "
                      "default=int(os.environ.get('LOCAL_RANK', 0)))。"},
          .any_of = {{"error: unrecognized arguments:"},
                     {"unrecognized arguments: --local"},
                     {"error: the following arguments are required: --local"},
                     {"error: the following arguments are required: training_script"},
                     {"error: ambiguous option: --local"},
                     {"Some specified arguments are not used by the HfArgumentParser"},
                     {"FATAL Flags parsing error", "Unknown command line flag"},
                     {"no such option: --local"},
                     {"No such option: --local"}},
      },
      {
          .id = "C3",
          .title = "rank environment missing",
          .english = {"The script expects the variables of a launcher (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, "
                      "MASTER_PORT; under Slurm SLURM_*), and they are not set.",
                      "Start it with: torchrun --nproc_per_node=N script.py (under Slurm: srun), even for one rank; or "
                      "call the script with its non-distributed option (--launcher none)."},
          .chinese = {"脚本需要启动器设置的环境变量（RANK、LOCAL_RANK、WORLD_SIZE、MASTER_ADDR、MASTER_PORT，Slurm "
                      "下为 SLURM_*），但它们不存在。",
                      "用 torchrun --nproc_per_node=N script.py 启动（Slurm 用 srun），单 rank "
                      "也一样；或使用脚本的非分布式选项（--launcher none）。"},
          .any_of = {{"KeyError: 'RANK'"},
                     {"KeyError: 'LOCAL_RANK'"},
                     {"KeyError: 'WORLD_SIZE'"},
                     {"KeyError: 'LOCAL_WORLD_SIZE'"},
                     {"KeyError: 'MASTER_ADDR'"},
                     {"KeyError: 'MASTER_PORT'"},
                     {"KeyError: 'GROUP_RANK'"},
                     {"KeyError: 'NODE_RANK'"},
                     {"KeyError: 'SLURM_"},
                     {"KeyError: 'OMPI_COMM_WORLD_"},
                     {"environment variable", "expected, but not set"},
                     {"Error initializing torch.distributed using", "missing"}},
      },
      {
          .id = "C1",
          .title = "one process where several were meant",
          .confidence = Confidence::kPossible,
          .english =
              {"The script runs as a single process: one was started, or it reads its rank from an argument whose "
               "default is 0. One card works, the others idle, or every rank does the same work.",
               "Start one rank per card (fulldeck run --nproc-per-node auto), and take RANK, WORLD_SIZE and "
               "LOCAL_RANK from the environment."},
          .chinese = {"脚本以单进程方式运行：只启动了一个进程，或 rank 取自默认值为 0 "
                      "的参数。只有一张卡工作，其余空闲，或者每个 rank 都在做同样的事。",
                      "每张卡启动一个 rank（fulldeck run --nproc-per-node auto），并从环境变量读取 "
                      "RANK、WORLD_SIZE、LOCAL_RANK。"},
          .any_of = {{"WARNING: C1:"}},
          .admissions = {{"not using distributed mode"},
                         {"distributed training is disabled, using one"},
                         {"only one process", "distributed", "disabled"},
                         {"未使用分布式"},
                         {"不使用分布式模式"},
                         {"仅使用单卡"},
                         {"只使用第0张卡"}},
          // What one rank alone may do, and what distributed training need not have.
          .unless = {"单卡验证",     "单卡进行验证", "单卡评估",     "单卡进行评估", "单卡测试",
                     "单卡进行测试", "单卡推理",     "单卡进行推理", "单卡可视化",   "单卡导出",
                     "单卡保存",     "单卡预处理",   "验证时仅",     "评估时仅",     "测试时仅",
                     "推理时仅",     "验证阶段",     "评估阶段",     "测试阶段",     "不会仅",
                     "不再仅",       "分布式采样",   "分布式优化",   "分布式检查点", "分布式数据集"},
      },
      {
          .id = "C5",
          .title = "port already in use",
          .english =
              {"Another process listens on the port that rank 0 wants: often an earlier run that still lives, or a "
               "second job on this host with the same fixed port.",
               "Find the owner with: ss -ltnp | grep PORT. Stop that run, or give this one another port with "
               "--master-port; a launcher that picks a free port by itself hardly ever meets this."},
          .chinese =
              {"rank 0 "
               "要用的端口已被另一个进程占用：多半是仍在运行的旧任务，或同一主机上使用相同固定端口的另一个任务。",
               "用 ss -ltnp | grep 端口 找到占用者，停掉它，或用 --master-port "
               "换一个端口；让启动器自动选择空闲端口就很少会遇到。"},
          .any_of = {{"EADDRINUSE"}, {"Address already in use"}, {"address already in use"}},
      },
      {
          .id = "C6",
          .title = "failed child processes, and a run that ended well",
          .english =
              {"Processes that the script started failed, and the script went on or ended with code 0: \"training "
               "finished\" though nothing was trained.",
               "Check the exit code of every child (subprocess.run(..., check=True), process.exitcode; in a shell "
               "set -e and wait for each pid), or let fulldeck run start the ranks."},
          .chinese =
              {"脚本启动的子进程失败了，脚本却继续运行或以 0 退出：看似“训练完成”，实际什么也没训练。",
               "检查每个子进程的退出码（subprocess.run(..., check=True)、process.exitcode；shell 中用 set -e 并对每个 "
               "pid 执行 wait），或由 fulldeck run 启动各个 rank。"},
          .any_of = {{"WARNING: C6:"}},
          .admissions = {{"worker failed, continuing"},
                         {"process failed, continuing"},
                         {"rank failed, continuing"},
                         {"subprocess failed, continuing"},
                         {"exited with code", "continuing anyway"},
                         {"exit code", "continuing anyway"},
                         {"子进程失败", "继续"},
                         {"子进程异常退出", "继续"},
                         {"训练进程失败", "继续"}},
      },
      {
          .id = "C7",
          .title = "script or config is not there",
          .english = {"The start command names a script, module or config file that does not exist, as seen from the "
                      "folder in which the job runs.",
                      "Check the path in the start script with ls, from the job's working folder and on every host; "
                      "write it as an absolute path, or cd to the project first."},
          .chinese = {"启动命令指定的脚本、模块或配置文件不存在（相对于任务的工作目录）。",
                      "在任务的工作目录里、在每台主机上用 ls 核对启动脚本中的路径；改用绝对路径，或先 cd 到项目目录。"},
          .any_of = {{"can't open file '", "[Errno 2]"},
                     {"can't open file \"", "[Errno 2]"},
                     {"can't find '__main__' module in"},
                     {"Error while finding module specification for"},
                     {"FileNotFoundError: file \"", ".py\" does not exist"},
                     {"FileNotFoundError: file \"", ".yaml\" does not exist"},
                     {"FileNotFoundError: file \"", "config", "\" does not exist"},
                     {"No such file or directory: '", ".py'"},
                     {"No such file or directory: \"", ".py\""},
                     {"No such file or directory: '", "onfig", ".yaml'"},
                     {"No such file or directory: '", "onfig", ".yml'"},
                     {"No such file or directory: '", "cfg", ".yaml'"},
                     {"No such file or directory: '", "cfg", ".yml'"},
                     {"No such file or directory: '", "ds_config", ".json'"},
                     {"No such file or directory: '", "deepspeed", ".json'"},
                     {"No such file or directory: '", "zero", ".json'"},
                     {"bash: ", ".sh: No such file or directory"},
                     {"bash: ", ".py: No such file or directory"},
                     {"sh: ", "train", ".sh: No such file or directory"},
                     {"Cannot find primary config"},
                     {"sbatch: error: Unable to open file"},
                     {"error: execve():", "No such file or directory"},
                     {"Expected a string path to an existing deepspeed config"}},
          .unless = {"'/tmp/", "site-packages", "/opt/tops", "/usr/local/tops"},
      },
      {
          .id = "C8",
          .title = "card held by another process",
          .confidence = Confidence::kLikely,
          .english = {"Another process holds the card or most of its memory: often an earlier run that did not end, or "
                      "a neighbour's job.",
                      "See who it is: `fulldeck devices`, then fuser -v on the device node (/dev/nvidia0, /dev/gcu0, "
                      "/dev/davinci0). End that process by its pid, not with pkill -f, or choose other cards."},
          .chinese =
              {"加速卡或其大部分显存被另一个进程占用：多半是没有退出的旧任务，或他人的任务。",
               "用 fulldeck devices 和 fuser -v 设备文件（/dev/nvidia0、/dev/gcu0、/dev/davinci0）查出占用者，按 pid "
               "结束它，不要用 pkill -f；或换用其他卡。"},
          .any_of = {{"CUDA-capable device(s) is/are busy or unavailable"},
                     {"CUDA-capable devices are busy or unavailable"},
                     {"cudaErrorDevicesUnavailable"},
                     {"CUDA_ERROR_DEVICE_UNAVAILABLE"},
                     {"hipErrorDevicesUnavailable"},
                     {"/dev/gcu", "evice or resource busy"},
                     {"/dev/gcu", "evice busy"},
                     {"/dev/davinci", "evice or resource busy"},
                     {"/dev/nvidia", "evice or resource busy"},
                     {"/dev/cambricon", "evice or resource busy"},
                     {"/dev/kfd", "evice or resource busy"},
                     {"evice or resource busy", "/dev/gcu"},
                     {"evice or resource busy", "/dev/davinci"},
                     {"gcu", "is occupied by"},
                     {"Device is occupied"},
                     {"Free memory on device", "on startup is less than desired"}},
      },
      {
          .id = "C10",
          .title = "wrong Python interpreter",
          .english = {"The script was started by a Python that is not the one meant: Python 2, a version too old for "
                      "the code, or an environment without torch.",
                      "Ask on the same host and in the same shell: which python; python -V; python -c 'import torch'. "
                      "Activate the environment in the start script, or name its interpreter by full path."},
          .chinese = {"启动脚本的 Python 不是预期的那个：可能是 Python 2、版本过旧，或是没有安装 torch 的环境。",
                      "在同一主机、同一 shell 中检查：which python；python -V；python -c 'import "
                      "torch'。在启动脚本里激活正确的环境，或写出解释器的完整路径。"},
          .any_of = {{"SyntaxError: Non-ASCII character"},
                     {"but no encoding declared; see"},
                     {"SyntaxError: future feature annotations is not defined"},
                     {"ImportError: No module named torch"},
                     {"ImportError: No module named pathlib"},
                     {"ImportError: No module named typing"},
                     {"ModuleNotFoundError: No module named 'torch'"},
                     {"cannot import name 'Literal' from 'typing'"},
                     {"unsupported operand type(s) for |: 'type' and 'NoneType'"},
                     {"requires a different Python:"},
                     {"SyntaxError: Missing parentheses in call to 'print'"},
                     {"No module named torch.distributed.run"},
                     {"No module named torch.distributed.launch"},
                     {"/python: No module named torch"},
                     {"/python3: No module named torch"},
                     {"python: command not found"},
                     {"python3: command not found"},
                     {"torchrun: command not found"},
                     {"python: not found"},
                     {"torchrun: not found"},
                     {"env: python: No such file or directory"},
                     {"env: ‘python’: No such file or directory"}},
          .unless = {"No module named torch_", "No module named torchvision"},
      },
  };
}

}  // namespace fulldeck::diagnosis
