"""A Slurm of two nodes, host0 and host1, on loopback: Debian's slurmctld and two slurmd in a private folder, without
munge, accounting or an init system. Each slurmd has its own host name and hosts file, so that tasks see two nodes.
"""
import os
import re
import shutil
import signal
import subprocess
import time

from cluster import launch
import launching
from launching import free_port

NODES = ("host0", "host1")

_CONFIGURATION = """\
ClusterName=fulldeck
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/none
AuthInfo=cred_expire=30
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=60
MessageTimeout=60
BatchStartTimeout=60
InactiveLimit=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=host0 NodeHostname=localhost NodeAddr=127.0.0.1 Port={first} CPUs=8
NodeName=host1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={second} CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why no Slurm can be started here; empty if it can."""
    missing = [name for name in ("slurmctld", "slurmd", "srun", "sbatch", "unshare") if shutil.which(name, path=_path()) is None]
    if missing:
        return "{} not installed (scripts/setup does)".format(", ".join(missing))
    if os.geteuid() != 0:
        return "a slurmd with a host name of its own needs root"
    if subprocess.run(["unshare", "--uts", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "namespaces cannot be made here"
    return None


def _path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Slurm:
    """Started by the constructor; stop() always tears it down."""

    def __init__(self, folder):
        self.folder = str(folder)
        controller, first, second = [free_port() for _ in range(3)]
        for name in ("state", "spool-host0", "spool-host1"):
            os.makedirs(os.path.join(self.folder, name))
        configuration = os.path.join(self.folder, "slurm.conf")
        with open(configuration, "w") as file:
            file.write(_CONFIGURATION.format(folder=self.folder, controller=controller, first=first, second=second))
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w") as file:
            file.write(launch.read("/etc/hosts") + "\n" + "".join("127.0.0.1 {}\n".format(node) for node in NODES))
        self.variables = launch.environment(self.folder, SLURM_CONF=configuration, PATH=_path())
        self.mark = self.variables[launch.MARKER]
        self._daemons = []
        try:
            self._start("slurmctld", ["slurmctld", "-D", "-c"])
            for node in NODES:
                inside = 'hostname "$1"; mount --bind "$2" /etc/hosts; exec slurmd -D -N "$1"'
                self._start(node, ["unshare", "--uts", "--mount", "sh", "-ec", inside, "sh", node, hosts])
            launch.wait_until(self._both_idle, "two idle Slurm nodes")
        except BaseException:
            self.stop()
            raise

    def _start(self, name, command):
        with open(os.path.join(self.folder, name + ".out"), "w") as out:
            self._daemons.append(subprocess.Popen(command, env=self.variables, cwd=self.folder, stdin=subprocess.DEVNULL,
                                                  stdout=out, stderr=subprocess.STDOUT, start_new_session=True))

    def _both_idle(self):
        for daemon in self._daemons:
            assert daemon.poll() is None, "a daemon of Slurm ended:\n" + self.logs()
        states = self.ask("sinfo", "-h", "-N", "-o", "%N %t").split("\n")
        return set(states) >= {"{} idle".format(node) for node in NODES}

    def logs(self):
        names = sorted(name for name in os.listdir(self.folder) if name.endswith((".log", ".out")))
        return "\n".join("{}:\n{}".format(name, launch.read(os.path.join(self.folder, name))[-3000:]) for name in names)

    def ask(self, *command):
        """The stdout of a Slurm command."""
        return subprocess.run(command, env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True,
                              timeout=launch.PATIENCE * launching.PATIENCE).stdout.strip()

    def srun(self, arguments, cwd, seconds=launch.PATIENCE, **more):
        """Runs to the end. The result has returncode and stdout, which includes stderr."""
        return launch.run(arguments, dict(self.variables, **more), cwd, seconds, program="srun")

    def sbatch(self, text, cwd, *options):
        """The id of the job that runs `text` in bash; its output goes to CWD/job.said, also after a requeue."""
        script = os.path.join(str(cwd), "job.sh")
        with open(script, "w") as file:
            file.write("#!/bin/bash\n" + text)
        command = ["sbatch", "--open-mode=append", "-o", os.path.join(str(cwd), "job.said")] + list(options) + [script]
        done = subprocess.run(command, env=self.variables, cwd=str(cwd), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=launch.PATIENCE * launching.PATIENCE)
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert found, done.stdout
        return found.group(1)

    def state(self, job):
        """RUNNING, COMPLETED, FAILED …"""
        found = re.search(r"JobState=(\w+)", self.ask("scontrol", "show", "job", job))
        return found.group(1) if found else ""

    def exit_code(self, job):
        found = re.search(r" ExitCode=(\d+):(\d+)", self.ask("scontrol", "show", "job", job))
        return found and (int(found.group(1)), int(found.group(2)))

    def wait_until_over(self, job, seconds=launch.PATIENCE):
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        return launch.wait_until(lambda: self.state(job) in over and self.state(job), "the end of job " + job, seconds)

    def cancel_all(self):
        jobs = self.ask("squeue", "-h", "-o", "%i").split()
        if jobs:
            self.ask("scancel", *jobs)
            launch.wait_until(self._both_idle, "two idle Slurm nodes")

    def stop(self):
        try:
            if len(self._daemons) == 3 and all(daemon.poll() is None for daemon in self._daemons):
                self.cancel_all()
        except Exception:  # pylint: disable=broad-except
            pass  # what is left is killed below
        finally:
            for daemon in reversed(self._daemons):
                if daemon.poll() is None:
                    daemon.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 10 * launching.PATIENCE
            for daemon in self._daemons:
                try:
                    daemon.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            launch.kill_marked(self.mark)
