"""Children whose failure is information: the script checks the exit code, queries a tool, or stops a server itself."""
import os
import signal
import subprocess
import sys
import tempfile

from common import *

start()
folder = tempfile.mkdtemp()
for name, text in (("probe.py", "import no_such_module\n"), ("other.py", "pass\n"), ("server.py", "import time\ntime.sleep(60)\n")):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
probe, other, server = (os.path.join(folder, name) for name in ("probe.py", "other.py", "server.py"))
fused = subprocess.call([sys.executable, probe]) == 0
try:
    subprocess.run([sys.executable, probe], check=True)
except subprocess.CalledProcessError:
    fused = False
for question in (["which", "python2.3"], ["diff", "-q", probe, other], ["git", "diff", "--quiet", "--no-index", probe, other], ["test", "-f", "no-such.sh"]):
    subprocess.run(question, stdout=subprocess.DEVNULL)
subprocess.run("pgrep -f no_such_server.py", shell=True)
child = subprocess.Popen([sys.executable, server], start_new_session=True)
os.killpg(child.pid, signal.SIGTERM)
child.wait()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
